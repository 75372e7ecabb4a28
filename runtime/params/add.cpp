#include <cmath>

#include "core/rules.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

Status check_new_name(const Table& table, std::string_view name) {
  BOWLINE_TRY(check_name(name, "A parameter"));
  BOWLINE_REQUIRE(!table.find(name), "There is a parameter \"{}\" already.", name);
  return {};
}

// Only these roles can be declared. Training and adapters add their rows in other ways.
Status check_role(Role role, std::string_view name) {
  const bool declared = role == Role::weight || role == Role::constant || role == Role::kv_cache ||
                        role == Role::running_statistic;
  BOWLINE_REQUIRE(
      declared, "Parameter \"{}\" cannot be declared with the role {}.", name,
      role <= Role::master ? std::string(name_of(role)) : format("{}", static_cast<int>(role)));
  return {};
}

}  // namespace

// If adding a row fails, nothing has changed yet, so no copy of the table is needed.
Result<uint32_t> add_parameter(Table& table, std::string_view name, DType dtype,
                               std::span<const int64_t> shape, Init init, int busy, Role role) {
  BOWLINE_TRY(require_idle(busy, "parameter()"));
  BOWLINE_TRY(check_new_name(table, name));
  BOWLINE_REQUIRE(init.kind <= Init::Kind::uniform, "The initialiser {} of \"{}\" is unknown.",
                  static_cast<int>(init.kind), name);
  BOWLINE_REQUIRE(std::isfinite(init.scale),
                  "The initialiser of \"{}\" has a scale of {}, which is not finite.", name,
                  init.scale);
  BOWLINE_TRY(check_role(role, name));
  const auto floor = floor_dtype(role);
  BOWLINE_REQUIRE(!floor || dtype == *floor, "Parameter \"{}\" is a {}, which must be {}, not {}.",
                  name, name_of(role), *floor, dtype);
  Storage row;
  row.role = role;
  row.trainable = is_trained(role) && is_float(dtype);
  row.dtype = dtype;
  BOWLINE_TRY_ASSIGN(row.shape, Shape::checked(shape));
  row.init = init;
  return table.add({std::string(name), 0, {}, {}}, std::move(row));
}

Result<uint32_t> add_tied_parameter(Table& table, std::string_view name, uint32_t other,
                                    const std::optional<View>& view, int busy) {
  BOWLINE_TRY(require_idle(busy, "tied_parameter()"));
  BOWLINE_TRY(check_new_name(table, name));
  BOWLINE_REQUIRE(other < table.parameters.size(), "There is no parameter number {}.", other);
  const uint32_t tie = table.parameters[other].tie;
  const View wanted = view.value_or(table.parameters[other].view);
  BOWLINE_TRY(view_shape(wanted, table.storages[tie].shape)
                  .status()
                  .at(format("While tying \"{}\" to \"{}\".", name, table.parameters[other].name)));
  BOWLINE_TRY(table.storages[tie]
                  .encoding.check_view(wanted, table.storages[tie].shape)
                  .at(format("While tying \"{}\" to \"{}\".", name, table.parameters[other].name)));
  const uint32_t index = table.add({std::string(name), tie, wanted, {}});
  table.changed(tie);
  return index;
}

}  // namespace bowline::detail::params
