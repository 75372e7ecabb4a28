// Reads the bytes of storages, wherever they are, and makes new homes for them.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

using Bytes = std::span<const std::byte>;

// Errors  out_of_memory: `bytes` is more than the physical memory of the host.
Status require_host_memory(uint64_t bytes);

// Returns bytes [first, first + count) of a storage. They are in host memory already, or are copied
// to `scratch`: from a device with one copy per block, from a source with one call, from a model
// file that is not in aligned memory. A file range is verified first.
// Errors  bad_argument: the storage has no values.
Result<Bytes> read_run(const Storage& storage, uint64_t first, uint64_t count,
                       std::vector<std::byte>& scratch);

// As read_run(), for all bytes.
Result<Bytes> read_all(const Storage& storage, std::vector<std::byte>& scratch);

// Returns all values of a storage of floats, which may be quantized.
Result<std::vector<float>> decoded(const Storage& storage);

// Copies the quantized values, scales and zero points of elements [first, first + count) to the
// start of `to`. `from` contains the bytes of the storage. `to` has the same encoding and the shape
// `to_shape`.
void copy_codes(const Storage& storage, Bytes from, uint64_t first, uint64_t count,
                std::span<std::byte> to, const Shape& to_shape);

// Returns the initial values of a storage. They depend only on its Init, the seed, the tie index
// and the number of the element.
// Errors  unsupported: the storage is quantized, or has integers that would not be zeros.
Result<std::vector<std::byte>> initial_bytes(const Storage& storage, uint64_t seed, uint32_t tie);

// Converts floats to another float dtype, rounding to nearest even.
void convert_floats(Bytes from, DType from_type, std::span<std::byte> to, DType to_type);

// Returns true if all values are finite. Integers always are.
bool all_finite(Bytes bytes, DType dtype);

// Makes a home with these bytes: on `device` with one copy, or in host memory if it is null.
Result<Home> make_home(const std::shared_ptr<device::OpenDevice>& device, Bytes bytes);

// Makes a home with these bytes where the old home is: on its devices, else in host memory.
Result<Home> make_home_like(const Storage& storage, Bytes bytes);

// Writes a part of a storage that is on one or more devices.
Status write_run(const Home& home, uint64_t first, Bytes run);

// Returns the size of each part of a storage that is split by rows over devices, in bytes. If the
// rows do not divide evenly, the first parts have one row more. Scalars and quantized storages are
// one part.
std::vector<uint64_t> shard_bytes(const Storage& storage, size_t devices);

// Makes a home with these bytes, split in this way.
Result<Home> make_shards(std::span<const std::shared_ptr<device::OpenDevice>> devices,
                         const Storage& storage, Bytes bytes);

// Replaces the home of a storage. Increments its version and generation.
void install(Storage& storage, Home home);

}  // namespace bowline::detail::params
