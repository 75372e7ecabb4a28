//! variants CELL=lstm,gru,gru_gates,gru_new T=f32,f16,bf16
// One step of a recurrent layer: the products of the state with the weight, and the cell. A
// subgroup computes one unit of ROWS batch rows; each lane adds every S-th term.
//   lstm       i, f, g, o, then c = f * c + i * g, h = o * tanh(c)
//   gru        r, z and n = tanh(x + r * (h w_n + bias)), then h = (1 - z) * n + z * h
//   gru_gates  r and z, and r * h as the state of gru_new
//   gru_new    n = tanh(x + (r * h) w_n + bias), then h as above
#include "common.glsl"
#include "math.glsl"

#if defined(CELL_lstm)
const uint GATES = 4;
const uint FIRST = 0;
const uint COUNT = 4;
#else
const uint GATES = 3;
#if defined(CELL_gru)
const uint FIRST = 0;
const uint COUNT = 3;
#elif defined(CELL_gru_gates)
const uint FIRST = 0;
const uint COUNT = 2;
#else
const uint FIRST = 2;
const uint COUNT = 1;
#endif
#endif
const uint ROWS = 4;

// Operands of the storage dtype belong to this step.
layout(push_constant, scalar) uniform Push {
  Elements gates;
  Elements w;
  Floats h;  // [batch, units], before the step; for gru_new: r * h
  Floats next_h;  // after the step; for gru_gates: r * h
  Elements y;
  Elements activations;
#if defined(CELL_lstm)
  Floats c;  // before the step
  Floats next_c;
#else
  Elements bias;    // if has_bias
  Elements recurrent;
  Floats z;         // [batch, units]: from gru_gates to gru_new
  Floats old_h;  // for gru_new: the state before the step
#endif
  uint batch;
  uint units;
  uint has_bias;
} p;

// Small results keep their relative precision.
A logistic(A x) {
  const A e = exp_f32(-abs(x));
  const A large = 1 / (1 + e);
  return x < 0 ? e * large : large;
}

void main() {
  const uint total = p.units * ((p.batch + ROWS - 1) / ROWS);
  ROW_OF_SUBGROUP(index, total)
  const uint unit = index % p.units;
  const uint row0 = index / p.units * ROWS;
  const uint lane = gl_SubgroupInvocationID;
  uint start[ROWS];
  A sums[COUNT * ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    start[r] = clamp_index(row0 + r, p.batch) * p.units;
    [[unroll]] for (uint g = 0; g < COUNT; ++g) {
      sums[g * ROWS + r] = 0;
    }
  }
  for (uint k = lane; k < p.units; k += gl_SubgroupSize) {
    A x[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      x[r] = p.h.v[start[r] + k];
    }
    [[unroll]] for (uint g = 0; g < COUNT; ++g) {
      const A w = read(p.w, ((FIRST + g) * p.units + unit) * p.units + k);
      [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        sums[g * ROWS + r] += w * x[r];
      }
    }
  }
  // Lane r gets the sums of row r.
  A mine[COUNT];
  [[unroll]] for (uint g = 0; g < COUNT; ++g) {
    mine[g] = 0;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const A sum = subgroupAdd(sums[g * ROWS + r]);
      mine[g] = lane == r ? sum : mine[g];
    }
  }
  const uint row = row0 + lane;
  if (lane >= ROWS || row >= p.batch) {
    return;
  }
  const uint at = row * p.units + unit;
  const uint gate = row * GATES * p.units + unit;
  [[unroll]] for (uint g = 0; g < COUNT; ++g) {
#if defined(CELL_gru) || defined(CELL_gru_new)
    if (FIRST + g == 2) {  // added in the cell
      mine[g] += p.has_bias != 0 ? read(p.bias, unit) : 0;
      continue;
    }
#endif
    mine[g] += read(p.gates, gate + (FIRST + g) * p.units);
  }
#if defined(CELL_lstm)
  const A i = logistic(mine[0]);
  const A f = logistic(mine[1]);
  const A g = tanh_f32(mine[2]);
  const A o = logistic(mine[3]);
  const A c = f * p.c.v[at] + i * g;
  const A h = o * tanh_f32(c);
  p.next_c.v[at] = c;
  write(p.activations, gate, i);
  write(p.activations, gate + p.units, f);
  write(p.activations, gate + 2 * p.units, g);
  write(p.activations, gate + 3 * p.units, o);
#elif defined(CELL_gru_gates)
  const A r = logistic(mine[0]);
  const A z = logistic(mine[1]);
  const A h = r * p.h.v[at];
  p.z.v[at] = z;
  write(p.activations, gate, r);
  write(p.activations, gate + p.units, z);
#else
#if defined(CELL_gru)
  const A r = logistic(mine[0]);
  const A z = logistic(mine[1]);
  const A made = mine[2];
  const A fresh = tanh_f32(read(p.gates, gate + 2 * p.units) + r * made);
  const A old = p.h.v[at];
  write(p.recurrent, at, made);
  write(p.activations, gate, r);
  write(p.activations, gate + p.units, z);
#else
  const A z = p.z.v[at];  // not rounded to the dtype of the activations
  const A fresh = tanh_f32(read(p.gates, gate + 2 * p.units) + mine[0]);
  const A old = p.old_h.v[at];
#endif
  const A h = (1 - z) * fresh + z * old;
  write(p.activations, gate + 2 * p.units, fresh);
#endif
  p.next_h.v[at] = h;
#if defined(CELL_gru_gates)
  write(p.recurrent, at, h);
#else
  write(p.y, at, h);
#endif
}
