// Weight formats: groups of storages that lie in one allocation of a device, each as ever, at
// places that the format says.
//
// A format is a placement: reads, writes and updates go to the same bytes as before, so that
// training and serving share them and a write needs no refresh. What follows from the bytes of one
// storage alone, and is another layout, is a derived copy (params/residency.h).
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// "flat": the matrices and vectors of a recurrent network one after the other. Where there are
// fewer vectors than matrices, as many zeros stand for the biases that are not there (as libraries
// of such kernels want them).
const WeightFormat& flat_format();

// Lays the storages of the parameters that match `pattern` into one allocation. That they are so
// already changes nothing.
// Errors  bad_argument: nothing matches; they do not lie on one device, or not on one that the
//         format is for; the format lays them
// over each other or outside its bytes.
Result<FormatReport> set_format(Table& table, const std::shared_ptr<const WeightFormat>& kind,
                                std::string_view pattern, int busy);

// Gives storages of groups of which a parameter matches `pattern` allocations of their own. Returns
// the groups.
Result<uint32_t> restore_format(Table& table, std::string_view pattern, int busy);

// Bytes on the device that lie between the storages of groups.
uint64_t padding_of_formats(const Table& table, const device::OpenDevice* device);

// After a verb: groups of which members have other bytes, or lie elsewhere, are laid anew on the
// device where they all are; one that cannot be is given up, and its storages stay as they are.
void keep_formats(Table& table);

}  // namespace bowline::detail::params
