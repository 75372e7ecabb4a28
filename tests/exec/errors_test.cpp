// Data that a kernel rejects: the run fails with a message that names the node, and does not affect
// the next run.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

class Errors : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(Errors);

TEST_P(Errors, ADivisorOfZeroIsNamed) {
  Model model;
  GraphBuilder g(model, "forward");
  const Value a = g.op("Neg", {g.input("a", DType::i32, {3})});
  const Value b = g.input("b", DType::i32, {3});
  g.output("y", g.named("share").op("Div", {a, b}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "forward", {}));
  std::vector<int32_t> numbers = {-7, 7, -9};
  std::vector<int32_t> divisors = {2, 2, 0};
  std::vector<int32_t> shares(3);
  const Tensor in[] = {tensor("a", {3}, numbers), tensor("b", {3}, divisors)};
  const Tensor out[] = {tensor("y", {3}, shares)};
  const Status refused = s.run(in, out);
  EXPECT_EQ(refused.code(), Code::index_out_of_range);
  EXPECT_EQ(refused.message(), "A divisor of node 1 \"share\" (Div) is 0.");
  divisors = {2, 2, -4};
  ASSERT_OK(s.run(in, out));
  EXPECT_EQ(shares, (std::vector<int32_t>{3, -3, -2}));
}

TEST_P(Errors, AnIndexOutsideItsAxisIsNamed) {
  Model model;
  GraphBuilder g(model, "forward");
  const Value data = g.input("data", DType::f32, {3});
  const Value indices = g.input("indices", DType::i32, {2});
  g.output("y", g.named("pick").op("Gather", {data, indices}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "forward", {}));
  Floats numbers = {1, 2, 3};
  std::vector<int32_t> places = {0, -4};
  Floats picked(2);
  const Tensor in[] = {tensor("data", {3}, numbers), tensor("indices", {2}, places)};
  const Tensor out[] = {tensor("y", {2}, picked)};
  const Status refused = s.run(in, out);
  EXPECT_EQ(refused.code(), Code::index_out_of_range);
  EXPECT_EQ(refused.message(), "Index -4 is out of range in node 0 \"pick\" (Gather).");
  places = {0, -3};
  ASSERT_OK(s.run(in, out));
  EXPECT_EQ(picked, (Floats{1, 1}));
}

}  // namespace
}  // namespace bowline::test
