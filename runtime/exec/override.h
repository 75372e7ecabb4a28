// Values that storages have for one run.
#pragma once

#include "params/table.h"

namespace bowline::detail::exec {

// The table as a run sees it in which parameters have these values, by name: their storages have
// blocks of their own on `device`, and no derived copies yet. What records a plan with it reads
// them by every name of the tie; the table itself is left alone. `writes`: tie indices that the
// plan writes.
// Errors  bad_argument: an unknown parameter, a tensor that is not of its dtype and shape, a
//         storage that the plan writes, two
// tensors for the same values. out_of_memory.
Result<params::Table> overridden(const params::Table& table, std::span<const Tensor> values,
                                 std::span<const uint32_t> writes,
                                 const std::shared_ptr<device::OpenDevice>& device);

}  // namespace bowline::detail::exec
