// Devices: list, open, count.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bowline/status.h"

namespace bowline::detail::device {
class OpenDevice;
}

#pragma GCC visibility push(default)

namespace bowline {

// The library's own way to what the public objects hold; it is not installed.
struct Internals;

struct DeviceOptions {
  int threads = 0;           // CPU: worker threads, the caller's included; 0: one per usable core
  std::string cache_folder;  // Vulkan: where compiled pipelines are kept; empty: not kept
  // The most memory, bytes, that the opened device takes at a time: storages, arenas, inputs and
  // outputs, step words, and what recordings and staged copies hold. What exceeds it is refused
  // with over_budget. 0: not limited.
  uint64_t memory_budget = 0;
  // Vulkan: copies are staged even where the host sees the device's memory, as most GPUs of their
  // own need it. For tests.
  bool stage_copies = false;
};

struct DeviceInfo {
  std::string name;         // "cpu", "vulkan:0", "null"
  std::string description;  // "llvmpipe (LLVM 15.0.6, 256 bits), Mesa 22.3.6"
  std::string unusable;     // why it cannot be opened; empty if it can
  bool software = false;    // a software driver: `best` does not prefer it to the CPU
  bool for_tests = false;  // slow, or computes nothing, or breaks on purpose: `best` never takes it
  bool computes = true;    // false: it checks what it is given, and its numbers mean nothing
};

// Counted where memory is obtained and where work is handed over.
struct DeviceCounters {
  uint64_t allocations = 0;
  uint64_t live_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t copies_in = 0;
  uint64_t copies_out = 0;
  uint64_t copies = 0;
  uint64_t fills = 0;
  uint64_t records = 0;
  uint64_t submits = 0;
};

// An opened device. Copies share it; it closes with the last copy.
class Device {
 public:
  // All devices of all backends, the unusable ones with the reason.
  static std::vector<DeviceInfo> list();
  // `name` is a name of list(), "gpu" (the best GPU, no software driver) or "best" (the best GPU,
  // else the CPU). The prefix "planning:" opens a device without memory that runs nothing: plans on
  // it report the memory that they would need, also for storages without values.
  // Errors  bad_argument: no device has this name.
  //         unsupported: the device cannot be used; the message has the reason.
  //         over_budget: the memory that the device holds for copies exceeds the memory budget.
  static Result<Device> open(std::string_view name, const DeviceOptions& options = {});
  ~Device();
  Device(const Device&);
  Device& operator=(const Device&);
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  const DeviceInfo& info() const;
  DeviceCounters counters() const;
  // Sets the counters to zero, but for the live bytes; the peak starts from them.
  void reset_counters();

 private:
  friend struct Internals;
  explicit Device(std::shared_ptr<detail::device::OpenDevice> open);
  std::shared_ptr<detail::device::OpenDevice> open_;
};

}  // namespace bowline

#pragma GCC visibility pop
