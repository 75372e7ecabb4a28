// Operands of the matrix product C = op(A) op(B) + bias, one matrix per index of z.
//
// Matrices of a batch lie `stride` elements apart; with batch_rank > 0 the offsets come from `batch`, a table
// as in index.glsl, so that broadcast batch dims have stride 0.
layout(push_constant, scalar) uniform Push {
  Floats a;
  Floats b;
  Floats c;
  Floats bias;      // [N], if has_bias
  Ints batch;       // dims and strides of a and b in elements, see index.glsl
  uint m;
  uint n;
  uint k;
  uint batch_rank;
  uint has_bias;
  uint groups_x;    // workgroups per matrix
  uint groups_y;
  uint batches;
  uint a_m;         // strides of the general variants: of op(A) along m and k, of op(B) along k and n
  uint a_k;
  uint b_k;
  uint b_n;
} p;

struct BatchOffsets {
  uint a;
  uint b;
  uint c;
};

BatchOffsets batch_offsets(uint z) {
  BatchOffsets o = BatchOffsets(0, 0, z * p.m * p.n);
  uint rest = z;
  for (uint r = 0; r < p.batch_rank; ++r) {
    const uint i = max(p.batch_rank, 1u) - 1 - clamp_index(r, p.batch_rank);
    const uint dim = uint(p.batch.v[i]);
    const uint at = rest % dim;
    rest /= dim;
    o.a += at * uint(p.batch.v[3 * p.batch_rank + i]);
    o.b += at * uint(p.batch.v[4 * p.batch_rank + i]);
  }
  return o;
}
