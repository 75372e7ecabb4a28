// Describes the table as plain structs, for Model::describe() and for the listings.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// In the order of the parameter numbers.
std::vector<ParameterInfo> describe_parameters(const Table& table);
StorageInfo describe_storage(const Table& table, uint32_t tie);
// In the order of the tie indices, without empty rows at the end.
std::vector<StorageInfo> describe_storages(const Table& table);
// Storages with more than one parameter, ascending.
std::vector<TieInfo> describe_ties(const Table& table);

}  // namespace bowline::detail::params
