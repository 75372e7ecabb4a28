#include "exec/segment.h"

#include <set>

#include "exec/hoisted.h"
#include "generated/functions.h"
#include "params/home.h"
#include "plan/arena.h"
#include "plan/describe.h"

namespace bowline::detail::exec {

void Workspace::Sizes::cover(const plan::Plan& plan, const plan::StepLayout& layout) {
  arena = std::max(arena, plan.arena_bytes);
  io = std::max(io, plan.io_bytes);
  step = std::max(step, layout.bytes());
}

void Workspace::Sizes::add_to(const device::OpenDevice& device, device::Demand& demand) const {
  for (const uint64_t bytes :
       plan::arena_parts(arena, plan::arena_part_bytes(device.capabilities()))) {
    demand.add(bytes, device::MemoryKind::arena);
  }
  demand.add(io, device::MemoryKind::io);
  demand.add(step, device::MemoryKind::io);
}

Result<Workspace> Workspace::allocate(const std::shared_ptr<device::OpenDevice>& device,
                                      const Sizes& sizes) {
  Workspace w;
  for (const uint64_t bytes :
       plan::arena_parts(sizes.arena, plan::arena_part_bytes(device->capabilities()))) {
    BOWLINE_TRY_ASSIGN(w.arena.emplace_back(),
                       device::Block::allocate(device, bytes, device::MemoryKind::arena));
  }
  BOWLINE_TRY_ASSIGN(w.io, device::Block::allocate(device, sizes.io, device::MemoryKind::io));
  BOWLINE_TRY_ASSIGN(w.step, device::Block::allocate(device, sizes.step, device::MemoryKind::io));
  w.laid_out = std::make_shared<std::vector<std::byte>>();
  return w;
}

uint64_t Workspace::arena_bytes() const {
  uint64_t bytes = 0;
  for (const std::shared_ptr<device::Block>& part : arena) {
    bytes += part->bytes();
  }
  return bytes;
}

namespace {

bool lies_on(const params::Storage& storage, const device::OpenDevice& device) {
  return storage.home.block != nullptr && &storage.home.block->device() == &device;
}

}  // namespace

void add_missing_copies(std::span<const plan::Plan* const> plans, const params::Table& table,
                        const device::OpenDevice& device, device::Demand& demand) {
  std::vector<plan::StorageSlot> counted;
  std::set<uint32_t> replicated;
  for (const plan::Plan* plan : plans) {
    for (const plan::StorageSlot& slot : plan->storages) {
      const params::Storage& storage = table.storages[slot.tie];
      if (slot.form != nullptr && table.copy_of(slot.tie, *slot.form, device) == nullptr &&
          std::ranges::find(counted, slot) == counted.end()) {
        demand.add(slot.form->bytes(storage.shape), device::MemoryKind::device);
        counted.push_back(slot);
      }
      // Unplaced rows of a training are counted elsewhere.
      if (!lies_on(storage, device) && table.is_readable_on(slot.tie, device) &&
          table.copy_of(slot.tie, params::whole_form(storage.dtype), device) == nullptr &&
          replicated.insert(slot.tie).second) {
        demand.add(storage.bytes(), device::MemoryKind::device);
      }
    }
  }
}

Result<std::shared_ptr<device::Block>> Segment::block_there(uint32_t tie, params::Table& table) {
  const params::Storage& storage = table.storages[tie];
  if (lies_on(storage, *device_)) {
    return storage.home.block;
  }
  const params::Form form = params::whole_form(storage.dtype);
  std::shared_ptr<params::Residency> there = table.copy_of(tie, form, *device_);
  if (there == nullptr) {
    BOWLINE_TRY_ASSIGN(
        std::shared_ptr<device::Block> block,
        device::Block::allocate(device_, storage.bytes(), device::MemoryKind::device));
    there =
        std::make_shared<params::Residency>(form, storage.generation, std::move(block), nullptr);
    table.add_copy(tie, there);
  }
  if (std::ranges::find(copies_, there, &Copy::residency) == copies_.end()) {
    copies_.push_back({tie, there, {}});
  }
  return there->block();
}

Result<std::shared_ptr<device::Block>> Segment::block_of(const plan::StorageSlot& slot,
                                                         params::Table& table) {
  BOWLINE_TRY_ASSIGN(const std::shared_ptr<device::Block> there, block_there(slot.tie, table));
  if (slot.form == nullptr) {
    return there;
  }
  const params::Storage& storage = table.storages[slot.tie];
  Copy copy{slot.tie, table.copy_of(slot.tie, *slot.form, *device_), {}};
  BOWLINE_TRY_ASSIGN(copy.refresh, plan::refresh(slot, storage, *device_));
  if (copy.residency == nullptr) {
    BOWLINE_TRY_ASSIGN(std::shared_ptr<device::Block> block,
                       device::Block::allocate(device_, slot.form->bytes(storage.shape),
                                               device::MemoryKind::device));
    const device::Block* const from = there.get();
    // The program uses only the last two slots.
    const device::Block* const slots[] = {from, from, from, from, block.get()};
    BOWLINE_TRY_ASSIGN(std::unique_ptr<device::Recording> refresh,
                       device::record(*device_, copy.refresh.program, slots));
    copy.residency = std::make_shared<params::Residency>(*slot.form, storage.generation,
                                                         std::move(block), std::move(refresh));
    table.add_copy(slot.tie, copy.residency);
  }
  copies_.push_back(std::move(copy));
  return copies_.back().residency->block();
}

Result<Segment> Segment::record(plan::Plan plan, params::Table& table,
                                const std::shared_ptr<device::OpenDevice>& device,
                                const Workspace& workspace) {
  Segment s;
  s.device_ = device;
  s.workspace_ = workspace;
  std::vector<const device::Block*> slots = {workspace.arena[0].get(), workspace.io.get(),
                                             workspace.step.get()};
  for (const plan::StorageSlot& slot : plan.storages) {
    BOWLINE_TRY_ASSIGN(std::shared_ptr<device::Block> block, s.block_of(slot, table));
    slots.push_back(block.get());
    s.blocks_.push_back(std::move(block));
  }
  device::Program program = plan.program;
  plan::split_arena(program, plan::arena_part_bytes(device->capabilities()),
                    static_cast<uint32_t>(workspace.arena.size()));
  for (size_t part = 1; part < workspace.arena.size(); ++part) {
    slots.push_back(workspace.arena[part].get());
  }
  BOWLINE_TRY_ASSIGN(s.recording_, device::record(*device, program, slots));
  std::vector<std::byte>& laid_out = *workspace.laid_out;
  laid_out.resize(std::max<uint64_t>(laid_out.size(), largest_counted(plan)));
  s.plan_ = std::move(plan);
  return s;
}

void Segment::wrote_copies(const params::Table& table) const {
  for (const Copy& copy : copies_) {
    if (copy.residency->refresh() != nullptr) {
      copy.residency->holds(table.storages[copy.tie].version);
    }
  }
}

SegmentInfo Segment::describe() const {
  SegmentInfo out = plan::describe(plan_);
  out.launches = recording_->launches();
  const std::span<const std::vector<std::string>> kernels = recording_->kernels();
  for (size_t i = 0; i < kernels.size(); ++i) {
    out.records[i].kernels = kernels[i];
  }
  return out;
}

Segment::~Segment() {
  if (recording_ != nullptr) {
    device_->release(std::move(recording_));
  }
}

void Submission::add(const Segment& segment) {
  for (const Segment::Copy& copy : segment.copies()) {
    const bool is_replica = copy.residency->refresh() == nullptr;
    const bool added =
        std::ranges::any_of(is_replica ? replicas_ : behind_,
                            [&](const Segment::Copy* b) { return b->residency == copy.residency; });
    if (added || copy.residency->version() == table_.storages[copy.tie].version) {
      continue;
    }
    if (is_replica) {
      replicas_.push_back(&copy);
    } else {
      recordings_.insert(recordings_.begin() + static_cast<ptrdiff_t>(behind_.size()),
                         copy.residency->refresh());
      behind_.push_back(&copy);
    }
  }
  recordings_.push_back(segment.recording());
  ++segments_;
}

Refreshed Submission::refreshed() const {
  return {static_cast<uint32_t>(behind_.size()), static_cast<uint32_t>(replicas_.size())};
}

Status Submission::transfer() {
  std::vector<std::byte> scratch;
  for (const Segment::Copy* copy : replicas_) {
    const params::Storage& storage = table_.storages[copy->tie];
    if (copy->residency->version() == storage.version) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const params::Bytes bytes, params::read_all(storage, scratch));
    BOWLINE_TRY(copy->residency->block()->write(0, bytes));
    copy->residency->holds(storage.version);
  }
  return {};
}

Status Submission::submit(device::OpenDevice& device, const std::atomic<bool>* asked) {
  BOWLINE_TRY(transfer());
  const size_t stoppable =
      stoppable_ < segments_ ? recordings_.size() - (segments_ - stoppable_) : SIZE_MAX;
  BOWLINE_TRY(device.submit(recordings_, {asked, stoppable}));
  for (const Segment::Copy* copy : behind_) {
    copy->residency->holds(table_.storages[copy->tie].version);
  }
  return {};
}

namespace {

// The buffer of an input or output that stays on the device.
Status check_buffer(const Tensor& t, const device::OpenDevice& device, uint64_t bytes,
                    std::string_view kind) {
  BOWLINE_REQUIRE(t.data == nullptr, "{} \"{}\" has data and a buffer. Set only one of them.", kind,
                  t.name);
  const std::shared_ptr<device::Block>& block = device::Block::of(*t.buffer);
  BOWLINE_REQUIRE(block != nullptr, "{} \"{}\" is in a buffer that is empty: it was moved from.",
                  kind, t.name);
  const device::OpenDevice& there = block->device();
  BOWLINE_REQUIRE(&there == &device,
                  "{} \"{}\" is in a buffer on device {}{}, but the session runs on {}.", kind,
                  t.name, there.info().name,
                  there.info().name == device.info().name ? ", opened by another call" : "",
                  device.info().name);
  BOWLINE_REQUIRE(t.offset <= block->bytes() && bytes <= block->bytes() - t.offset,
                  "{} \"{}\" needs {} bytes from offset {} on, but its buffer has {} bytes.", kind,
                  t.name, bytes, t.offset, block->bytes());
  return {};
}

// `wanted`: the shape of the range in this run.
Status check_tensor(const Tensor& t, const plan::IoRange& range, const Shape& wanted,
                    const device::OpenDevice& device, std::string_view kind) {
  Result<Shape> shape = Shape::checked(t.shape);
  BOWLINE_TRY(std::move(shape).status().at(format("While checking {} \"{}\".", kind, range.name)));
  const bool fits = t.dtype == range.dtype && shape.value() == wanted;
  BOWLINE_REQUIRE(fits, "{} \"{}\" is {}{}, not {}{}.", kind, range.name, t.dtype, shape.value(),
                  range.dtype, wanted);
  if (t.buffer != nullptr) {
    return check_buffer(t, device, static_cast<uint64_t>(wanted.elements()) * size_of(t.dtype),
                        kind);
  }
  BOWLINE_REQUIRE(t.data != nullptr || wanted.elements() == 0, "{} \"{}\" has no data.", kind,
                  range.name);
  return {};
}

// Copies an input from its buffer to the io buffer, or an output back.
Status copy_input(device::OpenDevice& device, const Workspace& workspace,
                  const plan::IoRange& range, const Shape& shape, const Tensor& t) {
  const device::Block& block = *device::Block::of(*t.buffer);
  const device::Buffer io = workspace.io->buffer();
  if (!(shape == range.shape)) {
    BOWLINE_TRY(device.fill(io, range.offset, range.bytes(), std::byte{0}));
  }
  for (const Run& run : runs_of(range, shape)) {
    BOWLINE_TRY(device.copy(io, range.offset + run.in_plan, block.buffer(),
                            block.offset() + t.offset + run.in_run, run.bytes));
  }
  return {};
}
Status copy_output(device::OpenDevice& device, const Workspace& workspace,
                   const plan::IoRange& range, const Shape& shape, const Tensor& t) {
  const device::Block& block = *device::Block::of(*t.buffer);
  for (const Run& run : runs_of(range, shape)) {
    BOWLINE_TRY(device.copy(block.buffer(), block.offset() + t.offset + run.in_run,
                            workspace.io->buffer(), range.offset + run.in_plan, run.bytes));
  }
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
  BOWLINE_REQUIRE(inputs.size() == plan.inputs.size(), "{} inputs are given, but the graph has {}.",
                  inputs.size(), plan.inputs.size());
  for (const plan::IoRange& range : plan.inputs) {
    const Tensor* t = find(inputs, range);
    BOWLINE_REQUIRE(t != nullptr, "Input \"{}\" is missing.", range.name);
    const Shape shape = counted_shape(plan, range, values);
    BOWLINE_TRY(check_tensor(*t, range, shape, device, "Input"));
    if (t->buffer != nullptr) {
      BOWLINE_TRY(copy_input(device, workspace, range, shape, *t));
      continue;
    }
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
  const device::OpenDevice::Hold turn(device);
  for (const Tensor& t : outputs) {
    const auto range = std::ranges::find(plan.outputs, t.name, &plan::IoRange::name);
    BOWLINE_REQUIRE(range != plan.outputs.end(), "The graph has no output \"{}\".", t.name);
    const Shape shape = counted_shape(plan, *range, values);
    BOWLINE_TRY(check_tensor(t, *range, shape, device, "Output"));
    if (t.buffer != nullptr) {
      BOWLINE_TRY(copy_output(device, workspace, *range, shape, t));
      continue;
    }
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

namespace {

// For an integer division, the bad index is the divisor.
bool is_quotient(const plan::Plan& plan, uint32_t node) {
  const auto& records = plan.program.records;
  const auto record = std::ranges::find_if(records, [&](const device::Record& r) {
    return r.kind == device::Record::Kind::op && r.node == node;
  });
  return record != records.end() && divides(function_of(record->op, record->attributes).function);
}

}  // namespace

Status check_error(const device::StepHead& head, const plan::Plan& plan) {
  if (head.error == 0) {
    return {};
  }
  const std::string node =
      head.error_node < plan.nodes.size() ? plan.nodes[head.error_node] : "a node";
  if (is_quotient(plan, head.error_node)) {
    return Status(Code::index_out_of_range, format("A divisor of {} is 0.", node));
  }
  return Status(Code::index_out_of_range,
                format("Index {} is out of range in {}.", head.error_value, node));
}

void bump_versions(params::Table& table, const plan::Plan& plan) {
  for (const uint32_t tie : plan.written) {
    table.wrote(tie);
  }
}

Result<Refreshed> run(device::OpenDevice& device, const Workspace& workspace,
                      const Segment& segment, Hoisted* hoisted, params::Table& table,
                      std::span<const Tensor> inputs, StepValues& values, CancelRequest& cancel) {
  Submission submission(table);
  if (hoisted != nullptr && !hoisted->is_right(table)) {
    hoisted->forget();
    submission.add(hoisted->segment());
  } else {
    hoisted = nullptr;
  }
  submission.add(segment);
  BOWLINE_TRY(submission.transfer());
  const device::OpenDevice::Hold turn(device);
  BOWLINE_TRY(write_inputs(device, workspace, segment.plan(), inputs, values));
  BOWLINE_TRY(write_steps(device, workspace, values));
  const Status submitted = submission.submit(device, &cancel.flag());
  // After a cancelled submission, a part of it may still run.
  const bool waits = submitted.ok() || submitted.code() == Code::cancelled;
  const Status waited = waits ? device.wait() : Status();
  const Status ended = submitted.ok() ? Status(waited) : Status(submitted);
  if (ended.ok() && hoisted != nullptr) {
    hoisted->computed(table);
  }
  bump_versions(table, segment.plan());  // a failed run may have done part of its work
  BOWLINE_TRY(waits ? Status(waited) : Status());
  if (waits) {
    BOWLINE_TRY(cancel.answer("The run"));
  }
  BOWLINE_TRY(Status(ended));
  BOWLINE_TRY(read_steps(device, workspace, values));
  Refreshed refreshed = submission.refreshed();
  refreshed.copies += hoisted == nullptr ? 0 : 1;
  return refreshed;
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

namespace {

std::string named(const params::Table& table, uint32_t tie) {
  const std::vector<uint32_t> users = sorted(table.users(tie));
  return users.empty() ? format("storage {}", tie)
                       : format("storage {} (\"{}\")", tie, table.parameters[users[0]].name);
}

}  // namespace

Result<std::shared_ptr<device::OpenDevice>> device_of(const params::Table& table,
                                                      std::span<const uint32_t> ties) {
  const auto device_at = [&](uint32_t tie) -> std::shared_ptr<device::OpenDevice> {
    const params::Home& home = table.storages[tie].home;
    return home.block == nullptr ? nullptr : home.block->device_handle();
  };
  const auto place = [](const std::shared_ptr<device::OpenDevice>& device) {
    return device == nullptr ? "in host memory" : "on " + device->info().name;
  };
  for (const uint32_t tie : ties) {
    BOWLINE_REQUIRE(table.storages[tie].home.valid(),
                    "Storage {} has no values. Call materialize() or load() first.", tie);
    BOWLINE_REQUIRE(table.storages[tie].home.shards.empty(),
                    "{} is sharded over several devices. Move it to one device with Model::to().",
                    named(table, tie));
    BOWLINE_REQUIRE(device_at(tie) == device_at(ties[0]),
                    "A plan runs on one device, but this plan reads {} {} and {} {}. Move both to "
                    "one device with Model::to().",
                    named(table, ties[0]), place(device_at(ties[0])), named(table, tie),
                    place(device_at(tie)));
  }
  return ties.empty() ? table.device() : device_at(ties[0]);
}

Result<std::shared_ptr<device::OpenDevice>> reading_device(
    const params::Table& table, std::span<const uint32_t> ties,
    const std::shared_ptr<device::OpenDevice>& preferred) {
  const auto is_readable = [&](uint32_t tie) { return table.is_readable_on(tie, *preferred); };
  return preferred != nullptr && !ties.empty() && std::ranges::all_of(ties, is_readable)
             ? preferred
             : device_of(table, ties);
}

Status require_on_device(const device::OpenDevice* here, const device::OpenDevice* device) {
  const std::string_view name = device == nullptr ? std::string_view() : device->info().name;
  BOWLINE_REQUIRE(here == nullptr || here == device || here->info().name != name,
                  "The model is on device {}, but {} was opened again since then, and each open "
                  "Device has its own memory. Pass the Device that the model was moved to, or move "
                  "the model with Model::to().",
                  here->info().name, here->info().name);
  BOWLINE_REQUIRE(device != nullptr && here == device,
                  "The model is not on device {} but {}. Move it with Model::to().", name,
                  here == nullptr ? "in host memory" : "on " + here->info().name);
  return {};
}

}  // namespace bowline::detail::exec
