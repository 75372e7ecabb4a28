#include "exec/session.h"

#include <set>

#include "exec/override.h"
#include "exec/profile.h"
#include "graph/counted.h"
#include "graph/fuse.h"
#include "params/weight_format.h"
#include "plan/listing.h"

namespace bowline::detail::exec {

void complete(MemoryReport& report, const params::Table& table, const device::OpenDevice* device) {
  for (const params::Storage& s : table.storages) {
    const auto bytes_there = [&](const std::shared_ptr<device::Block>& block) {
      return block != nullptr && &block->device() == device ? block->bytes() : 0;
    };
    report.storage_bytes += bytes_there(s.home.block);
    for (const std::shared_ptr<device::Block>& shard : s.home.shards) {
      report.storage_bytes += bytes_there(shard);
    }
    for (const std::weak_ptr<params::Residency>& c : s.copies) {
      const std::shared_ptr<params::Residency> copy = c.lock();
      report.copy_bytes += copy == nullptr || bytes_there(copy->block()) == 0 ? 0 : copy->bytes();
    }
  }
  report.storage_bytes += params::padding_of_formats(table, device);
  report.staging_bytes = device == nullptr ? 0 : device->capabilities().staging_bytes;
  report.predicted_bytes = report.storage_bytes + report.copy_bytes + report.arena_bytes +
                           report.io_bytes + report.backend_bytes + report.staging_bytes;
}

namespace {

// Held values may enlarge the arena by 1/16 or by 64 KiB, whichever is more. Larger values would be
// like a second copy of the weights.
constexpr uint64_t kMoreOfArena = 16;
constexpr uint64_t kMoreOfSmall = uint64_t{1} << 16;

// For example "forward" of batch = 2, seq = 4.
std::string text_of(const BoundEntryPoint& entry) {
  std::string out = format("\"{}\"", entry.name);
  for (const BoundDim& d : entry.dims) {
    out += format("{} {} = {}", &d == entry.dims.data() ? " of" : ",", d.name, d.value);
  }
  return out;
}

// The inputs of a run select their plan by their shapes, so the shapes must differ.
Status check_distinct(std::span<const BoundEntryPoint> entry_points,
                      std::span<const plan::Plan* const> plans) {
  for (size_t i = 0; i < plans.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool same = entry_points[i].name == entry_points[j].name &&
                        std::ranges::equal(plans[i]->inputs, plans[j]->inputs, {},
                                           &plan::IoRange::shape, &plan::IoRange::shape);
      BOWLINE_REQUIRE(
          !same, "{} and {} take inputs of the same shapes, so the session cannot tell them apart.",
          text_of(entry_points[j]), text_of(entry_points[i]));
    }
  }
  return {};
}

}  // namespace

SessionState::SessionState(std::shared_ptr<graph::ModelState> model,
                           std::vector<BoundEntryPoint> entry_points, const Budget& budget,
                           CancelRequest* cancel)
    : model_(std::move(model)),
      entry_points_(std::move(entry_points)),
      budget_(budget),
      cancel_(cancel == nullptr ? own_cancel_ : *cancel) {
  model_->users.add(*this);
}

SessionState::~SessionState() {
  queue_.reset();
  model_->users.remove(*this);
}

Result<std::shared_ptr<PendingState>> SessionState::submit(const RunRequest& request) {
  if (queue_ == nullptr) {
    const auto run_now = [this](const RunRequest& r) {
      const bool is_named = !r.entry_point.empty();
      return run(is_named ? std::optional(r.entry_point) : std::nullopt, r.inputs, r.outputs,
                 r.scalars, r.overrides);
    };
    const auto pending = [this](bool begins) {
      begins ? model_->users.begin_pending() : model_->users.end_pending();
    };
    queue_ = std::make_unique<RunQueue>(run_now, pending, cancel_);
  }
  return queue_->add(request);
}

Result<std::unique_lock<device::Turns>> SessionState::settle() const {
  if (queue_ == nullptr) {
    return std::unique_lock<device::Turns>();
  }
  BOWLINE_TRY(queue_->settle());
  return std::unique_lock(queue_->use());
}

void SessionState::leave_device() {
  entries_.clear();
  workspace_ = {};
  device_.reset();
}

Result<std::vector<graph::BoundGraph>> SessionState::bind(std::optional<DType> compute) const {
  std::vector<graph::BoundGraph> bound;
  for (const BoundEntryPoint& entry : entry_points_) {
    const graph::GenericGraph* generic = model_->entry_points.find(entry.name);
    BOWLINE_REQUIRE(generic != nullptr, "The model has no entry point \"{}\".", entry.name);
    BOWLINE_TRY_ASSIGN(bound.emplace_back(),
                       graph::bind(*generic, *model_, entry.dims, entry.compute_dtype, compute));
    prune(bound.back());
    BOWLINE_TRY(graph::count(bound.back(), model_->entry_points.dims, entry.dims));
  }
  return bound;
}

Result<std::vector<SessionState::Planned>> SessionState::plan(
    std::vector<graph::BoundGraph> bound, const device::OpenDevice& device) const {
  std::vector<Planned> planned;
  for (graph::BoundGraph& graph : bound) {
    Planned& p = planned.emplace_back();
    p.bound = std::move(graph);
    if (may_fuse_) {
      BOWLINE_TRY_ASSIGN(p.fused, graph::fuse(p.bound, device));
    }
    plan::derive_copies(p.bound, model_->table);
    graph::fuse_norm_products(p.bound, device);
    graph::fuse_cache_writes(p.bound, device);
    (void)graph::fuse_products(p.bound, device, 0);
    BOWLINE_TRY(lower(p, device));
  }
  return planned;
}

Status SessionState::lower(Planned& p, const device::OpenDevice& device) const {
  BOWLINE_TRY_ASSIGN(p.plan, plan::lower(p.bound, "forward", device, p.layout, budget_));
  if (!p.apart.held.values.empty()) {
    BOWLINE_TRY_ASSIGN(p.hoisted, plan::lower(p.apart, "hoisted", device, p.layout, budget_));
  }
  return {};
}

Result<std::vector<SessionState::Planned>> SessionState::hoist(
    const std::vector<Planned>& planned, uint64_t room, const device::OpenDevice& device) const {
  std::vector<Planned> out;
  uint64_t head = 0;
  for (const Planned& given : planned) {
    Planned& p = out.emplace_back();
    p.bound = graph::deep_copy(given.bound);
    p.fused = given.fused;
    const std::vector<graph::ValueId> values =
        plan::smallest(p.bound, plan::hoistable(p.bound, model_->table), room - head);
    p.apart = plan::hoist(p.bound, values);
    head = plan::hold(p.apart, p.bound, head, device.capabilities());
    if (head > room) {
      return std::vector<Planned>();
    }
  }
  for (Planned& p : out) {
    p.bound.held.bytes = head;
    p.apart.held.bytes = head;
    BOWLINE_TRY(lower(p, device));
  }
  return head == 0 ? std::vector<Planned>() : std::move(out);
}

Result<std::vector<SessionState::Planned>> SessionState::hoist(
    const std::vector<Planned>& planned, const device::OpenDevice& device) const {
  const auto arena_of = [](const std::vector<Planned>& plans) {
    uint64_t bytes = 0;
    for (const Planned& p : plans) {
      bytes = std::max({bytes, p.plan.arena_bytes, p.hoisted ? p.hoisted->arena_bytes : 0});
    }
    return bytes;
  };
  const uint64_t before = arena_of(planned);
  const uint64_t more = std::max(before / kMoreOfArena, kMoreOfSmall);
  for (const uint64_t room : {before + more, more}) {
    Result<std::vector<Planned>> made = hoist(planned, room, device);
    if (made.status().code() == Code::over_budget) {
      continue;  // over the plan budget; the plans without hoisting are within it
    }
    BOWLINE_TRY_ASSIGN(std::vector<Planned> hoisted, std::move(made));
    if (!hoisted.empty() && arena_of(hoisted) <= before + more) {
      return hoisted;
    }
  }
  return std::vector<Planned>();
}

Status SessionState::place(std::vector<Planned> planned,
                           const std::shared_ptr<device::OpenDevice>& device) {
  Workspace::Sizes sizes;
  std::vector<const plan::Plan*> plans;
  for (const Planned& p : planned) {
    sizes.cover(p.plan, p.layout);
    plans.push_back(&p.plan);
  }
  BOWLINE_TRY(check_distinct(entry_points_, plans));
  for (const Planned& p : planned) {
    if (p.hoisted) {
      sizes.cover(*p.hoisted, p.layout);
      plans.push_back(&*p.hoisted);
    }
  }
  // The old plans belong to the old table. Drop them first, so that two arenas never exist at the
  // same time.
  entries_.clear();
  workspace_ = {};
  device::Demand demand;
  sizes.add_to(*device, demand);
  add_missing_copies(plans, model_->table, *device, demand);
  BOWLINE_TRY(device->require_room(demand).at(format(
      "While reserving memory for a plan: {} bytes of activations, {} of inputs and outputs.",
      sizes.arena, sizes.io)));
  BOWLINE_TRY_ASSIGN(Workspace fresh, Workspace::allocate(device, sizes));
  std::vector<Entry> entries;
  for (Planned& p : planned) {
    BOWLINE_TRY_ASSIGN(Segment segment,
                       Segment::record(std::move(p.plan), model_->table, device, fresh));
    entries.push_back({&entry_points_[entries.size()], std::move(p.bound),
                       StepValues(std::move(p.layout)), std::move(segment), std::move(p.apart),
                       std::nullopt});
    if (p.hoisted) {
      BOWLINE_TRY_ASSIGN(Segment hoisted,
                         Segment::record(std::move(*p.hoisted), model_->table, device, fresh));
      entries.back().hoisted.emplace(std::move(hoisted));
    }
  }
  workspace_ = std::move(fresh);
  entries_ = std::move(entries);
  return {};
}

Status SessionState::prepare(const std::optional<std::shared_ptr<device::OpenDevice>>& wanted) {
  const params::Table& table = model_->table;
  if (!entries_.empty() && generations_.match(table)) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(std::vector<graph::BoundGraph> bound, bind({}));
  std::set<uint32_t> read;
  for (const graph::BoundGraph& graph : bound) {
    const std::vector<uint32_t> ties = graph::storages_of(graph);
    read.insert(ties.begin(), ties.end());
  }
  BOWLINE_TRY_ASSIGN(
      const std::shared_ptr<device::OpenDevice> device,
      reading_device(table, std::vector(read.begin(), read.end()), wanted ? *wanted : device_));
  if (wanted) {
    BOWLINE_TRY(require_on_device(device.get(), wanted->get()));
  }
  BOWLINE_REQUIRE(device != nullptr, "The model is not on a device. Move it with Model::to().");
  if (const std::optional<DType> compute = device->capabilities().compute) {
    BOWLINE_TRY_ASSIGN(bound, bind(compute));
  }
  BOWLINE_TRY_ASSIGN(std::vector<Planned> planned, plan(std::move(bound), *device));
  fused_ = std::ranges::any_of(planned, &Planned::fused);
  BOWLINE_TRY_ASSIGN(std::vector<Planned> hoisted, hoist(planned, *device));
  const bool hoists = !hoisted.empty();
  Status placed = place(std::move(hoists ? hoisted : planned), device);
  if (hoists && (placed.code() == Code::over_budget || placed.code() == Code::out_of_memory)) {
    placed = place(std::move(planned), device);
  }
  BOWLINE_TRY(std::move(placed));
  generations_ = Generations::of(table, false);
  device_ = device;
  counters_.plan_builds += entries_.size();
  for (const Entry& entry : entries_) {
    counters_.recordings += entry.hoisted ? 2 : 1;
  }
  counters_.launches = entries_[0].forward.recording()->launches();
  log_plans();
  return {};
}

void SessionState::log_plans() const {
  for (const Entry& entry : entries_) {
    if (device_->has_log()) {
      const plan::Plan& plan = entry.forward.plan();
      device_->log(
          LogLevel::info,
          format("New plan of {} on {}: {} records, {} bytes of activations.", text_of(*entry.of),
                 device_->info().name, plan.program.records.size(), plan.arena_bytes));
    }
  }
}

Result<SessionState::Entry*> SessionState::entry_for(std::optional<std::string_view> entry_point,
                                                     std::span<const Tensor> inputs) {
  const std::string_view name = entry_point.value_or(entry_points_[0].name);
  const auto known = [&] {
    std::string out;
    for (const Entry& entry : entries_) {
      out += (out.empty() ? "" : "; ") + text_of(*entry.of);
    }
    return out;
  };
  std::vector<Entry*> named;
  for (Entry& entry : entries_) {
    BOWLINE_REQUIRE(entry_point || entry.of->name == name,
                    "The session has several entry points, {} and {}. Name the one to run.",
                    text_of(entry_points_[0]), text_of(*entry.of));
    if (entry.of->name == name) {
      named.push_back(&entry);
    }
  }
  BOWLINE_REQUIRE(!named.empty(), "The session has no plan of \"{}\"; it has {}.", name, known());
  if (named.size() == 1) {
    return named[0];
  }
  std::erase_if(named, [&](const Entry* e) { return !takes_all(e->forward.plan(), inputs); });
  BOWLINE_REQUIRE(!named.empty(), "The shapes of the inputs fit none of the plans: {}.", known());
  return *std::ranges::min_element(named, {},
                                   [](const Entry* e) { return e->forward.plan().io_bytes; });
}

Hoisted* SessionState::hoisted_of(Entry& entry) {
  return entry.hoisted ? &*entry.hoisted : nullptr;
}

Status SessionState::run(std::optional<std::string_view> entry_point,
                         std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                         std::span<const StepScalar> steps, std::span<const Tensor> overrides) {
  const graph::Running running(*model_);
  BOWLINE_TRY(prepare());
  BOWLINE_TRY_ASSIGN(Entry * entry, entry_for(entry_point, inputs));
  const auto is_right = [&](const StepScalar& scalar) {
    return graph::fusion_allows(scalar) && entry->steps.has(scalar);
  };
  if (fused_ && !std::ranges::all_of(steps, is_right)) {
    may_fuse_ = false;
    entries_.clear();
    BOWLINE_TRY(prepare());
    BOWLINE_TRY_ASSIGN(entry, entry_for(entry_point, inputs));
  }
  const plan::Plan& plan = entry->forward.plan();
  entry->steps.reset();
  for (const StepScalar& scalar : steps) {
    BOWLINE_TRY(entry->steps.give(scalar));
  }
  BOWLINE_TRY(entry->steps.check(plan));
  BOWLINE_TRY(set_counts(plan, inputs, entry->steps));
  BOWLINE_TRY_ASSIGN(const Refreshed refreshed,
                     overrides.empty()
                         ? exec::run(*device_, workspace_, entry->forward, hoisted_of(*entry),
                                     model_->table, inputs, entry->steps, cancel_)
                         : run_with(overrides, *entry, inputs));
  ++counters_.submits;
  counters_.refreshes += refreshed.copies;
  counters_.transfers += refreshed.transfers;
  counters_.launches = entry->forward.recording()->launches();
  BOWLINE_TRY(check_error(entry->steps.head(), plan));
  return read_outputs(*device_, workspace_, plan, outputs, entry->steps);
}

Result<Refreshed> SessionState::run_with(std::span<const Tensor> overrides, Entry& entry,
                                         std::span<const Tensor> inputs) {
  const plan::Plan& plan = entry.forward.plan();
  BOWLINE_TRY_ASSIGN(params::Table seen,
                     overridden(model_->table, overrides, plan.written, device_));
  BOWLINE_TRY_ASSIGN(const Segment segment, Segment::record(plan, seen, device_, workspace_));
  ++counters_.recordings;
  Hoisted* hoisted = hoisted_of(entry);
  std::optional<Hoisted> own;  // made from the overridden storages
  if (hoisted != nullptr && hoisted->differs(model_->table, seen)) {
    hoisted->forget();
    BOWLINE_TRY_ASSIGN(Segment again,
                       Segment::record(hoisted->segment().plan(), seen, device_, workspace_));
    hoisted = &own.emplace(std::move(again));
    ++counters_.recordings;
  }
  Result<Refreshed> refreshed =
      exec::run(*device_, workspace_, segment, hoisted, seen, inputs, entry.steps, cancel_);
  for (const uint32_t tie : plan.written) {
    if (seen.storages[tie].version != model_->table.storages[tie].version) {
      model_->table.wrote(tie);
    }
  }
  return refreshed;
}

Result<std::vector<NodeTime>> SessionState::profile(std::optional<std::string_view> entry_point,
                                                    std::span<const Tensor> inputs,
                                                    std::span<const StepScalar> steps) {
  const graph::Running running(*model_);
  BOWLINE_TRY(prepare());
  BOWLINE_TRY_ASSIGN(const Clock clock, Clock::start(device_));
  BOWLINE_TRY(run(entry_point, inputs, {}, steps));
  BOWLINE_TRY_ASSIGN(const Entry* const entry, entry_for(entry_point, inputs));
  std::vector<NodeTime> times;
  if (entry->hoisted) {
    clock.add(entry->hoisted->segment(), times);
  }
  clock.add(entry->forward, times);
  return times;
}

MemoryReport SessionState::memory() const {
  MemoryReport m;
  m.arena_bytes = workspace_.arena_bytes();
  m.io_bytes = workspace_.io_bytes();
  for (const Entry& entry : entries_) {
    m.backend_bytes += entry.forward.backend_bytes();
    m.backend_bytes += entry.hoisted ? entry.hoisted->segment().backend_bytes() : 0;
    m.lower_bound_bytes = std::max(m.lower_bound_bytes, entry.forward.plan().arena_lower_bound);
  }
  complete(m, model_->table, device_.get());
  return m;
}

Result<std::string> SessionState::listing(std::string_view part, bool columns) const {
  BOWLINE_REQUIRE(part == "forward" || part == "build",
                  "A session has no listing \"{}\", only build and forward.", part);
  if (part == "forward") {
    BOWLINE_REQUIRE(!entries_.empty(), "There is no plan to list: the last planning failed.");
    std::string out;
    for (const Entry& entry : entries_) {
      out += heading(*entry.of) +
             plan::list_nodes(entry.bound, 0, entry.bound.nodes.size(), {columns});
    }
    return out;
  }
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, describe());
  std::string out;
  for (const Entry& entry : entries_) {
    if (entry.hoisted) {
      out += heading(*entry.of) +
             "hoisted: recomputed only after a parameter that it reads is written\n" +
             plan::list_nodes(entry.apart, 0, entry.apart.nodes.size(), {columns});
    }
  }
  for (const SegmentInfo& segment : plan.segments) {
    out += heading(segment.entry_point) + plan::list_copies(segment);
    if (columns) {
      out += format("segment {}: {} launches\n", segment.name, segment.launches) +
             plan::list_records(segment);
    }
  }
  return out + plan::list_repeat_lists(plan.repeat_lists);
}

std::string SessionState::heading(const BoundEntryPoint& entry) const {
  return entries_.size() > 1 ? text_of(entry) + '\n' : "";
}

Result<PlanInfo> SessionState::describe() const {
  BOWLINE_REQUIRE(!entries_.empty(), "There is no plan to describe: the last planning failed.");
  PlanInfo out;
  out.device = device_->info().name;
  for (const Entry& entry : entries_) {
    out.segments.push_back(entry.forward.describe());
    out.segments.back().entry_point = *entry.of;
    if (entry.hoisted) {
      out.segments.push_back(entry.hoisted->segment().describe());
      out.segments.back().entry_point = *entry.of;
    }
    for (RepeatListInfo& list : plan::describe_repeat_lists(entry.bound)) {
      out.repeat_lists.push_back(std::move(list));
    }
  }
  return out;
}

}  // namespace bowline::detail::exec
