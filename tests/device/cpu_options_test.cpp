// The options of DeviceOptions for programs that have their own threads or memory: executor, cores,
// nice, max_load and allocator. None of them changes a bit of the results. And the log callback.
#include <gtest/gtest.h>
#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif

#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "bowline/external.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Task = std::function<void(size_t)>;

// Softmax(x w) with products that several threads share.
struct Wide {
  Wide() {
    const Parameter w = must(model.parameter("w", {256, 256}, Init::normal(1)));
    GraphBuilder g(model, "forward");
    const Value y = g.op("Linear", {g.input("x", DType::f32, {256, 256}), g.parameter(w)});
    g.output("y", g.op("Softmax", {y}));
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(1));
  }
  Floats result(const DeviceOptions& options) {
    const Device device = must(Device::open("cpu", options));
    EXPECT_OK(model.to(device));
    Session session = must(Session::create(model, device, "forward", {}));
    Floats first = run_with_x(session, {256, 256});
    EXPECT_EQ(run_with_x(session, {256, 256}), first);
    return first;
  }
  Model model;
};

TEST(Executor, AnyExecutorGivesTheSameBits) {
  const std::pair<const char*, Executor> executors[] = {
      {"in order",
       [](size_t count, const Task& task) {
         for (size_t i = 0; i < count; ++i) {
           task(i);
         }
       }},
      {"backwards",
       [](size_t count, const Task& task) {
         while (count-- > 0) {
           task(count);
         }
       }},
      {"threads",
       [](size_t count, const Task& task) {
         std::vector<std::thread> threads;
         for (size_t i = 0; i < count; ++i) {
           threads.emplace_back([&task, i] { task(i); });
         }
         for (std::thread& t : threads) {
           t.join();
         }
       }},
      {"none", [](size_t, const Task&) {}},
      {"twice, and too many",
       [](size_t count, const Task& task) {
         for (size_t i = 0; i < 2 * count + 3; ++i) {
           task(i / 2);
         }
       }},
      {"throws",
       [](size_t, const Task& task) {
         task(0);
         throw 1;
       }},
  };
  Wide wide;
  DeviceOptions options;
  options.threads = 1;
  const Floats right = wide.result(options);
  options.threads = 3;
  for (const auto& each : executors) {
    const auto& executor = each.second;
    SCOPED_TRACE(each.first);
    int calls = 0;
    options.executor = [&](size_t count, const Task& task) {
      EXPECT_GE(count, 1u);
      EXPECT_LE(count, 3u);
      ++calls;
      executor(count, task);
    };
    EXPECT_EQ(wide.result(options), right);
    EXPECT_GT(calls, 0);
  }
}

// A task that is called after its job has ended does nothing.
TEST(Executor, ALateTaskDoesNothing) {
  Wide wide;
  DeviceOptions options;
  options.threads = 3;
  Task late;
  options.executor = [&](size_t count, const Task& task) {
    if (late) {
      late(0);
    }
    for (size_t i = 0; i < count; ++i) {
      task(i);
    }
    late = task;
  };
  const Floats result = wide.result(options);
  late(0);
  options.executor = {};
  EXPECT_EQ(result, wide.result(options));
}

TEST(Executor, CannotCallItsDevice) {
  Wide wide;
  std::optional<Device> device;
  Session* session = nullptr;
  Status inside;
  uint64_t live = 0;
  DeviceOptions options;
  options.threads = 2;
  options.executor = [&](size_t count, const Task& task) {
    if (session != nullptr) {
      Floats x(256 * 256);
      const Tensor in = tensor("x", {256, 256}, x);
      inside = session->run({&in, 1}, {});
      live = device->counters().live_bytes;
    }
    for (size_t i = 0; i < count; ++i) {
      task(i);
    }
  };
  device = must(Device::open("cpu", options));
  ASSERT_OK(wide.model.to(*device));
  Session made = must(Session::create(wide.model, *device, "forward", {}));
  const Floats right = run_with_x(made, {256, 256});
  session = &made;
  EXPECT_EQ(run_with_x(made, {256, 256}), right);
  EXPECT_EQ(inside.code(), Code::bad_argument);
  EXPECT_EQ(inside.message(),
            "A callback of device cpu calls a function that uses the device. It must return "
            "first.");
  EXPECT_GT(live, 0u);
}

// Memory of the program that fails at one allocation.
class Heap {
 public:
  enum class Fault { returns_null, is_not_aligned, throws };

  Heap(Fault fault, int fails_at) : fault_(fault), fails_at_(fails_at) {}
  ~Heap() { EXPECT_TRUE(live_.empty()) << "memory is lost"; }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  HostAllocator allocator() {
    return {[this](size_t bytes, size_t alignment) { return allocate(bytes, alignment); },
            [this](void* memory, size_t bytes) {
              EXPECT_EQ(live_[memory], bytes);
              live_.erase(memory);
            }};
  }
  bool failed() const { return calls_ >= fails_at_; }

 private:
  void* allocate(size_t bytes, size_t alignment) {
    size_t at = 0;
    if (++calls_ == fails_at_) {
      if (fault_ == Fault::throws) {
        throw 1;
      }
      if (fault_ == Fault::returns_null) {
        return nullptr;
      }
      at = 4;
    }
    memory_.emplace_back(bytes + 2 * alignment);
    const auto begin = reinterpret_cast<uintptr_t>(memory_.back().data());
    at += alignment - begin % alignment;
    void* const out = memory_.back().data() + at;
    live_[out] = bytes;
    return out;
  }

  Fault fault_;
  int fails_at_;
  int calls_ = 0;
  std::list<std::vector<std::byte>> memory_;
  std::map<void*, size_t> live_;
};

// Allocates all kinds of memory. `right`: the outputs of the run.
Status use(Wide& wide, const Device& device, const Floats& right) {
  BOWLINE_TRY(DeviceBuffer::create(device, 100).status());
  BOWLINE_TRY(create_host_buffer(device, 100).status());
  BOWLINE_TRY(wide.model.to(device));
  BOWLINE_TRY_ASSIGN(Session session, Session::create(wide.model, device, "forward", {}));
  EXPECT_EQ(run_with_x(session, {256, 256}), right);
  return {};
}

TEST(Allocator, AFailureIsOutOfMemoryAndLosesNothing) {
  Wide wide;
  const Floats right = wide.result({});
  const Device elsewhere = open_test_device("cpu");
  for (const auto fault :
       {Heap::Fault::returns_null, Heap::Fault::is_not_aligned, Heap::Fault::throws}) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(fault) << " " << n);
      Heap heap(fault, n);
      DeviceOptions options;
      options.threads = 2;
      options.allocator = heap.allocator();
      const Device device = must(Device::open("cpu", options));
      const Status status = use(wide, device, right);
      const bool failed = heap.failed();
      if (failed) {
        EXPECT_EQ(status.code(), Code::out_of_memory) << status.message();
        EXPECT_OK(use(wide, device, right));
      } else {
        EXPECT_OK(status);
        EXPECT_GT(n, 4);
      }
      ASSERT_OK(wide.model.to(elsewhere));
      EXPECT_EQ(device.counters().live_bytes, 0u);
      if (!failed) {
        break;
      }
    }
  }
}

TEST(Allocator, CannotCallItsDevice) {
  std::optional<Device> device;
  Status inside;
  std::vector<std::byte> memory(256);
  DeviceOptions options;
  options.allocator.allocate = [&](size_t, size_t alignment) -> void* {
    inside = DeviceBuffer::create(*device, 4).status();
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (alignment - begin % alignment);
  };
  options.allocator.free = [](void*, size_t) { throw 1; };  // ignored
  device = must(Device::open("cpu", options));
  EXPECT_OK(DeviceBuffer::create(*device, 64));
  EXPECT_EQ(inside.code(), Code::bad_argument);
}

TEST(CpuOptions, ALimitedLoadGivesTheSameBits) {
  Wide wide;
  DeviceOptions options;
  options.threads = 1;
  const Floats right = wide.result(options);
  for (const int threads : {1, 3}) {
    options.threads = threads;
    options.max_load = 0.5;
    EXPECT_EQ(wide.result(options), right);
  }
}

TEST(CpuOptions, BadOnesAreRefused) {
  const auto message = [](const std::function<void(DeviceOptions&)>& set) {
    DeviceOptions options;
    set(options);
    const Status status = Device::open("cpu", options).status();
    EXPECT_EQ(status.code(), Code::bad_argument);
    return status.message();
  };
  EXPECT_EQ(message([](DeviceOptions& o) { o.max_load = 0.01; }),
            "DeviceOptions::max_load is 0.01, outside 0.05 to 1.");
  EXPECT_NE(message([](DeviceOptions& o) { o.max_load = std::nan(""); }), "");
  EXPECT_EQ(message([](DeviceOptions& o) { o.nice = -1; }),
            "DeviceOptions::nice is -1, outside 0 to 19.");
  EXPECT_EQ(message([](DeviceOptions& o) {
              o.cores = {0, 100000};
            }).substr(0, 45),
            "DeviceOptions::cores has core 100000, which t");
  EXPECT_EQ(message([](DeviceOptions& o) {
              o.nice = 1;
              o.executor = [](size_t, const Task&) {};
            }).substr(0, 28),
            "With DeviceOptions::executor");
}

#ifdef __linux__
// The numbers of the threads of this process.
std::set<int> threads_now() {
  std::set<int> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    out.insert(std::stoi(entry.path().filename().string()));
  }
  return out;
}

// Field 19 of /proc/self/task/N/stat. The second field is a name in parentheses.
int nice_of(int thread) {
  std::ifstream file(format("/proc/self/task/{}/stat", thread));
  std::string text(std::istreambuf_iterator<char>(file), {});
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 19; ++i) {
    rest >> field;
  }
  return std::stoi(field);
}

TEST(CpuOptions, ThreadsHaveTheCoresAndThePriority) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  int core = 0;
  while (!CPU_ISSET(static_cast<size_t>(core), &usable)) {
    ++core;
  }
  const std::set<int> before = threads_now();
  const int nice = std::min(19, nice_of(getpid()) + 5);
  DeviceOptions options;
  options.threads = 3;
  options.cores = {core};
  options.nice = 5;
  Wide wide;
  const Device device = must(Device::open("cpu", options));
  ASSERT_OK(wide.model.to(device));
  Session session = must(Session::create(wide.model, device, "forward", {}));
  run_with_x(session, {256, 256});
  int seen = 0;
  for (const int thread : threads_now()) {
    if (before.contains(thread)) {
      continue;
    }
    // A thread that has just started may not have its place yet.
    cpu_set_t set;
    for (int tries = 0; tries < 10000; ++tries) {
      ASSERT_EQ(sched_getaffinity(thread, sizeof set, &set), 0);
      if (CPU_COUNT(&set) == 1 && nice_of(thread) == nice) {
        break;
      }
      std::this_thread::yield();
    }
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(core), &set));
    EXPECT_EQ(CPU_COUNT(&set), 1);
    EXPECT_EQ(nice_of(thread), nice);
    ++seen;
  }
  EXPECT_EQ(seen, 2);
  // This thread is as before.
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  EXPECT_TRUE(CPU_EQUAL(&own, &usable));
}
#endif

TEST(Log, TellsAboutDevicesNoticesAndPlans) {
  std::vector<std::pair<LogLevel, std::string>> log;
  DeviceOptions options;
  options.matmul_precision = MatmulPrecision::tf32;
  options.log = [&](LogLevel level, std::string_view message) { log.emplace_back(level, message); };
  const Device device = must(Device::open("cpu", options));
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[0].first, LogLevel::info);
  EXPECT_TRUE(log[0].second.starts_with("Opened device cpu: ")) << log[0].second;
  EXPECT_EQ(log[1], std::pair(LogLevel::warning, std::string(device.info().notice)));
  log.clear();
  Seed s = lm32();
  ASSERT_OK(s.model.to(device));
  Session session = must(Session::create(s.model, device, "loss", {}));
  logits_of(session, s);
  logits_of(session, s);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].second.find("New plan of \"loss\" on cpu: 3 records, "), 0u) << log[0].second;
}

TEST(Log, ACallbackThatThrowsLosesItsMessage) {
  DeviceOptions options;
  int calls = 0;
  options.log = [&](LogLevel, std::string_view) {
    ++calls;
    throw 1;
  };
  const Device device = must(Device::open("cpu", options));
  Seed s = lm32();
  ASSERT_OK(s.model.to(device));
  EXPECT_EQ(logits_of(s, device).size(), 3u);
  EXPECT_EQ(calls, 2);
}

TEST(Log, ACallbackCannotUseItsDevice) {
  DeviceOptions options;
  Seed s = lm32();
  std::optional<Device> device;
  Status inside;
  options.log = [&](LogLevel, std::string_view) {
    if (device) {
      inside = Session::create(s.model, *device, "loss", {}).status();
    }
  };
  device = must(Device::open("cpu", options));
  ASSERT_OK(s.model.to(*device));
  EXPECT_EQ(logits_of(s, *device).size(), 3u);
  EXPECT_EQ(inside.code(), Code::bad_argument);
  EXPECT_EQ(inside.message(),
            "A callback of device cpu calls a function that uses the device. It must return "
            "first.");
}

TEST(Log, OtherDevicesIgnoreTheOptionsOfTheCpu) {
  DeviceOptions options;
  options.nice = 1;
  EXPECT_EQ(must(Device::open("null", options)).info().notice,
            "Device null ignores the options cores, nice, max_load, executor and allocator, which "
            "are for the CPU.");
}

}  // namespace
}  // namespace bowline::test
