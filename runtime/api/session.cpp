// The members of bowline::Session.
#include "exec/session.h"

#include "api/internals.h"
#include "base/boundary.h"
#include "bowline.h"

namespace bowline {

Session::Session(std::unique_ptr<exec::SessionState> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Session> Session::create(const Model& model, const Device& device,
                                std::span<const BoundEntryPoint> entry_points,
                                const Budget& budget) {
  const auto& of = Internals::state(model);
  return guarded(of, "model", [&](graph::ModelState&) -> Result<Session> {
    BOWLINE_REQUIRE(!entry_points.empty(), "A session needs at least one entry point.");
    auto state = std::make_unique<exec::SessionState>(
        of, std::vector(entry_points.begin(), entry_points.end()), budget);
    BOWLINE_TRY(state->prepare(Internals::open(device)));
    return Session(std::move(state));
  });
}

Result<Session> Session::create(const Model& model, const Device& device,
                                std::string_view entry_point, std::span<const BoundDim> dims,
                                const Budget& budget) {
  return guarded([&]() -> Result<Session> {
    const BoundEntryPoint one{std::string(entry_point), {dims.begin(), dims.end()}};
    return create(model, device, std::span(&one, 1), budget);
  });
}

namespace {

// Calls `work` on the session while no submitted run is pending.
template <class State, class F>
auto settled(State& state, F&& work) {
  using Out = std::invoke_result_t<F, decltype((*state))>;
  return guarded(state, "session", [&](auto& s) -> Out {
    Result<std::unique_lock<device::Turns>> in_use = s.settle();
    if constexpr (std::is_constructible_v<Out, Status>) {
      if (!in_use.ok()) {
        return std::move(in_use).status();
      }
    } else if (!in_use.ok()) {
      return Out();
    }
    return work(s);
  });
}

}  // namespace

Status Session::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                    std::span<const StepScalar> scalars, std::span<const Tensor> overrides) {
  return settled(state_, [&](exec::SessionState& s) {
    return s.run({}, inputs, outputs, scalars, overrides);
  });
}
Status Session::run(std::string_view entry_point, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, std::span<const StepScalar> scalars,
                    std::span<const Tensor> overrides) {
  return settled(state_, [&](exec::SessionState& s) {
    return s.run(entry_point, inputs, outputs, scalars, overrides);
  });
}
Result<PendingRun> Session::submit(const RunRequest& request) {
  return guarded(state_, "session", [&](exec::SessionState& s) -> Result<PendingRun> {
    BOWLINE_TRY_ASSIGN(std::shared_ptr<exec::PendingState> run, s.submit(request));
    return PendingRun(std::move(run));
  });
}

PendingRun::PendingRun(std::shared_ptr<exec::PendingState> state) : state_(std::move(state)) {}
PendingRun::~PendingRun() = default;
PendingRun::PendingRun(const PendingRun&) = default;
PendingRun& PendingRun::operator=(const PendingRun&) = default;
PendingRun::PendingRun(PendingRun&&) noexcept = default;
PendingRun& PendingRun::operator=(PendingRun&&) noexcept = default;

bool PendingRun::done() const { return state_ == nullptr || state_->done(); }
Status PendingRun::wait() const {
  return guarded(state_, "run", [](const exec::PendingState& s) { return s.wait(); });
}
void PendingRun::cancel() const {
  if (state_ != nullptr) {
    state_->cancel();
  }
}

void Session::cancel() {
  if (state_ != nullptr) {
    state_->cancel();
  }
}
MemoryReport Session::memory() const {
  return settled(state_, [](const exec::SessionState& s) { return s.memory(); });
}
Counters Session::counters() const {
  return settled(state_, [](const exec::SessionState& s) { return s.counters(); });
}
Result<std::vector<NodeTime>> Session::profile(std::span<const Tensor> inputs,
                                               std::span<const StepScalar> scalars) {
  return settled(state_, [&](exec::SessionState& s) { return s.profile({}, inputs, scalars); });
}
Result<std::vector<NodeTime>> Session::profile(std::string_view entry_point,
                                               std::span<const Tensor> inputs,
                                               std::span<const StepScalar> scalars) {
  return settled(state_,
                 [&](exec::SessionState& s) { return s.profile(entry_point, inputs, scalars); });
}
Result<PlanInfo> Session::describe() const {
  return settled(state_, [](const exec::SessionState& s) { return s.describe(); });
}
Result<std::string> Session::listing(std::string_view part, bool columns) const {
  return settled(state_, [&](const exec::SessionState& s) { return s.listing(part, columns); });
}

}  // namespace bowline
