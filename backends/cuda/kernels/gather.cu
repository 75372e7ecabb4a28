//! ops(any) Gather GatherElements OneHot ScatterElements
// Elements along an axis selected by indices, four per thread; and the reverse, one line per
// thread. Negative indices count from the end.
#include "base/float16.h"
#include "core/element_types.h"
#include "core/indices.h"
#include "device/begin.cuh"
#include "device/indices.cuh"
#include "device/numbers.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::gather_kernels {
namespace {

// y[i] = data[i . strides 0 + element(indices[i . strides 1]) * stride], and 0 if the index is out
// of range.
template <class T>
__global__ void gather_kernel(const T* data, const int32_t* indices, T* y, device::StepHead* head,
                              uint32_t node, uint64_t count, int64_t n, int64_t stride,
                              Loops<2> loops) {
  begin_kernel();
  for_elements(count, [&](uint64_t i) {
    int64_t at[2];
    loops.offsets(i, at);
    const int32_t index = indices[at[1]];
    const int64_t element = element_of(index, n);
    if (element < 0) {
      bad_index(head, node, index);
    }
    y[i] = element < 0 ? T{} : data[at[0] + element * stride];
  });
}

void gather(Launch& l) {
  const GatherLoops g = gather_loops_of(l.record());
  const auto count = static_cast<uint64_t>(l.out_shape(0).elements());
  with_bits(size_of(l.type()), [&]<class T>() {
    l.launch("gather", gather_kernel<T>, element_blocks(count), kElementThreads, l.in_as<T>(0),
             l.in_i32(1), l.out_as<T>(0), l.head(), l.node(), count, g.n, g.stride, g.loops);
  });
}

template <class T>
__global__ void one_hot_kernel(const int32_t* indices, T* y, uint64_t count, uint64_t depth,
                               uint64_t inner, T one) {
  begin_kernel();
  for_elements(count, [&](uint64_t i) {
    const int32_t index = indices[i / (depth * inner) * inner + i % inner];
    const int64_t element = element_of(index, static_cast<int64_t>(depth));
    y[i] = element == static_cast<int64_t>(i / inner % depth) ? one : T{};
  });
}

void one_hot(Launch& l) {
  const Shape& y = l.out_shape(0);
  const int axis = positive_axis(l.attributes<OneHotAttributes>().axis(), y.rank());
  const auto count = static_cast<uint64_t>(y.elements());
  with_bits(size_of(l.type()), [&]<class T>() {
    l.launch("one hot", one_hot_kernel<T>, element_blocks(count), kElementThreads, l.in_i32(0),
             l.out_as<T>(0), count, static_cast<uint64_t>(y[axis]),
             static_cast<uint64_t>(y.elements(axis + 1, y.rank())),
             static_cast<T>(stored_bits(l.type(), 1)));
  });
}

struct Replace {
  template <class T>
  __device__ void operator()(T* y, const T* update) const {
    *y = *update;
  }
};

// f16 and bf16 updates are combined with f32 data.
struct Join {
  ScatterReduction reduction;
  template <class Y, class T>
  __device__ void operator()(Y* y, const T* update) const {
    const Number<Y> a = number_at(y);
    const Number<Y> b = number_at(update);
    store_number(y, joined(a, b));
  }
  template <class A>
  __device__ A joined(A a, A b) const {
    switch (reduction) {
      case ScatterReduction::add:
        return sum_of(a, b);
      case ScatterReduction::mul:
        return product_of(a, b);
      case ScatterReduction::max:
        return a != a || a > b ? a : b;
      case ScatterReduction::min:
        return a != a || a < b ? a : b;
      default:
        return b;
    }
  }
};

// One thread per line along the axis, in the order of its updates.
template <class Y, class T, class F>
__global__ void scatter_kernel(Y* y, const int32_t* indices, const T* updates,
                               device::StepHead* head, uint32_t node, uint64_t lines, F join,
                               ScatterLines s) {
  begin_kernel();
  const uint64_t i = uint64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i >= lines) {
    return;
  }
  int64_t at[3];
  s.lines.offsets(i, at);
  for (uint64_t k = 0; k < s.count; ++k) {
    const int32_t index = indices[at[1]];
    const int64_t element = element_of(index, s.n);
    if (element < 0) {
      bad_index(head, node, index);
    } else {
      join(y + at[0] + element * s.steps[0], updates + at[2]);
    }
    at[1] += s.steps[1];
    at[2] += s.steps[2];
  }
}

template <class Y, class T, class F>
void scatter(Launch& l, Y* y, F join) {
  const ScatterLines s = scatter_lines_of(l.record());
  const uint64_t lines = s.lines.elements();
  l.launch("scatter", scatter_kernel<Y, T, F>, blocks_for(lines, kElementThreads), kElementThreads,
           y, l.in_i32(1), l.in_as<T>(2), l.head(), l.node(), lines, join, s);
}

void copy_data(Launch& l) {
  if (l.in(0) != l.out(0)) {
    l.copy(l.out(0), l.in(0), l.out_operand(0).bytes());
  }
}

// f16 and bf16 are combined in f32; the workspace holds the data as f32.
void scatter_elements(Launch& l) {
  const ScatterReduction reduction = l.attributes<ScatterElementsAttributes>().reduction();
  if (reduction == ScatterReduction::none) {
    copy_data(l);
    with_bits(size_of(l.type()), [&]<class T>() { scatter<T, T>(l, l.out_as<T>(0), Replace{}); });
    return;
  }
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  with_number(l.type(), [&]<class T>() {
    if constexpr (kIsWhole<T> || std::is_same_v<T, float>) {
      copy_data(l);
      scatter<T, T>(l, l.out_as<T>(0), Join{reduction});
    } else {
      convert(l, l.in(0), l.type(), l.workspace(), DType::f32, n);
      scatter<float, T>(l, l.workspace(), Join{reduction});
      convert(l, l.workspace(), DType::f32, l.out(0), l.type(), n);
    }
  });
}

uint64_t scatter_workspace(const NodeView& node) { return scatter_wide_bytes(node.query); }

}  // namespace

BOWLINE_KERNEL(gather, .run = gather);
BOWLINE_KERNEL(gather_elements, .run = gather);
BOWLINE_KERNEL(one_hot, .run = one_hot);
BOWLINE_KERNEL(scatter_elements, .run = scatter_elements, .workspace = scatter_workspace);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::gather_kernels
