/// \file
/// Device: lists and opens devices, and counts their operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// How matrix products multiply f32 operands. Sums are f32 in any case.
enum class MatmulPrecision : uint8_t {
  f32,  ///< Exact products.
  /// Tensor cores round the operands to TF32, which has the range of f32 and 10 fraction bits.
  tf32,
};

/// The kind of a log message.
enum class LogLevel : uint8_t {
  info,     ///< What Bowline does: it opens a device, or makes a plan.
  warning,  ///< What the program may not expect: an ignored option, or a kernel that is switched
            ///< off.
};

/// Runs the tasks of a device in threads of the program; see DeviceOptions::executor.
using Executor = std::function<void(size_t count, const std::function<void(size_t)>& task)>;

/// Allocates memory of the CPU device; see DeviceOptions::allocator.
struct HostAllocator {
  /// Returns `bytes` bytes at a multiple of `alignment`, which is a power of two. Null: there is no
  /// memory left.
  std::function<void*(size_t bytes, size_t alignment)> allocate = {};
  /// Takes back memory that allocate() returned, with the same size.
  std::function<void(void* memory, size_t bytes)> free = {};
};

/// Options of Device::open().
struct DeviceOptions {
  /// CPU: number of threads, including the calling thread. 0: one per entry of `cores`, or one per
  /// core usable by the process.
  int threads = 0;
  /// Vulkan: folder for compiled pipelines, the result of the self test, and the results of tune()
  /// (tune.h). Empty: no files.
  std::string cache_folder;
  /// Limit of the memory allocated on this Device, in bytes. 0: no limit.
  ///
  /// The limit covers weights, activations, inputs, outputs and internal buffers of the backend. A
  /// call that would exceed it returns over_budget.
  uint64_t memory_budget = 0;
  /// CUDA from sm_80 on: the lowest precision that products of f32 matrices (MatMul and Linear) may
  /// use. tf32 is faster. Products of up to 8 rows, and operands that tensor cores cannot load,
  /// stay exact. Other devices ignore tf32, and say so in DeviceInfo::notice.
  MatmulPrecision matmul_precision = MatmulPrecision::f32;
  /// CPU on Linux and Windows: numbers of the cores on which the threads of the device may run.
  /// Empty: all cores of the process. The thread that calls a function also computes, but `cores`
  /// does not apply to it.
  std::vector<int> cores = {};
  /// CPU on Linux and Windows: a value from 0 to 19 for the threads of the device. Linux adds it to
  /// the nice value of the process. A higher value means a lower priority. Windows has two lower
  /// priorities: one for values below 10, one for the others. The thread that calls a function
  /// keeps its own priority.
  int nice = 0;
  /// CPU: a thread computes at most this share of the time, from 0.05 to 1.
  ///
  /// Below 1, each thread of a run sleeps after about 2 ms of work. This includes the thread that
  /// calls run() or step(). The results have the same bits. The limit holds for each device: two
  /// devices together can use twice this share.
  double max_load = 1;
  /// CPU: (optional) runs the tasks of the device instead of its own threads.
  ///
  /// It calls task(i) for each i from 0 to count - 1, in any order and in any threads, and returns
  /// after all these calls. `count` is at most `threads`. It may run the tasks one after the other.
  /// The results have the same bits.
  ///
  /// If the executor throws, or returns too early, the calling thread computes the rest. The
  /// executor and its threads must not call functions that use this device. In the calling thread,
  /// such a function returns bad_argument. In another thread, it waits forever. `cores` and `nice`
  /// cannot be used with an executor; `max_load` can.
  Executor executor = {};
  /// (optional) Gets messages: the opened device, its notices, and each new plan.
  ///
  /// One thread at a time calls it. Exceptions that it throws are ignored. If it calls a function
  /// that uses this device, the function returns bad_argument.
  std::function<void(LogLevel level, std::string_view message)> log = {};
  /// CPU: (optional) allocates the memory of the device: weights, activations, inputs and outputs.
  ///
  /// Set both callbacks or none. If allocate() returns null, memory that is not aligned, or throws,
  /// the call that needs the memory returns out_of_memory. `memory_budget` also counts this memory.
  /// Tables and constants of kernels are in the memory of the process.
  ///
  /// One thread at a time calls them. They must not call functions that use this device: those
  /// return bad_argument.
  HostAllocator allocator = {};
};

/// A device of this machine.
struct DeviceInfo {
  std::string name;         ///< The name for Device::open(), for example "cpu" or "vulkan:0".
  std::string description;  ///< Hardware and driver, for people.
  std::string unusable;     ///< Why the device cannot be opened. Empty if it can.
  bool software = false;    ///< A GPU driver that runs on the CPU. "best" and "gpu" ignore it.
  bool for_tests = false;   ///< A device for tests only. "best" and "gpu" ignore it.
  bool computes = true;     ///< false: the device "null", which checks calls but computes nothing.
  /// Variants of kernels that failed the self test of the device, each with the reason. Other
  /// kernels replace them. Only Device::open() runs this test, so this is empty after list().
  std::vector<std::string> switched_off = {};
  /// For an open device: why its tuning file (tune.h) is ignored, and why "best" or "gpu" did not
  /// take a better device. Also the options that it ignores. Empty if there is nothing to say.
  std::string notice = {};
};

/// What a device did since it was opened or its counters were reset.
struct DeviceCounters {
  uint64_t allocations = 0;  ///< Memory allocations.
  uint64_t live_bytes = 0;   ///< Bytes allocated now.
  uint64_t peak_bytes = 0;   ///< Largest value of live_bytes.
  uint64_t copies_in = 0;    ///< Copies from the host to the device.
  uint64_t copies_out = 0;   ///< Copies from the device to the host.
  uint64_t copies = 0;       ///< Copies on the device.
  uint64_t fills = 0;        ///< Fills of device memory with a constant.
  uint64_t records = 0;      ///< Recorded command lists. A Session or Trainer has one or more.
  uint64_t submits = 0;      ///< Submissions of command lists.
};

struct Internals;  // gives the library access to private members

/// An open device. Copies refer to the same device; the last copy closes it.
///
/// Threads: any thread may call list(), open(), info(), counters() and reset_counters().
class Device {
 public:
  /// Returns the devices of all backends, including unusable ones.
  static std::vector<DeviceInfo> list();

  /// Opens a device. external.h has functions that take a device which the program opened.
  ///
  /// `name` is one of:
  /// - a name from list(),
  /// - "gpu": the first usable GPU; CUDA before Vulkan,
  /// - "best": as "gpu", or the CPU if there is no usable GPU,
  /// - "planning:" and a name, for example "planning:cpu": a device that allocates no memory.
  ///   Sessions and Trainers on it report the memory that they would need. Models on it need no
  ///   values.
  ///
  /// Errors:
  /// - bad_argument: no device has this name, an option is out of range, or the process may not use
  ///   one of the `cores`.
  /// - unsupported: the device cannot be used, or fails its self test. The message says why.
  /// - over_budget: the memory budget is too small for the internal buffers.
  static Result<Device> open(std::string_view name, const DeviceOptions& options = {});

  ~Device();
  Device(const Device&);
  Device& operator=(const Device&);
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  const DeviceInfo& info() const;
  DeviceCounters counters() const;
  /// Sets peak_bytes to live_bytes, keeps live_bytes, and sets all other counters to zero.
  void reset_counters();

 private:
  friend struct Internals;
  explicit Device(std::shared_ptr<detail::device::OpenDevice> open);
  std::shared_ptr<detail::device::OpenDevice> open_;
};

}  // namespace bowline

#pragma GCC visibility pop
