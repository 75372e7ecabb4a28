#include "params/verbs.h"

namespace bowline::params {

void drop_training(Table& table) {
  for (Storage& s : table.storages) {
    if (is_training(s.role) && !s.empty) {
      s.empty = true;
      s.home = {};
      ++s.generation;
    }
  }
  while (!table.storages.empty() && table.storages.back().empty &&
         is_training(table.storages.back().role)) {
    table.storages.pop_back();
  }
}

}  // namespace bowline::params
