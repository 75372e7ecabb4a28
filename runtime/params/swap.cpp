#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// Checks that every view of the storage still fits the new contents.
Status check_views(const Stage& stage, uint32_t tie) {
  const Storage& storage = stage.current(tie);
  for (const uint32_t user : sorted(stage.before().users(tie))) {
    const ParameterRow& p = stage.before().parameters[user];
    const auto fits = [&]() -> Status {
      BOWLINE_TRY(view_shape(p.view, storage.shape).status());
      return storage.encoding.check_view(p.view, storage.shape);
    };
    BOWLINE_TRY(fits().at(format("The view of \"{}\" does not fit {}.", p.name, storage.shape)));
  }
  return {};
}

}  // namespace

Status swap(Table& table, std::string_view a, std::string_view b, int busy) {
  BOWLINE_TRY_ASSIGN(const uint32_t first_parameter, table.require(a));
  BOWLINE_TRY_ASSIGN(const uint32_t second_parameter, table.require(b));
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "swap()"));
  const uint32_t first = table.parameters[first_parameter].tie;
  const uint32_t second = table.parameters[second_parameter].tie;
  if (first == second) {
    return {};
  }
  const Storage &x = table.storages[first], &y = table.storages[second];
  BOWLINE_REQUIRE(x.role == y.role, "Parameter \"{}\" is a {}, but \"{}\" is a {}.", a,
                  name_of(x.role), b, name_of(y.role));
  const auto take = [&](uint32_t tie, const Storage& was, const Storage& content) {
    Storage& row = stage.storage(tie);
    row = content;
    row.copies.clear();
    row.replicas = was.replicas;
    for (Replica& r : row.replicas) {
      r.copy.reset();  // of the old contents
    }
    row.version = was.version + 1;
    row.generation = was.generation + 1;
    for (const uint32_t owned : sorted(table.owned(tie == first ? second : first))) {
      stage.storage(owned).owner = static_cast<int32_t>(tie);
    }
  };
  take(first, x, y);
  take(second, y, x);
  const std::string context = format("While swapping \"{}\" and \"{}\".", a, b);
  BOWLINE_TRY(check_views(stage, first).at(context));
  BOWLINE_TRY(check_views(stage, second).at(context));
  stage.commit();
  return {};
}

}  // namespace bowline::detail::params
