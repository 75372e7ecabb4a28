// The table and what a model file says of it.
#pragma once

#include "model/read.h"
#include "params/table.h"

namespace bowline::detail::params {

// The rows of a verified file; the bytes stay in the file until they are read.
Table read_table(const model::Tables& file);

// The rows as they go into a file. Rows for which `keep` is false are written as empty rows, so
// that the others keep their tie index. `out` refers to `table`, which outlives it.
void describe_table(const Table& table, const std::vector<bool>& keep, model::Description& out);

}  // namespace bowline::detail::params
