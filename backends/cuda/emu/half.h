// The 16-bit floating-point types of cuda_fp16.h and cuda_bf16.h for storage: conversions to and
// from f32, with rounding to nearest even. All devices compute in f32.
#pragma once

#include "base/float16.h"

namespace bowline::detail::cuda_emu {

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

// Every NaN is converted to this value.
constexpr uint16_t kNan = 0x7FFF;

inline float __bfloat162float(__nv_bfloat16 x) { return to_f32(bf16{x.bits}); }
inline float __half2float(__half x) { return to_f32(f16{x.bits}); }

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {x != x ? kNan : from_f32<bf16>(x).bits};
}
inline __half __float2half_rn(float x) { return {x != x ? kNan : from_f32<f16>(x).bits}; }

}  // namespace bowline::detail::cuda_emu
