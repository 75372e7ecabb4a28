// The backend contract: what a device must do for Bowline. None of it knows an operator by name.
//
// A backend is a folder backends/<name>/ with one `Backend` object. It lists devices and opens
// them; an opened device allocates, copies, and turns a Program into a Recording that is submitted
// many times.
//
// Rules
//   Order     Calls on one device take effect in the order in which they are made. Copies and fills
//       wait for
//             earlier submissions. `submit` may return before the work is done; `wait` ends when it
//                 is.
//   Threads   The caller serialises calls on one device. Different devices are independent. One
//       that computes inside `submit` calls its
//             pause there between two records, and others may make any call on it meanwhile,
//                 submissions too.
//   Lifetime  Buffers and Recordings die before their device. A freed buffer is in no later
//       submission.
//   Failure   A call that fails has no effect, but for `submit`: one that fails may have run any
//       part of its work, in
//             order, and can be made again. After `device_lost` every call returns it at once;
//                 freeing and destruction stay legal.
//   Memory    No allocation inside `submit`. What `record` needs for tables is counted in
//       `overhead_bytes`.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "bowline.h"
#include "device/program.h"

namespace bowline::detail::device {

// Grows with every change of this file or of device/program.h.
constexpr uint32_t kContractVersion = 7;

// A block of device memory; the number has a meaning for its backend alone.
struct Buffer {
  uint64_t id = 0;
  bool valid() const { return id != 0; }
};

enum class MemoryKind : uint8_t {
  device,  // weights, states
  arena,   // what every step writes and reads again; else as `device`
  io,      // inputs, outputs, step words: copies in and out of it are cheap
};

// Of what is not MemoryKind::io.
struct MemoryInfo {
  uint64_t total_bytes = 0;  // 0: not known
  uint64_t available_bytes = 0;
};

// What the caller asks about a node before it makes a plan.
struct NodeQuery {
  Op op;
  DType type;  // Record::type
  const Attributes& attributes;
  std::span<const Operand> inputs;
  std::span<const Operand> outputs;
};

struct NodeAnswer {
  std::string reason;            // why this node cannot run here; empty: it can
  uint64_t workspace_bytes = 0;  // scratch that the node gets in the arena while it runs
  uint32_t accumulates = 0;      // bit i: output i may be a gradient (Record::accumulate)
};

struct Capabilities {
  // Of operands in the arena and in the io buffer, bytes, a power of two. One in a storage lies at
  // a multiple of the size of its elements: a parameter may show rows from the middle.
  uint64_t alignment = 64;
  uint64_t max_buffer_bytes = 0;  // of one allocation; 0: no limit
  uint64_t staging_bytes = 0;     // held for copies to and from memory that the host does not see
  // f16 or bf16: what plans compute in whose caller does not say it, for there are no kernels for
  // f32 beyond those that stay in it (OpDef::stays_f32) and those that copy.
  std::optional<DType> compute = {};
  // f32 denormals are numbers; false: the device may take them for zero of their sign (Vulkan 1.2,
  // "Precision and Operation of SPIR-V Instructions").
  bool denormals = true;
  // MemoryKind::device is memory of the host, which has swap, and gives pages that are never
  // touched for nothing: more may be had than MemoryInfo::available_bytes.
  bool host_memory = false;
};

// One segment of a plan, in the form that the device resubmits.
class Recording {
 public:
  virtual ~Recording() = default;
  // Device bytes that the recording itself holds.
  virtual uint64_t overhead_bytes() const { return 0; }
  // What the device is given to run in one submission: kernels, library calls, copies and fills on
  // the device. 0: it is given nothing one by one.
  virtual uint32_t launches() const { return 0; }
};

// The time of one record of a Program on the device.
struct RecordTime {
  uint32_t record = 0;
  double ns = 0;
};

// An opened device. Destruction closes it.
class Device {
 public:
  virtual ~Device() = default;

  virtual const Capabilities& capabilities() const = 0;
  // The dtypes of the operands are those that the operator takes (OpDef::types). One that has no
  // kernel for the storage dtype of the node is refused by its name (device/kernel_table.h).
  virtual NodeAnswer query(const NodeQuery& node) const = 0;
  virtual Result<MemoryInfo> memory_info() = 0;

  // The block starts at a multiple of `alignment`; its content is undefined. bytes = 0 is legal.
  // Errors  out_of_memory, with the bytes.
  virtual Result<Buffer> allocate(uint64_t bytes, MemoryKind kind) = 0;
  virtual void free(Buffer buffer) = 0;

  // Errors  bad_argument: the range does not lie in the buffer.
  virtual Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from) = 0;
  virtual Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset) = 0;
  virtual Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset,
                      uint64_t bytes) = 0;
  virtual Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value) = 0;

  // buffers[s] is slot s of the program. The program is not kept.
  virtual Result<std::unique_ptr<Recording>> record(const Program& program,
                                                    std::span<const Buffer> buffers) = 0;
  // Runs the recordings one after the other.
  virtual Status submit(std::span<Recording* const> recordings) = 0;
  virtual Status wait() = 0;
  // Called once, before the first submission. A device that returns from `submit` before the work
  // is done has no use for it.
  virtual void set_pause(std::function<void()> /*pause*/) {}

  // Runs one recording with a clock around every record (for profiles; slower).
  virtual Result<std::vector<RecordTime>> timestamps(Recording& recording) = 0;

  // Gives memory that is only kept for reuse back to the system.
  virtual void trim() {}
};

// Ranks below it are of processors and of devices for tests.
constexpr int kGpuRank = 2;

// A backend: devices of one kind. One static object per backend folder, without state.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual uint32_t contract_version() const { return kContractVersion; }
  virtual std::string_view name() const = 0;
  // All devices, in a stable order; device i is named "<name>:i", or "<name>" if `single`.
  // A backend that cannot start returns one entry with the reason.
  virtual std::vector<DeviceInfo> enumerate() const = 0;
  virtual bool single() const { return false; }
  // False where this machine certainly has no GPU for it, found without loading a driver: nobody
  // who looks for the best device asks further.
  virtual bool may_have_gpu() const { return true; }
  virtual Result<std::unique_ptr<Device>> open(int index, const DeviceOptions& options) const = 0;
  // How willingly `best` takes a device of this backend: larger first; GPUs from kGpuRank on.
  virtual int rank() const = 0;
};

}  // namespace bowline::detail::device
