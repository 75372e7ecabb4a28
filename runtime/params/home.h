// Bytes of storages: reading them wherever they lie, and giving storages new ones.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

using Bytes = std::span<const std::byte>;

// Errors  out_of_memory: the host has not that many bytes, used or free.
Status require_host_memory(uint64_t bytes);

// Bytes [first, first + count) of a storage that has some, in place or in `scratch`: of a file
// range after its checksum, of a device by one copy, of a source by one call.
Result<Bytes> read_run(const Storage& storage, uint64_t first, uint64_t count,
                       std::vector<std::byte>& scratch);

// All of them.
Result<Bytes> read_all(const Storage& storage, std::vector<std::byte>& scratch);

// Copies the codes, scales and zero points of elements [first, first + count) of the storage, whose
// bytes `from` are, to the begin of `to`: what the same encoding makes of numbers of `to_shape`.
void copy_codes(const Storage& storage, Bytes from, uint64_t first, uint64_t count,
                std::span<std::byte> to, const Shape& to_shape);

// What materialize() gives a storage: a function of (seed, tie index, element) alone. Errors
// unsupported: it is encoded, or integers
// are drawn.
Result<std::vector<std::byte>> initial_bytes(const Storage& storage, uint64_t seed, uint32_t tie);

// Numbers of one float dtype as those of another, to nearest even.
void convert_floats(Bytes from, DType from_type, std::span<std::byte> to, DType to_type);

// Whether these numbers are; integers always.
bool all_finite(Bytes bytes, DType dtype);

// A new home with these bytes: on the device by one copy, or in host memory if it is null.
Result<Home> make_home(const std::shared_ptr<device::OpenDevice>& device, Bytes bytes);

// A new home with these bytes where and as the old one is: on its device, in parts as it has, or
// else in host memory.
Result<Home> make_home_like(const Storage& storage, Bytes bytes);

// Writes a run of a storage that lies on devices.
Status write_run(const Home& home, uint64_t first, Bytes run);

// So many bytes in parts of whole rows, for as many devices: the first ones get a row more where
// they do not divide. What cannot be cut between rows, for it has none or is encoded, is one part.
std::vector<uint64_t> shard_bytes(const Storage& storage, size_t devices);

// The bytes of the storage in such parts.
Result<Home> make_shards(std::span<const std::shared_ptr<device::OpenDevice>> devices,
                         const Storage& storage, Bytes bytes);

// The values of a storage change their home: version and generation grow.
void install(Storage& storage, Home home);

}  // namespace bowline::detail::params
