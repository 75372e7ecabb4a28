// The backend contract: what a backend must do for Bowline. No rule depends on a certain operator.
//
// A backend is a folder backends/<name>/ with one `Backend` object. It lists devices and opens
// them. An open device allocates, copies, and turns a Program into a Recording, which is submitted
// many times.
//
// Order. Calls on one device take effect in the order of the calls. Copies and fills wait for
// earlier submissions. submit() may return before the work is done. wait() returns after the work
// is done.
//
// Threads. The caller serializes calls on one device. Different devices are independent. A device
// that computes inside submit() calls its pause function between two records. During the pause,
// other threads may call any function of the device, also submit().
//
// Stop. While the flag of set_stop() is true, submit() begins no further part of the recordings
// that may be stopped, and returns `cancelled`. If it has begun a later recording, it runs all. A
// part should take at most about 50 ms. A device that cannot divide its work may finish it.
//
// Lifetime. Buffers, Recordings and Links are destroyed before their device. No submission uses a
// buffer after free().
//
// Failure. A call that fails has no effect, except submit(): it may have run a part of its work, in
// order, and can be called again. After `device_lost`, every call returns `device_lost` at once.
// free() and destructors stay legal.
//
// Memory. submit() does not allocate. Recording::overhead_bytes() counts the memory that record()
// needs for tables.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bowline.h"
#include "device/program.h"

namespace bowline {
struct ExternalCuda;
struct ExternalVulkan;
struct VulkanRequirements;
}  // namespace bowline

namespace bowline::detail::device {

struct MemoryImport;     // external.h
struct SemaphoreImport;  // external.h

// Increases with every change of this file or of device/program.h.
constexpr uint32_t kContractVersion = 16;

// A block of device memory. Only its backend knows the meaning of `id`.
struct Buffer {
  uint64_t id = 0;
  bool valid() const { return id != 0; }
};

enum class MemoryKind : uint8_t {
  device,  // weights, states
  arena,   // activations, which every step writes and reads; otherwise as `device`
  io,      // inputs, outputs, per-step scalars: copies to and from the host are cheap
};

// Memory of a device, without MemoryKind::io.
struct MemoryInfo {
  uint64_t total_bytes = 0;  // 0: not known
  uint64_t available_bytes = 0;
};

// A node, for the question whether the device can run it.
struct NodeQuery {
  Op op;
  DType type;  // Record::type
  const Attributes& attributes;
  std::span<const Operand> inputs;
  std::span<const Operand> outputs;
  uint32_t candidate = kNoCandidate;  // Record::candidate
};

struct NodeAnswer {
  std::string reason;  // why the device cannot run the node; empty: it can
  // Scratch memory in the arena that the node needs while it runs, with NodeQuery::candidate.
  uint64_t workspace_bytes = 0;
  // (optional) The number of ways to run the node. It depends only on the query and the device. Any
  // of them computes the node; they differ in speed, workspace and rounding. 0: there is no choice.
  uint32_t candidates = 0;
  // Bit i: output i may be a gradient (Record::accumulate). A gradient is f32, also if the output
  // would have 16 bits.
  uint32_t accumulates = 0;
};

// Identifies a device in tuning files (device/tuning.h). Both are one line of text.
struct TuningKey {
  std::string model;   // the hardware; empty: NodeAnswer::candidates is always 0
  std::string driver;  // the driver, and all else that changes the speed of the candidates
};

struct Capabilities {
  // Alignment of operands in the arena and in the io buffer, in bytes; a power of two. Operands in
  // a storage are aligned only to the size of their elements, because a view can start at any row.
  uint64_t alignment = 64;
  uint64_t max_buffer_bytes = 0;  // of one allocation; 0: no limit
  uint64_t staging_bytes = 0;     // staging buffers for copies to and from the host
  // (optional) f16 or bf16: the default dtype in which plans compute. The device has f32 kernels
  // only for copies and for operators with OpDef::stays_f32.
  std::optional<DType> compute = {};
  // true: f32 denormals keep their values. false: the device may replace them by zero with the same
  // sign (Vulkan 1.2, "Precision and Operation of SPIR-V Instructions").
  bool denormals = true;
  // DeviceOptions::matmul_precision, as far as the device has it.
  MatmulPrecision matmul_precision = MatmulPrecision::f32;
  // true: MemoryKind::device is host memory. Because of swap and untouched pages, an allocation can
  // be larger than MemoryInfo::available_bytes.
  bool host_memory = false;
  TuningKey tuning = {};  // (optional)
};

// A segment of a plan, recorded for one device. It can be submitted many times.
class Recording {
 public:
  virtual ~Recording() = default;
  // Device memory of the recording itself, in bytes.
  virtual uint64_t overhead_bytes() const { return 0; }
  // The number of kernel launches, library calls, copies and fills in one submission. 0: the device
  // has no separate launches.
  virtual uint32_t launches() const { return 0; }
  // By record of the program: the names of the launches of its first run. Empty: not known.
  virtual std::span<const std::vector<std::string>> kernels() const { return {}; }
};

// The time of one record of a Program on the device.
struct RecordTime {
  uint32_t record = 0;
  double ns = 0;
};

// What a process tells the others before they link their devices.
struct LinkOffer {
  std::array<std::byte, 16> device = {};  // identifies the hardware
  std::array<std::byte, 128> key = {};    // names a link
};

// Bytes of a buffer of MemoryKind::device that another process of a link sends or receives.
struct Transfer {
  uint32_t peer = 0;  // the other process
  Buffer buffer;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Connects devices of several processes, so that they exchange bytes without the host.
class Link {
 public:
  virtual ~Link() = default;
  // Sends and receives after all earlier work of the device, and returns when all is done. The i-th
  // transfer that a process sends to another one is the i-th that the other one receives from it.
  // They have the same size.
  // Errors  device_lost: another process does not answer. The link cannot be used again.
  virtual Status exchange(std::span<const Transfer> sent, std::span<const Transfer> received) = 0;
};

// An opened device. Destruction closes it.
class Device {
 public:
  virtual ~Device() = default;

  virtual const Capabilities& capabilities() const = 0;
  // Computes small problems whose results are known. Kernel variants that fail are switched off,
  // and other kernels replace them. Returns a sentence for each of these variants. Called at most
  // once, as the first call after open(), and not if the device only plans.
  // Errors  unsupported: the other kernels fail, too.
  // Default: nothing is tested.
  virtual Result<std::vector<std::string>> self_test() { return std::vector<std::string>(); }
  // Returns whether the device can run a node. The caller has checked the dtypes of the operands
  // (OpDef::types). If there is no kernel for the storage dtype of the node, the reason says so
  // (device/kernel_table.h).
  virtual NodeAnswer query(const NodeQuery& node) const = 0;
  virtual Result<MemoryInfo> memory_info() = 0;

  // Allocates a block at a multiple of Capabilities::alignment. Its content is undefined. `bytes`
  // may be 0.
  // Errors  out_of_memory: the message has the number of bytes.
  virtual Result<Buffer> allocate(uint64_t bytes, MemoryKind kind) = 0;
  virtual void free(Buffer buffer) = 0;
  // (optional) Takes memory of the program or of another process, or makes memory that can be
  // exported. free() gives it back, and never frees memory of the program.
  // Errors  unsupported: the device cannot. bad_argument: the memory is not valid.
  virtual Result<Buffer> import_memory(const MemoryImport& /*memory*/) {
    return unshared("memory");
  }
  // Returns a file descriptor of such memory, and the bytes of its allocation.
  virtual Result<std::pair<int, uint64_t>> export_memory(Buffer /*buffer*/) {
    return unshared("memory");
  }
  // (optional) Returns the CUdeviceptr of memory of MemoryKind::device.
  virtual Result<uint64_t> cuda_address(Buffer /*buffer*/) { return not_cuda(); }

  // Errors  bad_argument: the range is not inside the buffer.
  virtual Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) = 0;
  virtual Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) = 0;
  virtual Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
                      uint64_t bytes) = 0;
  virtual Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) = 0;

  // Records a program. buffers[s] is slot s. The recording does not refer to `program` afterwards.
  virtual Result<std::unique_ptr<Recording>> record(const Program& program,
                                                    std::span<const Buffer> buffers) = 0;
  // Returns what record() would return, as far as it is known without memory. It cannot be
  // submitted. Default: nothing is known.
  virtual Result<std::unique_ptr<Recording>> plan(const Program& /*program*/) {
    return std::make_unique<Recording>();
  }
  // Runs the recordings one after the other.
  virtual Status submit(std::span<Recording* const> recordings) = 0;
  virtual Status wait() = 0;
  // Sets the pause function (see Threads above). Called once, before the first submission. A device
  // whose submit() returns before the work is done ignores it.
  virtual void set_pause(std::function<void()> /*pause*/) {}
  // Sets the flag that ends the next submissions early (see Stop above), or null, and how many of
  // their recordings may be stopped: the first ones. A submission keeps what was set when it began.
  virtual void set_stop(const std::atomic<bool>* /*asked*/, size_t /*recordings*/) {}

  // Runs a recording and measures the time of each record. Slower than submit().
  virtual Result<std::vector<RecordTime>> timestamps(Recording& recording) = 0;

  // (optional) As above, for semaphores. Returns a number for the other functions.
  virtual Result<uint64_t> import_semaphore(const SemaphoreImport& /*semaphore*/) {
    return unshared("semaphores");
  }
  virtual Result<int> export_semaphore(uint64_t /*semaphore*/) { return unshared("semaphores"); }
  virtual void free_semaphore(uint64_t /*semaphore*/) {}
  // Later work of the device waits for the semaphore, or the semaphore waits for earlier work.
  virtual Status wait_semaphore(uint64_t /*semaphore*/, uint64_t /*value*/) {
    return unshared("semaphores");
  }
  virtual Status signal_semaphore(uint64_t /*semaphore*/, uint64_t /*value*/) {
    return unshared("semaphores");
  }

  // (optional) Offers a link. Each process of the link must have hardware of its own.
  // Errors  unsupported: the device has no links.
  virtual Result<LinkOffer> offer_link() { return unlinked(); }
  // Joins a link. All processes call it with the offer of process 0, and it waits for all of them.
  // The link is destroyed before the device. `timeout_seconds`: of Link::exchange().
  virtual Result<std::unique_ptr<Link>> link(const LinkOffer& /*first*/, uint32_t /*rank*/,
                                             uint32_t /*size*/, double /*timeout_seconds*/) {
    return unlinked();
  }

  // Returns memory that is only kept for reuse to the system.
  virtual void trim() {}

 private:
  // All virtual functions are inline or pure: then a backend with RTTI links with the library,
  // which has none.
  static Status unshared(std::string_view what);
  static Status unlinked();
  static Status not_cuda();
};

// The lowest rank of a GPU. CPUs and devices for tests have lower ranks.
constexpr int kGpuRank = 2;

// A backend: devices of one kind. Each backend folder has one static object without state.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual uint32_t contract_version() const { return kContractVersion; }
  virtual std::string_view name() const = 0;
  // Returns all devices, in a stable order. The name of device i is "<name>:i", or "<name>" if
  // single(). A backend that cannot start returns one entry with the reason.
  virtual std::vector<DeviceInfo> enumerate() const = 0;
  virtual bool single() const { return false; }
  // Returns false if this machine certainly has no GPU for this backend. Does not load a driver.
  // Device::open("best") then skips the backend.
  virtual bool may_have_gpu() const { return true; }
  virtual Result<std::unique_ptr<Device>> open(int index, const DeviceOptions& options) const = 0;
  // (optional) Returns a device on which only capabilities(), query() and plan() are called. It
  // needs no hardware. `model` says for which device it plans, in a form that the backend defines.
  // Null: the backend cannot plan for it.
  virtual std::unique_ptr<Device> open_to_plan(std::string_view /*model*/,
                                               const DeviceOptions& /*options*/) const {
    return nullptr;
  }
  // (optional) Opens a device of the program (bowline/external.h), and describes it. Null: the
  // backend has no such devices.
  virtual Result<std::unique_ptr<Device>> adopt(const ExternalVulkan& /*external*/,
                                                const DeviceOptions& /*options*/,
                                                DeviceInfo* /*info*/) const {
    return std::unique_ptr<Device>();
  }
  virtual Result<std::unique_ptr<Device>> adopt(const ExternalCuda& /*external*/,
                                                const DeviceOptions& /*options*/,
                                                DeviceInfo* /*info*/) const {
    return std::unique_ptr<Device>();
  }
  // (optional) What the program enables in such a device. False: the backend has no such devices.
  virtual Result<bool> require(const ExternalVulkan& /*external*/,
                               VulkanRequirements* /*requirements*/) const {
    return false;
  }
  // Device::open("best") prefers backends with a larger rank. GPUs have at least kGpuRank.
  virtual int rank() const = 0;
};

}  // namespace bowline::detail::device
