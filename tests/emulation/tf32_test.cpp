// DeviceOptions::matmul_precision on emulated GPUs: products of f32 matrices in TF32, with
// Bowline's own kernels and with the library.
#include <bit>
#include <cmath>

#include "conformance/evaluate.h"
#include "emulated_gpus.h"
#include "train/tiny_lm.h"

namespace bowline::conformance {
namespace {

const DeviceOptions kTf32 = {0, {}, 0, MatmulPrecision::tf32};

// A case on a device.
struct Outcome {
  Observed observed;
  std::string launch;  // the last one
};

class Tf32 : public OnEmulatedGpus {
 protected:
  static std::vector<Case> cases_of(Op op, const char* lines) {
    const Result<std::vector<Case>> cases = parse_cases(op, "tf32_test.cpp", lines);
    EXPECT_TRUE(cases.ok()) << cases.status().message();
    return cases.ok() ? cases.value() : std::vector<Case>();
  }

  static Outcome run(const Gpu& gpu, const Case& c, std::span<const Array> inputs,
                     const DeviceOptions& options, const Placement& placement = Placement()) {
    const Result<Device> device = open(gpu, options);
    EXPECT_TRUE(device.ok()) << device.status().message();
    Bench bench(Internals::open(device.value()));
    const Result<Expected> expected = oracle(c, inputs);
    EXPECT_TRUE(expected.ok()) << expected.status().message();
    const auto observed = bench.run(c, inputs, expected.value(), placement);
    EXPECT_TRUE(observed.ok()) << c.text << ": " << observed.status().message();
    return {observed.ok() ? observed.value() : Observed(), cuda_emu::machine().last.name};
  }

  static Result<Expected> oracle(const Case& c, std::span<const Array> inputs,
                                 MatmulPrecision precision = MatmulPrecision::f32) {
    return run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs, c.step, precision);
  }

  // What a product of rounded operands returns. Sums of lines are those of the given operands.
  static Expected expect_rounded(const Case& c, const std::vector<Array>& inputs) {
    std::vector<Array> rounded = inputs;
    for (size_t i = 0; i < 2; ++i) {
      for (double& x : rounded[i].values) {
        x = nearest_tf32(x);
      }
    }
    Expected e = oracle(c, rounded).value();
    const bool sums = c.op == Op::FusedMatMul &&
                      !c.attributes.as<file::FusedMatMulAttributes>().gelu() &&
                      e.outputs.size() == 2;
    if (sums) {
      Expected exact = oracle(c, inputs).value();
      e.outputs[1] = std::move(exact.outputs[1]);
      e.magnitude[1] = std::move(exact.magnitude[1]);
    }
    return e;
  }
  // 11 significant bits, ties away from zero.
  static double nearest_tf32(double x) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
  }

  // The rounding of the operands is exact, so the other errors are those of f32.
  static void expect_tf32(const Gpu& gpu, Op op, const char* lines, const char* launch) {
    for (const Case& c : cases_of(op, lines)) {
      const std::vector<Array> inputs = draw_inputs(c, 0).value();
      const Outcome tf32 = run(gpu, c, inputs, kTf32);
      EXPECT_EQ(tf32.launch, launch) << c.text;
      EXPECT_EQ(compare(c, expect_rounded(c, inputs), nullptr, tf32.observed).problem, "")
          << c.text;
    }
  }
};

constexpr const char* kEveryLayout = R"(
| [120,72] [72,248] |
| [120,72] [248,72] | transpose_b=true
| [72,120] [72,248] | transpose_a=true
n=8,40 | [40,n] [n,24] |
n=8,40 | [40,n] [24,n] | transpose_b=true
n=8,40 | [n,40] [n,24] | transpose_a=true
| [64,72] [72,56] |
| [3,24,40] [3,40,16] |
)";

TEST_F(Tf32, OwnKernelsMultiplyRoundedOperands) {
  expect_tf32(kAmpere, Op::MatMul, kEveryLayout, "tensor product");
  expect_tf32(kSmallAmpere, Op::MatMul, kEveryLayout, "tensor product");
  expect_tf32(kAmpere, Op::MatMul, "| [2,1,24,40] [3,40,16] |", "tensor product");
  expect_tf32(kAmpere, Op::Linear, "| [24,4104] [40,4104] [40] |", "tensor product");
}

TEST_F(Tf32, TheLibraryMultipliesRoundedOperands) {
  cuda_emu::machine().has_cublas = true;
  expect_tf32(kAmpere, Op::MatMul, kEveryLayout, "cublasLtMatmul");
  expect_tf32(kAmpere, Op::Linear, "| [33,37] [41,37] [41] |", "cublasLtMatmul");
}

TEST_F(Tf32, SumsOfLinesAreExact) {
  for (const Gpu& gpu : {kAmpere, kSmallAmpere}) {
    expect_tf32(gpu, Op::FusedMatMul, R"(
| [72,120] [72,248] | transpose_a=true sum_a=true
| [72,120] [72,248] | transpose_a=true sum_b=true
| [4104,24] [4104,40] | transpose_a=true sum_a=true
| [4104,24] [4104,40] | transpose_a=true sum_b=true
)",
                "tensor product");
  }
}

// The tolerance of conform for TF32: not so wide that it would take any result.
TEST_F(Tf32, ResultsAreWithinTheToleranceAndNotThoseOfF32) {
  const Case c = cases_of(Op::MatMul, "| [40,64] [64,24] |").at(0);
  const std::vector<Array> inputs = draw_inputs(c, 0).value();
  const Observed f32 = run(kAmpere, c, inputs, {}).observed;
  const Observed tf32 = run(kAmpere, c, inputs, kTf32).observed;
  EXPECT_NE(f32.outputs, tf32.outputs);
  const Expected wide = oracle(c, inputs, MatmulPrecision::tf32).value();
  EXPECT_EQ(compare(c, wide, nullptr, tf32).problem, "");
  EXPECT_NE(compare(c, oracle(c, inputs).value(), nullptr, tf32).problem, "");
  Observed wrong = tf32;
  wrong.outputs[0][5] += 0x1p-8 * wide.magnitude[0][5];
  EXPECT_NE(compare(c, wide, nullptr, wrong).problem, "");
}

// Two conversions of 2^-10 of one factor each: the worst case of the tolerance.
TEST_F(Tf32, TheToleranceIsThatOfTenBits) {
  Case c = cases_of(Op::MatMul, "| [1,1] [1,1] |").at(0);
  const Array one = {Shape{1, 1}, {1}};
  const std::vector<Array> inputs = {one, one};
  const Expected e = oracle(c, inputs, MatmulPrecision::tf32).value();
  const double most = 2 * 0x1p-10 + 0x1p-20;
  EXPECT_LE(error_units(e.tolerance, 1, 1, 1 + most), 1);
  EXPECT_GT(error_units(e.tolerance, 1, 1, 1 + most + 0x1p-20), 1);
  EXPECT_EQ(oracle(c, inputs).value().tolerance.roundings, Tolerance::of_reduction(1, 1).roundings);
  const Array half = {Shape{1, 1}, {1}, DType::f16};
  const std::vector<Array> halves = {half, half};
  EXPECT_EQ(oracle(c, halves, MatmulPrecision::tf32).value().tolerance.roundings,
            Tolerance::of_reduction(1, 1).roundings);
}

// The default computes as before there was an option, also in the library.
TEST_F(Tf32, TheDefaultIsExact) {
  for (const bool with_library : {false, true}) {
    cuda_emu::machine().has_cublas = with_library;
    for (const Case& c : cases_of(Op::MatMul, kEveryLayout)) {
      const std::vector<Array> inputs = draw_inputs(c, 0).value();
      const Outcome f32 = run(kAmpere, c, inputs, {});
      EXPECT_EQ(f32.launch, with_library ? "cublasLtMatmul" : "product") << c.text;
      EXPECT_EQ(compare(c, oracle(c, inputs).value(), nullptr, f32.observed).problem, "") << c.text;
    }
  }
}

// Operands that tensor cores cannot load, and products of few rows, compute in f32.
TEST_F(Tf32, OtherProductsAreExact) {
  const auto expect_exact = [](Op op, const char* lines, const Placement& placement = Placement()) {
    for (const Case& c : cases_of(op, lines)) {
      const std::vector<Array> inputs = draw_inputs(c, 0).value();
      const Outcome with = run(kAmpere, c, inputs, kTf32, placement);
      EXPECT_NE(with.launch, "tensor product") << c.text;
      EXPECT_EQ(with.observed.outputs, run(kAmpere, c, inputs, {}, placement).observed.outputs)
          << c.text;
    }
  };
  expect_exact(Op::MatMul, R"(
| [33,37] [37,41] |
| [40,33] [40,24] | transpose_a=true
| [40,24] [33,40] | transpose_a=true transpose_b=true
| [40,40] [40,64]:codes | | encoding=q8_0
)");
  expect_exact(Op::Linear, "| [8,64] [40,64] |");
  Placement in_rows;
  in_rows.rows = true;
  expect_exact(Op::Linear, "| [40,40] [40,40] [40] |", in_rows);
}

TEST_F(Tf32, NoBankConflicts) {
  cuda_emu::count_bank_conflicts(true);
  for (const char* const line :
       {"| [128,64] [64,128] |", "| [128,64] [128,64] | transpose_b=true",
        "| [64,128] [64,128] | transpose_a=true", "| [64,64] [64,64] | transpose_a=false,true",
        "| [64,64] [64,64] | transpose_b=true", "| [32,64] [64,32] |",
        "| [32,64] [32,64] | transpose_b=true", "| [64,32] [64,32] | transpose_a=true"}) {
    expect_tf32(kSmallAmpere, Op::MatMul, line, "tensor product");
  }
  EXPECT_EQ(cuda_emu::bank_conflicts(), 0u);
  cuda_emu::count_bank_conflicts(false);
}

TEST_F(Tf32, DevicesWithoutItSaySo) {
  const Case c = cases_of(Op::MatMul, "| [40,64] [64,24] |").at(0);
  const std::vector<Array> inputs = draw_inputs(c, 0).value();
  EXPECT_EQ(run(kTuring, c, inputs, kTf32).observed.outputs,
            run(kTuring, c, inputs, {}).observed.outputs);
  const auto notice = [](const Result<Device>& device) { return device.value().info().notice; };
  EXPECT_EQ(notice(open(kTuring, kTf32)),
            "Device cuda-emu:0 has no TF32, so its products of f32 matrices are exact.");
  EXPECT_EQ(notice(Device::open("cpu", kTf32)),
            "Device cpu has no TF32, so its products of f32 matrices are exact.");
  EXPECT_EQ(notice(open(kAmpere, kTf32)), "");
  EXPECT_EQ(notice(open(kTuring)), "");
}

// What is measured in one precision does not hold for the other.
TEST_F(Tf32, TuningFilesAreOfOnePrecision) {
  const auto model = [](const Gpu& gpu, const DeviceOptions& options) {
    return Internals::open(open(gpu, options).value())->capabilities().tuning.model;
  };
  EXPECT_NE(model(kAmpere, kTf32), model(kAmpere, {}));
  EXPECT_EQ(model(kTuring, kTf32), model(kTuring, {}));
}

// Plans for a GPU that the machine lacks have the kernels of the precision.
TEST_F(Tf32, PlansWithoutAGpuHaveIt) {
  const auto precision = [](const char* name) {
    return Internals::open(Device::open(name, kTf32).value())->capabilities().matmul_precision;
  };
  EXPECT_EQ(precision("planning:cuda-emu@80x108"), MatmulPrecision::tf32);
  EXPECT_EQ(precision("planning:cuda-emu@75x40"), MatmulPrecision::f32);
}

// A training in TF32 is close to one in f32, with the library and without it.
TEST_F(Tf32, TrainsAModel) {
  using namespace bowline::test;
  const auto losses = [](const DeviceOptions& options) {
    const Device device = must(Device::open("cuda-emu:0", options));
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(device));
    Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
    std::vector<float> out;
    for (uint32_t i = 0; i < 3; ++i) {
      out.push_back(must(train_step(t, lm, i, 1)).loss);
    }
    return out;
  };
  for (const bool with_library : {true, false}) {
    cuda_emu::machine().has_cublas = with_library;
    const std::vector<float> f32 = losses({}), tf32 = losses(kTf32);
    EXPECT_NE(f32, tf32);
    for (size_t i = 0; i < f32.size(); ++i) {
      EXPECT_NEAR(tf32[i], f32[i], 0x1p-9f * f32[i]);
    }
  }
}

}  // namespace
}  // namespace bowline::conformance
