#include "params/view.h"

#include <cstring>

namespace bowline::detail::params {
namespace {

// Swaps the last two axes of `outer` matrices of rows x columns.
std::vector<std::byte> transpose(std::span<const std::byte> from, int64_t outer, int64_t rows,
                                 int64_t columns, size_t element) {
  std::vector<std::byte> out(from.size());
  const auto at = [element](int64_t index) { return static_cast<size_t>(index) * element; };
  for (int64_t o = 0; o < outer; ++o) {
    const int64_t base = o * rows * columns;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        std::memcpy(out.data() + at(base + c * rows + r), from.data() + at(base + r * columns + c),
                    element);
      }
    }
  }
  return out;
}

}  // namespace

Result<Window> window_of(const ParameterRow& parameter, const Storage& storage) {
  BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(parameter.view, storage.shape));
  BOWLINE_REQUIRE_CODE(storage.encoding.is_plain(), Code::unsupported,
                       "\"{}\" is stored as {}: quantized values cannot be written or "
                       "viewed in parts; call dequantize() first.",
                       parameter.name, storage.encoding);
  const ElementRun run = view_run(parameter.view, storage.shape);
  const uint64_t size = size_of(storage.dtype);
  return Window{shape, static_cast<uint64_t>(run.first) * size,
                static_cast<uint64_t>(run.count) * size};
}

Result<Window> payload_of(const ParameterRow& parameter, const Storage& storage) {
  if (storage.encoding.is_plain()) {
    return window_of(parameter, storage);
  }
  BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(parameter.view, storage.shape));
  return Window{shape, 0, storage.bytes()};
}

std::vector<std::byte> to_parameter_order(std::span<const std::byte> run, const Shape& shape,
                                          size_t element_bytes) {
  const int r = shape.rank();
  return transpose(run, shape.elements(0, r - 2), shape[r - 1], shape[r - 2], element_bytes);
}

std::vector<std::byte> to_storage_order(std::span<const std::byte> values, const Shape& shape,
                                        size_t element_bytes) {
  const int r = shape.rank();
  return transpose(values, shape.elements(0, r - 2), shape[r - 2], shape[r - 1], element_bytes);
}

}  // namespace bowline::detail::params
