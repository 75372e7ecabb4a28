// Storages in 16 bits take exactly half the bytes of f32. A plan predicts the bytes, and the
// allocator counts them.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using StorageBytes = OnDevice;
BOWLINE_ON_ALL_DEVICES(StorageBytes);

constexpr uint64_t kNumbers = 33 * 20 + 6 * 20 + 20;

// y = x w^T + b, z = y v^T; v has a second parameter.
Model wide_network(DType dtype) {
  Model m;
  const auto make = [&](std::string_view name, Dims shape) {
    return must(m.parameter(name, shape, Init::normal(1), StorageRole::weight, dtype));
  };
  const Parameter w = make("w", {20, 33});
  const Parameter b = make("b", {20});
  const Parameter v = make("v", {6, 20});
  const Parameter tied = must(m.tied_parameter("v.again", v));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", dtype, {"batch", 33});
  const Value y = g.op("Linear", {x, g.parameter(w), g.parameter(b)});
  const Value z = g.op("Linear", {y, g.parameter(v)});
  g.output("z", g.op("Add", {z, g.op("Linear", {y, g.parameter(tied)})}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

struct Bytes {
  uint64_t counted = 0;
  uint64_t predicted = 0;
  bool operator==(const Bytes&) const = default;
};

Bytes bytes_on(const Device& device, Model& model) {
  const uint64_t before = device.counters().live_bytes;
  EXPECT_OK(model.to(device));
  Bytes out;
  out.counted = device.counters().live_bytes - before;
  const BoundDim dims[] = {{"batch", 2}};
  out.predicted = must(Session::create(model, device, "forward", dims)).memory().storage_bytes;
  return out;
}

TEST_P(StorageBytes, AreHalvedBy16Bits) {
  Model wide = wide_network(DType::f32);
  EXPECT_EQ(bytes_on(device_, wide), (Bytes{4 * kNumbers, 4 * kNumbers}));
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Model built = wide_network(dtype);
    EXPECT_EQ(bytes_on(device_, built), (Bytes{2 * kNumbers, 2 * kNumbers})) << name_of(dtype);
    Model cast = wide_network(DType::f32);
    EXPECT_EQ(must(cast.cast(dtype)).bytes_after, 2 * kNumbers);
    EXPECT_EQ(bytes_on(device_, cast).counted, 2 * kNumbers) << name_of(dtype);
  }
}

}  // namespace
}  // namespace bowline::test
