//! variants BYTES=1,4,8 OUT=same,truth
// y[i] = f(a, b) of integers or bool, with broadcasting as in broadcast.comp. 64-bit elements need
// a device with 64-bit integers.
#if defined(BYTES_1) || defined(OUT_truth)
#extension GL_EXT_shader_8bit_storage : require
#endif
#if defined(BYTES_8)
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#define WIDE
#endif
#include "common.glsl"
#include "functions_whole.glsl"
#include "index.glsl"

layout(constant_id = 2) const uint RANK = 1;
layout(constant_id = 3) const uint KIND = 0;  // of bytes: 0 signed, 1 unsigned, 2 bool

#if defined(BYTES_1)
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer In { uint8_t v[]; };
F load(In x, uint i) {
  const int byte = int(uint(x.v[i]));
  return KIND == 2 ? min(byte, 1) : KIND == 0 && byte > 127 ? byte - 256 : byte;
}
#elif defined(BYTES_4)
#define In Ints
F load(In x, uint i) { return x.v[i]; }
#else
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer In { int64_t v[]; };
F load(In x, uint i) { return x.v[i]; }
#endif
#if defined(OUT_truth)
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Out { uint8_t v[]; };
void store(Out y, uint i, F x) { y.v[i] = uint8_t(x != 0 ? 1 : 0); }
#else
#define Out In
#if defined(BYTES_1)
void store(Out y, uint i, F x) { y.v[i] = uint8_t((KIND == 2 ? (x != 0 ? 1 : 0) : x) & 255); }
#else
void store(Out y, uint i, F x) { y.v[i] = x; }
#endif
#endif

layout(push_constant, scalar) uniform Push {
  In a;
  In b;
  Out y;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
} p;

void main() {
  LOAD_LOOP(p.dims, 2)
  FOR_ELEMENTS(i, p.n) {
    LOOP_OFFSETS(i, 2, at)
    store(p.y, i, call(load(p.a, at[0]), load(p.b, at[1]), F(0), F(0), F(0)));
  }
}
