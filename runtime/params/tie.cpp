#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::params {

Status tie(Table& table, std::string_view a, std::string_view b, const std::optional<View>& view,
           int busy) {
  BOWLINE_ASSIGN(const uint32_t ia, table.require(a));
  BOWLINE_ASSIGN(const uint32_t ib, table.require(b));
  BOWLINE_ASSIGN(Stage stage, Stage::begin(table, busy, "tie()"));
  const ParameterRow& first = table.parameters[ia];
  ParameterRow& second = stage.parameter(ib);
  const View wanted = view.value_or(first.view);
  const uint32_t from = second.tie;
  if (first.tie == from && wanted == second.view) {
    return {};
  }
  BOWLINE_REQUIRE(ia != ib, "Parameter \"{}\" cannot be tied to itself through another view.", a);
  const Storage& shared = table.storages[first.tie];
  const Storage& left = table.storages[from];
  const auto context = [&](Status s) {
    return std::move(s).at(format("While tying \"{}\" to \"{}\".", b, a));
  };
  const Result<Shape> now = view_shape(wanted, shared.shape);
  BOWLINE_TRY(context(now.status()));
  BOWLINE_TRY(context(shared.encoding.check_view(wanted, shared.shape)));
  BOWLINE_ASSIGN(const Shape before, view_shape(second.view, left.shape));
  BOWLINE_REQUIRE(now.value() == before && shared.dtype == left.dtype,
                  "Parameter \"{}\" is {}{}; through the view \"{}\" shows {}{}.", b, left.dtype,
                  before, a, shared.dtype, now.value());
  BOWLINE_REQUIRE(shared.trainable == left.trainable, "Parameter \"{}\" is {}, \"{}\" is {}.", a,
                  shared.trainable ? "trainable" : "frozen", b,
                  left.trainable ? "trainable" : "frozen");
  second.tie = first.tie;
  second.view = wanted;
  ++stage.storage(first.tie).generation;
  if (from != first.tie) {
    ++stage.storage(from).generation;
    stage.retire(from);
  }
  stage.commit();
  return {};
}

}  // namespace bowline::params
