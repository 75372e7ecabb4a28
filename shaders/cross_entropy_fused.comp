//! variants T=f32,f16,bf16
// The loss of a row and its gradient, as cross_entropy.comp has them. A workgroup has a row, so
// that few rows occupy a GPU. The gradient may overwrite the logits.
#include "common.glsl"
#include "math.glsl"
#include "workgroup.glsl"
#include "step.glsl"
#include "bad_index.glsl"
#include "loss.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Ints labels;
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

#define FOR_CLASSES(i) \
  for (uint i = gl_LocalInvocationID.x; i < p.classes; i += gl_WorkGroupSize.x)

A max_of_workgroup(A x) {
  x = subgroupMax(x);
  if (gl_SubgroupInvocationID == 0) {
    of_subgroups[gl_SubgroupID] = x;
  }
  wait_for_workgroup();
  A all = of_subgroups[0];
  for (uint s = 1; s < gl_NumSubgroups; ++s) {
    all = max(all, of_subgroups[s]);
  }
  wait_for_workgroup();
  return all;
}

void main() {
  const uint row = group_index();
  if (row >= p.rows) {
    return;
  }
  const uint start = row * p.classes;
  const int label = p.labels.v[row];
  const bool inside = label >= 0 && uint(label) < p.classes;
  const bool counted = label != p.ignore_index;
  const A at_label = read(p.x, start + (inside ? uint(label) : 0));
  A top = -kInfinity;
  FOR_CLASSES(i) { top = max(top, read(p.x, start + i)); }
  top = max_of_workgroup(top);
  A sum = 0;
  A below = 0;
  FOR_CLASSES(i) {
    const A x = read(p.x, start + i);
    sum += exp_f32(x - top);
    below += p.smoothing != 0 ? top - x : 0;
  }
  const A log_sum = log_f32(sum_of_workgroup(sum));
  below = p.smoothing != 0 ? sum_of_workgroup(below) : 0;
  if (gl_LocalInvocationID.x == 0) {
    A of_label = top - at_label;
    if (p.smoothing != 0) {
      of_label = (1 - p.smoothing) * of_label + p.smoothing * (below / A(p.classes));
    }
    write_term(p.losses, row, counted && inside ? log_sum + of_label : 0, counted ? 1 : 0, p.reduction);
    if (counted && !inside) {
      bad_index(p.step, p.node, label);
    }
  }
  const A factor = term_factor(p.dloss, row, p.weight, p.reduction);
  const A lse = top + log_sum;
  const A share = p.smoothing / A(p.classes);
  FOR_CLASSES(i) {
    const A hit = (int(i) == label ? 1 - p.smoothing : 0) + share;
    write(p.dx, start + i, counted ? (exp_f32(read(p.x, start + i) - lse) - hit) * factor : 0);
  }
}
