//! variants T=f16,bf16
// Matrix product of 16-bit matrices, with sums in f32, on matrix units that a whole workgroup uses
// together (VK_NV_cooperative_matrix2). A workgroup computes a tile of TM x TN. It loads matrices
// from memory, and the compiler of the driver stages them in shared memory.
//
// A matrix must not exceed its operand. So the operands have at least a tile, K is a multiple of
// TK, and a tile that would end behind C begins earlier. It computes rows and columns of the tile
// before it again, and does not store them.
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_NV_cooperative_matrix : require
#include "common.glsl"
#include "matmul.glsl"
#include "units.glsl"

// Rows of a matrix of results: so many fit in shared memory. They divide TM.
layout(constant_id = 5) const uint ROWS = 32;
layout(constant_id = 6) const uint TK = 64;

const uint COUNT = TM / ROWS;
// Results on their way to C, in vectors of four f32. A row is a vector longer, so that neighbouring
// rows are in different banks.
const uint LINE_C = TN / 4;
const uint STRIDE_C = LINE_C + 1;

shared uvec4 results[ROWS * STRIDE_C];

void main() {
  const uint per_matrix = p.groups_x * p.groups_y;
  const uint group = group_index();
  const uint z = group / per_matrix;
  if (z >= p.batches) {
    return;
  }
  const uint own_tile = group - z * per_matrix;
  const uint own_m = (own_tile / p.groups_x) * TM;
  const uint own_n = (own_tile % p.groups_x) * TN;
  const uint m0 = min(own_m, p.m - TM);
  const uint n0 = min(own_n, p.n - TN);
  const BatchOffsets o = batch_offsets(z);
  const uint first_k = o.part * p.part;
  const uint end_k = min(first_k + p.part, p.k);
  fcoopmatNV<32, gl_ScopeWorkgroup, ROWS, TN> sums[COUNT];
  [[unroll]] for (uint i = 0; i < COUNT; ++i) {
    sums[i] = fcoopmatNV<32, gl_ScopeWorkgroup, ROWS, TN>(0.0);
  }
  for (uint k = first_k; k < end_k; k += TK) {
    fcoopmatNV<16, gl_ScopeWorkgroup, TK, TN> b;
    if (B_ALONG_K) {
      coopMatLoadNV(b, Vectors(p.b).v, (o.b + n0 * p.k + k) / 8, p.k / 8, true);
    } else {
      coopMatLoadNV(b, Vectors(p.b).v, (o.b + k * p.n + n0) / 8, p.n / 8, false);
    }
    [[unroll]] for (uint i = 0; i < COUNT; ++i) {
      const uint m = m0 + i * ROWS;
      fcoopmatNV<16, gl_ScopeWorkgroup, ROWS, TK> a;
      if (A_ALONG_K) {
        coopMatLoadNV(a, Vectors(p.a).v, (o.a + m * p.k + k) / 8, p.k / 8, false);
      } else {
        coopMatLoadNV(a, Vectors(p.a).v, (o.a + k * p.m + m) / 8, p.m / 8, true);
      }
      sums[i] = coopMatMulAddNV(a, b, sums[i]);
    }
  }
  const bool adds = IS_GRADIENT && adds_to_gradient(p.step, p.is_first);
  // Only the driver knows which invocation holds an element of a matrix.
  [[unroll]] for (uint i = 0; i < COUNT; ++i) {
    coopMatStoreNV(sums[i], results, 0, STRIDE_C, false);
    barrier();
    for (uint e = gl_LocalInvocationID.x; e < ROWS * LINE_C; e += gl_WorkGroupSize.x) {
      const uint row = e / LINE_C, quad = e % LINE_C;
      const uint m = m0 + i * ROWS + row;
      const uint n = n0 + quad * 4;
      if (m >= own_m && n >= own_n) {
        store_4(o.c, m, n, uintBitsToFloat(results[row * STRIDE_C + quad]), adds);
      }
    }
    barrier();
  }
}
