#include <cmath>

#include "core/utf8.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::params {
namespace {

Status check_new_name(const Table& table, std::string_view name) {
  BOWLINE_REQUIRE(!name.empty() && name.size() <= kMaxNameBytes,
                  "A parameter has a name of {} bytes, outside 1..{}.", name.size(), kMaxNameBytes);
  BOWLINE_REQUIRE(valid_name(name),
                  "The name of a parameter is not valid UTF-8 or holds control characters.");
  BOWLINE_REQUIRE(!table.find(name), "There is a parameter \"{}\" already.", name);
  return {};
}

}  // namespace

// Adding a row fails before it changes anything, so it needs no copy of the table.
Result<uint32_t> add_parameter(Table& table, std::string_view name, DType dtype,
                               std::span<const int64_t> shape, Init init, int busy) {
  BOWLINE_TRY(require_idle(busy, "parameter()"));
  BOWLINE_TRY(check_new_name(table, name));
  BOWLINE_REQUIRE(std::isfinite(init.scale), "The initialiser of \"{}\" has a scale of {}.", name,
                  init.scale);
  Storage row;
  row.dtype = dtype;
  BOWLINE_ASSIGN(row.shape, Shape::checked(shape));
  row.init = init;
  const auto tie = static_cast<uint32_t>(table.storages.size());
  table.storages.push_back(std::move(row));
  table.parameters.push_back({std::string(name), tie, {}, {}});
  return static_cast<uint32_t>(table.parameters.size() - 1);
}

Result<uint32_t> add_tied_parameter(Table& table, std::string_view name, uint32_t other,
                                    const View& view, int busy) {
  BOWLINE_TRY(require_idle(busy, "tied_parameter()"));
  BOWLINE_TRY(check_new_name(table, name));
  BOWLINE_REQUIRE(other < table.parameters.size(), "There is no parameter number {}.", other);
  const uint32_t tie = table.parameters[other].tie;
  BOWLINE_TRY(view_shape(view, table.storages[tie].shape)
                  .status()
                  .at(format("While tying \"{}\" to \"{}\".", name, table.parameters[other].name)));
  ++table.storages[tie].generation;
  table.parameters.push_back({std::string(name), tie, view, {}});
  return static_cast<uint32_t>(table.parameters.size() - 1);
}

}  // namespace bowline::params
