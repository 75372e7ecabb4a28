// The table and the tables of a model file.
#pragma once

#include "model/verify.h"
#include "model/write.h"
#include "params/table.h"

namespace bowline::params {

// The rows of a verified file; the bytes stay in the file until they are read.
Table read_table(const model::VerifiedFile& file);

// The rows as they go into a file. Rows for which `keep` is false are written as empty rows, so
// that the others keep their tie index. The payloads read from `table`, which outlives them.
void describe_table(const Table& table, const std::vector<bool>& keep, file::ModelT& model,
                    std::vector<model::Payload>& payloads);

}  // namespace bowline::params
