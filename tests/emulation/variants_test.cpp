// BOWLINE_CUDA_VARIANT: each variant runs the kernel that it names, and results stay right.
#include <gtest/gtest.h>

#include <cstdlib>

#include "api/internals.h"
#include "conformance/suite.h"
#include "platform.h"

namespace bowline::conformance {
namespace {

using cuda_emu::Launched;
using cuda_emu::machine;

class CudaVariants : public testing::Test {
 protected:
  void SetUp() override { cuda_emu::restart(); }
  void TearDown() override {
    unsetenv("BOWLINE_CUDA_VARIANT");
    cuda_emu::restart();
  }

  // Runs a case with the variants, and compares it with the reference implementation. Returns its
  // last launch. The case has the form of tests/ops/mat_mul.cases.
  static Launched launch_of(const char* variants, Op op, const char* line) {
    setenv("BOWLINE_CUDA_VARIANT", variants, 1);
    const Result<Device> device = Device::open("cuda-emu:0");
    EXPECT_TRUE(device.ok()) << device.status().message();
    const Result<std::vector<Case>> cases = parse_cases(op, "variants_test.cpp", line);
    EXPECT_TRUE(cases.ok()) << cases.status().message();
    if (!device.ok() || !cases.ok()) {
      return {};
    }
    const Case& c = cases.value().at(0);
    const auto inputs = draw_inputs(c, 0);
    const auto expected = run_oracle(op_def(op).oracle, op, c.attributes, inputs.value(), c.step);
    machine().last = {};
    Bench bench(Internals::open(device.value()));
    const auto observed = bench.run(c, inputs.value(), expected.value(), Placement());
    EXPECT_TRUE(observed.ok()) << variants << ": " << observed.status().message();
    if (observed.ok()) {
      EXPECT_EQ(compare(c, expected.value(), nullptr, observed.value()).problem, "") << variants;
    }
    return machine().last;
  }
};

constexpr const char* kF16 = "| [120,72] [72,248] | | dtype=f16";
constexpr const char* kF32 = "| [120,72] [72,248] |";
constexpr const char* kAttention =
    "| [1,70,2,64] [1,70,2,64] [1,70,2,64] | causal=true | dtype=f16";
constexpr const char* kAttentionGrad =
    "| [1,70,2,64] [1,70,2,64] [1,70,2,64] =Attention.0(0,1,2) =Attention.1(0,1,2) [1,70,2,64] | "
    "causal=true | dtype=f16";

TEST_F(CudaVariants, TheTileOfAProductIsForced) {
  struct Tile {
    const char* variant;
    unsigned blocks, blocks_of_f32;
  };
  for (const Tile& t : {Tile{"tile_128x256", 1, 2},
                        {"tile_128x128", 2, 2},
                        {"tile_64x64", 8, 8},
                        {"tile_32x32", 32, 32}}) {
    EXPECT_EQ(launch_of(t.variant, Op::MatMul, kF16).blocks, t.blocks) << t.variant;
    EXPECT_EQ(launch_of(t.variant, Op::MatMul, kF32).blocks, t.blocks_of_f32) << t.variant;
  }
}

TEST_F(CudaVariants, KIsDividedOrNot) {
  EXPECT_EQ(launch_of("tile_32x32,many_parts", Op::MatMul, kF16).blocks, 2 * 32u);
  EXPECT_EQ(launch_of("tile_32x32,many_parts", Op::MatMul, kF32).blocks, 9 * 32u);
  constexpr const char* kLong = "| [24,4104] [4104,40] | | dtype=f16,f32";
  EXPECT_GT(launch_of("", Op::MatMul, kLong).blocks, 2u);
  EXPECT_LE(launch_of("one_part", Op::MatMul, kLong).blocks, 2u);
}

TEST_F(CudaVariants, ProductsUseNoAsynchronousCopies) {
  const Launched with = launch_of("tile_128x128", Op::MatMul, kF16);
  const Launched without = launch_of("tile_128x128,no_async_copies", Op::MatMul, kF16);
  EXPECT_EQ(with.name, without.name);
  EXPECT_LT(without.shared_bytes, with.shared_bytes) << "copies have more stages";
}

// Rows of 33 elements do not begin at multiples of 16 bytes, so panels of them cannot be copied.
TEST_F(CudaVariants, ProductsOfUnalignedRowsHaveANameOfTheirOwn) {
  EXPECT_EQ(launch_of("", Op::MatMul, "| [64,33] [33,40] | | dtype=f16").name,
            "tensor product, unaligned rows");
  EXPECT_EQ(launch_of("no_async_copies", Op::MatMul, kF16).name, "tensor product");
}

TEST_F(CudaVariants, ProductsOfFewRowsUseTheKernelsOfLargerOnes) {
  constexpr const char* kFew = "| [2,64] [40,64] [40] | | dtype=f16";
  EXPECT_EQ(launch_of("no_few_rows", Op::Linear, kFew).name, "tensor product");
  EXPECT_NE(launch_of("", Op::Linear, kFew).name, "tensor product");
}

TEST_F(CudaVariants, OwnProductsReplaceTheLibrary) {
  machine().has_cublas = true;
  EXPECT_EQ(launch_of("", Op::MatMul, kF32).name, "cublasLtMatmul");
  EXPECT_EQ(launch_of("own", Op::MatMul, kF32).name, "product");
}

TEST_F(CudaVariants, AnArchitectureHasItsKernels) {
  constexpr const char* kBf16 = "| [120,72] [72,248] | | dtype=bf16";
  EXPECT_EQ(launch_of("sm_75", Op::MatMul, kBf16).name, "product");
  EXPECT_EQ(machine().major * 10 + machine().minor, 75);
  EXPECT_EQ(launch_of("sm_80", Op::MatMul, kBf16).name, "tensor product");
  EXPECT_EQ(machine().major * 10 + machine().minor, 80);
}

TEST_F(CudaVariants, TheKernelOfAttentionIsForced) {
  const Launched few = launch_of("attention_few", Op::Attention, kAttention);
  const Launched mma = launch_of("attention_mma", Op::Attention, kAttention);
  const Launched tiles = launch_of("attention_tiles", Op::Attention, kAttention);
  EXPECT_GT(mma.shared_bytes, 0u);
  EXPECT_EQ(few.shared_bytes, 0u);
  EXPECT_EQ(tiles.shared_bytes, 0u);
  EXPECT_NE(few, tiles);
  EXPECT_EQ(launch_of("many_parts", Op::Attention, kAttention).name, "attention join");
  constexpr const char* kDecoding = "| [1,1,2,16] [1,700,2,16] [1,700,2,16] | | dtype=f16";
  EXPECT_GT(launch_of("", Op::Attention, kDecoding).blocks,
            launch_of("one_part", Op::Attention, kDecoding).blocks);
}

// Each pass over 70 rows of two heads has four blocks.
TEST_F(CudaVariants, PassesOfFewBlocksShareALaunch) {
  const Launched few = launch_of("", Op::AttentionGrad, kAttentionGrad);
  EXPECT_EQ(few.name, "tensor attention_grad of few blocks");
  EXPECT_EQ(few.blocks, 2 * 2 * 2u);
  EXPECT_EQ(launch_of("", Op::Attention, kAttention).name, "tensor attention of few blocks");
  machine().processors = 2;
  EXPECT_EQ(launch_of("", Op::AttentionGrad, kAttentionGrad).name, "tensor attention_grad keys");
  EXPECT_EQ(launch_of("", Op::Attention, kAttention).name, "tensor attention");
}

TEST_F(CudaVariants, ProductsGoThroughScratchMemory) {
  machine().has_cublas = true;
  constexpr const char* kUnaligned = "| [40,72] [21,72] | transpose_b=true | dtype=f16";
  EXPECT_EQ(launch_of("", Op::MatMul, kUnaligned).name, "cublasLtMatmul");
  EXPECT_EQ(launch_of("staged", Op::MatMul, kUnaligned).name, "lines without pads");
}

TEST_F(CudaVariants, RecurrentLayersTakeALaunchPerStep) {
  constexpr const char* kLayer = "| [5,2,68] [68,17] [2,17] [2,17]:f32 |";
  EXPECT_TRUE(launch_of("", Op::Lstm, kLayer).cooperative);
  EXPECT_FALSE(launch_of("no_cooperative_launch", Op::Lstm, kLayer).cooperative);
}

TEST_F(CudaVariants, LaunchesStartEarlyOrNot) {
  constexpr const char* kTwoLaunches = "| [4,8] [4,8] |";
  EXPECT_TRUE(launch_of("", Op::MeanSquaredError, kTwoLaunches).early);
  EXPECT_FALSE(launch_of("no_early_launch", Op::MeanSquaredError, kTwoLaunches).early);
  EXPECT_FALSE(launch_of("sm_80", Op::MeanSquaredError, kTwoLaunches).early);
}

// A token with 12 heads of 64 elements: parts of 64 of 256 keys would be 48 blocks for 132
// multiprocessors, but parts of 64 of 1,024 keys are enough.
TEST_F(CudaVariants, AttentionOfATokenReachesManyMultiprocessors) {
  EXPECT_EQ(launch_of("", Op::Attention, "| [1,1,12,64] [1,256,12,64] [1,256,12,64] |").blocks,
            12 * 8u);
  EXPECT_EQ(launch_of("", Op::Attention, "| [1,1,12,64] [1,1024,12,64] [1,1024,12,64] |").blocks,
            12 * 16u);
}

TEST_F(CudaVariants, AnUnknownNameIsRefused) {
  for (const char* const names : {"wrong", "sm_75,wrong", "sm_90"}) {
    setenv("BOWLINE_CUDA_VARIANT", names, 1);
    const Result<Device> device = Device::open("cuda-emu:0");
    ASSERT_FALSE(device.ok()) << names;
    EXPECT_EQ(device.status().code(), Code::unsupported);
    EXPECT_NE(device.status().message().find("The variants are: own, staged, sm_75, sm_80, "),
              std::string::npos)
        << device.status().message();
  }
}

}  // namespace
}  // namespace bowline::conformance
