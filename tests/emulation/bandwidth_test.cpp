// Kernels that memory limits: enough blocks for a large GPU, at sizes that need all of them.
#include "emulation/emulated_gpus.h"

namespace bowline::conformance {
namespace {

using Bandwidth = OnEmulatedGpus;
constexpr Gpu kHopper = {9, 0, 132};
// 8 blocks of 256 threads on each of 132 multiprocessors, twice, so that the last ones cost little.
constexpr uint64_t kManyBlocks = 2112;

// More gradients than there are partial sums, with a chunk each.
TEST_F(Bandwidth, TheNormOfAllGradients) {
  std::string gradients = "[1]";
  for (int i = 1; i < 4500; ++i) {
    gradients += ",[1]";
  }
  const uint64_t before = cuda_emu::machine().blocks;
  compare_all(kHopper, Op::ClipByGlobalNorm, ("| (" + gradients + ") | max_norm=1").c_str());
  EXPECT_GE(cuda_emu::machine().blocks - before, kManyBlocks);
}

}  // namespace
}  // namespace bowline::conformance
