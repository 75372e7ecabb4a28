// Which storages a verb with a pattern is for.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

struct Chosen {
  uint32_t tie = 0;
  std::string_view name;  // of the first parameter with a match
};

// The storages of the parameters that match `pattern` (base/pattern.h, with alternatives),
// ascending.
// Errors  bad_argument: there are none, or the pattern is none.
Result<std::vector<Chosen>> chosen(const Table& table, std::string_view pattern);

}  // namespace bowline::detail::params
