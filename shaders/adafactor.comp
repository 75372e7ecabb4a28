//! variants PART=rows,columns,vector,parts,means,size,apply
// Adafactor on one storage: `batch` matrices [rows, columns] with second moments row [batch, rows]
// and column [batch, columns], or a vector with second moments `row`. b = update^beta2_decay and
// g = grad * scale.
//   rows     row = (1 - b) row + b mean(g^2) over the row: one subgroup per row
//   columns  column = (1 - b) column + b mean(g^2) over the column: one invocation per column. A
//            dispatch adds `count` rows; only the first dispatch multiplies by 1 - b
//   vector   row = (1 - b) row + b g^2, for a vector
//   parts    partial sums of w^2, one per subgroup
//   means    mean of the row moments of a matrix: one subgroup per matrix
//   size     partial sums of u^2, as `parts`, with u = g / sqrt(max(v, eps^2)). For a matrix,
//            v = row column / max(mean, eps); for a vector, v = row
//   apply    w = w (1 - rate weight_decay)
//                - max(eps2, rms(w)) min(rate, 1 / sqrt(update)) u / max(1, rms(u) / d)
// After an error or a non-finite gradient, weights and moments do not change.
#include "common.glsl"
#include "math.glsl"
#include "step_adafactor.glsl"

layout(push_constant, scalar) uniform Push {
  Floats w;
  Floats g;
  Floats row;
  Floats column;
  Floats sums;  // partial sums of w^2, partial sums of u^2, means
  Floats scale;
  STEP_WORDS
  uint batch;
  uint rows;
  uint columns;
  uint vector;
  uint parts;
  uint first;  // columns: rows [first, first + count) are added
  uint count;
  uint per_group;
  float beta2_decay;
  float eps;
  float eps2;
  float d;
  float weight_decay;
  float rate_factor;
} p;

bool halted() { return p.step.error != 0 || step_non_finite != 0; }
uint size() { return p.batch * p.rows * p.columns; }
A weight_of_new() { return pow_f32(float(step_update), p.beta2_decay); }

A update_of(uint i, A scale) {
  A v;
  if (p.vector != 0) {
    v = p.row.v[i];
  } else {
    const uint row = i / p.columns;
    const uint matrix = row / p.rows;
    const A mean = max(p.sums.v[2 * p.parts + matrix], p.eps);
    v = p.row.v[row] / mean * p.column.v[matrix * p.columns + (i - row * p.columns)];
  }
  return p.g.v[i] * scale / sqrt(max(v, p.eps * p.eps));
}

#if defined(PART_rows)
void main() {
  const uint row = clamp_index(subgroup_index(), p.batch * p.rows);
  if (subgroup_index() >= p.batch * p.rows || halted()) {
    return;
  }
  const A scale = p.scale.v[0];
  A sum = 0;
  for (uint c = gl_SubgroupInvocationID; c < p.columns; c += gl_SubgroupSize) {
    const A g = p.g.v[row * p.columns + c] * scale;
    sum += g * g;
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    const A b = weight_of_new();
    p.row.v[row] = (1 - b) * p.row.v[row] + b * (sum / A(p.columns));
  }
}
#elif defined(PART_columns)
void main() {
  if (halted()) {
    return;
  }
  const A scale = p.scale.v[0];
  const A b = weight_of_new();
  const uint n = p.batch * p.columns;
  FOR_ELEMENTS(k, n) {
    const uint matrix = k / p.columns;
    const uint from = (matrix * p.rows + p.first) * p.columns + (k - matrix * p.columns);
    A sum = 0;
    for (uint r = 0; r < p.count; ++r) {
      const A g = p.g.v[from + r * p.columns] * scale;
      sum += g * g;
    }
    p.column.v[k] = (p.first == 0 ? 1 - b : 1) * p.column.v[k] + b * (sum / A(p.rows));
  }
}
#elif defined(PART_vector)
void main() {
  if (halted()) {
    return;
  }
  const A scale = p.scale.v[0];
  const A b = weight_of_new();
  FOR_ELEMENTS(i, size()) {
    const A g = p.g.v[i] * scale;
    p.row.v[i] = (1 - b) * p.row.v[i] + b * (g * g);
  }
}
#elif defined(PART_parts) || defined(PART_size)
void main() {
  const uint part = subgroup_index();
  if (part >= p.parts) {
    return;
  }
  const A scale = p.scale.v[0];
  A sum = 0;
  for (uint i = part * gl_SubgroupSize + gl_SubgroupInvocationID; i < size(); i += p.parts * gl_SubgroupSize) {
#if defined(PART_parts)
    const A x = p.w.v[i];
#else
    const A x = update_of(i, scale);
#endif
    sum += x * x;
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
#if defined(PART_parts)
    p.sums.v[part] = sum;
#else
    p.sums.v[p.parts + part] = sum;
#endif
  }
}
#elif defined(PART_means)
void main() {
  const uint matrix = subgroup_index();
  if (matrix >= p.batch) {
    return;
  }
  A sum = 0;
  for (uint r = gl_SubgroupInvocationID; r < p.rows; r += gl_SubgroupSize) {
    sum += p.row.v[matrix * p.rows + r];
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    p.sums.v[2 * p.parts + matrix] = sum / A(p.rows);
  }
}
#else
A rms_of(uint first) {
  A sum = 0;
  for (uint k = gl_SubgroupInvocationID; k < p.parts; k += gl_SubgroupSize) {
    sum += p.sums.v[first + k];
  }
  return sqrt(subgroupAdd(sum) / A(size()));
}

void main() {
  if (halted()) {
    return;
  }
  const A scale = p.scale.v[0];
  const A rate = step_learning_rate * p.rate_factor;
  const A least = 1 / sqrt(float(step_update));
  const A alpha = max(p.eps2, rms_of(0)) * min(rate, least);
  const A factor = alpha / max(1, rms_of(p.parts) / p.d);
  const A keep = 1 - rate * p.weight_decay;
  FOR_ELEMENTS(i, size()) {
    const A next = p.w.v[i] * keep - factor * update_of(i, scale);
    p.w.v[i] = next;
    if (!is_finite(next)) {
      set_step_weights_non_finite(1);
    }
  }
}
#endif
