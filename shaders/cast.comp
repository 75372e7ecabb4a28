//! variants FROM=1,2,4,8 TO=1,2,4,8
// y[i] = x[i] in another dtype, as runtime/ops/cast.cpp defines it. The variants are element sizes;
// the dtypes are constants with the values of the enum DType. Integers pass through 64 bits as
// (low, high), for devices without 64-bit integers.
#if defined(FROM_1) || defined(TO_1)
#extension GL_EXT_shader_8bit_storage : require
#endif
#if defined(FROM_2) || defined(TO_2)
#extension GL_EXT_shader_16bit_storage : require
#endif
#include "common.glsl"
#include "half.glsl"

layout(constant_id = 1) const uint FROM_TYPE = 0;
layout(constant_id = 2) const uint TO_TYPE = 0;
const uint F32 = 0;
const uint F16 = 1;
const uint BF16 = 2;
const uint I8 = 3;
const uint U8 = 4;
const uint I32 = 5;
const uint I64 = 6;
const uint BOOLEAN = 7;

#if defined(FROM_1)
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer From { uint8_t v[]; };
#elif defined(FROM_2)
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer From { uint16_t v[]; };
#else
#define From Words
#endif
#if defined(TO_1)
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer To { uint8_t v[]; };
#elif defined(TO_2)
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer To { uint16_t v[]; };
#else
#define To Words
#endif

layout(push_constant, scalar) uniform Push {
  From x;
  To y;
  uint n;
  uint per_group;
} p;

bool is_float(uint type) { return type <= BF16; }

uvec2 negated(uvec2 n) { return uvec2(~n.x + 1u, ~n.y + (n.x == 0 ? 1u : 0u)); }
uvec2 shifted_left(uvec2 n, uint by) {  // by < 64
  if (by == 0) {
    return n;
  }
  return by >= 32 ? uvec2(0u, n.x << (by - 32)) : uvec2(n.x << by, n.y << by | n.x >> (32 - by));
}
uvec2 shifted_right(uvec2 n, uint by) {
  if (by == 0) {
    return n;
  }
  return by >= 32 ? uvec2(n.y >> (by - 32), 0u) : uvec2(n.x >> by | n.y << (32 - by), n.y >> by);
}

// Rounds towards zero and saturates.
uvec2 integer_of(float x) {
  const uint bits = floatBitsToUint(x);
  const bool negative = bits >> 31 != 0;
  const uint exponent = (bits >> 23) & 255u;
  if (is_nan(x) || exponent < 127) {
    return uvec2(0);
  }
  if (exponent >= 127 + 63) {
    return negative ? uvec2(0u, 0x80000000u) : uvec2(0xFFFFFFFFu, 0x7FFFFFFFu);
  }
  const uvec2 fraction = uvec2((bits & 0x7FFFFFu) | 0x800000u, 0u);
  const uint power = exponent - 127;
  const uvec2 magnitude =
      power >= 23 ? shifted_left(fraction, power - 23) : shifted_right(fraction, 23 - power);
  return negative ? negated(magnitude) : magnitude;
}

// Rounds to nearest even.
float float_of(uvec2 n) {
  const bool negative = n.y >> 31 != 0;
  const uvec2 m = negative ? negated(n) : n;
  const uint top = m.y != 0 ? 32u + uint(findMSB(m.y)) : uint(max(findMSB(m.x), 0));
  float magnitude;
  if (top < 24) {
    magnitude = float(m.x);
  } else {
    const uint drop = top - 23;
    uint kept = shifted_right(m, drop).x;
    const uvec2 rest = m - shifted_left(uvec2(kept, 0u), drop) -
                       uvec2(0u, m.x < shifted_left(uvec2(kept, 0u), drop).x ? 1u : 0u);
    const uvec2 middle = shifted_left(uvec2(1u, 0u), drop - 1);
    const bool above = rest.y > middle.y || (rest.y == middle.y && rest.x > middle.x);
    kept += above || (rest == middle && (kept & 1u) != 0) ? 1u : 0u;
    magnitude = float(kept) * uintBitsToFloat((127u + drop) << 23);
  }
  return negative ? -magnitude : magnitude;
}

float read_float(uint i) {
#if defined(FROM_2)
  const uint h = uint(p.x.v[i]);
  return FROM_TYPE == F16 ? half_to_float(h) : bhalf_to_float(h);
#elif defined(FROM_4)
  return uintBitsToFloat(p.x.v[i]);
#else
  return 0;
#endif
}

uvec2 read_integer(uint i) {
#if defined(FROM_1)
  const uint byte = uint(p.x.v[i]);
  const uint value = FROM_TYPE == BOOLEAN ? min(byte, 1u) : byte;
  return FROM_TYPE == I8 && byte > 127 ? uvec2(value | 0xFFFFFF00u, 0xFFFFFFFFu) : uvec2(value, 0u);
#elif defined(FROM_4)
  const uint word = p.x.v[i];
  return uvec2(word, word >> 31 != 0 ? 0xFFFFFFFFu : 0u);
#elif defined(FROM_8)
  return uvec2(p.x.v[2 * i], p.x.v[2 * i + 1]);
#else
  return uvec2(0);
#endif
}

// Converts a float to an integer with fewer than 64 bits, and saturates.
uint narrow_integer_of(float x) {
  if (is_nan(x)) {
    return 0;
  }
  if (TO_TYPE == I32) {
    return x >= 2147483648.0 ? 0x7FFFFFFFu : x <= -2147483648.0 ? 0x80000000u : uint(int(x));
  }
  return TO_TYPE == I8 ? uint(int(clamp(x, -128.0, 127.0))) : uint(clamp(x, 0.0, 255.0));
}

void main() {
  const bool from_float = is_float(FROM_TYPE);
  FOR_ELEMENTS(i, p.n) {
    const float x = from_float ? read_float(i) : 0;
    const uvec2 n = from_float ? uvec2(0) : read_integer(i);
#if defined(TO_1)
    const bool truth = from_float ? x != 0 || is_nan(x) : n != uvec2(0);
    const uint value = TO_TYPE == BOOLEAN ? (truth ? 1u : 0u) : from_float ? narrow_integer_of(x) : n.x;
    p.y.v[i] = uint8_t(value & 255u);
#elif defined(TO_2)
    const float value = from_float ? x : float_of(n);
    p.y.v[i] = uint16_t(TO_TYPE == F16 ? float_to_half(value) : float_to_bhalf(value));
#elif defined(TO_4)
    if (is_float(TO_TYPE)) {
      p.y.v[i] = floatBitsToUint(from_float ? x : float_of(n));
    } else {
      p.y.v[i] = from_float ? narrow_integer_of(x) : n.x;
    }
#else
    const uvec2 value = from_float ? integer_of(x) : n;
    p.y.v[2 * i] = value.x;
    p.y.v[2 * i + 1] = value.y;
#endif
  }
}
