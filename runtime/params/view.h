// Values of a parameter and bytes of its storage: a view is a run of the storage, perhaps
// transposed.
#pragma once

#include "core/view.h"
#include "params/table.h"

namespace bowline::detail::params {

// What a parameter shows of its storage, in bytes.
struct Window {
  Shape shape;         // as the parameter shows it
  uint64_t first = 0;  // the run in the storage
  uint64_t count = 0;
};
// Errors  unsupported: it is encoded, so that no run of bytes holds what a view cuts.
Result<Window> window_of(const ParameterRow& parameter, const Storage& storage);
// The bytes of a storage that a parameter stands for: of an encoded one all.
Result<Window> payload_of(const ParameterRow& parameter, const Storage& storage);

// Between the order of the storage and the order of the parameter. `shape` is that of the
// parameter.
std::vector<std::byte> to_parameter_order(std::span<const std::byte> run, const Shape& shape,
                                          size_t element_bytes);
std::vector<std::byte> to_storage_order(std::span<const std::byte> values, const Shape& shape,
                                        size_t element_bytes);

}  // namespace bowline::detail::params
