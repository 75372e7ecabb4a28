// Nested loops over tensors whose operands have their own strides.
#pragma once

#include "core/strides.h"

namespace bowline {

// The axes of a loop, slowest first, with the strides of N operands. Axes are merged if the strides
// allow it. Kernels of a device receive it by value.
template <int N>
struct Loops {
  int rank = 0;
  uint32_t sizes[kMaxRank] = {};
  int64_t strides[N][kMaxRank] = {};

  Loops() = default;
  // The axes of `dims`.
  Loops(const Shape& dims, const std::array<Strides, N>& operands) {
    for (int axis = 0; axis < dims.rank(); ++axis) {
      std::array<int64_t, N> step;
      for (size_t k = 0; k < N; ++k) {
        step[k] = operands[k][static_cast<size_t>(axis)];
      }
      add(dims[axis], step);
    }
  }

  // Loops over `target`, to which the operands broadcast.
  static Loops broadcast(const Shape& target, const std::array<const Shape*, N>& operands) {
    std::array<Strides, N> strides;
    for (size_t k = 0; k < N; ++k) {
      strides[k] = broadcast_strides(*operands[k], target);
    }
    return Loops(target, strides);
  }

  // Adds the next faster axis.
  void add(int64_t size, const std::array<int64_t, N>& step) {
    if (size == 1) {
      return;
    }
    bool merges = rank > 0;
    for (int k = 0; k < N && merges; ++k) {
      merges = strides[k][rank - 1] == step[static_cast<size_t>(k)] * size;
    }
    if (merges && uint64_t{sizes[rank - 1]} * static_cast<uint64_t>(size) <= UINT32_MAX) {
      sizes[rank - 1] *= static_cast<uint32_t>(size);
    } else {
      sizes[rank] = static_cast<uint32_t>(size);
      ++rank;
    }
    for (int k = 0; k < N; ++k) {
      strides[k][rank - 1] = step[static_cast<size_t>(k)];
    }
  }

  uint64_t elements() const {
    uint64_t n = 1;
    for (int axis = 0; axis < rank; ++axis) {
      n *= sizes[axis];
    }
    return n;
  }

  // True if all operands are passed element by element.
  bool is_run() const {
    int64_t n = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      for (const auto& of : strides) {
        if (of[axis] != n) {
          return false;
        }
      }
      n *= sizes[axis];
    }
    return true;
  }

  // The offsets of element i of the loop; i is less than elements().
  constexpr void offsets(uint64_t i, int64_t (&out)[N]) const {
    for (int k = 0; k < N; ++k) {
      out[k] = 0;
    }
    for (int axis = rank - 1; axis >= 0; --axis) {
      uint64_t at = i;                    // of axis 0, which needs no division
      if (axis > 0 && i <= UINT32_MAX) {  // a 32-bit division is several times cheaper
        const auto low = static_cast<uint32_t>(i);
        at = low % sizes[axis];
        i = low / sizes[axis];
      } else if (axis > 0) {
        at = i % sizes[axis];
        i /= sizes[axis];
      }
      for (int k = 0; k < N; ++k) {
        out[k] += static_cast<int64_t>(at) * strides[k][axis];
      }
    }
  }
};

// The groups of elements of each result of a reduction: `outputs` results of `length` elements.
struct ElementGroups {
  uint64_t outputs = 1;
  uint64_t length = 1;
  Loops<1> kept;  // these axes form the output in their order
  Loops<1> gone;

  constexpr static int64_t offset_of(const Loops<1>& loops, uint64_t i) {
    if (loops.rank <= 1) {
      return static_cast<int64_t>(i) * loops.strides[0][0];
    }
    int64_t at[1];
    loops.offsets(i, at);
    return at[0];
  }
  constexpr int64_t begin(uint64_t output) const { return offset_of(kept, output); }
  constexpr int64_t element(uint64_t i) const { return offset_of(gone, i); }
};

inline ElementGroups groups_of(const Shape& x, const Axes& reduced) {
  const Strides strides = strides_of(x);
  ElementGroups g;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    (reduced[a] ? g.gone : g.kept).add(x[axis], {strides[a]});
    (reduced[a] ? g.length : g.outputs) *= static_cast<uint64_t>(x[axis]);
  }
  return g;
}
// Of the axes that an operator names, or of all.
template <class Attributes>
ElementGroups groups_of(const Shape& x, const Attributes& named) {
  return groups_of(x, named_axes({named.axes()->data(), named.axes()->size()}, x.rank()));
}

// The lines along an axis.
inline ElementGroups groups_along(const Shape& x, int axis) {
  Axes one{};
  one[static_cast<size_t>(positive_axis(axis, x.rank()))] = true;
  return groups_of(x, one);
}

}  // namespace bowline
