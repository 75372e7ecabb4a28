//! variants PART=rows,weights,grad T=f32,f16,bf16
// The loss of a counted row is -weight[label] x[label]. A label equal to ignore_index is not
// counted. Another label outside [0, classes) is reported as an out-of-range index.
//   rows     one invocation per row: loss and weight; with reduction none, only the loss
//   weights  one subgroup adds the weights of the counted rows in a fixed order
//   grad     one invocation per element: dx = -weight[label] onehot(label) * dloss / weight of all
//            rows
#include "common.glsl"
#include "step.glsl"
#include "bad_index.glsl"
#include "loss.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Ints labels;
  Elements class_weight;  // per class; x if no weights are given
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
  uint has_weight;
  uint per_group;
} p;

A weight_of(int label) {
  const bool inside = label >= 0 && uint(label) < p.classes;
  const A w = p.has_weight != 0 ? read(p.class_weight, inside ? uint(label) : 0) : 1;
  return label != p.ignore_index && (inside || p.has_weight == 0) ? w : 0;
}

#if defined(PART_rows)
void main() {
  FOR_ELEMENTS(row, p.rows) {
    const int label = p.labels.v[row];
    const bool inside = label >= 0 && uint(label) < p.classes;
    const bool counted = label != p.ignore_index;
    const A weight = weight_of(label);
    const A log_prob = read(p.x, row * p.classes + (inside ? uint(label) : 0));
    write_term(p.losses, row, counted && inside ? -weight * log_prob : 0, weight, p.reduction);
    if (counted && !inside) {
      bad_index(p.step, p.node, label);
    }
  }
}
#elif defined(PART_weights)
void main() {
  if (group_index() > 0) {
    return;
  }
  A weight = 0;
  for (uint i = gl_SubgroupInvocationID; i < p.rows; i += gl_SubgroupSize) {
    weight += weight_of(p.labels.v[i]);
  }
  weight = subgroupAdd(weight);
  if (subgroupElect()) {
    p.weight.v[0] = weight;
  }
}
#else
void main() {
  FOR_ELEMENTS(i, p.rows * p.classes) {
    const uint row = i / p.classes;
    const int label = p.labels.v[row];
    const bool hit = label != p.ignore_index && int(i - row * p.classes) == label;
    write(p.dx, i, hit ? -weight_of(label) * term_factor(p.dloss, row, p.weight, p.reduction) : 0);
  }
}
#endif
