// Operators of layout as strided copies.
#pragma once

#include "core/attributes.h"
#include "core/loops.h"

namespace bowline {

// y[first_y + at . strides 1] = x[first_x + at . strides 0], in the order of y.
struct Move {
  size_t input = 0, output = 0;
  int64_t first_x = 0, first_y = 0;
  Loops<2> loops;
};

// Calls `each` for the moves of a Transpose, Slice, SliceGrad, Concat, Split, BroadcastTo or Expand
// (a device::Record). Those of SliceGrad leave the elements outside of the slice as they are.
// Allocates no memory: kernels of the CPU call this in every run.
template <class Record, class Each>
void for_each_move(const Record& record, const Each& each) {
  const Shape& x = record.inputs[0].shape;
  const Shape& y = record.outputs[0].shape;
  // Copies the smaller of an input and an output. It lies in the larger one, where it begins at
  // `from` of the axis of the input, and at `to` of the axis of the output.
  const auto part = [&](size_t input, size_t output, int64_t axis, int64_t from, int64_t to) {
    const Shape& a = record.inputs[input].shape;
    const Shape& b = record.outputs[output].shape;
    const int along = positive_axis(axis, a.rank());
    const std::array strides = {strides_of(a), strides_of(b)};
    const auto i = static_cast<size_t>(along);
    each(Move{input, output, from * strides[0][i], to * strides[1][i],
              Loops<2>(a[along] < b[along] ? a : b, strides)});
    return a[along] < b[along] ? a[along] : b[along];
  };
  int64_t start = 0;
  switch (record.op) {
    case Op::Transpose: {
      const auto& permutation = *record.attributes.template as<TransposeAttributes>().permutation();
      const Strides own = strides_of(x);
      Strides from{};
      for (uint32_t axis = 0; axis < permutation.size(); ++axis) {
        from[axis] = own[static_cast<size_t>(permutation.Get(axis))];
      }
      each(Move{.loops = Loops<2>(y, {from, strides_of(y)})});
      break;
    }
    case Op::Slice: {
      const auto& t = record.attributes.template as<SliceAttributes>();
      part(0, 0, t.axis(), t.start(), 0);
      break;
    }
    case Op::SliceGrad: {
      const auto& t = record.attributes.template as<SliceGradAttributes>();
      part(0, 0, t.axis(), 0, t.start());
      break;
    }
    case Op::Concat:
      for (size_t i = 0; i < record.inputs.size(); ++i) {
        start += part(i, 0, record.attributes.template as<ConcatAttributes>().axis(), 0, start);
      }
      break;
    case Op::Split:
      for (size_t i = 0; i < record.outputs.size(); ++i) {
        start += part(0, i, record.attributes.template as<SplitAttributes>().axis(), start, 0);
      }
      break;
    default:
      each(Move{.loops = Loops<2>::broadcast(y, {&x, &y})});
  }
}

}  // namespace bowline
