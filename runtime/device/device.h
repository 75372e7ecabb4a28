// Opens devices by name. OpenDevice adds counters, a memory budget and turns to a backend's device.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "base/threads.h"
#include "device/backend.h"
#include "device/fork.h"
#include "device/tuning.h"
#include "device/turns.h"

namespace bowline::detail::device {

// Returns all backends of this build, in the order of their folder names. Defined in
// generated/backends.cpp.
std::span<const Backend* const> backends();

// The measured times of one submitted recording.
struct RecordingTimes {
  const Recording* recording = nullptr;
  std::vector<RecordTime> times;
};

// The sizes of blocks that a caller is about to allocate.
struct Demand {
  uint64_t bytes = 0;         // sum of all blocks
  uint64_t device_bytes = 0;  // sum without MemoryKind::io
  uint64_t largest = 0;       // the largest block

  void add(uint64_t block_bytes, MemoryKind kind);
};

// Lets other threads end a submission early.
struct Stop {
  const std::atomic<bool>* asked = nullptr;  // null: nobody can
  // The first recordings, which may be stopped. If they were not, the others run to their end.
  size_t recordings = SIZE_MAX;
};

// An open device with its name, counters and memory budget.
//
// Threads: any thread may call it. It serves one call at a time, in the order of the calls, so that
// a thread waits for at most one call of each other thread. If a device computes inside submit(),
// and another thread has waited for a millisecond, the other call runs between two records.
//
// Callbacks: the device may call the executor, the allocator and the queue lock of the program, and
// log() calls the log callback. If they call the device in the same thread, functions that can fail
// return bad_argument.
//
// fork(): in a child process, the threads of the device do not exist. Functions that can fail
// return device_lost there. Freeing and destroying do nothing; the memory is freed with the
// process.
class OpenDevice {
 public:
  // `memory_budget`: see DeviceOptions. `has_memory` is false for a planning device (planning.h).
  OpenDevice(DeviceInfo info, std::unique_ptr<Device> device, uint64_t memory_budget = 0,
             bool has_memory = true);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  const DeviceInfo& info() const { return info_; }
  const Capabilities& capabilities() const { return device_->capabilities(); }
  bool has_memory() const { return has_memory_; }
  // Reserves the device for this thread: calls of other threads wait until the Hold is destroyed.
  // To avoid deadlock, a thread may hold only one device at a time.
  class Hold {
   public:
    explicit Hold(OpenDevice& device);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    OpenDevice& device_;
    std::unique_lock<Turns> turn_;
  };

  // Errors  device_lost: this is the child of a fork(). bad_argument: a callback calls the device.
  Status check_caller() const;
  // Call it only if check_caller() succeeds.
  NodeAnswer query(const NodeQuery& node) const;
  // Returns the candidate of a node (Record::candidate) from the measured choices. `key` is its
  // node_key(), and `candidates` the answer to a query that names no candidate.
  uint32_t choose(std::string_view key, uint32_t candidates) const;

  // The measured choices of this device. Plans that exist keep theirs.
  Choices choices() const;
  void set_choices(Choices choices);
  // The path of the tuning file. Empty: the device has no choices, or there is no cache folder.
  const std::string& tuning_path() const { return tuning_path_; }
  void set_tuning_path(std::string path) { tuning_path_ = std::move(path); }
  // While a candidate is forced, choose() returns it for every node that has it, and kNoCandidate
  // for others. {}: the choices apply.
  void force_candidate(std::optional<uint32_t> candidate);
  Result<MemoryInfo> memory_info();

  // Checks that blocks can be allocated, without allocating them.
  // Errors  over_budget: the blocks exceed the rest of the budget.
  //         out_of_memory: a block exceeds the largest block size of the device, or the sum exceeds
  //         its free memory (for host memory: its total memory, because free memory is only an
  //         estimate).
  Status require_room(const Demand& demand);
  // Allocates a block. Checks the budget and the limits of the device before it calls the driver.
  Result<Buffer> allocate(uint64_t bytes, MemoryKind kind);
  void free(Buffer buffer, uint64_t bytes);
  // As the functions of Device. Memory of the program counts 0 bytes.
  Result<Buffer> import_memory(const MemoryImport& memory, uint64_t counted_bytes);
  Result<std::pair<int, uint64_t>> export_memory(Buffer buffer);
  Result<uint64_t> cuda_address(Buffer buffer);
  Result<uint64_t> import_semaphore(const SemaphoreImport& semaphore);
  Result<int> export_semaphore(uint64_t semaphore);
  void free_semaphore(uint64_t semaphore);
  Status wait_semaphore(uint64_t semaphore, uint64_t value);
  Status signal_semaphore(uint64_t semaphore, uint64_t value);
  Result<LinkOffer> offer_link();
  Result<std::unique_ptr<Link>> link(const LinkOffer& first, uint32_t rank, uint32_t size,
                                     double timeout_seconds);
  Status exchange(Link& link, std::span<const Transfer> sent, std::span<const Transfer> received);
  void release(std::unique_ptr<Link> link);
  Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from);
  Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset);
  Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset, uint64_t bytes);
  Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value);
  // Records a program. The size of a recording is known only afterwards. If it exceeds the budget,
  // the recording is destroyed and record() returns over_budget.
  Result<std::unique_ptr<Recording>> record(const Program& program,
                                            std::span<const Buffer> buffers);
  // Destroys a recording, in its turn like any other call.
  void release(std::unique_ptr<Recording> recording);
  // submit(), wait() and copy_out() do not throw std::bad_alloc, because the caller must still
  // handle the running submission.
  // Errors  cancelled: `stop` was asked for before the end.
  Status submit(std::span<Recording* const> recordings, const Stop& stop = {});
  Status wait();
  // Starts to measure the time of each record: submissions append their times to `into`. Returns
  // false, and changes nothing, if a clock is running already.
  bool start_clock(std::vector<RecordingTimes>* into);
  void stop_clock();

  // Sends a message to DeviceOptions::log, if the program wants it. Call it without a Hold.
  void set_log(std::function<void(LogLevel level, std::string_view message)> log) {
    log_ = std::move(log);
  }
  bool has_log() const { return log_ != nullptr; }
  void log(LogLevel level, std::string_view message);

  // The number of calls that wait for their turn.
  uint32_t waiting() const { return turns_.waiting(); }
  DeviceCounters counters() const;
  void reset_counters();

 private:
  bool was_forked() const { return forks_ != forks(); }
  std::unique_lock<Turns> take_turn() const;
  // The turn of a call that may call back.
  class Call {
   public:
    explicit Call(OpenDevice& device)
        : turn_(device.take_turn()),
          inside_(device.inside_),
          outer_(inside_.exchange(this_thread())) {}
    ~Call() { inside_ = outer_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    std::unique_lock<Turns> turn_;
    std::atomic<ThreadId>& inside_;
    ThreadId outer_;
  };
  void give_way();
  Status submit_timed(std::span<Recording* const> recordings, const Stop& stop);
  Status check_budget(uint64_t bytes) const;
  Status check_block(uint64_t bytes) const;
  Status check_size(uint64_t bytes, MemoryKind kind);

  mutable Turns turns_;
  std::atomic<ThreadId> holder_{};   // the thread that has a Hold
  std::atomic<ThreadId> inside_{};   // the thread whose call may call back
  std::atomic<ThreadId> logging_{};  // the thread that is in the log callback
  Turns log_turns_;
  std::function<void(LogLevel level, std::string_view message)> log_;
  // When the running submission lets other calls run. Set only when another thread waits, so that
  // the clock is not read otherwise.
  std::chrono::steady_clock::time_point gives_way_at_;
  uint32_t forks_ = forks();
  DeviceInfo info_;
  std::unique_ptr<Device> device_;
  uint64_t memory_budget_ = 0;
  bool has_memory_ = true;
  DeviceCounters counters_;
  std::vector<RecordingTimes>* clock_ = nullptr;
  Choices choices_;
  std::string tuning_path_;
  std::optional<uint32_t> forced_;
};

// A block of device memory: an allocation, or a part of one. The last reference frees it.
class Block {
 public:
  static Result<std::shared_ptr<Block>> allocate(const std::shared_ptr<OpenDevice>& device,
                                                 uint64_t bytes,
                                                 MemoryKind kind = MemoryKind::device);
  // Takes memory of the program or of another process.
  static Result<std::shared_ptr<Block>> import(const std::shared_ptr<OpenDevice>& device,
                                               const MemoryImport& memory);
  // The memory of a buffer of the program. Null if it was moved from.
  static const std::shared_ptr<Block>& of(const DeviceBuffer& buffer) { return buffer.block_; }
  // Returns bytes [offset, offset + bytes) of `whole`. The part keeps `whole` alive.
  static std::shared_ptr<Block> part(std::shared_ptr<const Block> whole, uint64_t offset,
                                     uint64_t bytes);
  ~Block() {
    if (buffer_.valid() && whole_ == nullptr) {
      device_->free(buffer_, counted_bytes_);
    }
  }
  // Copies bytes [at, at + count) to a new block of the same device.
  Result<std::shared_ptr<Block>> copied(uint64_t at, uint64_t count) const;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  OpenDevice& device() const { return *device_; }
  const std::shared_ptr<OpenDevice>& device_handle() const { return device_; }
  // The allocation, and the offset of the block in it.
  Buffer buffer() const { return buffer_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }
  // The allocation that the block is a part of, or the block itself.
  const Block& whole() const { return whole_ ? *whole_ : *this; }

  // These functions do not call the device if there are no bytes.
  Status write(uint64_t at, std::span<const std::byte> from) const;
  Status read(uint64_t at, std::span<std::byte> to) const;
  Status fill(std::byte value) const;
  // From a block of the same device.
  Status copy(uint64_t at, const Block& from, uint64_t from_at, uint64_t count) const;

 private:
  explicit Block(std::shared_ptr<OpenDevice> device) : device_(std::move(device)) {}
  std::shared_ptr<OpenDevice> device_;
  std::shared_ptr<const Block> whole_;
  Buffer buffer_;
  uint64_t offset_ = 0;
  uint64_t bytes_ = 0;
  uint64_t counted_bytes_ = 0;  // of the device; 0: memory of the program
};

// Records a program. slots[s] is the block of slot s. See OpenDevice::record().
Result<std::unique_ptr<Recording>> record(OpenDevice& device, const Program& program,
                                          std::span<const Block* const> slots);

// Returns all devices of all backends, with the reason if a device cannot be used.
std::vector<DeviceInfo> list_devices();

// Opens a device (Device::open()).
// Errors  bad_argument: no device has this name.
//         unsupported: the device cannot be used. The message has the reason.
//         over_budget: the staging buffers exceed the memory budget.
Result<std::shared_ptr<OpenDevice>> open_device(std::string_view name,
                                                const DeviceOptions& options);

// Opens a device of the program (bowline/external.h).
// Errors  unsupported: no backend of this build has such devices; and as Backend::adopt().
Result<std::shared_ptr<OpenDevice>> adopt_device(const ExternalVulkan& external,
                                                 const DeviceOptions& options);
Result<VulkanRequirements> vulkan_requirements(const ExternalVulkan& external);
Result<std::shared_ptr<OpenDevice>> adopt_device(const ExternalCuda& external,
                                                 const DeviceOptions& options);

}  // namespace bowline::detail::device
