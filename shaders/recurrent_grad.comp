//! variants CELL=lstm,gru,gru_reset T=f32,f16,bf16
// The gradient of one step of a recurrent layer. An invocation computes one unit of ROWS batch
// rows: first the gradient of h that the following step passes back through w, then the gradient of
// the cell. With `ends`, it computes only the gradient of the initial state.
//   lstm       the complete step
//   gru        with reset_after the complete step, otherwise dz and dn
//   gru_reset  dr without reset_after, from the d_new that gru wrote
#include "common.glsl"
#include "math.glsl"

const uint ROWS = 4;
#if defined(CELL_lstm)
const uint GATES = 4;
#else
const uint GATES = 3;
#endif

// Operands of the storage dtype, c and old_c belong to this step.
layout(push_constant, scalar) uniform Push {
  Elements activations;
  Elements w;
  // [batch, GATES * units]: the gradient of the products of the following step; for gru_reset, of
  // this step
  Floats behind;
  Floats made;  // the same for this step
#if defined(CELL_lstm)
  Floats old_c;  // before the step
  Floats c;
  Elements dy;
  Floats dc_in;      // if has_dc
  Floats dc;  // [batch, units]: from step to step
#else
  Elements recurrent;
  Elements old_h;  // before the step
  Elements dy;
  Elements d_new;
  Floats dh;  // [batch, units]: from step to step, the gradient of h that does not pass through w
#endif
  Elements dgates;
  Elements dh0;      // if ends
  uint batch;
  uint units;
  uint from;         // rows [from, from + depth) of w, and of `behind`
  uint depth;  // 0: there is no following step
  uint flags;        // 1: ends, 2: has_dc or reset_after
  uint per_group;
} p;

void main() {
  const uint total = p.units * ((p.batch + ROWS - 1) / ROWS);
  const bool ends = (p.flags & 1) != 0;
  FOR_ELEMENTS(i, total) {
    const uint unit = i % p.units;
    const uint row0 = i / p.units * ROWS;
    uint start[ROWS];
    A sums[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      start[r] = clamp_index(row0 + r, p.batch) * GATES * p.units + p.from;
      sums[r] = 0;
    }
    for (uint k = 0; k < p.depth; ++k) {
      const uint at = clamp_index(k, p.depth);
      const A w = read(p.w, (p.from + at) * p.units + unit);
      [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        sums[r] += p.behind.v[start[r] + at] * w;
      }
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const uint row = row0 + r;
      if (row >= p.batch) {
        continue;
      }
      const uint at = row * p.units + unit;
      const uint gate = row * GATES * p.units + unit;
#if defined(CELL_lstm)
      if (ends) {
        write(p.dh0, at, sums[r]);
        if (p.depth == 0) {
          p.dc.v[at] = 0;
        }
        continue;
      }
      const A ig = read(p.activations, gate);
      const A fg = read(p.activations, gate + p.units);
      const A gg = read(p.activations, gate + 2 * p.units);
      const A og = read(p.activations, gate + 3 * p.units);
      const A squashed = tanh_f32(p.c.v[at]);
      const A dh = read(p.dy, at) + sums[r];
      A dc = p.depth == 0 ? 0 : p.dc.v[at];
      dc += (p.flags & 2) != 0 ? p.dc_in.v[at] : 0;
      dc += dh * og * (1 - squashed * squashed);
      const A d[4] = A[4](dc * gg * (ig * (1 - ig)), dc * p.old_c.v[at] * (fg * (1 - fg)),
                          dc * ig * (1 - gg * gg), dh * squashed * (og * (1 - og)));
      [[unroll]] for (uint g = 0; g < 4; ++g) {
        p.made.v[gate + g * p.units] = d[g];
        write(p.dgates, gate + g * p.units, d[g]);
      }
      p.dc.v[at] = dc * fg;
#elif defined(CELL_gru)
      const A through = p.depth == 0 ? 0 : p.dh.v[at] + sums[r];
      if (ends) {
        write(p.dh0, at, through);
        continue;
      }
      const bool reset_after = (p.flags & 2) != 0;
      const A rg = read(p.activations, gate);
      const A zg = read(p.activations, gate + p.units);
      const A ng = read(p.activations, gate + 2 * p.units);
      const A dh = read(p.dy, at) + through;
      const A dz = dh * (read(p.old_h, at) - ng) * (zg * (1 - zg));
      const A dn = dh * (1 - zg) * (1 - ng * ng);
      const A d_new = reset_after ? dn * rg : dn;
      if (reset_after) {
        const A dr = dn * read(p.recurrent, at) * (rg * (1 - rg));
        p.made.v[gate] = dr;
        write(p.dgates, gate, dr);
      }
      p.made.v[gate + p.units] = dz;
      p.made.v[gate + 2 * p.units] = d_new;
      write(p.dgates, gate + p.units, dz);
      write(p.dgates, gate + 2 * p.units, dn);
      write(p.d_new, at, d_new);
      p.dh.v[at] = dh * zg;
#else
      const A rg = read(p.activations, gate);
      const A dr = sums[r] * read(p.old_h, at) * (rg * (1 - rg));
      p.made.v[gate] = dr;
      write(p.dgates, gate, dr);
      p.dh.v[at] += sums[r] * rg;
#endif
    }
  }
}
