// The members of bowline::Session.
#include "exec/session.h"

#include "api/internals.h"
#include "core/boundary.h"

namespace bowline {

Session::Session(std::unique_ptr<exec::SessionState> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Session> Session::create(const Model& model, const Device& device,
                                std::string_view entry_point, std::span<const BoundDim> dims,
                                const Budget& budget) {
  const auto& of = Internals::state(model);
  return guarded(of, "model", [&](graph::ModelState& m) -> Result<Session> {
    BOWLINE_TRY(exec::require_on_device(m.table, Internals::open(device).get()));
    auto state = std::make_unique<exec::SessionState>(
        of, std::string(entry_point), std::vector<BoundDim>(dims.begin(), dims.end()), budget);
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
Result<PlanInfo> Session::describe() const {
  return guarded(state_, "session", [](const exec::SessionState& s) { return s.describe(); });
}
Result<std::string> Session::listing(std::string_view part, bool columns) const {
  return guarded(state_, "session",
                 [&](const exec::SessionState& s) { return s.listing(part, columns); });
}

}  // namespace bowline
