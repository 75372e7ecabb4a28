#include "exec/segment.h"

namespace bowline::exec {

device::Demand Workspace::demand(uint64_t arena_bytes, uint64_t io_bytes, uint64_t step_bytes) {
  device::Demand demand;
  demand.add(arena_bytes, device::MemoryKind::device);
  demand.add(io_bytes, device::MemoryKind::io);
  demand.add(step_bytes, device::MemoryKind::io);
  return demand;
}

Result<Workspace> Workspace::allocate(const std::shared_ptr<device::OpenDevice>& device,
                                      uint64_t arena_bytes, uint64_t io_bytes,
                                      uint64_t step_bytes) {
  BOWLINE_TRY(device->require_room(demand(arena_bytes, io_bytes, step_bytes))
                  .at(format("While making room for a plan: {} bytes of activations, {} of inputs "
                             "and outputs.",
                             arena_bytes, io_bytes)));
  Workspace w;
  BOWLINE_ASSIGN(w.arena, device::Block::allocate(device, arena_bytes, device::MemoryKind::device));
  BOWLINE_ASSIGN(w.io, device::Block::allocate(device, io_bytes, device::MemoryKind::io));
  BOWLINE_ASSIGN(w.step, device::Block::allocate(device, step_bytes, device::MemoryKind::io));
  w.laid_out = std::make_shared<std::vector<std::byte>>();
  return w;
}

Result<Segment> Segment::record(plan::Plan plan, const params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Workspace& workspace) {
  Segment s;
  s.device_ = device;
  s.workspace_ = workspace;
  std::vector<device::Buffer> buffers = {workspace.arena->buffer(), workspace.io->buffer(),
                                         workspace.step->buffer()};
  for (const uint32_t tie : plan.storages) {
    s.blocks_.push_back(table.storages[tie].home.block);
    buffers.push_back(s.blocks_.back()->buffer());
  }
  BOWLINE_ASSIGN(s.recording_, device->record(plan.program, buffers));
  std::vector<std::byte>& laid_out = *workspace.laid_out;
  laid_out.resize(std::max<uint64_t>(laid_out.size(), largest_counted(plan)));
  s.plan_ = std::move(plan);
  return s;
}

Segment::~Segment() {
  if (recording_ != nullptr) {
    device_->release(std::move(recording_));
  }
}

namespace {

// `wanted`: the shape that the range has in this run.
Status check_tensor(const Tensor& t, const plan::IoRange& range, const Shape& wanted,
                    std::string_view kind) {
  Result<Shape> shape = Shape::checked(t.shape);
  BOWLINE_TRY(std::move(shape).status().at(format("While checking {} \"{}\".", kind, range.name)));
  const bool fits = t.dtype == range.dtype && shape.value() == wanted;
  BOWLINE_REQUIRE(fits, "{} \"{}\" is {}{}, not {}{}.", kind, range.name, t.dtype, shape.value(),
                  range.dtype, wanted);
  BOWLINE_REQUIRE(t.data != nullptr || wanted.elements() == 0, "{} \"{}\" has no data.", kind,
                  range.name);
  return {};
}

const Tensor* find(std::span<const Tensor> tensors, const plan::IoRange& range) {
  for (const Tensor& t : tensors) {
    if (t.name == range.name) {
      return &t;
    }
  }
  return nullptr;
}

}  // namespace

Status write_inputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> inputs, const StepValues& values) {
  BOWLINE_REQUIRE(inputs.size() == plan.inputs.size(), "{} inputs are given, the graph has {}.",
                  inputs.size(), plan.inputs.size());
  for (const plan::IoRange& range : plan.inputs) {
    const Tensor* t = find(inputs, range);
    BOWLINE_REQUIRE(t != nullptr, "Input \"{}\" is missing.", range.name);
    const Shape shape = counted_shape(plan, range, values);
    BOWLINE_TRY(check_tensor(*t, range, shape, "Input"));
    std::span<const std::byte> bytes(static_cast<const std::byte*>(t->data), range.bytes());
    if (!(shape == range.shape)) {
      const auto laid_out = std::span(*workspace.laid_out).first(range.bytes());
      spread(range, shape, static_cast<const std::byte*>(t->data), laid_out);
      bytes = laid_out;
    }
    BOWLINE_TRY(device.copy_in(workspace.io->buffer(), range.offset, bytes));
  }
  return {};
}

Status read_outputs(device::OpenDevice& device, const Workspace& workspace, const plan::Plan& plan,
                    std::span<const Tensor> outputs, const StepValues& values) {
  for (const Tensor& t : outputs) {
    const auto range = std::ranges::find(plan.outputs, t.name, &plan::IoRange::name);
    BOWLINE_REQUIRE(range != plan.outputs.end(), "The graph has no output \"{}\".", t.name);
    const Shape shape = counted_shape(plan, *range, values);
    BOWLINE_TRY(check_tensor(t, *range, shape, "Output"));
    auto* const to = static_cast<std::byte*>(t.data);
    const bool is_all = shape == range->shape;
    const std::span<std::byte> bytes = is_all
                                           ? std::span(to, range->bytes())
                                           : std::span(*workspace.laid_out).first(range->bytes());
    BOWLINE_TRY(device.copy_out(bytes, workspace.io->buffer(), range->offset));
    if (!is_all) {
      gather(*range, shape, bytes, to);
    }
  }
  return {};
}

Status write_steps(device::OpenDevice& device, const Workspace& workspace,
                   const StepValues& values) {
  return device.copy_in(workspace.step->buffer(), 0, values.bytes());
}

Status read_steps(device::OpenDevice& device, const Workspace& workspace, StepValues& values) {
  return device.copy_out(values.bytes(), workspace.step->buffer(), 0);
}

Status check_error(const device::StepHead& head, const plan::Plan& plan) {
  if (head.error == 0) {
    return {};
  }
  const std::string node =
      head.error_node < plan.nodes.size() ? plan.nodes[head.error_node] : "a node";
  return Status(Code::index_out_of_range,
                format("Index {} lies outside the range of {}.", head.error_value, node));
}

void bump_versions(params::Table& table, const plan::Plan& plan) {
  for (const uint32_t tie : plan.written) {
    table.wrote(tie);
  }
}

Status submit(params::Table& table, const Workspace& workspace, const plan::Plan& plan,
              std::span<device::Recording* const> recordings, std::span<const Tensor> inputs,
              StepValues& values) {
  device::OpenDevice& device = *table.device();
  BOWLINE_TRY(write_inputs(device, workspace, plan, inputs, values));
  BOWLINE_TRY(write_steps(device, workspace, values));
  const Status submitted = device.submit(recordings);
  bump_versions(table, plan);  // one that failed may have run any part of its work
  BOWLINE_TRY(Status(submitted));
  BOWLINE_TRY(device.wait());
  return read_steps(device, workspace, values);
}

Generations Generations::of(const params::Table& table, bool training) {
  Generations g;
  g.training_ = training;
  for (const params::Storage& s : table.storages) {
    if (g.counts(s)) {
      g.rows_.push_back(s.generation);
    }
  }
  return g;
}

bool Generations::match(const params::Table& table) const {
  size_t row = 0;
  for (const params::Storage& s : table.storages) {
    if (!counts(s)) {
      continue;
    }
    if (row == rows_.size() || rows_[row] != s.generation) {
      return false;
    }
    ++row;
  }
  return row == rows_.size();
}

Status require_on_device(const params::Table& table, const Device& device) {
  const device::OpenDevice* const here = table.device().get();
  BOWLINE_REQUIRE(
      here == nullptr || here == device.handle().get() || here->info().name != device.info().name,
      "The model lies on device {}, but {} was opened again since, and each opening has "
      "memory of its own. Give the Device that the model was moved to, or move it with "
      "Model::to().",
      here->info().name, here->info().name);
  BOWLINE_REQUIRE(device.handle() != nullptr && here == device.handle().get(),
                  "The model does not lie on device {} but {}; move it with Model::to().",
                  device.info().name,
                  here == nullptr ? "in host memory" : "on " + here->info().name);
  return {};
}

Status require_on_device(const params::Table& table) {
  BOWLINE_REQUIRE(table.device() != nullptr,
                  "The model lies on no device; move it with Model::to().");
  for (size_t i = 0; i < table.storages.size(); ++i) {
    const params::Storage& s = table.storages[i];
    BOWLINE_REQUIRE(s.empty || is_training(s.role) || s.home.block != nullptr,
                    "Storage {} has no bytes; materialize() or load() gives it some.", i);
  }
  return {};
}

}  // namespace bowline::exec
