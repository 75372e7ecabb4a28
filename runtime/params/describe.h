// The table as data, for Model::describe(); the listings are made of it.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// By their numbers.
std::vector<ParameterInfo> describe_parameters(const Table& table);
StorageInfo describe_storage(const Table& table, uint32_t tie);
// By tie index, up to the last row that is not empty.
std::vector<StorageInfo> describe_storages(const Table& table);
// The storages with more than one parameter, ascending.
std::vector<TieInfo> describe_ties(const Table& table);

}  // namespace bowline::detail::params
