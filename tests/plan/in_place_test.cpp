// A result may use the memory of an operand, unless the node also reads these bytes as another
// operand.
#include <random>

#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr int64_t kUnits =
    4;  // also the number of steps, so that gates and weight have the same size

// Returns the hidden states of `op`, a cell with `parts` gates. Gates and weight are one value if
// `shares`, otherwise two equal values.
std::vector<float> states_of(const Device& device, const std::string& op, int64_t parts,
                             bool shares) {
  Model m;
  GraphBuilder g(m, "forward");
  const Dims flat = {parts * kUnits * kUnits};
  const Value a = g.op("Tanh", {g.input("a", DType::f32, {flat[0]})});
  const Value b = g.op("Tanh", {g.input("b", DType::f32, {flat[0]})});
  const auto reshaped = [&](Value v, std::vector<GraphDim> dims) {
    return g.op("Reshape", {v}, {{"dims", std::move(dims)}});
  };
  std::vector<Value> inputs = {reshaped(a, {kUnits, 1, parts * kUnits}),
                               reshaped(shares ? a : b, {parts * kUnits, kUnits}),
                               g.input("h0", DType::f32, {1, kUnits})};
  if (op == "Lstm") {
    inputs.push_back(g.input("c0", DType::f32, {1, kUnits}));
  }
  const Value y = g.op(op, inputs, {{"reverse", true}});
  g.output("y", y);
  g.output("b", reshaped(b, {flat[0]}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.to(device));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(flat[0])), state(kUnits);
  for (std::vector<float>* of : {&values, &state}) {
    std::ranges::generate(*of, [&] { return normal(random); });
  }
  const Dims states = {1, kUnits}, all = {kUnits, 1, kUnits};
  std::vector<Tensor> batch = {tensor("a", flat, values), tensor("b", flat, values),
                               tensor("h0", states, state)};
  if (op == "Lstm") {
    batch.push_back(tensor("c0", states, state));
  }
  std::vector<float> out(kUnits * kUnits), rest(values.size());
  const Tensor outputs[] = {tensor("y", all, out), tensor("b", flat, rest)};
  Session s = must(Session::create(m, device, "forward", {}));
  EXPECT_OK(s.run(batch, outputs));
  return out;
}

// Both operators write the gates in place, except where the gates are also the weight, which every
// step reads.
TEST_P(OnDevice, GatesThatAreTheWeightStay) {
  for (const auto& [op, parts] : {std::pair("Gru", 3), std::pair("Lstm", 4)}) {
    const std::vector<float> apart = states_of(device_, op, parts, false);
    EXPECT_TRUE(std::ranges::none_of(apart, [](float v) { return v == 0; }));
    EXPECT_EQ(states_of(device_, op, parts, true), apart) << op << " on " << GetParam();
  }
}

}  // namespace
}  // namespace bowline::test
