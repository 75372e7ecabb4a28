// Requirements of every device besides the operators: storages above 128 MiB, which many Vulkan
// drivers cannot bind as one buffer, a damaged pipeline cache, and an entry point that returns the
// result of a Repeat.
#include <filesystem>
#include <fstream>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

using Devices = OnDevice;
BOWLINE_ON_ALL_DEVICES(Devices);

TEST_P(Devices, AStorageAbove128MiB) {
  constexpr int64_t kRows = 9'000'001;
  constexpr int64_t kWidth = 4;
  static_assert(kRows * kWidth * 4 > 128 << 20);
  Model m;
  const Dims shape = {kRows, kWidth};
  const Parameter w = must(m.parameter("w", shape, Init::ones()));
  GraphBuilder g(m, "forward");
  const Value ids = g.input("ids", DType::i32, {3});
  const Value twice = g.op("Add", {g.parameter(w), g.parameter(w)});
  g.output("rows", g.op("Embedding", {g.parameter(w), ids}));
  g.output("twice", g.op("Embedding", {twice, ids}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  std::vector<int32_t> rows = {0, kRows / 2, kRows - 1};
  Floats one(12);
  Floats two(12);
  const Dims three = {3};
  const Dims out = {3, kWidth};
  const Tensor inputs[] = {tensor("ids", three, rows)};
  const Tensor outputs[] = {tensor("rows", out, one), tensor("twice", out, two)};
  ASSERT_OK(s.run(inputs, outputs));
  EXPECT_EQ(one, Floats(12, 1.0f));
  EXPECT_EQ(two, Floats(12, 2.0f));
}

TEST_P(Devices, TheResultOfARepeatIsAnOutput) {
  for (const int count : {1, 2, 5}) {
    Seed s = universal(count, 1, 2.0f);
    GraphBuilder g(s.model, "power");
    const Parameter w = must(s.model.find("layer.0.w"));
    const Value x = g.input("x", DType::f32, {1, 1});
    const auto y = g.repeat(count, {x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
      return std::vector<Value>{b.op("Linear", {c[0], b.parameter(ParameterList{{w}})})};
    });
    g.output("y", y.at(0));
    g.output("x again", x);
    ASSERT_OK(g.finish());
    ASSERT_OK(s.model.to(device_));
    Session session = must(Session::create(s.model, device_, "power", {}));
    Floats power(1);
    Floats again(1);
    const Dims shape = {1, 1};
    const Tensor outputs[] = {tensor("y", shape, power), tensor("x again", shape, again)};
    ASSERT_OK(session.run(s.batch(), outputs));
    EXPECT_EQ(power[0], static_cast<float>(1 << count));
    EXPECT_EQ(again[0], 1.0f);
  }
}

TEST_P(Devices, ADamagedPipelineCacheIsIgnored) {
  if (GetParam() == "opaque" || GetParam() == "moving") {
    GTEST_SKIP() << "A wrapper of cpu keeps no cache.";
  }
  const std::filesystem::path folder =
      testing::TempDir() + "bowline_cache_" + test_name(GetParam());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  DeviceOptions options;
  options.cache_folder = folder.string();
  const auto loss_with_cache = [&] {
    const Device device = must(Device::open(GetParam(), options));
    Seed s = lm32();
    EXPECT_OK(s.model.to(device));
    Trainer t = must(Trainer::create(s.model, device, plain_sgd(0.1f)));
    step(t, s);
    return loss(t, s);
  };
  expect_number(loss_with_cache(), 2.1);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << "this is no pipeline cache";
  }
  expect_number(loss_with_cache(), 2.1);
  expect_number(loss_with_cache(), 2.1);
  std::filesystem::remove_all(folder);
}

// Calls a function in the middle of every submission.
class CallingDevice : public WrappedDevice {
 public:
  CallingDevice(std::unique_ptr<device::Device> inner, std::shared_ptr<std::function<void()>> call)
      : WrappedDevice(std::move(inner)), call_(std::move(call)) {}
  Status submit(std::span<device::Recording* const> recordings) override {
    if (*call_) {
      (*call_)();
    }
    return WrappedDevice::submit(recordings);
  }

 private:
  std::shared_ptr<std::function<void()>> call_;
};

TEST(Busy, NoVerbChangesWhatARunReads) {
  const auto call = std::make_shared<std::function<void()>>();
  const Device device = wrap("calling", std::make_unique<CallingDevice>(open_cpu(), call));
  Seed s = lm32();
  ASSERT_OK(s.model.to(device));
  Trainer t = must(Trainer::create(s.model, device, plain_sgd(0.1f)));
  const std::string before = s.model.storages() + s.model.ties();
  int refused = 0;
  *call = [&] {
    const Device cpu = must(Device::open("cpu", {}));
    const std::string name = "head";
    for (const Status& status : {s.model.to(cpu), s.model.freeze(name), s.model.materialize(2)}) {
      EXPECT_EQ(status.code(), Code::bad_argument);
      EXPECT_NE(status.message().find("busy"), std::string::npos) << status.message();
      ++refused;
    }
  };
  (void)loss(t, s);
  EXPECT_EQ(refused, 3);
  step(t, s);
  EXPECT_EQ(refused, 6);
  *call = nullptr;
  EXPECT_OK(s.model.to(must(Device::open("cpu", {}))));
}

}  // namespace
}  // namespace bowline::test
