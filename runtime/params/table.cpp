#include "params/table.h"

#include <algorithm>

namespace bowline::params {

std::string_view name_of(Role role) {
  constexpr std::string_view names[] = {"weight",   "constant", "adapter_a",         "adapter_b",
                                        "kv_cache", "gradient", "running_statistic", "moment",
                                        "master"};
  return names[static_cast<size_t>(role)];
}

std::optional<DType> floor_dtype(Role role) {
  switch (role) {
    case Role::running_statistic:
    case Role::moment:
    case Role::master:
      return DType::f32;
    default:
      return std::nullopt;
  }
}

std::optional<uint32_t> Table::find(std::string_view name) const {
  const auto it = std::ranges::find(parameters, name, &ParameterRow::name);
  if (it == parameters.end()) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(it - parameters.begin());
}

Result<uint32_t> Table::require(std::string_view name) const {
  const auto found = find(name);
  BOWLINE_REQUIRE(found.has_value(), "There is no parameter \"{}\" among the {} of the model.",
                  name, parameters.size());
  return *found;
}

std::optional<uint32_t> Table::owned(uint32_t owner, Role role, uint32_t slot) const {
  for (uint32_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[i];
    if (!s.empty && s.owner == static_cast<int32_t>(owner) && s.role == role && s.slot == slot) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace bowline::params
