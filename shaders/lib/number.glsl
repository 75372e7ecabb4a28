// Values of a variant T=f32, f16, bf16, i8, u8, i32 or i64 in the type N in which shaders compute:
// f32 for floats, int for integers up to 32 bits, (low, high) for 64 bits. Integer overflow wraps
// around.
#include "order.glsl"

#if defined(T_i8) || defined(T_u8)
#extension GL_EXT_shader_8bit_storage : require
#define N int
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Numbers { uint8_t v[]; };
#if defined(T_i8)
N load(Numbers from, uint i) {
  const int byte = int(uint(from.v[i]));
  return byte > 127 ? byte - 256 : byte;
}
#else
N load(Numbers from, uint i) { return int(uint(from.v[i])); }
#endif
void store(Numbers to, uint i, N value) { to.v[i] = uint8_t(uint(value) & 255u); }
#elif defined(T_i32)
#define N int
#define Numbers Ints
N load(Numbers from, uint i) { return from.v[i]; }
void store(Numbers to, uint i, N value) { to.v[i] = value; }
#elif defined(T_i64)
#define N uvec2
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Numbers { uvec2 v[]; };
N load(Numbers from, uint i) { return from.v[i]; }
void store(Numbers to, uint i, N value) { to.v[i] = value; }
#else
#define N float
#define Numbers Elements
N load(Numbers from, uint i) { return read(from, i); }
void store(Numbers to, uint i, N value) { write(to, i, value); }
#endif

#if defined(T_i64)
const N kZero = uvec2(0u);
const N kOne = uvec2(1u, 0u);
N sum_of(N a, N b) {
  uint carry;
  const uint low = uaddCarry(a.x, b.x, carry);
  return uvec2(low, a.y + b.y + carry);
}
N product_of(N a, N b) {
  uint high;
  uint low;
  umulExtended(a.x, b.x, high, low);
  return uvec2(low, high + a.x * b.y + a.y * b.x);
}
#else
const N kZero = N(0);
const N kOne = N(1);
N sum_of(N a, N b) { return a + b; }
N product_of(N a, N b) { return a * b; }
#endif

// As in order.glsl.
#if defined(T_i64)
#define Order uvec2
Order order_of(N value, int of_nan) { return uvec2(value.x, value.y ^ 0x80000000u); }
bool before(Order a, Order b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
#else
#define Order int
#if defined(T_i8) || defined(T_u8) || defined(T_i32)
Order order_of(N value, int of_nan) { return value; }
#else
Order order_of(N value, int of_nan) { return order_of_bits(floatBitsToUint(value), of_nan); }
#endif
bool before(Order a, Order b) { return a < b; }
#endif
