//! variants T=f32,f16,bf16 OUT=same,truth
// y[i] = f(a, b, c). a and b broadcast by the rules of NumPy; c has the shape of y. The host merges
// the axes and gives each operand strides, which are 0 on broadcast axes.
#if defined(OUT_truth)
#extension GL_EXT_shader_8bit_storage : require
#endif
#include "common.glsl"
#include "functions.glsl"
#include "index.glsl"
#include "results.glsl"

layout(constant_id = 2) const uint RANK = 1;

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b;
  Elements c;
  Results y;
  Words dims;  // of two operands, see index.glsl
  uint n;
  uint per_group;
  uint has_c;
} p;

void main() {
  LOAD_LOOP(p.dims, 2)
  FOR_ELEMENTS(i, p.n) {
    LOOP_OFFSETS(i, 2, at)
    store(p.y, i, call(read(p.a, at[0]), read(p.b, at[1]), read(p.c, p.has_c * i), 0, 0));
  }
}
