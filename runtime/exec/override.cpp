#include "exec/override.h"

#include "params/home.h"
#include "params/verbs.h"
#include "params/view.h"

namespace bowline::detail::exec {
namespace {

using params::ParameterRow;
using params::Storage;
using params::Window;

// The parameter that one tensor overrides, and its part of the storage.
struct Place {
  const ParameterRow* parameter;
  Window window;
};

Status require_apart(std::span<const Place> earlier, const Place& place) {
  for (const Place& e : earlier) {
    const bool apart = e.parameter->tie != place.parameter->tie ||
                       e.window.first + e.window.count <= place.window.first ||
                       place.window.first + place.window.count <= e.window.first;
    BOWLINE_REQUIRE(apart,
                    "\"{}\" and \"{}\" are both overridden, but they share values of storage {}. "
                    "Override only one of them.",
                    e.parameter->name, place.parameter->name, place.parameter->tie);
  }
  return {};
}

}  // namespace

Result<params::Table> overridden(const params::Table& table, std::span<const Tensor> values,
                                 std::span<const uint32_t> writes,
                                 const std::shared_ptr<device::OpenDevice>& device) {
  params::Table seen = table;
  seen.set_device(device);
  std::vector<Place> places;
  for (const Tensor& value : values) {
    BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(value.name));
    const ParameterRow& parameter = table.parameters[index];
    const Storage& storage = table.storages[parameter.tie];
    BOWLINE_REQUIRE(std::ranges::find(writes, parameter.tie) == writes.end(),
                    "\"{}\" cannot be overridden: the entry point writes storage {}.", value.name,
                    parameter.tie);
    BOWLINE_TRY_ASSIGN(Window window, params::window_of(parameter, storage));
    const Place place{&parameter, std::move(window)};
    BOWLINE_TRY(require_apart(places, place));
    const bool first = std::ranges::find(places, parameter.tie, [](const Place& p) {
                         return p.parameter->tie;
                       }) == places.end();
    if (first) {
      params::Home home;
      if (place.window.count < storage.bytes()) {
        std::vector<std::byte> scratch;
        BOWLINE_TRY_ASSIGN(const params::Bytes bytes, params::read_all(storage, scratch));
        BOWLINE_TRY_ASSIGN(home, params::make_home(device, bytes));
      }
      Storage own = storage;
      own.home = std::move(home);
      own.copies.clear();
      own.replicas.clear();
      seen.put(parameter.tie, std::move(own));
    }
    places.push_back(place);
    BOWLINE_TRY(params::set_value(seen, value.name, value, 0)
                    .at(format("While overriding parameter \"{}\".", value.name)));
  }
  return seen;
}

}  // namespace bowline::detail::exec
