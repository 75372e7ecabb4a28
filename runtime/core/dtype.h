// Element types. The numbers equal those of schemas/model.fbs (asserted in model/verify.cpp).
#pragma once

#include "bowline.h"
#include "core/detail.h"

namespace bowline {

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

inline void append_text(std::string& out, DType t) { out += name_of(t); }

}  // namespace bowline
