// Converts between the values of a parameter and the bytes of its storage. A view is a contiguous
// part of the storage, possibly transposed.
#pragma once

#include "core/view.h"
#include "params/table.h"

namespace bowline::detail::params {

// The bytes of a storage that a parameter shows.
struct Window {
  Shape shape;         // the shape of the parameter
  uint64_t first = 0;  // offset in the storage, in bytes
  uint64_t count = 0;
};
// Errors  unsupported: the storage is quantized, so a part of it is not a range of bytes.
Result<Window> window_of(const ParameterRow& parameter, const Storage& storage);
// As window_of(); for a quantized storage, all of its bytes.
Result<Window> payload_of(const ParameterRow& parameter, const Storage& storage);

// Convert between the element order of the storage and that of a transposed parameter. `shape` is
// the shape of the parameter.
std::vector<std::byte> to_parameter_order(std::span<const std::byte> run, const Shape& shape,
                                          size_t element_bytes);
std::vector<std::byte> to_storage_order(std::span<const std::byte> values, const Shape& shape,
                                        size_t element_bytes);

}  // namespace bowline::detail::params
