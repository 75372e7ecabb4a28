// Overrides: values that replace parameters in one run.
#pragma once

#include "params/table.h"

namespace bowline::detail::exec {

// Returns a copy of the table in which parameters have the given values, by name. Their storages
// have new blocks on `device` and no derived copies. All tied parameters see the values. `table`
// does not change. `writes`: tie indices of the storages that the plan writes.
// Errors  bad_argument: a parameter is unknown, a tensor has another dtype or shape, the plan
//         writes the storage, or two tensors overlap. out_of_memory.
Result<params::Table> overridden(const params::Table& table, std::span<const Tensor> values,
                                 std::span<const uint32_t> writes,
                                 const std::shared_ptr<device::OpenDevice>& device);

}  // namespace bowline::detail::exec
