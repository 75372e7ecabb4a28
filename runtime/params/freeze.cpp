#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::params {

Status freeze(Table& table, std::string_view name, bool frozen, int busy) {
  BOWLINE_ASSIGN(const uint32_t index, table.require(name));
  BOWLINE_ASSIGN(Stage stage, Stage::begin(table, busy, frozen ? "freeze()" : "thaw()"));
  Storage& storage = stage.storage(table.parameters[index].tie);
  if (storage.trainable != frozen) {
    return {};
  }
  storage.trainable = !frozen;
  ++storage.generation;
  stage.commit();
  return {};
}

}  // namespace bowline::params
