#include "params/verbs.h"

namespace bowline::detail::params {

void drop_training(Table& table) {
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    if (is_training(table.storages[tie].role)) {
      table.make_empty(tie);
    }
  }
  size_t rows = table.storages.size();
  while (rows > 0 && is_training(table.storages[rows - 1].role)) {
    --rows;
  }
  table.shrink(rows, table.parameters.size());
}

}  // namespace bowline::detail::params
