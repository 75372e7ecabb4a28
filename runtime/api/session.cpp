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

Status Session::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                    std::span<const StepScalar> scalars, std::span<const Tensor> overrides) {
  return guarded(state_, "session", [&](exec::SessionState& s) {
    return s.run({}, inputs, outputs, scalars, overrides);
  });
}
Status Session::run(std::string_view entry_point, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs, std::span<const StepScalar> scalars,
                    std::span<const Tensor> overrides) {
  return guarded(state_, "session", [&](exec::SessionState& s) {
    return s.run(entry_point, inputs, outputs, scalars, overrides);
  });
}
void Session::cancel() {
  if (state_ != nullptr) {
    state_->cancel();
  }
}
MemoryReport Session::memory() const {
  return guarded(state_, "session", [](const exec::SessionState& s) { return s.memory(); });
}
Counters Session::counters() const {
  return guarded(state_, "session", [](const exec::SessionState& s) { return s.counters(); });
}
Result<std::vector<NodeTime>> Session::profile(std::span<const Tensor> inputs,
                                               std::span<const StepScalar> scalars) {
  return guarded(state_, "session",
                 [&](exec::SessionState& s) { return s.profile({}, inputs, scalars); });
}
Result<std::vector<NodeTime>> Session::profile(std::string_view entry_point,
                                               std::span<const Tensor> inputs,
                                               std::span<const StepScalar> scalars) {
  return guarded(state_, "session",
                 [&](exec::SessionState& s) { return s.profile(entry_point, inputs, scalars); });
}
Result<PlanInfo> Session::describe() const {
  return guarded(state_, "session", [](const exec::SessionState& s) { return s.describe(); });
}
Result<std::string> Session::listing(std::string_view part, bool columns) const {
  return guarded(state_, "session",
                 [&](const exec::SessionState& s) { return s.listing(part, columns); });
}

}  // namespace bowline
