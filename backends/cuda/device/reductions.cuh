// The elements of each result of a reduction, and of each line along an axis.
#pragma once

#include "device/loops.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// `outputs` results of `length` elements each.
struct Groups {
  uint64_t outputs = 1;
  uint64_t length = 1;
  Loops<1> kept;
  Loops<1> gone;

  __device__ static int64_t offset_of(const Loops<1>& loops, uint64_t i) {
    if (loops.rank <= 1) {
      return static_cast<int64_t>(i) * loops.strides[0][0];
    }
    int64_t at[1];
    loops.offsets(i, at);
    return at[0];
  }
  __device__ int64_t begin(uint64_t output) const { return offset_of(kept, output); }
  __device__ int64_t element(uint64_t i) const { return offset_of(gone, i); }
};

inline Groups groups_of(const Shape& x, const Axes& reduced) {
  const auto strides = strides_of(x);
  Groups g;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    (reduced[a] ? g.gone : g.kept).add(x[axis], {strides[a]});
    (reduced[a] ? g.length : g.outputs) *= static_cast<uint64_t>(x[axis]);
  }
  return g;
}

inline Groups groups_of(const Shape& x, const ReduceAttributes& t) {
  return groups_of(x, named_axes({t.axes()->data(), t.axes()->size()}, x.rank()));
}

// The lines along an axis.
inline Groups groups_along(const Shape& x, int axis) {
  Axes one{};
  one[static_cast<size_t>(positive_axis(axis, x.rank()))] = true;
  return groups_of(x, one);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
