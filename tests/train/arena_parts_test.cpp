// Devices that limit the size of one block: an arena has several parts, and results are the same
// bit for bit.
#include "device/planning.h"
#include "faults/wrapped_device.h"
#include "plan/arena.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A device whose blocks have at most `most` bytes.
class SmallBlocks : public WrappedDevice {
 public:
  SmallBlocks(std::unique_ptr<device::Device> inner, uint64_t most)
      : WrappedDevice(std::move(inner)), capabilities_(WrappedDevice::capabilities()) {
    capabilities_.max_buffer_bytes = most;
  }
  const device::Capabilities& capabilities() const override { return capabilities_; }

 protected:
  device::Capabilities capabilities_;
};

std::unique_ptr<device::Device> open_raw(std::string_view name) {
  const std::string_view kind = name.substr(0, name.find(':'));
  DeviceOptions options;
  options.threads = 1;
  for (const device::Backend* backend : device::backends()) {
    if (backend->name() == kind) {
      return must(backend->open(0, options));
    }
  }
  ADD_FAILURE() << "no backend " << kind;
  return nullptr;
}

struct ArenaRun {
  uint64_t arena_bytes = 0;
  std::vector<float> losses;
  std::vector<std::byte> weights;
};

ArenaRun train_on(const Device& device) {
  constexpr int kLayers = 8;  // their activations have more bytes than one layer computes with
  TinyLm lm = tiny_lm(kLayers);
  EXPECT_OK(lm.model.to(device));
  Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
  ArenaRun out;
  out.arena_bytes = t.memory().arena_bytes;
  for (uint32_t step = 0; step < 3; ++step) {
    out.losses.push_back(must(train_step(t, lm, step)).loss);
  }
  out.weights = all_bytes(lm.model);
  return out;
}

class ArenaParts : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, ArenaParts, testing::ValuesIn(computing_device_names()),
                         [](const auto& p) { return test_name(p.param); });

TEST_P(ArenaParts, TrainAsOneArena) {
  const ArenaRun whole = train_on(wrap("whole", open_raw(GetParam())));
  // One item, the body of the Repeat, has 54 KiB on the CPU.
  constexpr uint64_t kMost = 64 << 10;
  ASSERT_GT(whole.arena_bytes, kMost);
  const ArenaRun parts =
      train_on(wrap("parts", std::make_unique<SmallBlocks>(open_raw(GetParam()), kMost)));
  EXPECT_GE(parts.arena_bytes, whole.arena_bytes);
  EXPECT_EQ(parts.losses, whole.losses);
  EXPECT_EQ(parts.weights, whole.weights);
}

// The memory of a graphics card of 24 GiB whose blocks have at most 4 GiB - 4, as with RADV.
class LargeCard : public SmallBlocks {
 public:
  explicit LargeCard(std::unique_ptr<device::Device> inner)
      : SmallBlocks(std::move(inner), 4 * kGiB - 4) {
    capabilities_.host_memory = false;
  }
  Result<device::MemoryInfo> memory_info() override {
    return device::MemoryInfo{24 * kGiB, 24 * kGiB};
  }
};

// The sum of six products of [16384, 1] and [1, n], which live at the same time.
Model six_products(int64_t n) {
  Model m;
  GraphBuilder g(m, "sum");
  const Value x = g.input("x", DType::f32, {16384, 1});
  std::vector<Value> products;
  for (int i = 0; i < 6; ++i) {
    const Parameter w = must(m.parameter(format("w{}", i), {n, 1}, Init::ones()));
    products.push_back(g.op("Linear", {x, g.parameter(w)}));
  }
  Value sum = products[0];
  for (size_t i = 1; i < products.size(); ++i) {
    sum = g.op("Add", {products[i], sum});
  }
  g.output("mean", g.op("ReduceMean", {sum}));
  EXPECT_OK(g.finish());
  return m;
}

Device planning_on_a_large_card() {
  return Internals::device(std::make_shared<device::OpenDevice>(
      DeviceInfo{}, device::planning_device(std::make_unique<LargeCard>(open_raw("cpu"))), 0,
      false));
}

TEST(Arena, AboveTheLargestBlockIsPlannedInParts) {
  const Device device = planning_on_a_large_card();
  Model model = six_products(16384);  // of 1 GiB
  ASSERT_OK(model.to(device));
  const Session session = must(Session::create(model, device, "sum", {}));
  EXPECT_GT(session.memory().arena_bytes, 6 * kGiB);
  const uint64_t part = plan::arena_part_bytes(Internals::open(device)->capabilities());
  EXPECT_EQ(part, 4 * kGiB - 64);
  const PlanInfo info = must(session.describe());
  for (const RecordInfo& r : info.segments.at(0).records) {
    for (const OperandInfo& o : r.outputs) {
      EXPECT_TRUE(o.slot != OperandInfo::Slot::arena || o.bytes == 0 ||
                  o.offset / part == (o.offset + o.bytes - 1) / part)
          << o.offset;
    }
  }
}

TEST(Arena, AValueLargerThanABlockIsRefused) {
  const Device device = planning_on_a_large_card();
  Model model = six_products(65536);
  ASSERT_OK(model.to(device));
  const Status refused = Session::create(model, device, "sum", {}).status();
  EXPECT_EQ(refused.code(), Code::out_of_memory);
  EXPECT_NE(refused.message().find("A value of 4294967296 bytes does not fit into a block of the "
                                   "device, which has at most 4294967232 bytes."),
            std::string::npos)
      << refused.message();
}

}  // namespace
}  // namespace bowline::test
