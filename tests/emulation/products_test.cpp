// Bowline's own matrix products on emulated GPUs of several kinds, compared with the reference
// implementation: every tile, layout and way to load operands, without bank conflicts.
#include "emulated_gpus.h"

namespace bowline::conformance {
namespace {

class TensorProducts : public OnEmulatedGpus {};

// Lines of whole packs: asynchronous copies to every tile. Results end inside tiles.
TEST_F(TensorProducts, LargeTilesOfEveryLayout) {
  compare_all(kSmallAmpere, Op::MatMul, R"(
| [120,72] [72,248] | | dtype=f16,bf16
| [120,72] [248,72] | transpose_b=true | dtype=bf16
| [72,120] [72,248] | transpose_a=true | dtype=f16
| [120,72] [72,120] | | dtype=f16
| [120,72] [120,72] | transpose_b=true | dtype=bf16
| [72,120] [72,120] | transpose_a=true | dtype=bf16
| [64,72] [72,56] | | dtype=bf16
| [64,72] [56,72] | transpose_b=true | dtype=f16
| [72,64] [72,56] | transpose_a=true | dtype=bf16
)");
}

// The largest tile keeps up to four panels of 48 KiB in shared memory. Here k has six of them.
TEST_F(TensorProducts, AsManyPanelsAsSharedMemoryHolds) {
  struct Memory {
    unsigned kib;  // of a block: on sm_86, sm_80 and sm_90
    unsigned panels;
  };
  for (const Memory& memory : {Memory{99, 2}, Memory{163, 3}, Memory{227, 4}}) {
    cuda_emu::machine().shared_kib = memory.kib;
    compare_all(kSmallAmpere, Op::MatMul, R"(
| [120,328] [328,248] | | dtype=bf16
| [120,328] [248,328] | transpose_b=true | dtype=f16
| [328,120] [328,248] | transpose_a=true | dtype=f16
)");
    EXPECT_EQ(cuda_emu::machine().last.shared_bytes, memory.panels * 48 * 1024);
  }
}

TEST_F(TensorProducts, SmallTilesOfEveryLayout) {
  compare_all(kAmpere, Op::MatMul, R"(
n=8,40 | [40,n] [n,24] | transpose_a=false transpose_b=false | dtype=f16,bf16
n=8,40 | [40,n] [24,n] | transpose_b=true | dtype=f16,bf16
n=8,40 | [n,40] [n,24] | transpose_a=true | dtype=f16,bf16
n=8,40 | [n,40] [24,n] | transpose_a=true transpose_b=true | dtype=f16,bf16
| [3,24,40] [3,40,16] | | dtype=f16
| [2,1,24,40] [3,40,16] | | dtype=bf16
)");
}

// Lines that end inside a pack, or do not start at one, go through registers.
TEST_F(TensorProducts, LinesThatAreNotPacks) {
  constexpr const char* kLines = R"(
| [33,37] [37,41] | | dtype=f16,bf16
| [33,37] [41,37] | transpose_b=true | dtype=f16
| [37,33] [37,41] | transpose_a=true | dtype=f16
| [37,33] [41,37] | transpose_a=true transpose_b=true | dtype=bf16
| [40,40] [40,41] | | dtype=bf16
| [3,9,17] [3,17,9] | | dtype=f16
)";
  compare_all(kAmpere, Op::MatMul, kLines);
  compare_all(kTuring, Op::MatMul, kLines);
  compare_all(kSmallAmpere, Op::MatMul, "| [121,37] [37,127] | | dtype=f16");
  compare_all(kSmallTuring, Op::MatMul, R"(
| [120,72] [120,72] | transpose_b=true | dtype=f16,bf16
| [72,120] [72,120] | transpose_a=true | dtype=f16
)");
  Placement in_rows;
  in_rows.rows = true;
  compare_all(kAmpere, Op::Linear, "| [40,40] [40,40] [40] | | dtype=f16,bf16", in_rows);
}

// The parts of k are added in order, and the bias once.
TEST_F(TensorProducts, SplitsOfK) {
  for (const Gpu& gpu : {kAmpere, kTuring}) {
    compare_all(gpu, Op::Linear, R"(
| [24,4104] [40,4104] [40] | | dtype=f16,bf16
| [9,4099] [7,4099] [7] | | dtype=bf16
)");
  }
  compare_all(kAmpere, Op::MatMul, "| [4104,24] [4104,40] | transpose_a=true | dtype=f16");
}

TEST_F(TensorProducts, QuantizedOperands) {
  for (const Gpu& gpu : {kAmpere, kSmallAmpere, kTuring}) {
    compare_all(gpu, Op::Linear, R"(
| [40,64] [40,64]:codes [40] | | dtype=f16,bf16 encoding=q4_0,int8
| [120,64] [120,64]:codes | | dtype=f16 encoding=q8_0
)");
    compare_all(gpu, Op::MatMul, R"(
| [33,40] [40,64]:codes | | dtype=f16,bf16 encoding=q8_0
| [40,33]:codes [40,17] | transpose_a=true | dtype=f16 encoding=int8
)");
  }
}

// The swizzle keeps the accesses to shared memory free of bank conflicts in every tile and layout.
TEST_F(TensorProducts, NoBankConflicts) {
  cuda_emu::count_bank_conflicts(true);
  constexpr const char* kLines = R"(
| [128,64] [64,256] | | dtype=f16
| [128,64] [256,64] | transpose_b=true | dtype=f16
| [64,128] [64,256] | transpose_a=true | dtype=f16
| [128,64] [64,128] | | dtype=f16
| [128,64] [128,64] | transpose_b=true | dtype=f16
| [64,128] [64,128] | transpose_a=true | dtype=f16
| [64,64] [64,64] | transpose_a=false,true transpose_b=false | dtype=f16
| [64,64] [64,64] | transpose_b=true | dtype=f16
| [32,64] [64,32] | | dtype=f16
| [32,64] [32,64] | transpose_b=true | dtype=f16
| [64,32] [64,32] | transpose_a=true | dtype=f16
)";
  compare_all(kSmallAmpere, Op::MatMul, kLines);
  compare_all(kSmallTuring, Op::MatMul, kLines);
  EXPECT_EQ(cuda_emu::bank_conflicts(), 0u);
  cuda_emu::count_bank_conflicts(false);
}

}  // namespace
}  // namespace bowline::conformance
