// How Gather, GatherElements and ScatterElements walk their operands.
#pragma once

#include <utility>

#include "core/attributes.h"
#include "core/dtype.h"
#include "core/loops.h"

namespace bowline {

// y[i] = data[i . strides 0 + element(indices[i . strides 1]) * stride]; the indexed axis has n
// elements.
struct GatherLoops {
  int64_t n = 0;
  int64_t stride = 0;
  Loops<2> loops;
};

// Of a Gather or GatherElements (device::Record).
template <class Record>
GatherLoops gather_loops_of(const Record& record) {
  const Shape& data = record.inputs[0].shape;
  const Shape& y = record.outputs[0].shape;
  const int axis =
      positive_axis(record.attributes.template as<GatherAttributes>().axis(), data.rank());
  Strides strides = strides_of(data);
  GatherLoops g{data[axis], std::exchange(strides[static_cast<size_t>(axis)], 0), {}};
  if (record.op == Op::GatherElements) {
    g.loops = Loops<2>(y, {strides, strides_of(y)});
  } else {
    g.loops.add(data.elements(0, axis), {data[axis] * g.stride, 0});
    g.loops.add(record.inputs[1].shape.elements(), {0, 1});
    g.loops.add(g.stride, {1, 0});
  }
  return g;
}

// Each line along the axis of a ScatterElements takes `count` updates. Update k of line i has the
// index indices[i . strides 1 + k * steps[1]] and the value updates[i . strides 2 + k * steps[2]];
// it changes data[i . strides 0 + element(index) * steps[0]].
struct ScatterLines {
  int64_t n = 0;  // elements of the axis
  uint64_t count = 0;
  int64_t steps[3] = {};
  Loops<3> lines;
};

template <class Record>
ScatterLines scatter_lines_of(const Record& record) {
  const Shape& data = record.inputs[0].shape;
  const Shape& updates = record.inputs[2].shape;
  const int axis =
      positive_axis(record.attributes.template as<ScatterElementsAttributes>().axis(), data.rank());
  const std::array strides = {strides_of(data), broadcast_strides(record.inputs[1].shape, updates),
                              strides_of(updates)};
  Shape starts = updates;
  starts[axis] = 1;
  ScatterLines s{data[axis], static_cast<uint64_t>(updates[axis]), {}, Loops<3>(starts, strides)};
  for (size_t k = 0; k < 3; ++k) {
    s.steps[k] = strides[k][static_cast<size_t>(axis)];
  }
  return s;
}

// f16 and bf16 are combined in f32: bytes of the data of a ScatterElements in f32, or 0.
template <class Node>
uint64_t scatter_wide_bytes(const Node& node) {
  const bool narrow = node.type == DType::f16 || node.type == DType::bf16;
  return narrow && node.attributes.template as<ScatterElementsAttributes>().reduction() !=
                       ScatterReduction::none
             ? static_cast<uint64_t>(node.outputs[0].shape.elements()) * sizeof(float)
             : 0;
}

}  // namespace bowline
