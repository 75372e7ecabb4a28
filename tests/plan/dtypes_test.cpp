// Values that no operator changes keep their bytes, for every dtype and on every device.
#include "base/random.h"
#include "core/dtype.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count, uint32_t seed, bool is_bool) {
  Bytes out(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t word = philox({i, seed, 0, 0}, {3, 1})[0];
    out[i] = static_cast<std::byte>(is_bool ? word & 1 : word & 0xFF);
  }
  return out;
}

// Two inputs are outputs, directly and through a Repeat that swaps them three times. The outputs
// are adjacent in device memory, so that a copy of a wrong length shows.
TEST_P(OnDevice, InputsPassToOutputsAndThroughARepeat) {
  for (int t = 0; t < kDTypes; ++t) {
    for (const int64_t elements : {7, 1031}) {
      const auto type = static_cast<DType>(t);
      SCOPED_TRACE(format("{}[{}] on {}", type, elements, GetParam()));
      Model m;
      GraphBuilder g(m, "pass");
      const Value a = g.input("a", type, {elements});
      const Value b = g.input("b", type, {elements});
      const auto swapped = g.repeat(3, {a, b}, [](GraphBuilder&, const std::vector<Value>& c) {
        return std::vector<Value>{c[1], c[0]};
      });
      ASSERT_EQ(swapped.size(), 2u);
      g.output("a.same", a);
      g.output("a.again", a);
      g.output("a.swapped", swapped[0]);
      g.output("b.swapped", swapped[1]);
      ASSERT_OK(g.finish());
      ASSERT_OK(m.to(device_));
      Session s = must(Session::create(m, device_, "pass", {}));
      const size_t size = static_cast<size_t>(elements) * size_of(type);
      Bytes in_a = random_bytes(size, 1, type == DType::boolean);
      Bytes in_b = random_bytes(size, 2, type == DType::boolean);
      Bytes out[4];
      const Dims shape = {elements};
      const char* const names[] = {"a.same", "a.again", "a.swapped", "b.swapped"};
      std::vector<Tensor> outputs;
      for (size_t i = 0; i < 4; ++i) {
        out[i].resize(size);
        outputs.push_back({names[i], type, shape, out[i].data()});
      }
      const Tensor inputs[] = {{"a", type, shape, in_a.data()}, {"b", type, shape, in_b.data()}};
      ASSERT_OK(s.run(inputs, outputs));
      EXPECT_EQ(out[0], in_a);
      EXPECT_EQ(out[1], in_a);
      EXPECT_EQ(out[2], in_b);
      EXPECT_EQ(out[3], in_a);
    }
  }
}

// x [2,3] and w [3,2] hold small integers, which 16 bits represent exactly: relu(x w), summed over
// its rows.
TEST_P(OnDevice, SixteenBitsComputeWhatTheyHold) {
  for (const char* type : {"f16", "bf16"}) {
    SCOPED_TRACE(format("{} on {}", type, GetParam()));
    Model m;
    GraphBuilder g(m, "forward");
    const Value x = g.op("Cast", {g.input("x", DType::f32, {2, 3})}, {{"to", type}});
    const Value w = g.op("Cast", {g.input("w", DType::i32, {3, 2})}, {{"to", type}});
    const Value y = g.op("Relu", {g.op("MatMul", {x, w})});
    g.output("y", g.op("Cast", {y}, {{"to", "f32"}}));
    g.output("sum", g.op("Cast", {g.op("ReduceSum", {y}, {{"axes", std::vector<GraphDim>{0}}})},
                         {{"to", "i64"}}));
    ASSERT_OK(g.finish());
    ASSERT_OK(m.to(device_));
    Session s = must(Session::create(m, device_, "forward", {}));
    const float x_values[] = {1, -2, 3, 4, 5, -6};
    const int32_t w_values[] = {7, -8, 9, 10, -11, 12};
    float y_values[4] = {};
    int64_t sums[2] = {};
    const Tensor inputs[] = {{"x", DType::f32, {2, 3}, const_cast<float*>(x_values)},
                             {"w", DType::i32, {3, 2}, const_cast<int32_t*>(w_values)}};
    const Tensor outputs[] = {{"y", DType::f32, {2, 2}, y_values}, {"sum", DType::i64, {2}, sums}};
    ASSERT_OK(s.run(inputs, outputs));
    EXPECT_EQ(std::vector<float>(y_values, y_values + 4), (std::vector<float>{0, 8, 139, 0}));
    EXPECT_EQ(std::vector<int64_t>(sums, sums + 2), (std::vector<int64_t>{139, 8}));
  }
}

BOWLINE_ON_ALL_DEVICES(OnDevice);

}  // namespace
}  // namespace bowline::test
