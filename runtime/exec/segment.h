// A plan placed on a device: its recording and the buffers that it reads.
#pragma once

#include "exec/counts.h"

namespace bowline::exec {

// The arena, io and step buffers that the segments of one session share.
struct Workspace {
  std::shared_ptr<device::Block> arena;
  std::shared_ptr<device::Block> io;
  std::shared_ptr<device::Block> step;
  // On the host: one input or output with counted axes, as the plan lays it out. As large as the plans need that were recorded.
  std::shared_ptr<std::vector<std::byte>> laid_out;

  // The blocks that allocate() asks for.
  static device::Demand demand(uint64_t arena_bytes, uint64_t io_bytes, uint64_t step_bytes);
  // All or nothing: what does not fit is refused before the first block.
  static Result<Workspace> allocate(const std::shared_ptr<device::OpenDevice>& device,
                                    uint64_t arena_bytes, uint64_t io_bytes, uint64_t step_bytes);
  // 0 of one that was not allocated.
  uint64_t arena_bytes() const { return arena ? arena->bytes() : 0; }
  uint64_t io_bytes() const { return arena ? io->bytes() + step->bytes() : 0; }
};

// A recorded segment. Move-only; the recording dies with it.
class Segment {
 public:
  // Keeps the blocks of the storages alive.
  static Result<Segment> record(plan::Plan plan, const params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Workspace& workspace);
  ~Segment();
  Segment(Segment&&) noexcept = default;
  Segment& operator=(Segment&&) = delete;

  const plan::Plan& plan() const { return plan_; }
  device::Recording* recording() const { return recording_.get(); }

 private:
  Segment() = default;
  std::shared_ptr<device::OpenDevice> device_;
  plan::Plan plan_;
  Workspace workspace_;
  std::vector<std::shared_ptr<device::Block>> blocks_;
  std::unique_ptr<device::Recording> recording_;
};

// Copies the inputs of a segment into its io range, by name. Tensors have the counts of `values` (set_counts()).
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

// One submission on the device of the table: inputs and `values` in, the recordings, `values` out, new versions of what was
// written. `plan` is that of the first recording.
Status submit(params::Table& table, const Workspace& workspace, const plan::Plan& plan,
              std::span<device::Recording* const> recordings, std::span<const Tensor> inputs,
              StepValues& values);

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

// Refuses a model of which a storage has no bytes, or that does not lie on a device.
Status require_on_device(const params::Table& table);
// Refuses a model that does not lie on this opened device.
Status require_on_device(const params::Table& table, const Device& device);

}  // namespace bowline::exec
