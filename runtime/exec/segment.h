// A plan placed on a device: its recording and the buffers that it reads.
#pragma once

#include "exec/counts.h"

namespace bowline::detail::exec {

// The arena, io and step buffers that the segments of one session share.
struct Workspace {
  std::vector<std::shared_ptr<device::Block>> arena;  // its parts (plan/arena.h)
  std::shared_ptr<device::Block> io;
  std::shared_ptr<device::Block> step;
  // On the host: one input or output with dynamic dimensions, in the layout of the plan. It is
  // large enough for all recorded plans.
  std::shared_ptr<std::vector<std::byte>> laid_out;

  // Sizes of the three device buffers, in bytes.
  struct Sizes {
    uint64_t arena = 0;
    uint64_t io = 0;
    uint64_t step = 0;

    // Makes the sizes large enough for a plan whose per-step scalars have this layout.
    void cover(const plan::Plan& plan, const plan::StepLayout& layout);
    void add_to(const device::OpenDevice& device, device::Demand& demand) const;
  };
  static Result<Workspace> allocate(const std::shared_ptr<device::OpenDevice>& device,
                                    const Sizes& sizes);
  // 0 if the workspace was not allocated.
  uint64_t arena_bytes() const;
  uint64_t io_bytes() const { return io ? io->bytes() + step->bytes() : 0; }
};

// Adds the memory for copies and replicas that the plans read and that do not exist yet.
void add_missing_copies(std::span<const plan::Plan* const> plans, const params::Table& table,
                        const device::OpenDevice& device, device::Demand& demand);

// A recorded segment. It is move-only, and its destructor releases the recording.
class Segment {
 public:
  // A copy that the segment reads. `refresh` is the plan that makes it; empty for a replica.
  struct Copy {
    uint32_t tie = 0;
    std::shared_ptr<params::Residency> residency;
    plan::Plan refresh;
  };

  // Records a plan and makes missing copies and replicas. Keeps the blocks of the storages alive.
  static Result<Segment> record(plan::Plan plan, params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Workspace& workspace);
  ~Segment();
  Segment(Segment&&) noexcept = default;
  Segment& operator=(Segment&&) = delete;

  const plan::Plan& plan() const { return plan_; }
  device::Recording* recording() const { return recording_.get(); }
  std::span<const Copy> copies() const { return copies_; }
  // Records that the segment has written its derived copies: they hold the values of the storages.
  void wrote_copies(const params::Table& table) const;
  uint64_t backend_bytes() const { return recording_->overhead_bytes(); }
  SegmentInfo describe() const;

 private:
  Segment() = default;
  // Returns the block of a storage, or of its derived copy.
  Result<std::shared_ptr<device::Block>> block_of(const plan::StorageSlot& slot,
                                                  params::Table& table);
  // Returns the block of a storage on the device of the segment: its home or a replica.
  Result<std::shared_ptr<device::Block>> block_there(uint32_t tie, params::Table& table);
  std::shared_ptr<device::OpenDevice> device_;
  plan::Plan plan_;
  Workspace workspace_;
  std::vector<Copy> copies_;
  std::vector<std::shared_ptr<device::Block>> blocks_;
  std::unique_ptr<device::Recording> recording_;
};

// What a submission renewed before it ran its segments.
struct Refreshed {
  uint32_t copies = 0;     // derived copies
  uint32_t transfers = 0;  // replicas
};

// One submission: it renews outdated copies, then runs the segments.
class Submission {
 public:
  explicit Submission(const params::Table& table) : table_(table) {}

  void add(const Segment& segment);
  // Renews outdated replicas. It reads other devices: call it without an OpenDevice::Hold.
  // Errors  as the transfers.
  Status transfer();
  // Calls transfer() and submits. Afterwards, the copies hold the values of their storages. `asked`
  // stops the submission, but not the segments that were added after keep_whole().
  // Errors  as transfer() and OpenDevice::submit().
  Status submit(device::OpenDevice& device, const std::atomic<bool>* asked = nullptr);
  // Segments that are added from now on run to their end if they begin.
  void keep_whole() { stoppable_ = segments_; }
  Refreshed refreshed() const;

 private:
  const params::Table& table_;
  std::vector<const Segment::Copy*> behind_;    // outdated derived copies
  std::vector<const Segment::Copy*> replicas_;  // outdated replicas
  std::vector<device::Recording*> recordings_;
  size_t segments_ = 0;
  size_t stoppable_ = SIZE_MAX;  // the first segments
};

// A request to end a run early. Threads: any thread may ask.
class CancelRequest {
 public:
  void ask() {
    kept_ = true;
    asked_ = true;
  }
  // Asks the run that is active now. forget() drops the request if the run had ended.
  void ask_now() { asked_ = true; }
  void forget() {
    asked_ = false;
    if (kept_) {
      asked_ = true;
    }
  }
  // For device::Stop.
  const std::atomic<bool>& flag() const { return asked_; }
  // Errors  cancelled: it was asked for. The request is then answered.
  Status answer(std::string_view what) {
    const bool asked = asked_.exchange(false);
    kept_ = kept_ && !asked;
    BOWLINE_REQUIRE_CODE(!asked, Code::cancelled, "{} was cancelled.", what);
    return {};
  }

 private:
  std::atomic<bool> asked_ = false;
  std::atomic<bool> kept_ = false;  // asked by ask()
};

// Copies the inputs of a segment to its io buffer, by name. `values` has the sizes of dynamic
// dimensions; see set_counts().
// Errors  bad_argument: an input is missing, unknown or of another dtype or shape.
Status write_inputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> inputs, const StepValues& values);
// Copies outputs from the io buffer, by name.
// Errors  bad_argument: an output is unknown, or has another dtype or shape.
Status read_outputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> outputs, const StepValues& values);

// Copy the step buffer to the device and back.
Status write_steps(device::OpenDevice& device, const Workspace& workspace,
                   const StepValues& values);
Status read_steps(device::OpenDevice& device, const Workspace& workspace, StepValues& values);
// Errors  index_out_of_range: a kernel read a bad index, or a divisor is 0. The message says where.
Status check_error(const device::StepHead& head, const plan::Plan& plan);

// Increments the versions of the storages that the plan writes.
void bump_versions(params::Table& table, const plan::Plan& plan);

class Hoisted;

// Runs one segment: copies inputs and `values` to the device, submits, and reads `values` back. The
// versions of written storages increase. `hoisted`: computes the hoisted values that `segment`
// reads, or null.
// Errors  cancelled: `cancel` was asked for. The device has stopped.
Result<Refreshed> run(device::OpenDevice& device, const Workspace& workspace,
                      const Segment& segment, Hoisted* hoisted, params::Table& table,
                      std::span<const Tensor> inputs, StepValues& values, CancelRequest& cancel);

// The generations of all rows when a plan was made. If one increases, the plan is made again.
class Generations {
 public:
  // `training`: includes the rows of training.
  static Generations of(const params::Table& table, bool training);
  bool match(const params::Table& table) const;

 private:
  bool counts(const params::Storage& s) const { return training_ || !is_training(s.role); }
  bool training_ = false;
  std::vector<uint64_t> rows_;
};

// Returns the device of these storages. Without storages, returns that of the table.
// Errors  bad_argument: a storage has no values or is sharded, or two storages are on different
//         devices. The message names both.
Result<std::shared_ptr<device::OpenDevice>> device_of(const params::Table& table,
                                                      std::span<const uint32_t> ties);
// Returns the device on which a session reads these storages: `preferred` if each storage, a shard
// of it, or a requested replica is there, else device_of().
// Errors  as device_of().
Result<std::shared_ptr<device::OpenDevice>> reading_device(
    const params::Table& table, std::span<const uint32_t> ties,
    const std::shared_ptr<device::OpenDevice>& preferred);
// Checks that the model is on `device`. `here` is where it is; null: in host memory. `device` is
// null if the Device was moved from.
// Errors  bad_argument: it is not.
Status require_on_device(const device::OpenDevice* here, const device::OpenDevice* device);

}  // namespace bowline::detail::exec
