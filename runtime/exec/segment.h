// A plan placed on a device: its recording and the buffers that it reads.
#pragma once

#include "plan/plan.h"

namespace bowline::exec {

// The arena, io and step buffers that the segments of one session share.
struct Workspace {
  std::shared_ptr<device::Block> arena;
  std::shared_ptr<device::Block> io;
  std::shared_ptr<device::Block> step;

  static Result<Workspace> allocate(const std::shared_ptr<device::OpenDevice>& device,
                                    uint64_t arena_bytes, uint64_t io_bytes);
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

// Copies the inputs of a segment into its io range, by name.
// Errors  bad_argument: an input is missing, unknown or of another dtype or shape.
Status write_inputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> inputs);
Status read_outputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> outputs);

// The step scalars before and after a submission.
Status write_scalars(device::OpenDevice& device, const Workspace& workspace,
                     const device::StepScalars& scalars);
Result<device::StepScalars> read_scalars(device::OpenDevice& device, const Workspace& workspace);
// Errors  index_out_of_range: a kernel met a bad index; the node and the index are named.
Status check_scalars(const device::StepScalars& scalars, const plan::Plan& plan);

// One submission: inputs and scalars in, the recordings, the scalars out. `plan` is that of the
// first recording.
Result<device::StepScalars> submit(device::OpenDevice& device, const Workspace& workspace,
                                   const plan::Plan& plan,
                                   std::span<device::Recording* const> recordings,
                                   std::span<const Tensor> inputs,
                                   const device::StepScalars& scalars);

// Changes whenever a storage gets another dtype, shape, encoding or home: plans made before are made again.
uint64_t generation_stamp(const params::Table& table);

// Refuses a model of which a storage has no bytes, or that does not lie on a device.
Status require_on_device(const params::Table& table);

}  // namespace bowline::exec
