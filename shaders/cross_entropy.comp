//! variants PART=rows,grad T=f32,f16,bf16
// lse = log sum exp x. The loss of a counted row is
// lse - (1 - smoothing) x[label] - smoothing mean(x). A label equal to ignore_index is not counted.
// Another label outside [0, classes) is reported as an out-of-range index. One subgroup per row.
//   rows   lse, and the loss and weight of each row. The weight is 1 if the row is counted, else 0.
//          With reduction none, the weight is not written
//   grad   dx = (exp(x - lse) - (1 - smoothing) onehot(label) - smoothing / classes) * dloss
//          / weight of all rows
#include "common.glsl"
#include "math.glsl"
#include "step.glsl"
#include "bad_index.glsl"
#include "loss.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Ints labels;
  Floats lse;
  Floats losses;
  Floats weight;  // of all rows
  Floats dloss;
  Elements dx;
  Step step;
  uint rows;
  uint classes;
  int ignore_index;
  uint reduction;
  uint node;
  float smoothing;
} p;

#if defined(PART_rows)
void main() {
  ROW_OF_SUBGROUP(row, p.rows)
  const uint start = row * p.classes;
  A top = -kInfinity;
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    top = max(top, read(p.x, start + i));
  }
  top = subgroupMax(top);
  A sum = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    sum += exp_f32(read(p.x, start + i) - top);
  }
  const A log_sum = log_f32(subgroupAdd(sum));
  A below = 0;
  if (p.smoothing != 0) {
    for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
      below += top - read(p.x, start + i);
    }
    below = subgroupAdd(below);
  }
  if (subgroupElect()) {
    const int label = p.labels.v[row];
    const bool inside = label >= 0 && uint(label) < p.classes;
    const bool counted = label != p.ignore_index;
    p.lse.v[row] = top + log_sum;
    A of_label = top - read(p.x, start + (inside ? uint(label) : 0));
    if (p.smoothing != 0) {
      of_label = (1 - p.smoothing) * of_label + p.smoothing * (below / A(p.classes));
    }
    write_term(p.losses, row, counted && inside ? log_sum + of_label : 0, counted ? 1 : 0, p.reduction);
    if (counted && !inside) {
      bad_index(p.step, p.node, label);
    }
  }
}
#else
void main() {
  ROW_OF_SUBGROUP(row, p.rows)
  const uint start = row * p.classes;
  const int label = p.labels.v[row];
  const bool counted = label != p.ignore_index;
  const A factor = term_factor(p.dloss, row, p.weight, p.reduction);
  const A lse = p.lse.v[row];
  const A share = p.smoothing / A(p.classes);
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    const A hit = (int(i) == label ? 1 - p.smoothing : 0) + share;
    write(p.dx, start + i, counted ? (exp_f32(read(p.x, start + i) - lse) - hit) * factor : 0);
  }
}
#endif
