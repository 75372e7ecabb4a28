// Operands of the matrix product C = op(A) op(B) + bias, one matrix per index of z.
//
// Matrices of a batch are `stride` elements apart. If batch_rank > 0, the offsets come from
// `batch`, a table as in index.glsl, in which broadcast batch axes have stride 0.
//
// The k may have parts, which are multiples of 64. Then C has a batch of results for each part,
// without the bias and what follows, and matmul_combine.comp adds them.
#include "step.glsl"
#include "gradient.glsl"

layout(push_constant, scalar) uniform Push {
  Floats a;
  Floats b;
  Floats c;
  Floats bias;      // [N], if has_bias
  Ints batch;  // sizes and strides of a and b in elements, see index.glsl
  Step step;   // of a gradient c
  Floats other;   // see follow.glsl
  Floats before;  // values before Gelu
  uint m;
  uint n;
  uint k;
  uint batch_rank;
  uint has_bias;
  uint groups_x;  // workgroups per matrix
  uint groups_y;
  uint batches;   // matrices, once per part
  uint a_m;  // strides of the general variants: of op(A) along m and k, of op(B) along k and n
  uint a_k;
  uint b_k;
  uint b_n;
  uint part;  // the k of a part
  uint is_first;  // see gradient.glsl
#if defined(CODES)
  // bits: a is quantized, b is quantized, a is transposed, b is transposed. A quantized operand has
  // the address of its CodeTable
  uint encoded;
#endif
} p;

struct BatchOffsets {
  uint a;
  uint b;
  uint c;
  uint part;
};

BatchOffsets batch_offsets(uint z) {
  BatchOffsets o = BatchOffsets(0, 0, z * p.m * p.n, 0);
  uint rest = z;
  for (uint r = 0; r < p.batch_rank; ++r) {
    const uint i = max(p.batch_rank, 1u) - 1 - clamp_index(r, p.batch_rank);
    const uint dim = uint(p.batch.v[i]);
    const uint at = rest % dim;
    rest /= dim;
    o.a += at * uint(p.batch.v[3 * p.batch_rank + i]);
    o.b += at * uint(p.batch.v[4 * p.batch_rank + i]);
  }
  o.part = rest;
  return o;
}

#if defined(CODES)
layout(constant_id = FORMAT_ID) const uint FORMAT = 255;  // see codes.glsl
#include "codes.glsl"
// Elements of op(A) and op(B). `first` is the offset of the matrix.
A load_a(uint first, uint m, uint k) {
  const bool turned = (p.encoded & 4) != 0;
  if ((p.encoded & 1) == 0) {
    return p.a.v[first + m * p.a_m + k * p.a_k];
  }
  const uint row = first / (turned ? p.m : p.k) + (turned ? k : m);
  return decode(CodeTable(p.a), row, turned ? m : k);
}
A load_b(uint first, uint k, uint n) {
  const bool turned = (p.encoded & 8) != 0;
  if ((p.encoded & 2) == 0) {
    return p.b.v[first + k * p.b_k + n * p.b_n];
  }
  const uint row = first / (turned ? p.k : p.n) + (turned ? n : k);
  return decode(CodeTable(p.b), row, turned ? k : n);
}
#endif
