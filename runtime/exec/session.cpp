#include "exec/session.h"

#include "core/boundary.h"
#include "exec/profile.h"
#include "graph/counted.h"
#include "plan/listing.h"

namespace bowline {
namespace exec {

void complete(MemoryReport& report, const params::Table& table) {
  for (const params::Storage& s : table.storages) {
    report.storage_bytes += s.home.block ? s.bytes() : 0;
  }
  report.staging_bytes =
      table.device() == nullptr ? 0 : table.device()->capabilities().staging_bytes;
  report.predicted_bytes = report.storage_bytes + report.arena_bytes + report.io_bytes +
                           report.backend_bytes + report.staging_bytes;
}

SessionState::SessionState(std::shared_ptr<graph::ModelState> model, std::string entry_point,
                           std::vector<BoundDim> dims, const Budget& budget)
    : model_(std::move(model)),
      entry_point_(std::move(entry_point)),
      dims_(std::move(dims)),
      budget_(budget) {
  model_->users.push_back(this);
}

SessionState::~SessionState() { std::erase(model_->users, this); }

void SessionState::leave_device() {
  forward_.reset();
  steps_.reset();
  workspace_ = {};
  device_.reset();
}

Status SessionState::prepare() {
  const params::Table& table = model_->table;
  BOWLINE_TRY(require_on_device(table));
  if (forward_ && device_ == table.device() && generations_.match(table)) {
    return {};
  }
  const graph::Graph* generic = model_->find_graph(entry_point_);
  BOWLINE_REQUIRE(generic != nullptr, "The model has no entry point \"{}\".", entry_point_);
  BOWLINE_ASSIGN(graph::Graph bound, graph::bind(*generic, *model_, dims_));
  prune(bound);
  BOWLINE_TRY(graph::count(bound, model_->dims, dims_));
  const std::shared_ptr<device::OpenDevice> device = table.device();
  plan::StepLayout layout;
  BOWLINE_ASSIGN(plan::Plan plan, plan::lower(bound, "forward", *device, layout, budget_));
  // The old plan is of a table that is no more. It goes first, so that two arenas never live together.
  forward_.reset();
  workspace_ = {};
  BOWLINE_ASSIGN(Workspace fresh,
                 Workspace::allocate(device, plan.arena_bytes, plan.io_bytes, layout.bytes()));
  BOWLINE_ASSIGN(Segment segment, Segment::record(std::move(plan), table, device, fresh));
  steps_.emplace(std::move(layout));
  workspace_ = std::move(fresh);
  forward_.emplace(std::move(segment));
  bound_ = std::move(bound);
  generations_ = Generations::of(table, false);
  device_ = device;
  ++counters_.plan_builds;
  ++counters_.recordings;
  counters_.launches = forward_->recording()->launches();
  return {};
}

Status SessionState::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                         std::span<const StepValue> steps) {
  const graph::Running running(*model_);
  BOWLINE_TRY(prepare());
  device::OpenDevice& device = *model_->table.device();
  const plan::Plan& plan = forward_->plan();
  steps_->reset();
  for (const StepValue& value : steps) {
    BOWLINE_TRY(steps_->give(value));
  }
  BOWLINE_TRY(steps_->check(plan));
  BOWLINE_TRY(set_counts(plan, inputs, *steps_));
  device::Recording* const recordings[] = {forward_->recording()};
  BOWLINE_TRY(submit(model_->table, workspace_, plan, recordings, inputs, *steps_));
  ++counters_.submits;
  BOWLINE_TRY(check_error(steps_->head(), plan));
  return read_outputs(device, workspace_, plan, outputs, *steps_);
}

Result<std::vector<NodeTime>> SessionState::profile(std::span<const Tensor> inputs) {
  BOWLINE_TRY(prepare());
  BOWLINE_ASSIGN(const Clock clock, Clock::start(model_->table.device()));
  BOWLINE_TRY(run(inputs, {}, {}));
  std::vector<NodeTime> times;
  clock.add(forward_->plan(), forward_->recording(), times);
  return times;
}

MemoryReport SessionState::memory() const {
  MemoryReport m;
  m.arena_bytes = workspace_.arena_bytes();
  m.io_bytes = workspace_.io_bytes();
  m.backend_bytes = forward_ ? forward_->recording()->overhead_bytes() : 0;
  m.lower_bound_bytes = forward_ ? forward_->plan().arena_lower_bound : 0;
  complete(m, model_->table);
  return m;
}

Result<std::string> SessionState::listing(std::string_view part, bool columns) const {
  BOWLINE_REQUIRE(part == "forward" || part == "build", "There is no listing \"{}\" of a session.",
                  part);
  BOWLINE_REQUIRE(forward_.has_value(), "There is no plan to list: the last planning failed.");
  if (part == "build") {
    const std::string launches =
        columns ? format("segment forward: {} launches\n", forward_->recording()->launches()) +
                      plan::list_records(forward_->plan())
                : "";
    return launches + plan::list_repeat_parameters(bound_);
  }
  return plan::list_nodes(bound_, 0, bound_.nodes.size(), {columns});
}

}  // namespace exec

Session::Session(std::unique_ptr<exec::SessionState> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Session> Session::create(const Model& model, const Device& device,
                                std::string_view entry_point, std::span<const BoundDim> dims,
                                const Budget& budget) {
  return guarded(model.state(), "model", [&](graph::ModelState& m) -> Result<Session> {
    BOWLINE_TRY(exec::require_on_device(m.table, device));
    auto state = std::make_unique<exec::SessionState>(
        model.state(), std::string(entry_point), std::vector<BoundDim>(dims.begin(), dims.end()),
        budget);
    BOWLINE_TRY(state->prepare());
    return Session(std::move(state));
  });
}

Status Session::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                    std::span<const StepValue> steps) {
  return guarded(state_, "session",
                 [&](exec::SessionState& s) { return s.run(inputs, outputs, steps); });
}
MemoryReport Session::memory() const {
  return guarded(state_, "session", [](const exec::SessionState& s) { return s.memory(); });
}
Counters Session::counters() const {
  return guarded(state_, "session", [](const exec::SessionState& s) { return s.counters(); });
}
Result<std::vector<NodeTime>> Session::profile(std::span<const Tensor> inputs) {
  return guarded(state_, "session", [&](exec::SessionState& s) { return s.profile(inputs); });
}
Result<std::string> Session::listing(std::string_view part, bool columns) const {
  return guarded(state_, "session",
                 [&](const exec::SessionState& s) { return s.listing(part, columns); });
}

}  // namespace bowline
