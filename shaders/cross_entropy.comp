//! variants PART=rows,total,count,grad
#version 460
#extension GL_GOOGLE_include_directive : require
// lse = log sum exp x, loss = sum over counted rows of (lse - x[label]), divided by their number for the mean. A label
// equal to ignore_index is not counted; another one outside [0, classes) sets the error word.
//   rows   one subgroup per row: lse, its loss and whether it counts
//   total  one subgroup adds the rows in a fixed order
//   count  one subgroup counts the rows, for the mean of grad
//   grad   dx = (exp(x - lse) - onehot(label)) * dloss / count
#include "common.glsl"
#include "math.glsl"
#include "step.glsl"

layout(push_constant, scalar) uniform Push {
  Floats x;
  Ints labels;
  Floats lse;
  Floats losses;  // scratch, [rows, 2]: loss, and 1 if counted
  Floats loss;
  Words counted;  // scratch
  Floats dloss;
  Floats dx;
  Step step;
  uint rows;
  uint classes;
  int ignore_index;
  uint mean;
  uint node;
} p;

const uint S = gl_WorkGroupSize.x;

#if defined(PART_rows)
void main() {
  const uint row = clamp_index(subgroup_index(), p.rows);
  if (subgroup_index() >= p.rows) {
    return;
  }
  const uint start = row * p.classes;
  A top = -kInfinity;
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    top = max(top, p.x.v[start + i]);
  }
  top = subgroupMax(top);
  A sum = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    sum += exp_f32(p.x.v[start + i] - top);
  }
  const A log_sum = log_f32(subgroupAdd(sum));
  if (subgroupElect()) {
    const int label = p.labels.v[row];
    const bool inside = label >= 0 && uint(label) < p.classes;
    const bool counted = label != p.ignore_index;
    p.lse.v[row] = top + log_sum;
    p.losses.v[2 * row] = counted && inside ? log_sum + (top - p.x.v[start + (inside ? uint(label) : 0)]) : 0;
    p.losses.v[2 * row + 1] = counted ? 1 : 0;
    if (counted && !inside) {
      p.step.error_node = p.node;
      p.step.error_value = label;
      p.step.error = kIndexOutOfRange;
    }
  }
}
#elif defined(PART_total)
void main() {
  if (group_index() > 0) {
    return;
  }
  A loss = 0;
  A count = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.rows; i += gl_SubgroupSize) {
    loss += p.losses.v[2 * i];
    count += p.losses.v[2 * i + 1];
  }
  loss = subgroupAdd(loss);
  count = subgroupAdd(count);
  if (subgroupElect()) {
    p.loss.v[0] = p.mean != 0 && count > 0 ? loss / count : loss;
  }
}
#elif defined(PART_count)
void main() {
  if (group_index() > 0) {
    return;
  }
  uint count = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.rows; i += gl_SubgroupSize) {
    count += p.labels.v[i] != p.ignore_index ? 1 : 0;
  }
  count = subgroupAdd(count);
  if (subgroupElect()) {
    p.counted.v[0] = count;
  }
}
#else
void main() {
  const uint row = clamp_index(subgroup_index(), p.rows);
  if (subgroup_index() >= p.rows) {
    return;
  }
  const uint start = row * p.classes;
  const int label = p.labels.v[row];
  const bool counted = label != p.ignore_index;
  const uint count = p.mean != 0 ? max(p.counted.v[0], 1u) : 1u;
  const A factor = p.dloss.v[0] / A(count);
  const A lse = p.lse.v[row];
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    const A hit = int(i) == label ? 1 : 0;
    p.dx.v[start + i] = counted ? (exp_f32(p.x.v[start + i] - lse) - hit) * factor : 0;
  }
}
#endif
