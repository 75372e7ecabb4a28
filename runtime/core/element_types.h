// The types whose elements are of a dtype, in memory.
#pragma once

#include <concepts>

#include "base/float16.h"
#include "core/dtype.h"

namespace bowline {

// A truth value from outside is any byte.
struct Truth {
  uint8_t byte = 0;
};

template <class T>
concept Float = std::same_as<T, float> || std::same_as<T, f16> || std::same_as<T, bf16>;

// f.operator()<T>() with the type of the elements.
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

// f.operator()<T>() with the unsigned type of so many bytes, for what moves elements and does not
// look at them.
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
