// Compares an operator on emulated GPUs of several kinds with the reference implementation.
#pragma once

#include <gtest/gtest.h>

#include "api/internals.h"
#include "conformance/suite.h"
#include "platform.h"

namespace bowline::conformance {

struct Gpu {
  int major;
  int minor;
  int processors;  // few of them are filled by few tiles, so the tiles are large
};
inline constexpr Gpu kTuring = {7, 5, 132};
inline constexpr Gpu kSmallTuring = {7, 5, 1};
inline constexpr Gpu kAmpere = {8, 0, 132};
inline constexpr Gpu kSmallAmpere = {8, 0, 1};

class OnEmulatedGpus : public testing::Test {
 protected:
  void SetUp() override { cuda_emu::restart(); }
  void TearDown() override { cuda_emu::restart(); }

  static Result<Device> open(const Gpu& gpu, const DeviceOptions& options = {}) {
    cuda_emu::machine().major = gpu.major;
    cuda_emu::machine().minor = gpu.minor;
    cuda_emu::machine().processors = gpu.processors;
    return Device::open("cuda-emu:0", options);
  }

  // Runs the cases of the lines. They have the form of tests/ops/*.cases.
  static void compare_all(const Gpu& gpu, Op op, const char* lines,
                          const Placement& placement = Placement()) {
    const Result<Device> device = open(gpu);
    ASSERT_TRUE(device.ok()) << device.status().message();
    Bench bench(Internals::open(device.value()));
    const Result<std::vector<Case>> cases = parse_cases(op, "test.cases", lines);
    ASSERT_TRUE(cases.ok()) << cases.status().message();
    for (const Case& c : cases.value()) {
      const auto inputs = draw_inputs(c, 0);
      ASSERT_TRUE(inputs.ok()) << inputs.status().message();
      const auto expected = run_oracle(op_def(op).oracle, op, c.attributes, inputs.value(), c.step);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      const auto observed = bench.run(c, inputs.value(), expected.value(), placement);
      ASSERT_TRUE(observed.ok()) << c.text << ": " << observed.status().message();
      const Verdict verdict = compare(c, expected.value(), nullptr, observed.value());
      EXPECT_EQ(verdict.problem, "") << c.text;
    }
  }
};

}  // namespace bowline::conformance
