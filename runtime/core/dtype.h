// Element types. The numbers equal those of schemas/model.fbs (asserted in model/verify.cpp).
#pragma once

#include "bowline.h"

namespace bowline {

constexpr int kDTypes = 8;

// Bytes per element.
constexpr size_t size_of(DType t) {
  constexpr size_t sizes[kDTypes] = {4, 2, 2, 1, 1, 4, 8, 1};
  return sizes[static_cast<size_t>(t)];
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[kDTypes] = {"f32", "f16", "bf16", "i8",
                                               "u8",  "i32", "i64",  "bool"};
  return names[static_cast<size_t>(t)];
}

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

inline void append_text(std::string& out, DType t) { out += name_of(t); }

}  // namespace bowline
