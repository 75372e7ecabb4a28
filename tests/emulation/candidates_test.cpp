// The candidates that `bowline tune` measures run different kernels. The suite ops of conform
// compares their results with the reference implementation.
#include "emulated_gpus.h"

namespace bowline::conformance {
namespace {

class Candidates : public OnEmulatedGpus {
 protected:
  // A run of the case with a candidate.
  struct Ran {
    std::vector<std::vector<double>> outputs;
    cuda_emu::Launched launch;  // the last one
  };
  static std::vector<Ran> run_all(Op op, const char* line, const Gpu& gpu = kAmpere) {
    const std::vector<Case> cases = parse_cases(op, "candidates_test.cpp", line).value();
    const Case& c = cases.at(0);
    const std::vector<Array> inputs = draw_inputs(c, 0).value();
    const Expected expected =
        run_oracle(op_def(op).oracle, op, c.attributes, inputs, c.step).value();
    const std::shared_ptr<device::OpenDevice> device = Internals::open(open(gpu).value());
    Bench bench(device);
    std::vector<Ran> out;
    for (uint32_t i = 0; i < bench.query(c, inputs, expected).candidates; ++i) {
      device->force_candidate(i);
      const auto observed = bench.run(c, inputs, expected, Placement());
      EXPECT_TRUE(observed.ok()) << observed.status().message();
      if (observed.ok()) {
        EXPECT_EQ(compare(c, expected, nullptr, observed.value()).problem, "") << c.text;
        out.push_back({observed.value().outputs, cuda_emu::machine().last});
      }
    }
    return out;
  }
};

// One row of a: the warps of a block share rows of b, or each has four.
TEST_F(Candidates, OfOneRowDivideTheRowsOfTheWeight) {
  for (const char* const line :
       {"| [1,64] [640,64] [640] | | dtype=f16", "| [1,64] [640,64]:codes | | encoding=q8_0"}) {
    const std::vector<Ran> runs = run_all(Op::Linear, line);
    ASSERT_EQ(runs.size(), 2u) << line;
    EXPECT_GT(runs[0].launch.blocks, runs[1].launch.blocks) << line;
  }
  EXPECT_EQ(run_all(Op::Linear, "| [2,64] [640,64] |").size(), 0u);
}

TEST_F(Candidates, OfFewRowsDivideK) {
  for (const char* const line : {"| [1,512] [512,32] |", "| [8,512] [512,32] |"}) {
    const std::vector<Ran> runs = run_all(Op::MatMul, line, kSmallAmpere);
    ASSERT_EQ(runs.size(), 4u) << line;
    for (size_t i = 1; i < runs.size(); ++i) {
      EXPECT_GT(runs[i].launch.blocks, runs[i - 1].launch.blocks) << line;
    }
  }
}

// A candidate is a pair: the first output depends on the kernel of the pass over queries, and the
// last launch is that of the pass over keys.
void expect_pairs(const auto& runs, size_t ways) {
  ASSERT_EQ(runs.size(), ways * ways);
  bool queries_differ = false;
  bool keys_differ = false;
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].outputs[0], runs[i / ways * ways].outputs[0]) << i;
    EXPECT_EQ(runs[i].launch, runs[i % ways].launch) << i;
    queries_differ = queries_differ || runs[i].outputs[0] != runs[0].outputs[0];
    keys_differ = keys_differ || runs[i].launch != runs[0].launch;
  }
  EXPECT_TRUE(queries_differ);
  EXPECT_TRUE(keys_differ);
}

TEST_F(Candidates, OfGradientsOfAttentionArePairs) {
  constexpr const char* kProblem =
      "| [1,70,2,64] [1,70,2,64] [1,70,2,64] =Attention.0(0,1,2) =Attention.1(0,1,2) [1,70,2,64] "
      "| causal=true | dtype=";
  expect_pairs(run_all(Op::AttentionGrad, (std::string(kProblem) + "f16").c_str()), 4);
  expect_pairs(run_all(Op::AttentionGrad, (std::string(kProblem) + "f32").c_str()), 2);
  // A soft cap is not plain, and large heads have no space for four rows per thread.
  constexpr const char* kCapped =
      "| [1,9,1,96] [1,9,1,96] [1,9,1,96] =Attention.0(0,1,2) =Attention.1(0,1,2) [1,9,1,96] "
      "| softcap=2 | dtype=";
  EXPECT_EQ(run_all(Op::AttentionGrad, (std::string(kCapped) + "f16").c_str()).size(), 4u);
  EXPECT_EQ(run_all(Op::AttentionGrad, (std::string(kCapped) + "f32").c_str()).size(), 0u);
}

}  // namespace
}  // namespace bowline::conformance
