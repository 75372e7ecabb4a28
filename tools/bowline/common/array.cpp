#include "common/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <concepts>

#include "base/status.h"

namespace bowline::command {

Result<uint64_t> bytes_of(DType dtype, const TensorShape& shape) {
  uint64_t bytes = size_of(dtype);
  for (const int64_t dim : shape) {
    const auto n = static_cast<uint64_t>(dim);
    BOWLINE_REQUIRE(dim >= 0 && (n == 0 || bytes <= PTRDIFF_MAX / n),
                    "An array of shape {} is too large.", shape_text({shape.begin(), shape.end()}));
    bytes *= n;
  }
  return bytes;
}

Result<Array> make_array(DType dtype, const TensorShape& shape) {
  BOWLINE_TRY_ASSIGN(const uint64_t bytes, bytes_of(dtype, shape));
  return Array{dtype, {shape.begin(), shape.end()}, std::vector<std::byte>(bytes)};
}

Array float_array(DType dtype, const TensorShape& shape, std::span<const float> values) {
  Array out{dtype, {shape.begin(), shape.end()}, {}};
  out.bytes.resize(values.size() * size_of(dtype));
  with_zero(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (!std::integral<T>) {
        set_element(out, i, from_f32<T>(values[i]));
      }
    }
  });
  return out;
}

std::vector<float> floats_of(const Array& array) {
  std::vector<float> out;
  with_zero(array.dtype, [&]<class T>(T) {
    for (size_t i = 0; i < array.elements(); ++i) {
      if constexpr (!std::integral<T>) {
        out.push_back(to_f32(element<T>(array, i)));
      }
    }
  });
  return out;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

}  // namespace bowline::command
