//! ops(any) Where
// Selects elements of two tensors by bool values, four elements per thread. All three operands
// broadcast by the rules of NumPy.
#include "core/element_types.h"
#include "core/loops.h"
#include "device/begin.cuh"
#include "device/elements.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::where_kernels {
namespace {

template <class T>
__global__ void where_kernel(const uint8_t* condition, const T* a, const T* b, T* y, uint64_t n,
                             Loops<3> loops) {
  begin_kernel();
  for_elements(n, [&](uint64_t i) {
    int64_t at[3];
    loops.offsets(i, at);
    y[i] = condition[at[0]] != 0 ? a[at[1]] : b[at[2]];
  });
}

void where(Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto loops = Loops<3>::broadcast(y, {&l.in_shape(0), &l.in_shape(1), &l.in_shape(2)});
  const auto n = static_cast<uint64_t>(y.elements());
  with_bits(size_of(l.type()), [&]<class T>() {
    l.launch("where", where_kernel<T>, element_blocks(n), kElementThreads, l.in_as<uint8_t>(0),
             l.in_as<T>(1), l.in_as<T>(2), l.out_as<T>(0), n, loops);
  });
}

}  // namespace

BOWLINE_KERNEL(where, .run = where);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::where_kernels
