// A plan placed on a device: its recording and the buffers that it reads.
#pragma once

#include "exec/counts.h"

namespace bowline::detail::exec {

// The arena, io and step buffers that the segments of one session share.
struct Workspace {
  std::shared_ptr<device::Block> arena;
  std::shared_ptr<device::Block> io;
  std::shared_ptr<device::Block> step;
  // On the host: one input or output with counted axes, as the plan lays it out. As large as the
  // plans need that were recorded.
  std::shared_ptr<std::vector<std::byte>> laid_out;

  // Bytes of the three.
  struct Sizes {
    uint64_t arena = 0;
    uint64_t io = 0;
    uint64_t step = 0;

    // Also large enough for this plan, whose step words lie as `layout` says.
    void cover(const plan::Plan& plan, const plan::StepLayout& layout);
    void add_to(device::Demand& demand) const;
  };
  static Result<Workspace> allocate(const std::shared_ptr<device::OpenDevice>& device,
                                    const Sizes& sizes);
  // 0 of one that was not allocated.
  uint64_t arena_bytes() const { return arena ? arena->bytes() : 0; }
  uint64_t io_bytes() const { return arena ? io->bytes() + step->bytes() : 0; }
};

// Adds the blocks of the copies and replicas that the plans read on the device and the table has
// not.
void add_missing_copies(std::span<const plan::Plan* const> plans, const params::Table& table,
                        const device::OpenDevice& device, device::Demand& demand);

// A recorded segment. Move-only; the recording dies with it.
class Segment {
 public:
  // A copy that it reads, with the plan that makes it; of a replica that is empty.
  struct Copy {
    uint32_t tie = 0;
    std::shared_ptr<params::Residency> residency;
    plan::Plan refresh;
  };

  // Keeps the blocks of the storages alive, and makes the copies and replicas that the table has
  // not.
  static Result<Segment> record(plan::Plan plan, params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Workspace& workspace);
  ~Segment();
  Segment(Segment&&) noexcept = default;
  Segment& operator=(Segment&&) = delete;

  const plan::Plan& plan() const { return plan_; }
  device::Recording* recording() const { return recording_.get(); }
  std::span<const Copy> copies() const { return copies_; }
  uint64_t backend_bytes() const { return recording_->overhead_bytes(); }
  SegmentInfo describe() const;

 private:
  Segment() = default;
  Result<std::shared_ptr<device::Block>> block_of(const plan::StorageSlot& slot,
                                                  params::Table& table);
  // The storage on the device of the segment: its home, or a replica.
  Result<std::shared_ptr<device::Block>> block_there(uint32_t tie, params::Table& table);
  std::shared_ptr<device::OpenDevice> device_;
  plan::Plan plan_;
  Workspace workspace_;
  std::vector<Copy> copies_;
  std::vector<std::shared_ptr<device::Block>> blocks_;
  std::unique_ptr<device::Recording> recording_;
};

// What was made again in front of a submission.
struct Refreshed {
  uint32_t copies = 0;     // derived ones
  uint32_t transfers = 0;  // replicas
};

// What one submission runs: the transfers and refreshes of copies that are behind their storages,
// then the segments.
class Submission {
 public:
  explicit Submission(const params::Table& table) : table_(table) {}

  void add(const Segment& segment);
  // Brings replicas up to date. It reads other devices, so nobody who holds one calls it
  // (OpenDevice::Hold). Errors  those of the transfers.
  Status transfer();
  // Transfers, if that was not done. Errors  those of OpenDevice::submit() too. After a success the
  // copies hold what their storages
  // have now.
  Status submit(device::OpenDevice& device);
  Refreshed refreshed() const;

 private:
  const params::Table& table_;
  std::vector<const Segment::Copy*> behind_;    // derived ones
  std::vector<const Segment::Copy*> replicas_;  // and replicas
  std::vector<device::Recording*> recordings_;
};

// Copies the inputs of a segment into its io range, by name. Tensors have the counts of `values`
// (set_counts()).
// Errors  bad_argument: an input is missing, unknown or of another dtype or shape.
Status write_inputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> inputs, const StepValues& values);
Status read_outputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> outputs, const StepValues& values);

// The step buffer before and after a submission.
Status write_steps(device::OpenDevice& device, const Workspace& workspace,
                   const StepValues& values);
Status read_steps(device::OpenDevice& device, const Workspace& workspace, StepValues& values);
// Errors  index_out_of_range: a kernel met a bad index; the node and the index are named.
Status check_error(const device::StepHead& head, const plan::Plan& plan);

// The host notes that the storages that the plan writes have new values.
void bump_versions(params::Table& table, const plan::Plan& plan);

class Hoisted;

// Runs one segment: inputs and `values` in, its submission, `values` out, new versions of what was
// written. `hoisted`: the plan of the held values that `segment` reads, or null.
Result<Refreshed> run(device::OpenDevice& device, const Workspace& workspace,
                      const Segment& segment, Hoisted* hoisted, params::Table& table,
                      std::span<const Tensor> inputs, StepValues& values);

// The generations of all rows when a plan was made: when one grew, the plan is made again.
class Generations {
 public:
  // `training`: of the rows of a training too.
  static Generations of(const params::Table& table, bool training);
  bool match(const params::Table& table) const;

 private:
  bool counts(const params::Storage& s) const { return training_ || !is_training(s.role); }
  bool training_ = false;
  std::vector<uint64_t> rows_;
};

// The one device on which these storages lie; without any, that of the table.
// Errors  bad_argument: one has no bytes, or two of them lie on two devices: both are named.
Result<std::shared_ptr<device::OpenDevice>> device_of(const params::Table& table,
                                                      std::span<const uint32_t> ties);
// Where a session reads these storages: on `preferred` if each lies there, is to be replicated
// there or lies there in part; else
// device_of(). Errors  as device_of().
Result<std::shared_ptr<device::OpenDevice>> reading_device(
    const params::Table& table, std::span<const uint32_t> ties,
    const std::shared_ptr<device::OpenDevice>& preferred);
// Refuses what does not lie on this opened device. `here`: where it lies, null: in host memory.
// `device` null: one that was moved from.
Status require_on_device(const device::OpenDevice* here, const device::OpenDevice* device);

}  // namespace bowline::detail::exec
