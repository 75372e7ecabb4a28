// Helpers for DType. The values of the enum equal those in schemas/model.fbs (model/verify.cpp
// checks this).
#pragma once

#include "base/detail.h"
#include "base/float16.h"
#include "bowline.h"

namespace bowline {

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

// Returns the bits with which a dtype stores `x`. Integers saturate. bool is x != 0.
constexpr uint64_t stored_bits(DType t, float x) {
  switch (t) {
    case DType::f16:
      return from_f32<f16>(x).bits;
    case DType::bf16:
      return from_f32<bf16>(x).bits;
    case DType::i8:
      return static_cast<uint8_t>(saturated<int8_t>(x));
    case DType::u8:
      return saturated<uint8_t>(x);
    case DType::i32:
      return static_cast<uint32_t>(saturated<int32_t>(x));
    case DType::i64:
      return static_cast<uint64_t>(saturated<int64_t>(x));
    case DType::boolean:
      return x != 0 ? 1 : 0;
    case DType::f32:
      break;
  }
  return std::bit_cast<uint32_t>(x);
}

inline void append_text(std::string& out, DType t) { out += name_of(t); }

}  // namespace bowline
