#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"
#include "params/view.h"

namespace bowline::detail::params {
namespace {

Status check_codes(const Table& table, uint32_t tie, const Encoding& encoding) {
  const Storage& row = table.storages[tie];
  BOWLINE_REQUIRE(
      row.role == Role::weight || row.role == Role::constant || row.role == Role::kv_cache,
      "Only weights, constants and caches can be quantized; storage {} is a {}.", tie,
      name_of(row.role));
  BOWLINE_TRY(encoding.check(row.dtype, row.shape));
  for (const uint32_t user : sorted(table.users(tie))) {
    const ParameterRow& p = table.parameters[user];
    BOWLINE_TRY(
        encoding.check_view(p.view, row.shape)
            .at(format("While checking the view of \"{}\" on the quantized values.", p.name)));
  }
  return {};
}

}  // namespace

Status set_source(Table& table, std::string_view name, ValueSource source, const Encoding& encoding,
                  int busy) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  const ParameterRow& parameter = table.parameters[index];
  BOWLINE_REQUIRE(source != nullptr, "The source of \"{}\" is empty.", name);
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "set_source()"));
  Storage& row = stage.storage(parameter.tie);
  BOWLINE_TRY_ASSIGN(const Shape shown, view_shape(parameter.view, row.shape));
  BOWLINE_REQUIRE(shown.elements() == row.shape.elements() && !parameter.view.transpose,
                  "\"{}\" is a partial or transposed view of its storage. set_source() needs a "
                  "view of the whole storage.",
                  name);
  row.encoding = encoding.for_shape(row.shape);
  if (!row.encoding.is_plain()) {
    BOWLINE_TRY(check_codes(table, parameter.tie, row.encoding));
    row.trainable = false;
    for (const uint32_t owned : stage.owned_by(parameter.tie)) {
      stage.make_empty(owned);
    }
  }
  Home home;
  home.source = std::make_shared<const ValueSource>(std::move(source));
  install(row, std::move(home));
  row.replicas.clear();
  stage.commit();
  return {};
}

}  // namespace bowline::detail::params
