//! variants T=f32,f16,bf16
// Rotates pairs of elements of each head by position * frequency.
#include "common.glsl"
#include "rope.glsl"

// 1: pairs (2i, 2i + 1), 0: pairs (i, i + rotary_dims / 2)
layout(constant_id = 1) const uint INTERLEAVED = 0;

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements y;
  Words frequencies;  // [half, 2]: turns per position, low and high word
  Ints given;         // positions, if is_given
  uint n;  // pairs in x, including pairs that are not rotated
  uint per_group;
  uint dim;  // of a head
  uint half_dims;  // rotated pairs per head
  uint inner;  // heads between one position and the next
  uint positions;
  uint offset_low;  // position of the first element, 64 bits
  uint offset_high;
  uint inverse;
  uint is_given;  // 1: positions [positions], 2: per sequence
} p;

void main() {
  FOR_ELEMENTS(i, p.n) {
    // A head consists of its rotated pairs, then its other elements one by one.
    const uint per_head = p.dim - p.half_dims;
    const uint head = i / per_head;
    const uint j = i % per_head;
    const uint start = head * p.dim;
    if (j >= p.half_dims) {
      write(p.y, start + p.half_dims + j, read(p.x, start + p.half_dims + j));
    } else {
      const uint row = head / p.inner;
      int index = int(row % p.positions);
      if (p.is_given != 0) {
        index = p.given.v[p.is_given == 1 ? uint(index) : row];
      }
      const uvec2 frequency = uvec2(p.frequencies.v[2 * j], p.frequencies.v[2 * j + 1]);
      const vec2 cs =
          rotation(index, uvec2(p.offset_low, p.offset_high), frequency, p.inverse != 0);
      const uint at = start + (INTERLEAVED != 0 ? 2 * j : j);
      const uint other = start + (INTERLEAVED != 0 ? 2 * j + 1 : j + p.half_dims);
      const A a = read(p.x, at);
      const A b = read(p.x, other);
      write(p.y, at, a * cs.x - b * cs.y);
      write(p.y, other, a * cs.y + b * cs.x);
    }
  }
}
