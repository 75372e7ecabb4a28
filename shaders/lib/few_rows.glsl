// Shared by the products of a few rows (matvec.comp, matvec_columns.comp): the operands, the norm
// of the rows of A, and what happens to the sums:
//   v = norm(A) B + bias + addend, y = activation(v); with a gate, y = activation(v_0) v_1
#include "common.glsl"
#include "eight.glsl"
#include "formulas.glsl"
#include "gelu.h"
#include "relu.h"
#include "silu.h"
#include "workgroup.glsl"

layout(constant_id = 1) const uint ROWS = 1;           // rows of A
layout(constant_id = 4) const uint NORM = 0;        // of the rows of A; 1: LayerNorm, 2: RmsNorm
layout(constant_id = 5) const uint ACTIVATION = 0;  // a ProductActivation
layout(constant_id = 6) const uint GATED = 0;       // 1: part 0 is activated, part 1 is the factor
layout(constant_id = 7) const uint ALIGNED = 0;     // kRowsOfA and kRowsOfB
const uint kRowsOfA = 1;  // 16-byte accesses to A, gamma and beta are legal
const uint kRowsOfB = 2;  // eight neighbours of B can be loaded at once

const uint PARTS = 3;

// A part is a weight, or some columns of B of a weight.
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Parts {
  Elements gamma;  // [k], of the norm
  Elements beta;   // [k], of LayerNorm
  Elements addend;
  Elements sums;  // (optional) receives v
  Elements bias[PARTS];
  Elements y[PARTS];
  uint first[PARTS];  // column of B
  uint n[PARTS];      // columns of B
  uint width[PARTS];  // columns of the weight
  uint groups[PARTS];
};

layout(push_constant, scalar) uniform Push {
  Elements a;
  Elements b[PARTS];  // WEIGHTS_codes: the addresses of CodeTables
  Parts parts;
  uint k;
  uint count;  // of parts
  uint has;    // kBias, kAddend and kSums
  float eps;
} p;
const uint kBias = 1;
const uint kAddend = 2;
const uint kSums = 4;

// Elements at to at + 7 of a row of `length` elements that begins at `start`; 0 past its end.
Eight load_8(Elements from, uint start, uint at, uint length, uint aligned) {
  if ((ALIGNED & aligned) != 0) {
    return load_vectors(from, start + at);
  }
  A x[8];
  [[unroll]] for (uint e = 0; e < 8; ++e) {
    const A element = read(from, start + clamp_index(at + e, length));
    x[e] = at + e < length ? element : 0;
  }
  return eight_of(x);
}

// The mean of each row of A, which is 0 for RmsNorm, and 1 / the root of its variance.
A mean[ROWS];
A inverse[ROWS];

// All invocations of the workgroup must call it.
void take_statistics() {
  if (NORM == 0) {
    return;
  }
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    mean[m] = 0;
    if (NORM == 1) {
      A sum = 0;
      for (uint i = gl_LocalInvocationID.x; i < p.k; i += gl_WorkGroupSize.x) {
        sum += read(p.a, m * p.k + i);
      }
      mean[m] = sum_of_workgroup(sum) / A(p.k);
    }
    A squares = 0;
    for (uint i = gl_LocalInvocationID.x; i < p.k; i += gl_WorkGroupSize.x) {
      const A d = read(p.a, m * p.k + i) - mean[m];
      squares += d * d;
    }
    inverse[m] = 1 / sqrt(sum_of_workgroup(squares) / A(p.k) + p.eps);
  }
}

// Elements at to at + 7 of the rows of A, after the norm.
void load_a(uint at, out Eight x[ROWS]) {
  Eight gamma;
  Eight beta;
  if (NORM != 0) {
    gamma = load_8(p.parts.gamma, 0, at, p.k, kRowsOfA);
  }
  if (NORM == 1) {
    beta = load_8(p.parts.beta, 0, at, p.k, kRowsOfA);
  }
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    x[m] = load_8(p.a, m * p.k, at, p.k, kRowsOfA);
    if (NORM != 0) {
      x[m].low = (x[m].low - mean[m]) * inverse[m] * gamma.low;
      x[m].high = (x[m].high - mean[m]) * inverse[m] * gamma.high;
    }
    if (NORM == 1) {
      x[m].low += beta.low;
      x[m].high += beta.high;
    }
  }
}

// Element i of the rows of A, after the norm.
void load_a(uint i, out A x[ROWS]) {
  const A gamma = NORM != 0 ? read(p.parts.gamma, i) : 1;
  const A beta = NORM == 1 ? read(p.parts.beta, i) : 0;
  [[unroll]] for (uint m = 0; m < ROWS; ++m) {
    x[m] = read(p.a, m * p.k + i);
    if (NORM != 0) {
      x[m] = (x[m] - mean[m]) * inverse[m] * gamma + beta;
    }
  }
}

// The part of the workgroup, and the number of the workgroup in it.
uint part_of(out uint group) {
  uint part = 0;
  group = group_index();
  [[unroll]] for (uint i = 0; i + 1 < PARTS; ++i) {
    if (part == i && i + 1 < p.count && group >= p.parts.groups[i]) {
      group -= p.parts.groups[i];
      part = i + 1;
    }
  }
  return part;
}

A activated(A v) {
  switch (ACTIVATION) {
    case 1u: return gelu_erf_forward(v, 0, 0);
    case 2u: return gelu_tanh_forward(v, 0, 0);
    case 3u: return silu_forward(v, 0, 0);
    case 4u: return relu_forward(v, 0, 0);
    default: return v;
  }
}

// Takes the sum of row m with column n of a part, and for a gate the sum with that of part 1.
void put(uint part, uint m, uint n, A sum, A other) {
  const uint to = m * p.parts.n[part] + n;
  A v = (p.has & kBias) != 0 ? sum + read(p.parts.bias[part], n) : sum;
  if ((p.has & kAddend) != 0) {
    v += read(p.parts.addend, to);
  }
  if ((p.has & kSums) != 0) {
    write(p.parts.sums, to, v);
  }
  v = activated(v);
  if (GATED != 0) {
    v *= (p.has & kBias) != 0 ? other + read(p.parts.bias[1], n) : other;
  }
  write(p.parts.y[part], to, v);
}
