// Values that no operator computes: what is passed on keeps its bytes, of every dtype, on every device.
#include "core/dtype.h"
#include "core/random.h"
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

// Two inputs go to outputs as they are and through a Repeat that swaps them three times. The outputs lie one after the
// other in device memory: a copy that is too long or too short shows.
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
BOWLINE_ON_ALL_DEVICES(OnDevice);

}  // namespace
}  // namespace bowline::test
