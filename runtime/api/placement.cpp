// Where the storages of a Model are: Model::to(), and bowline/placement.h.
#include "bowline/placement.h"

#include "api/internals.h"
#include "api/reshaping.h"
#include "device/device.h"
#include "params/home.h"
#include "params/verbs.h"

namespace bowline {
namespace {

using graph::ModelState;

// Moves all storages, or those that a pattern names; null: to host memory.
Status move(ModelState& state, const std::shared_ptr<device::OpenDevice>& device,
            std::optional<std::string_view> pattern) {
  BOWLINE_TRY_ASSIGN(const bool moved,
                     pattern ? params::move(state.table, device, *pattern, state.users.busy())
                             : params::move(state.table, device, state.users.busy()));
  if (moved) {
    state.users.leave_device();
  }
  return {};
}

Result<std::shared_ptr<device::OpenDevice>> opened_of(const Device& device) {
  BOWLINE_REQUIRE(Internals::open(device) != nullptr, "The device is empty: it was moved from.");
  return Internals::open(device);
}

Status to(ModelState& state, const Device& to, std::optional<std::string_view> pattern) {
  BOWLINE_TRY_ASSIGN(const auto device, opened_of(to));
  return move(state, device, pattern);
}

}  // namespace

Status Model::to(const Device& device) {
  return changing(state_, [&](ModelState& s) { return bowline::to(s, device, {}); });
}

Status Model::to(const Device& device, std::string_view pattern) {
  return changing(state_, [&](ModelState& s) { return bowline::to(s, device, pattern); });
}

Status offload(Model& model, std::string_view pattern) {
  return changing(Internals::state(model),
                  [&](ModelState& s) { return move(s, nullptr, pattern); });
}

Result<PlacementReport> replicate(Model& model, const Device& device, std::string_view pattern) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) -> Result<PlacementReport> {
    BOWLINE_TRY_ASSIGN(const auto opened, opened_of(device));
    return params::replicate(s.table, opened, pattern, s.users.busy());
  });
}

Result<PlacementReport> shard(Model& model, std::span<const Device> devices,
                              std::string_view pattern) {
  return changing(Internals::state(model), [&](ModelState& s) -> Result<PlacementReport> {
    std::vector<std::shared_ptr<device::OpenDevice>> opened;
    for (const Device& device : devices) {
      BOWLINE_TRY_ASSIGN(opened.emplace_back(), opened_of(device));
    }
    BOWLINE_TRY_ASSIGN(const PlacementReport report,
                       params::shard(s.table, opened, pattern, s.users.busy()));
    s.users.leave_device();
    return report;
  });
}

}  // namespace bowline
