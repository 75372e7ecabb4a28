// Devices by name, and the counting layer between Bowline and a backend's device.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "device/backend.h"
#include "device/fork.h"
#include "device/turns.h"

namespace bowline::detail::device {

// All backends of this build, in the order of their folder names. Generated
// (generated/backends.cpp).
std::span<const Backend* const> backends();

// What the device's clock said of one submitted recording.
struct RecordingTimes {
  const Recording* recording = nullptr;
  std::vector<RecordTime> times;
};

// Blocks that somebody is about to ask for.
struct Demand {
  uint64_t bytes = 0;         // the sum
  uint64_t device_bytes = 0;  // of it, what is not MemoryKind::io
  uint64_t largest = 0;

  void add(uint64_t block_bytes, MemoryKind kind);
};

// An opened device with its name. It takes one call at a time, in the order in which threads ask,
// so that sessions on several threads may share it: each waits for at most one call of every other.
// A submission that the device computes itself gives way to those that wait a millisecond, between
// two records. It counts where memory is obtained and work is handed over: all that it holds stays
// within the memory budget.
// Fork  The child of a fork() has none of the threads that the device needs. There, a call that can
//       fail returns device_lost, and what is freed or destroyed is left as it is: its memory goes
//       with the process.
class OpenDevice {
 public:
  // `memory_budget` is that of DeviceOptions; `has_memory` false: the device is for plans
  // (planning.h).
  OpenDevice(DeviceInfo info, std::unique_ptr<Device> device, uint64_t memory_budget = 0,
             bool has_memory = true);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  const DeviceInfo& info() const { return info_; }
  const Capabilities& capabilities() const { return device_->capabilities(); }
  bool has_memory() const { return has_memory_; }
  // While it lives, the calls of this thread follow one another, and those of others wait for it. A
  // thread holds one device at a time, as two that wait for each other's would wait for ever.
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

  // Errors  device_lost: this is the child of a fork().
  Status check_process() const;
  // Of a device that check_process() lets pass.
  NodeAnswer query(const NodeQuery& node) const;
  Result<MemoryInfo> memory_info();

  // Nothing is allocated. Errors  over_budget: the blocks exceed what the budget has left.
  // out_of_memory: the device cannot hold
  // them: one is larger than its largest, or all are more than it has left; of a host, than it has
  // at all, as what is left of its memory is a guess.
  Status require_room(const Demand& demand);
  // Refuses what exceeds the budget, or what the device cannot hold, before its driver is asked.
  Result<Buffer> allocate(uint64_t bytes, MemoryKind kind);
  void free(Buffer buffer, uint64_t bytes);
  Status copy_in(Buffer to, uint64_t offset, std::span<const std::byte> from);
  Status copy_out(std::span<std::byte> to, Buffer from, uint64_t offset);
  Status copy(Buffer to, uint64_t to_offset, Buffer from, uint64_t from_offset, uint64_t bytes);
  Status fill(Buffer to, uint64_t offset, uint64_t bytes, std::byte value);
  // What a recording holds is known afterwards: one that exceeds the budget is gone again.
  Result<std::unique_ptr<Recording>> record(const Program& program,
                                            std::span<const Buffer> buffers);
  // Recordings are destroyed here: a device takes one call at a time.
  void release(std::unique_ptr<Recording> recording);
  // This, wait() and copy_out() let no failed allocation of host memory out: the caller has a
  // submission to look after.
  Status submit(std::span<Recording* const> recordings);
  Status wait();
  // From now on a submission runs with a clock around every record, whose times are added to
  // `into`. False, and nothing changes, where a clock runs already.
  bool start_clock(std::vector<RecordingTimes>* into);
  void stop_clock();

  // How many calls wait for their turn.
  uint32_t waiting() const { return turns_.waiting(); }
  DeviceCounters counters() const;
  void reset_counters();

 private:
  bool was_forked() const { return forks_ != forks(); }
  std::unique_lock<Turns> take_turn() const;
  void give_way();
  Status submit_timed(std::span<Recording* const> recordings);
  Status check_budget(uint64_t bytes) const;
  Status check_block(uint64_t bytes) const;
  Status check_size(uint64_t bytes, MemoryKind kind);

  mutable Turns turns_;
  std::atomic<std::thread::id> holder_;  // of a Hold
  // Of the submission that runs; not set before it sees somebody wait, as no clock is read in a
  // step that has its device alone.
  std::chrono::steady_clock::time_point gives_way_at_;
  uint32_t forks_ = forks();
  DeviceInfo info_;
  std::unique_ptr<Device> device_;
  uint64_t memory_budget_ = 0;
  bool has_memory_ = true;
  DeviceCounters counters_;
  std::vector<RecordingTimes>* clock_ = nullptr;
};

// Device memory with an owner: freed with the last reference. An allocation of its own, or a part
// of one.
class Block {
 public:
  static Result<std::shared_ptr<Block>> allocate(const std::shared_ptr<OpenDevice>& device,
                                                 uint64_t bytes, MemoryKind kind);
  // Bytes [offset, offset + bytes) of `whole`, which lives as long.
  static std::shared_ptr<Block> part(std::shared_ptr<const Block> whole, uint64_t offset,
                                     uint64_t bytes);
  ~Block() {
    if (buffer_.valid() && whole_ == nullptr) {
      device_->free(buffer_, bytes_);
    }
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  OpenDevice& device() const { return *device_; }
  const std::shared_ptr<OpenDevice>& device_handle() const { return device_; }
  // The allocation, and where in it the block begins.
  Buffer buffer() const { return buffer_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }
  // The allocation that it is a part of, or itself.
  const Block& whole() const { return whole_ ? *whole_ : *this; }

  // Nothing is asked of the device for no bytes.
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
};

// As OpenDevice::record(), with the block of each slot.
Result<std::unique_ptr<Recording>> record(OpenDevice& device, const Program& program,
                                          std::span<const Block* const> slots);

// Every device of every backend with its name and, if it cannot be used, the reason.
std::vector<DeviceInfo> list_devices();

// Errors  bad_argument: no such name. unsupported: it cannot be used, with the reason. over_budget:
//         what it holds for copies.
Result<std::shared_ptr<OpenDevice>> open_device(std::string_view name,
                                                const DeviceOptions& options);

}  // namespace bowline::detail::device
