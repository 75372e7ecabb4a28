// adopt_vulkan(): a VkDevice of the program, its buffers and its semaphores.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "bowline/external.h"
#include "device_features.h"
#include "need.h"
#include "open_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::detail::vulkan {
namespace {

using test::Floats;
using test::must;
using test::tensor;

// A program with its own instance and device, as an app with a renderer has them.
class App {
 public:
  // `change` edits the VkDeviceCreateInfo of the requirements.
  explicit App(const std::function<void(VkDeviceCreateInfo&)>& change = {}) {
    library_ = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    get_ = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library_, "vkGetInstanceProcAddr"));
    auto application = typed<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
    application.apiVersion = VK_API_VERSION_1_2;
    auto info = typed<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
    info.pApplicationInfo = &application;
    call<PFN_vkCreateInstance>(nullptr, "vkCreateInstance")(&info, nullptr, &instance);
    uint32_t count = 1;
    of_instance<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices")(instance, &count,
                                                                              &physical);
    requirements =
        must(vulkan_requirements(reinterpret_cast<void (*)()>(get_), instance, physical));
    for (const std::string& name : requirements.extensions) {
      names_.push_back(name.c_str());
    }
    queue_info_ = typed<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
    queue_info_.queueCount = 1;
    queue_info_.pQueuePriorities = &priority_;
    made = typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
    made.pNext = requirements.features;
    made.queueCreateInfoCount = 1;
    made.pQueueCreateInfos = &queue_info_;
    made.enabledExtensionCount = static_cast<uint32_t>(names_.size());
    made.ppEnabledExtensionNames = names_.data();
    if (change) {
      change(made);
    }
    EXPECT_EQ(of_instance<PFN_vkCreateDevice>("vkCreateDevice")(physical, &made, nullptr, &device),
              VK_SUCCESS);
    of_device<PFN_vkGetDeviceQueue>("vkGetDeviceQueue")(device, 0, 0, &queue);
  }
  // All objects of the program must still exist.
  ~App() {
    EXPECT_EQ(of_device<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle")(device), VK_SUCCESS);
    of_device<PFN_vkDestroyDevice>("vkDestroyDevice")(device, nullptr);
    of_instance<PFN_vkDestroyInstance>("vkDestroyInstance")(instance, nullptr);
    dlclose(library_);
  }
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  ExternalVulkan external() {
    ExternalVulkan out;
    out.get_instance_proc_addr = reinterpret_cast<void (*)()>(get_);
    out.instance = instance;
    out.physical_device = physical;
    out.device = device;
    out.queue = queue;
    out.create_info = &made;
    return out;
  }
  template <class F>
  F of_device(const char* name) {
    return reinterpret_cast<F>(
        of_instance<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr")(device, name));
  }

  VkInstance instance = VK_NULL_HANDLE;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkDeviceCreateInfo made{};
  VulkanRequirements requirements;

 private:
  template <class F>
  F call(VkInstance of, const char* name) {
    return reinterpret_cast<F>(get_(of, name));
  }
  template <class F>
  F of_instance(const char* name) {
    return call<F>(instance, name);
  }

  void* library_ = nullptr;
  PFN_vkGetInstanceProcAddr get_ = nullptr;
  std::vector<const char*> names_;
  VkDeviceQueueCreateInfo queue_info_{};
  float priority_ = 1;
};

// "forward": y = x + x.
Model doubled() {
  Model model;
  GraphBuilder g(model, "forward");
  const Value x = g.input("x", DType::f32, {4});
  g.output("y", g.op("Add", {x, x}));
  EXPECT_OK(g.finish());
  return model;
}

uint64_t number_of(auto handle) {
  uint64_t number = 0;
  std::memcpy(&number, &handle, sizeof handle);
  return number;
}

// A VkBuffer of the program in memory that the host sees.
struct AppBuffer {
  AppBuffer(App& of, uint64_t bytes) : app(of) {
    auto info = typed<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    app.of_device<PFN_vkCreateBuffer>("vkCreateBuffer")(app.device, &info, nullptr, &buffer);
    VkMemoryRequirements needs{};
    app.of_device<PFN_vkGetBufferMemoryRequirements>("vkGetBufferMemoryRequirements")(
        app.device, buffer, &needs);
    auto allocation = typed<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
    allocation.allocationSize = needs.size;
    app.of_device<PFN_vkAllocateMemory>("vkAllocateMemory")(app.device, &allocation, nullptr,
                                                            &memory);
    app.of_device<PFN_vkBindBufferMemory>("vkBindBufferMemory")(app.device, buffer, memory, 0);
    void* at = nullptr;
    app.of_device<PFN_vkMapMemory>("vkMapMemory")(app.device, memory, 0, VK_WHOLE_SIZE, 0, &at);
    floats = static_cast<float*>(at);
    std::memset(at, 0, bytes);
  }
  ~AppBuffer() {
    app.of_device<PFN_vkDestroyBuffer>("vkDestroyBuffer")(app.device, buffer, nullptr);
    app.of_device<PFN_vkFreeMemory>("vkFreeMemory")(app.device, memory, nullptr);
  }
  App& app;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  float* floats = nullptr;
};

class AdoptVulkan : public testing::Test {
 protected:
  void SetUp() override { BOWLINE_NEED(test::why_missing("vulkan:0")); }
};

// The lock is held during each vkQueueSubmit(), by one thread at a time, and is balanced.
TEST_F(AdoptVulkan, RunsAModelUnderTheLockOfTheQueue) {
  App app;
  std::mutex queue;
  int locks = 0;
  int unlocks = 0;
  {
    ExternalVulkan external = app.external();
    external.lock = [&] {
      queue.lock();
      ++locks;
    };
    external.unlock = [&] {
      ++unlocks;
      queue.unlock();
    };
    const bowline::Device device = must(adopt_vulkan(external));
    EXPECT_EQ(device.info().name, "vulkan:external");
    EXPECT_TRUE(device.info().software);
    EXPECT_EQ(device.info().description,
              must(bowline::Device::open("vulkan:0")).info().description);
    EXPECT_GT(locks, 0);  // of the self test
    EXPECT_EQ(locks, unlocks);
    Model model = doubled();
    ASSERT_OK(model.to(device));
    Session session = must(Session::create(model, device, "forward", {}));
    Floats x = {1, 2, 3, 4};
    Floats y(4);
    const Tensor input = tensor("x", {4}, x);
    const Tensor output = tensor("y", {4}, y);
    const int before = locks;
    ASSERT_OK(session.run({&input, 1}, {&output, 1}));
    EXPECT_EQ(y, (Floats{2, 4, 6, 8}));
    EXPECT_GT(locks, before);
    EXPECT_EQ(locks, unlocks);
    // VkBuffers of the program, at an offset.
    AppBuffer from(app, 64);
    AppBuffer to(app, 64);
    std::copy(x.begin(), x.end(), from.floats + 4);
    const DeviceBuffer in = must(adopt_vulkan_buffer(device, number_of(from.buffer), 16, 16));
    const DeviceBuffer out = must(adopt_vulkan_buffer(device, number_of(to.buffer), 32, 16));
    Tensor in_buffer{"x", DType::f32, {4}};
    Tensor out_buffer{"y", DType::f32, {4}};
    in_buffer.buffer = &in;
    out_buffer.buffer = &out;
    const uint64_t live = device.counters().live_bytes;
    ASSERT_OK(session.run({&in_buffer, 1}, {&out_buffer, 1}));
    EXPECT_EQ(Floats(to.floats, to.floats + 16),
              (Floats{0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 6, 8, 0, 0, 0, 0}));
    Floats read(4);
    ASSERT_OK(out.read(0, std::as_writable_bytes(std::span(read))));
    EXPECT_EQ(read, (Floats{2, 4, 6, 8}));
    ASSERT_OK(in.write(4, std::as_bytes(std::span(read).first(3))));
    EXPECT_EQ(Floats(from.floats + 4, from.floats + 9), (Floats{1, 2, 4, 6, 0}));
    EXPECT_EQ(device.counters().live_bytes, live);  // memory of the program does not count
  }
  EXPECT_EQ(locks, unlocks);
  // The device of the program still works: a second adoption, without a lock.
  const bowline::Device again = must(adopt_vulkan(app.external()));
  EXPECT_OK(DeviceBuffer::create(again, 64));
}

// Nothing is submitted without the lock, and an unlock follows each lock.
TEST_F(AdoptVulkan, ALockThatThrowsIsAnError) {
  App app;
  int locks = 0, unlocks = 0;
  bool throws = false;
  {
    ExternalVulkan external = app.external();
    external.lock = [&] {
      if (throws) {
        throw 1;
      }
      ++locks;
    };
    external.unlock = [&] {
      ++unlocks;
      throw 1;  // ignored
    };
    const bowline::Device device = must(adopt_vulkan(external));
    Model model = doubled();
    ASSERT_OK(model.to(device));
    Session session = must(Session::create(model, device, "forward", {}));
    Floats x = {1, 2, 3, 4};
    const Tensor input = tensor("x", {4}, x);
    EXPECT_OK(session.run({&input, 1}, {}));
    throws = true;
    const int before = locks;
    const Status status = session.run({&input, 1}, {});
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(locks, before);
    EXPECT_EQ(session.run({&input, 1}, {}).code(), status.code());
  }
  EXPECT_EQ(locks, unlocks);
  EXPECT_OK(adopt_vulkan(app.external()));
}

// Timelines order work of the program and of Bowline.
TEST_F(AdoptVulkan, WaitsForSemaphoresAndSignalsThem) {
  App app;
  const bowline::Device device = must(adopt_vulkan(app.external()));
  auto type = typed<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  auto info = typed<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO);
  info.pNext = &type;
  VkSemaphore handle = VK_NULL_HANDLE;
  app.of_device<PFN_vkCreateSemaphore>("vkCreateSemaphore")(app.device, &info, nullptr, &handle);
  const auto value = [&] {
    uint64_t now = 0;
    app.of_device<PFN_vkGetSemaphoreCounterValue>("vkGetSemaphoreCounterValue")(app.device, handle,
                                                                                &now);
    return now;
  };
  {
    const DeviceSemaphore semaphore =
        must(DeviceSemaphore::adopt_vulkan(device, number_of(handle), true));
    ASSERT_OK(semaphore.wait_for(5));
    ASSERT_OK(semaphore.signal(7));
    EXPECT_EQ(value(), 0u);  // the signal comes after the wait
    std::thread program([&] {
      auto signal = typed<VkSemaphoreSignalInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO);
      signal.semaphore = handle;
      signal.value = 5;
      app.of_device<PFN_vkSignalSemaphore>("vkSignalSemaphore")(app.device, &signal);
    });
    EXPECT_OK(DeviceBuffer::create(device, 64));  // fills it, after the wait
    program.join();
    // The driver may signal the two semaphores of the queue in any order.
    const uint64_t signalled = 7;
    auto last = typed<VkSemaphoreWaitInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO);
    last.semaphoreCount = 1;
    last.pSemaphores = &handle;
    last.pValues = &signalled;
    constexpr uint64_t kMinute = 60'000'000'000;  // ns
    EXPECT_EQ(app.of_device<PFN_vkWaitSemaphores>("vkWaitSemaphores")(app.device, &last, kMinute),
              VK_SUCCESS);
    const Status back = semaphore.signal(7);
    EXPECT_EQ(back.code(), Code::bad_argument);
    EXPECT_EQ(back.message(), "A timeline semaphore has the value 7, so it cannot become 7.");
    EXPECT_EQ(semaphore.export_fd().status().code(), Code::bad_argument);
  }
  EXPECT_EQ(value(), 7u);
  app.of_device<PFN_vkDestroySemaphore>("vkDestroySemaphore")(app.device, handle, nullptr);
}

// Without the optional features, other kernels run.
TEST_F(AdoptVulkan, UsesOnlyWhatIsEnabled) {
  auto vulkan12 = typed<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  vulkan12.timelineSemaphore = vulkan12.scalarBlockLayout = VK_TRUE;
  App app([&](VkDeviceCreateInfo& info) {
    info.pNext = &vulkan12;
    info.enabledExtensionCount = 0;
  });
  PhysicalDevice full;
  full.has_int64 = full.has_16bit_storage = full.has_memory_fd = true;
  full.min_subgroup = full.max_subgroup = 16;
  full.default_subgroup = 8;
  EXPECT_EQ(restrict_to(app.made, &full), "");
  EXPECT_FALSE(full.has_int64 || full.has_16bit_storage || full.has_buffer_addresses ||
               full.has_memory_fd);
  EXPECT_EQ(full.max_subgroup, 0u);
  EXPECT_EQ(full.subgroup_size, 8u);
  EXPECT_EQ(full.variants,
            "not enabled: shaderInt64, not enabled: storageBuffer16BitAccess, not enabled: "
            "subgroupSizeControl, not enabled: bufferDeviceAddress");
  const bowline::Device device = must(adopt_vulkan(app.external()));
  Model model = doubled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  Floats x = {1, 2, 3, 4};
  Floats y(4);
  const Tensor input = tensor("x", {4}, x);
  const Tensor output = tensor("y", {4}, y);
  ASSERT_OK(session.run({&input, 1}, {&output, 1}));
  EXPECT_EQ(y, (Floats{2, 4, 6, 8}));
  EXPECT_EQ(create_exportable(device, 64, ExternalHandle::opaque_fd).status().code(),
            Code::unsupported);
}

TEST_F(AdoptVulkan, WrongObjectsAreRefused) {
  App app;
  const auto refusal = [&](const std::function<void(ExternalVulkan&)>& change, Code code) {
    ExternalVulkan external = app.external();
    change(external);
    const Status status = test::status_of(adopt_vulkan(external));
    EXPECT_EQ(status.code(), code) << status.message();
    return status.message();
  };
  EXPECT_EQ(refusal([](auto& e) { e.get_instance_proc_addr = nullptr; }, Code::bad_argument),
            "ExternalVulkan::get_instance_proc_addr is null.");
  EXPECT_EQ(refusal([](auto& e) { e.instance = nullptr; }, Code::bad_argument),
            "ExternalVulkan::instance is null.");
  EXPECT_EQ(refusal([](auto& e) { e.physical_device = nullptr; }, Code::bad_argument),
            "ExternalVulkan::physical_device is null.");
  EXPECT_EQ(refusal([](auto& e) { e.device = nullptr; }, Code::bad_argument),
            "ExternalVulkan::device is null.");
  EXPECT_EQ(refusal([](auto& e) { e.queue = nullptr; }, Code::bad_argument),
            "ExternalVulkan::queue is null.");
  EXPECT_EQ(refusal([](auto& e) { e.create_info = nullptr; }, Code::bad_argument),
            "ExternalVulkan::create_info is null.");
  EXPECT_EQ(refusal([](auto& e) { e.lock = [] {}; }, Code::bad_argument),
            "ExternalVulkan has only one of lock() and unlock(). Set both, or none.");
  EXPECT_EQ(refusal([](auto& e) { e.queue_family = 9; }, Code::bad_argument),
            "The Vulkan device has no queue family 9 (of 1).");
  EXPECT_EQ(refusal([&](auto& e) { e.physical_device = app.device; }, Code::bad_argument),
            "The VkInstance has 1 devices, and ExternalVulkan::physical_device is not among them.");
  const auto application = typed<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  EXPECT_EQ(refusal([&](auto& e) { e.create_info = &application; }, Code::bad_argument),
            "ExternalVulkan::create_info is not a VkDeviceCreateInfo: its sType is 0.");
  auto bare = typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  EXPECT_EQ(refusal([&](auto& e) { e.create_info = &bare; }, Code::unsupported),
            "The VkDevice of the program was made without the feature timelineSemaphore. "
            "vulkan_requirements() lists the features to enable.");
  auto timeline = typed<VkPhysicalDeviceTimelineSemaphoreFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES);
  timeline.timelineSemaphore = VK_TRUE;
  bare.pNext = &timeline;
  EXPECT_NE(refusal([&](auto& e) { e.create_info = &bare; }, Code::unsupported)
                .find("without the feature scalarBlockLayout"),
            std::string::npos);
  // Objects of the program need its device.
  const bowline::Device own = must(bowline::Device::open("vulkan:0"));
  EXPECT_EQ(adopt_vulkan_buffer(own, 1, 0, 4).status().code(), Code::unsupported);
  EXPECT_EQ(DeviceSemaphore::adopt_vulkan(own, 1, true).status().code(), Code::unsupported);
}

// Memory goes from one device to another through a descriptor. The lavapipe of Debian 12 has no
// dma-buf; that of Mesa 26 has it where the system has /dev/udmabuf.
class SharedMemory : public AdoptVulkan, public testing::WithParamInterface<ExternalHandle> {};

TEST_P(SharedMemory, IsExportedAndImported) {
  const bowline::Device one = must(bowline::Device::open("vulkan:0"));
  const Result<DeviceBuffer> made = create_exportable(one, 64, GetParam());
  if (made.status().code() == Code::unsupported) {
    GTEST_SKIP() << made.status().message();
  }
  const DeviceBuffer& buffer = made.value();
  Floats x = {1, 2, 3, 4};
  ASSERT_OK(buffer.write(16, std::as_bytes(std::span(x))));
  ExportedMemory memory = must(export_memory(buffer));
  EXPECT_EQ(memory.bytes, 64u);
  EXPECT_GE(memory.allocation_bytes, 64u);
  const bowline::Device two = must(bowline::Device::open("vulkan:0"));
  const auto refused = [&](const ExportedMemory& wrong) {
    return import_memory(two, wrong, GetParam()).status();
  };
  EXPECT_EQ(refused({-1, memory.allocation_bytes, 64}).message(), "Descriptor -1 is not valid.");
  EXPECT_EQ(refused({memory.fd, 32, 64}).message(),
            "A buffer of 64 bytes does not fit into an allocation of 32 bytes.");
  EXPECT_NE(fcntl(memory.fd, F_GETFD), -1);  // a refused descriptor is not taken
  {
    const DeviceBuffer there = must(import_memory(two, memory, GetParam()));
    EXPECT_EQ(fcntl(memory.fd, F_GETFD), -1);  // taken
    Floats y(4);
    ASSERT_OK(there.read(16, std::as_writable_bytes(std::span(y))));
    EXPECT_EQ(y, x);
    Floats z = {9};
    ASSERT_OK(there.write(0, std::as_bytes(std::span(z))));
  }
  Floats first(1);
  ASSERT_OK(buffer.read(0, std::as_writable_bytes(std::span(first))));
  EXPECT_EQ(first[0], 9);
  EXPECT_EQ(export_memory(must(DeviceBuffer::create(one, 64))).status().code(), Code::bad_argument);
}
INSTANTIATE_TEST_SUITE_P(Kinds, SharedMemory,
                         testing::Values(ExternalHandle::opaque_fd, ExternalHandle::dma_buf),
                         [](const auto& p) {
                           return std::string(p.param == ExternalHandle::dma_buf ? "DmaBuf"
                                                                                 : "OpaqueFd");
                         });

TEST_F(AdoptVulkan, SemaphoresAreExportedAndImported) {
  const bowline::Device one = must(bowline::Device::open("vulkan:0"));
  const Result<DeviceSemaphore> made = DeviceSemaphore::create_exportable(one, false);
  if (made.status().code() == Code::unsupported) {
    GTEST_SKIP() << made.status().message();
  }
  const int fd = must(made.value().export_fd());
  const DeviceSemaphore there = must(DeviceSemaphore::import_fd(one, fd, false));
  EXPECT_OK(made.value().signal());
  EXPECT_OK(there.wait_for());
  EXPECT_OK(DeviceBuffer::create(one, 64));
}

}  // namespace
}  // namespace bowline::detail::vulkan
