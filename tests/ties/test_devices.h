// The devices for tests of ties and training: every device that computes, and the mocks, which
// prove that ties are not pointers.
#pragma once

#include <gtest/gtest.h>

#include "api/internals.h"
#include "device/device.h"
#include "need.h"
#include "ties/mocks.h"

namespace bowline::test {

// Returns a test name for a device name.
inline std::string test_name(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

// False while gtest makes the list of tests, if only one will run, and its name has no device of
// the backend. ctest starts a process per test, and most tests take less time than drivers to load.
inline bool may_run_on(const device::Backend& backend) {
  const std::string tests = GTEST_FLAG_GET(filter);
  return testing::UnitTest::GetInstance()->current_test_suite() != nullptr ||
         tests.find_first_of("*?:-") != std::string::npos ||
         tests.find(test_name(std::string(backend.name()))) != std::string::npos;
}

// "cpu", "vulkan:0", "cuda-emu:0", ... Lists expected devices even if they are missing. A test with
// such a parameter has a name that contains test_name() of it.
inline std::vector<std::string> computing_device_names() {
  std::vector<std::string> out;
  for (const device::Backend* backend : device::backends()) {
    if (backend->name() == "null" || !may_run_on(*backend)) {  // null computes nothing
      continue;
    }
    for (const DeviceInfo& d : devices_of(*backend)) {
      if (d.unusable.empty() || is_expected(d)) {
        out.push_back(d.name);
      }
    }
  }
  return out;
}

// The mocks of cpu for tests of ties.
inline constexpr std::string_view kMocks[] = {"opaque", "moving", "lazy", "packed", "narrow"};
inline bool is_mock(std::string_view name) {
  return std::ranges::find(kMocks, name) != std::end(kMocks);
}

// Devices that compute, and two mocks.
inline std::vector<std::string> device_names() {
  std::vector<std::string> out = computing_device_names();
  out.insert(out.end(), {"opaque", "moving"});
  return out;
}

// A mock needs the device that it wraps.
inline std::string why_test_device_missing(const std::string& name) {
  return why_missing(is_mock(name) ? "cpu" : name);
}

// Returns the devices of `out` that are usable, for a test on all of them at once.
inline std::vector<std::string> usable(std::vector<std::string> out) {
  std::erase_if(out, [](const std::string& name) {
    const std::string missing = why_test_device_missing(name);
    EXPECT_TRUE(missing.empty() || !strict()) << missing;
    return !missing.empty();
  });
  return out;
}
inline std::vector<std::string> usable_device_names() { return usable(device_names()); }

// The first device of a backend, without the OpenDevice around it.
inline std::unique_ptr<device::Device> open_first(std::string_view backend_name, int threads = 1) {
  DeviceOptions options;
  options.threads = threads;
  for (const device::Backend* backend : device::backends()) {
    if (backend->name() == backend_name) {
      auto device = backend->open(0, options);
      EXPECT_TRUE(device.ok()) << device.status().message();
      return std::move(device).value();
    }
  }
  ADD_FAILURE() << "This build has no backend " << backend_name << ".";
  return nullptr;
}

inline std::unique_ptr<device::Device> open_cpu(int threads = 1) {
  return open_first("cpu", threads);
}

// Wraps a device in an OpenDevice.
inline Device wrap(std::string name, std::unique_ptr<device::Device> device,
                   uint64_t memory_budget = 0) {
  DeviceInfo info;
  info.name = std::move(name);
  info.for_tests = true;
  return Internals::device(
      std::make_shared<device::OpenDevice>(std::move(info), std::move(device), memory_budget));
}

inline Device open_test_device(const std::string& name, int threads = 1,
                               uint64_t memory_budget = 0) {
  if (name == "opaque") {
    return wrap(name, std::make_unique<OpaqueDevice>(open_cpu(threads)), memory_budget);
  }
  if (name == "moving") {
    return wrap(name, std::make_unique<MovingDevice>(open_cpu(threads)), memory_budget);
  }
  if (name == "lazy") {
    return wrap(name, std::make_unique<LazyDevice>(open_cpu(threads)), memory_budget);
  }
  if (name == "packed") {
    return wrap(name, std::make_unique<PackedDevice>(open_cpu(threads)), memory_budget);
  }
  if (name == "narrow") {
    return wrap(name, std::make_unique<NarrowDevice>(open_cpu(threads)), memory_budget);
  }
  if (name == "reordering") {
    return wrap(name, std::make_unique<ReorderingDevice>(open_cpu(threads)), memory_budget);
  }
  DeviceOptions options;
  options.threads = threads;
  options.memory_budget = memory_budget;
  auto device = Device::open(name, options);
  EXPECT_TRUE(device.ok()) << device.status().message();
  return std::move(device).value();
}

class OnDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    BOWLINE_NEED(why_test_device_missing(GetParam()));
    device_ = open_test_device(GetParam());
  }
  Device device_ = Internals::device(nullptr);
};

#define BOWLINE_ON_ALL_DEVICES(suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::ValuesIn(::bowline::test::device_names()), \
                           [](const auto& p) { return ::bowline::test::test_name(p.param); })

}  // namespace bowline::test
