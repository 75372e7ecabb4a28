// Recurrent layers on emulated GPUs, compared with the reference implementation: wherever the
// weights are, and in one launch or one per step.
#include "emulated_gpus.h"

namespace bowline::conformance {
namespace {

class Recurrent : public OnEmulatedGpus,
                  public testing::WithParamInterface<bool> {  // cooperative launches
 protected:
  void compare(const Gpu& gpu, Op op, const char* lines) {
    cuda_emu::machine().has_cooperative_launch = GetParam();
    compare_all(gpu, op, lines);
    EXPECT_EQ(cuda_emu::machine().last.cooperative, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(InOneLaunch, Recurrent, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(InALaunchPerStep, Recurrent, testing::Values(false));

// A GPU with few multiprocessors: a block has several tiles of units, and keeps the weights of the
// first.
constexpr Gpu kTwoProcessors = {8, 0, 2};

TEST_P(Recurrent, SeveralTilesPerBlock) {
  compare(kTwoProcessors, Op::Lstm, "| [4,5,132] [132,33] [5,33] [5,33]:f32 | | dtype=f32,f16");
  compare(kTwoProcessors, Op::LstmGrad,
          "| [4,5,132] [132,33] [5,33]:f32 [4,5,33]:f32 [4,5,33] | | dtype=f32,bf16");
  compare(kTwoProcessors, Op::Gru,
          "| [4,5,99] [99,33] [5,33] | reset_after=false,true | dtype=f32,bf16");
  compare(kTwoProcessors, Op::GruGrad, R"(
| [4,5,99] [4,5,33] [99,33] [5,33] [4,5,33] [4,5,33] | reset_after=false,true | dtype=f32,f16
)");
}

// More blocks than tiles: several blocks divide the rows of a tile.
TEST_P(Recurrent, SeveralBlocksPerTile) {
  compare(kAmpere, Op::Lstm, "| [3,23,48] [48,12] [23,12] [23,12]:f32 | reverse=true");
  compare(kAmpere, Op::LstmGrad, "| [3,23,48] [48,12] [23,12]:f32 [3,23,12]:f32 [3,23,12] |");
  compare(kAmpere, Op::GruGrad,
          "| [3,23,36] [3,23,12] [36,12] [23,12] [3,23,12] [3,23,12] | reset_after=false");
}

// The weights of a tile are in shared memory, in registers, and in device memory.
TEST_P(Recurrent, WeightsThatDoNotFitInSharedMemory) {
  compare(kSmallTuring, Op::Lstm, "| [2,1,2680] [2680,670] [1,670] [1,670]:f32 |");
  compare(kSmallTuring, Op::LstmGrad,
          "| [2,1,3040] [3040,760] [1,760]:f32 [2,1,760]:f32 [2,1,760] |");
}

}  // namespace
}  // namespace bowline::conformance
