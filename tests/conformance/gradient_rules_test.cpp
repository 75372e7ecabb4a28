// Gradients where a function has no derivative, so that finite differences cannot measure them: the
// values that operators promise, and the gradients that they refuse.
#include <gtest/gtest.h>

#include "conformance/oracle_gradient.h"
#include "core/attributes.h"
#include "graph/op_table.h"

namespace bowline::conformance {
namespace {

Result<std::vector<std::vector<double>>> gradients(Op op, const Attributes& attributes,
                                                   const std::vector<Array>& inputs,
                                                   const std::vector<double>& dout) {
  BOWLINE_TRY_ASSIGN(const Expected forward,
                     run_oracle(op_def(op).oracle, op, attributes, inputs, Step{}));
  const Array& y = forward.outputs[0];
  const auto execute = [](Op added, const Attributes& of,
                          std::span<const Array> taken) -> Result<std::vector<Array>> {
    BOWLINE_TRY_ASSIGN(Expected made, run_oracle(op_def(added).oracle, added, of, taken, Step{}));
    return std::move(made.outputs);
  };
  OracleGradient context(attributes, inputs, forward.outputs, {Array{y.shape, dout, y.dtype}},
                         execute);
  BOWLINE_TRY(op_def(op).gradient(context));
  std::vector<std::vector<double>> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    out.push_back(context.gradient(i).value_or(std::vector<double>()));
  }
  return out;
}

// x [2,3] = (4, 9, 9), (9, 9, 9). The last axis is reduced.
TEST(GradientRules, EqualElementsShareThatOfAMaximum) {
  ReduceAttributesT t;
  t.axes = {1};
  for (const Op op : {Op::ReduceMax, Op::ReduceMin}) {
    const double sign = op == Op::ReduceMax ? 1 : -1;
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      const Array x{
          Shape{2, 3}, {sign * 4, sign * 9, sign * 9, sign * 9, sign * 9, sign * 9}, type};
      const auto d = gradients(op, Attributes::of(t), {x}, {6, 12});
      ASSERT_TRUE(d.ok()) << d.status().message();
      EXPECT_EQ(d.value()[0], (std::vector<double>{0, 3, 3, 4, 4, 4}));
    }
  }
}

ScatterElementsAttributesT scatter(ScatterReduction reduction) {
  ScatterElementsAttributesT t;
  t.reduction = reduction;
  return t;
}

// Updates 0 and 2 write element 1, and only update 2 remains. No update writes element 2.
TEST(GradientRules, TheLastUpdateOfAnIndexHasTheGradient) {
  const std::vector<Array> inputs = {
      {Shape{3}, {1, 2, 3}}, {Shape{4}, {1, 0, -2, 0}, DType::i32}, {Shape{4}, {4, 5, 6, 7}}};
  const auto replaced = gradients(
      Op::ScatterElements, Attributes::of(scatter(ScatterReduction::none)), inputs, {10, 20, 30});
  ASSERT_TRUE(replaced.ok()) << replaced.status().message();
  EXPECT_EQ(replaced.value()[0], (std::vector<double>{0, 0, 30}));
  EXPECT_EQ(replaced.value()[2], (std::vector<double>{0, 0, 20, 10}));
  const auto added = gradients(Op::ScatterElements, Attributes::of(scatter(ScatterReduction::add)),
                               inputs, {10, 20, 30});
  ASSERT_TRUE(added.ok()) << added.status().message();
  EXPECT_EQ(added.value()[0], (std::vector<double>{10, 20, 30}));
  EXPECT_EQ(added.value()[2], (std::vector<double>{20, 10, 20, 10}));
}

TEST(GradientRules, OtherReductionsOfAScatterAreRefusedByName) {
  const std::vector<Array> inputs = {
      {Shape{3}, {1, 2, 3}}, {Shape{1}, {1}, DType::i32}, {Shape{1}, {4}}};
  for (const auto& [reduction, name] :
       {std::pair(ScatterReduction::mul, "mul"), std::pair(ScatterReduction::max, "max"),
        std::pair(ScatterReduction::min, "min")}) {
    const auto d =
        gradients(Op::ScatterElements, Attributes::of(scatter(reduction)), inputs, {10, 20, 30});
    EXPECT_EQ(d.status().code(), Code::unsupported);
    EXPECT_EQ(d.status().message(),
              format("ScatterElements with \"{}\" is not differentiable.", name));
  }
}

}  // namespace
}  // namespace bowline::conformance
