// The runner: its expressions, case lines, comparison and gaps.
#include <gtest/gtest.h>

#include <limits>

#include "conformance/expression.h"
#include "conformance/oracle_device.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

TEST(Expression, FollowsPrecedence) {
  const Numbers numbers = {{"n", 7}, {"m", 2}};
  EXPECT_EQ(evaluate("n+2*m", numbers).value(), 11);
  EXPECT_EQ(evaluate("(n-1)/m", numbers).value(), 3);
  EXPECT_EQ(evaluate("-m+n", numbers).value(), 5);
}

TEST(Expression, NamesWhatIsWrong) {
  EXPECT_EQ(evaluate("k+1", {}).status().message(), "\"k+1\" is no number and no variable.");
  EXPECT_EQ(evaluate("1/0", {}).status().message(), "A division by zero.");
  EXPECT_EQ(evaluate("1 2", {}).status().message(), "\"2\" is left over.");
  EXPECT_FALSE(evaluate("(1", {}).ok());
}

TEST(Split, LeavesBracketsWhole) {
  EXPECT_EQ(split("[1,2],{3,4},5", ','), (std::vector<std::string_view>{"[1,2]", "{3,4}", "5"}));
}

TEST(Cases, OneLineStandsForEveryCombination) {
  const auto cases =
      parse_cases(Op::Softmax, "x.cases",
                  "let s = 1,4..6\nn=s m=n,2 | [m,n] | axis=-1 | values=normal,nan seeds=3");
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  EXPECT_EQ(cases.value().size(), 4u * 2 * 2 * 3);
  EXPECT_EQ(cases.value()[0].where, "x.cases:2");
}

TEST(Cases, ReadsEveryFormOfInput) {
  const auto cases = parse_cases(Op::AttentionGrad, "x.cases",
                                 "s=[2,3] | [s,4] [2]{0..3,-1}:zeros [2]=(1,nan) ([3],[s]) "
                                 "=Attention.1(0,1,2) s | causal=true");
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  const std::vector<Input>& in = cases.value()[0].inputs;
  EXPECT_EQ(in[0].shape, (Shape{2, 3, 4}));
  EXPECT_TRUE(in[1].is_index && in[1].high == 3 && in[1].others == std::vector<int64_t>{-1});
  EXPECT_EQ(in[2].given[0], 1);
  EXPECT_EQ(in[3].entries, (std::vector<int64_t>{3, 6}));
  EXPECT_TRUE(in[4].derived && in[4].derived->op == Op::Attention && in[4].derived->output == 1);
  EXPECT_EQ(in[5].shape, (Shape{2, 3}));
}

TEST(Cases, NamesTheLineThatIsWrong) {
  for (const char* line :
       {"[3] [3]", "n=2 | [k]", "| [3] | eps=1", "| [3] | | values=odd", "| [3] | | speed=1",
        "n= | [n]", "| [3]{0..1", "| [3] -> 1", "| =None.0(0)"}) {
    const auto cases = parse_cases(Op::Add, "x.cases", line);
    ASSERT_FALSE(cases.ok()) << line;
    EXPECT_NE(cases.status().message().find("In x.cases, line 1."), std::string::npos)
        << cases.status().message();
  }
}

TEST(Cases, ARefusalIsComparedWithItsSentence) {
  const auto check = [](const char* line) {
    const auto cases = parse_cases(Op::Add, "x.cases", line);
    return cases.ok() ? check_refused(cases.value().at(0)) : cases.status().message();
  };
  EXPECT_EQ(check("! | [2,3] [2] -> Shapes [2,3] and [2] do not broadcast"), "");
  EXPECT_EQ(check("! | [2,3] [2] -> Shapes [2,3]"),
            "the refusal is not \"Shapes [2,3].\" but \"Shapes [2,3] and [2] do not broadcast.\"");
  EXPECT_EQ(check("! | [2] [2] -> Shapes [2] and [2] do not broadcast"),
            "inference accepts what it should refuse");
  EXPECT_EQ(check("! | [2] [3]"),
            "The line does not say how it is refused.\n- In x.cases, line 1.");
}

TEST(Cases, TheSameSeedDrawsTheSameValues) {
  const auto cases = parse_cases(Op::Relu, "x.cases", "| [9] | | seeds=2");
  const auto values = [&](size_t i, uint64_t seed) {
    return draw_inputs(cases.value()[i], seed).value()[0].values;
  };
  EXPECT_EQ(values(0, 1), values(0, 1));
  EXPECT_NE(values(0, 1), values(0, 2));
  EXPECT_NE(values(0, 1), values(1, 1));
}

TEST(Compare, NanAndInfinityMatchThemselvesOnly) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tolerance t = Tolerance::of_roundings(4);
  EXPECT_EQ(error_units(t, nan, nan, nan), 0);
  EXPECT_EQ(error_units(t, 1, nan, 1), kInf);
  EXPECT_EQ(error_units(t, 1, 1, nan), kInf);
  EXPECT_EQ(error_units(t, kInf, kInf, kInf), 0);
  EXPECT_EQ(error_units(t, kInf, kInf, -kInf), kInf);
  EXPECT_EQ(error_units(t, 1, 1, kInf), kInf);
  EXPECT_EQ(error_units(t, 1e60, 1e60, kInf), 0);
}

TEST(Compare, CountsInTolerances) {
  EXPECT_NEAR(error_units(Tolerance::of_roundings(4), 1, 1, 1 + 0x1p-22), 1, 1e-6);
  EXPECT_NEAR(error_units(Tolerance::of_roundings(4), 2, 1, 1 + 0x1p-22), 0.5, 1e-6);
  EXPECT_GT(error_units(Tolerance::exact(), 1, 1, 1 + 0x1p-23), 1);
}

TEST(Filter, IsAPatternWithAlternatives) {
  Options options;
  options.filter = "{Copy,Re*}";
  EXPECT_TRUE(selects(options, "Copy"));
  EXPECT_TRUE(selects(options, "Relu"));
  EXPECT_FALSE(selects(options, "Gelu"));
  options.filter = "{Copy";
  EXPECT_FALSE(selects(options, "Copy"));
}

Report run_with_gaps(const Gaps& gaps, Fault fault) {
  Report report;
  report.suite = "ops";
  Options options;
  options.filter = "Copy";
  options.oracles = true;
  Run run{open_oracle_device(std::move(fault)), gaps, options, report};
  EXPECT_TRUE(run_ops(run).ok());
  return report;
}

Fault wrong() {
  Fault f;
  f.after = [](OracleCall& c) {
    for (double& v : c.result.outputs[0].values) {
      v += 1;
    }
  };
  return f;
}

TEST(Gaps, NeverIsNotRun) {
  const Gap never[] = {{"ops", "Copy", "", "There is no memory."}};
  const Report r = run_with_gaps({never, {}}, wrong());
  EXPECT_EQ(r.cases, 0u);
  EXPECT_GT(r.never, 0u);
  EXPECT_TRUE(r.failures.empty());
}

TEST(Gaps, NotYetMustFail) {
  const Gap not_yet[] = {{"*", "C?p*", "values=special", "To be done."}};
  const Report passes = run_with_gaps({{}, not_yet}, {});
  EXPECT_GT(passes.not_yet, 0u);
  EXPECT_EQ(passes.failures.size(), passes.not_yet);
  EXPECT_NE(passes.failures[0].what.find("passes, though it is a gap"), std::string::npos);
  const Report fails = run_with_gaps({{}, not_yet}, wrong());
  for (const Failure& f : fails.failures) {
    EXPECT_EQ(f.where.find("values=special"), std::string::npos);
  }
}

TEST(Suites, EveryOperatorHasCases) {
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    if (op_def(op).oracle != nullptr) {
      const auto cases = cases_of(op, {}, 0);
      ASSERT_TRUE(cases.ok()) << cases.status().message();
      EXPECT_GE(cases.value().size(), 10u) << name_of(op);
    }
  }
}

TEST(Suites, EveryRunsAPartOfTheCases) {
  const auto cases = [](uint64_t every) {
    const Report report =
        run("ops", open_oracle_device(), {.filter = "MatMul", .every = every, .oracles = true})
            .value();
    EXPECT_TRUE(report.ok());
    return report.cases;
  };
  const uint64_t all = cases_of(Op::MatMul, {}, 0).value().size();
  EXPECT_EQ(cases(1) - cases(3), all - (all + 2) / 3);
}

TEST(Suites, AnUnknownOneIsAnError) {
  EXPECT_EQ(run("speed", open_oracle_device(), {}).status().message(),
            "There is no suite \"speed\".");
}

}  // namespace
}  // namespace bowline::conformance
