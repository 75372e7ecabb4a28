// Converts between the table and the description of a model file.
#pragma once

#include "model/read.h"
#include "params/table.h"

namespace bowline::detail::params {

// Returns the rows of a verified file. The values stay in the file until they are read.
Table read_table(const model::Tables& file);

// Describes the rows for a file. Rows for which `keep` is false become empty rows, so that the
// others keep their tie index. `out` refers to `table`, which must outlive it.
void describe_table(const Table& table, const std::vector<bool>& keep, model::Description& out);

}  // namespace bowline::detail::params
