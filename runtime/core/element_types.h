// The C++ type of the elements of each dtype.
#pragma once

#include <concepts>

#include "base/float16.h"
#include "core/dtype.h"

namespace bowline {

// An element of dtype bool. Values from outside the library can be any byte.
struct Truth {
  uint8_t byte = 0;
};

template <class T>
concept Float = std::same_as<T, float> || std::same_as<T, f16> || std::same_as<T, bf16>;

// Calls f.operator()<T>() with the C++ type of `dtype`.
template <class F>
auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      break;
    case DType::f16:
      return f.template operator()<f16>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::i8:
      return f.template operator()<int8_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::boolean:
      return f.template operator()<Truth>();
  }
  return f.template operator()<float>();
}

// Calls f.operator()<T>() with the unsigned integer type of this size, for code that only moves
// elements.
template <class F>
auto with_bits(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<uint32_t>();
  }
}

}  // namespace bowline
