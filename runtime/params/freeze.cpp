#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

std::string others_of(const Table& table, uint32_t index) {
  std::string out;
  for (const uint32_t i : sorted(table.users(table.parameters[index].tie))) {
    if (i != index) {
      out += format(out.empty() ? "\"{}\"" : ", \"{}\"", table.parameters[i].name);
    }
  }
  return out;
}

}  // namespace

Status freeze(Table& table, std::string_view name, bool frozen, bool all, int busy) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, frozen ? "freeze()" : "thaw()"));
  const uint32_t tie = table.parameters[index].tie;
  if (table.storages[tie].trainable != frozen) {
    return {};
  }
  BOWLINE_REQUIRE(
      frozen || table.storages[tie].encoding.is_plain(),
      "\"{}\" cannot be thawed: it is stored as {}, and quantized values have no gradient.", name,
      table.storages[tie].encoding);
  BOWLINE_REQUIRE(frozen || is_trained(table.storages[tie].role),
                  "\"{}\" cannot be thawed: it is a {}, which is not trained.", name,
                  name_of(table.storages[tie].role));
  const std::string others = frozen || all ? std::string() : others_of(table, index);
  BOWLINE_REQUIRE(others.empty(),
                  "Thawing \"{}\" would also thaw {}, because they share storage {}. To thaw all "
                  "of them, call freeze_storage(name, false).",
                  name, others, tie);
  Storage& storage = stage.storage(tie);
  storage.trainable = !frozen;
  ++storage.generation;
  stage.commit();
  return {};
}

}  // namespace bowline::detail::params
