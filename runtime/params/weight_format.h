// Weight formats place a group of storages in one allocation of a device. The format computes the
// offset of each storage.
//
// A format does not change the bytes of a storage. So reads, writes and updates work as before,
// training and inference share the bytes, and a write needs no refresh. Another layout of one
// storage is a derived copy instead (params/residency.h).
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// "flat": the matrices and vectors of a recurrent network, one after the other. If there are fewer
// vectors than matrices, zeros follow for the missing biases, which kernel libraries expect.
const WeightFormat& flat_format();

// Moves the storages of the parameters that match `pattern` into one allocation. Does nothing if
// they are there already.
// Errors  bad_argument: no parameter matches; the storages are not on one device, or the format is
//         not for this device; the layout is invalid.
Result<FormatReport> set_format(Table& table, const std::shared_ptr<const WeightFormat>& kind,
                                std::string_view pattern, int busy);

// Dissolves the groups with a matching parameter: their storages get allocations of their own.
// Returns the number of groups.
Result<uint32_t> restore_format(Table& table, std::string_view pattern, int busy);

// Returns the bytes on the device that are between the storages of groups.
uint64_t padding_of_formats(const Table& table, const device::OpenDevice* device);

// Call it after a verb. If storages of a group were replaced or moved, the group gets a new layout
// once they are all on one device of the format. If that fails, the group is dissolved.
void keep_formats(Table& table);

}  // namespace bowline::detail::params
