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

uint32_t Table::add(ParameterRow row) {
  const auto number = static_cast<uint32_t>(parameters.size());
  reserve_more(parameters, 1);
  numbers_.emplace(row.name, number);
  parameters.push_back(std::move(row));
  return number;
}

uint32_t Table::add(ParameterRow row, Storage storage) {
  row.tie = static_cast<uint32_t>(storages.size());
  reserve_more(storages, 1);
  const uint32_t number = add(std::move(row));
  storages.push_back(std::move(storage));
  return number;
}

void Table::shrink(size_t storage_count, size_t parameter_count) {
  for (size_t i = parameter_count; i < parameters.size(); ++i) {
    numbers_.erase(parameters[i].name);
  }
  parameters.erase(parameters.begin() + static_cast<ptrdiff_t>(parameter_count), parameters.end());
  storages.erase(storages.begin() + static_cast<ptrdiff_t>(storage_count), storages.end());
}

size_t Table::used_rows() const {
  size_t rows = storages.size();
  while (rows > 0 && storages[rows - 1].empty) {
    --rows;
  }
  return rows;
}

std::optional<uint32_t> Table::find(std::string_view name) const {
  const auto it = numbers_.find(std::string(name));
  return it == numbers_.end() ? std::nullopt : std::optional(it->second);
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
