// Planning without memory: a planning device reports the same memory as the real device, with and
// without values.
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

class Planning : public OnDevice {
 protected:
  Device planning(uint64_t memory_budget = 0) const {
    DeviceOptions options;
    options.threads = 1;
    options.memory_budget = memory_budget;
    return must(Device::open("planning:" + GetParam(), options));
  }

  // Compares the memory of two trainers. The backend tables are unknown if the device does not use
  // host memory.
  void expect_same_memory(const Trainer& planned, const Trainer& real) const {
    const MemoryReport p = planned.memory(), r = real.memory();
    EXPECT_EQ(p.storage_bytes, r.storage_bytes);
    EXPECT_EQ(p.copy_bytes, r.copy_bytes);
    EXPECT_EQ(p.arena_bytes, r.arena_bytes);
    EXPECT_EQ(p.io_bytes, r.io_bytes);
    const auto& device = Internals::open(device_);
    EXPECT_EQ(p.backend_bytes, device->capabilities().host_memory ? r.backend_bytes : 0);
    EXPECT_EQ(must(planned.listing("update")), must(real.listing("update")));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Planning, testing::ValuesIn(computing_device_names()),
                         [](const auto& p) { return test_name(p.param); });

TEST_P(Planning, TakesNoMemoryAndSaysWhatIsNeeded) {
  TinyLm lm = tiny_lm();
  Model shapes = must(lm.model.skeleton());
  ASSERT_OK(lm.model.to(device_));
  const Trainer real = must(Trainer::create(lm.model, device_, adamw(lm)));

  const Device device = planning();
  ASSERT_OK(shapes.to(device));
  const Trainer planned = must(Trainer::create(shapes, device, adamw(lm)));
  expect_same_memory(planned, real);
  EXPECT_EQ(device.counters().peak_bytes, planned.memory().predicted_bytes);
}

TEST_P(Planning, CodesAndAdaptersNeedNoValues) {
  TinyLm lm = tiny_lm();
  Model shapes = must(lm.model.skeleton());
  const Device device = planning();
  std::vector<QuantizeReport> reports;
  for (Model* model : {&lm.model, &shapes}) {
    reports.push_back(must(quantize(*model, "int8 block row")));
    ASSERT_OK(add_adapter(*model, "lora", {.rank = 4}).status());
    ASSERT_OK(model->to(model == &shapes ? device : device_));
  }
  EXPECT_EQ(reports[0].storages, reports[1].storages);
  EXPECT_EQ(reports[0].bytes_after, reports[1].bytes_after);
  EXPECT_EQ(reports[0].kept, reports[1].kept);
  const Trainer real = must(Trainer::create(lm.model, device_, adamw(lm)));
  expect_same_memory(must(Trainer::create(shapes, device, adamw(lm))), real);
}

TEST_P(Planning, NothingIsReadAndNothingRuns) {
  TinyLm lm = tiny_lm();
  int asked = 0;
  ASSERT_OK(lm.model.set_source("norm", [&asked](uint64_t, std::span<std::byte>) {
    ++asked;
    return Status();
  }));
  const Device device = planning();
  ASSERT_OK(lm.model.to(device));
  EXPECT_EQ(asked, 0);
  Trainer trainer = must(Trainer::create(lm.model, device, adamw(lm)));
  EXPECT_EQ(trainer.micro_step(lm.data(0)).status().code(), Code::unsupported);
  Floats norm(16);
  const Dims shape = {16};
  const Status read = lm.model.get_value("norm", tensor("norm", shape, norm));
  EXPECT_EQ(read.code(), Code::unsupported);
  EXPECT_NE(read.message().find("opened for planning only"), std::string::npos) << read.message();
}

TEST_P(Planning, ABudgetHoldsAsWithMemory) {
  TinyLm lm = tiny_lm();
  Model shapes = must(lm.model.skeleton());
  EXPECT_EQ(shapes.to(planning(1024)).code(), Code::over_budget);
}

}  // namespace
}  // namespace bowline::test
