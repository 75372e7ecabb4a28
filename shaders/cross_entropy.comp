//! variants PART=rows,total,grad
#version 460
#extension GL_GOOGLE_include_directive : require
// loss = sum over counted rows of (log sum exp x - x[label]), divided by their number for the mean. A label equal to
// ignore_index is not counted; another one outside [0, classes) sets the error word.
//   rows   one subgroup per row: its loss and whether it counts
//   total  one subgroup adds the rows in a fixed order
//   grad   dx = (softmax(x) - onehot(label)) * dloss / count; count comes from `total`
#include "common.glsl"
#include "math.glsl"
#include "step.glsl"

layout(push_constant, scalar) uniform Push {
  Floats x;
  Ints labels;
  Floats losses;  // [rows, 2]: loss and 1 if counted
  Floats total;   // the loss, then (in scratch) the number of counted rows
  Floats dloss;
  Floats dx;
  Step step;
  uint rows;
  uint classes;
  int ignore_index;
  uint mean;
  uint node;
  uint keep_count;  // 1: total writes the count as its second word
} p;

bool is_counted(int label) { return label != p.ignore_index && label >= 0 && uint(label) < p.classes; }

A row_top(uint start) {
  A top = -kInfinity;
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    top = max(top, p.x.v[start + i]);
  }
  return subgroupMax(top);
}

A row_sum(uint start, A top) {
  A sum = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    sum += exp_f32(p.x.v[start + i] - top);
  }
  return subgroupAdd(sum);
}

#if defined(PART_total)
void main() {
  if (subgroup_index() > 0) {
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
    if (p.keep_count != 0) {
      p.total.v[0] = count;
    } else {
      p.total.v[0] = p.mean != 0 ? (count > 0 ? loss / count : 0) : loss;
    }
  }
}
#else
void main() {
  const uint row = subgroup_index();
  if (row >= p.rows) {
    return;
  }
  const uint start = row * p.classes;
  const int label = p.labels.v[row];
  const bool counted = is_counted(label);
#if defined(PART_rows)
  A loss = 0;
  if (counted && p.keep_count == 0) {
    const A top = row_top(start);
    loss = log_f32(row_sum(start, top)) + (top - p.x.v[start + uint(label)]);
  }
  if (subgroupElect()) {
    p.losses.v[2 * row] = loss;
    p.losses.v[2 * row + 1] = counted ? 1 : 0;
    if (!counted && label != p.ignore_index) {
      p.step.error_node = p.node;
      p.step.error_value = label;
      p.step.error = kIndexOutOfRange;
    }
  }
#else
  A factor = 0;
  A top = 0;
  A inverse = 0;
  if (counted) {
    factor = p.dloss.v[0] / (p.mean != 0 ? p.total.v[0] : 1);
    top = row_top(start);
    inverse = 1 / row_sum(start, top);
  }
  for (uint i = gl_SubgroupInvocationID; i < p.classes; i += gl_SubgroupSize) {
    const A probability = counted ? exp_f32(p.x.v[start + i] - top) * inverse : 0;
    p.dx.v[start + i] = counted ? (probability - (int(i) == label ? 1 : 0)) * factor : 0;
  }
#endif
}
#endif
