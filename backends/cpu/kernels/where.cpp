//! ops(any) Where
// Selects elements of two tensors by bool values. All three operands broadcast by the rules of
// NumPy.
#include "core/element_types.h"
#include "rows.h"

namespace bowline::detail::cpu::where_kernels {
namespace {

void run(const Launch& l) {
  const Shape& out = *l.out[0].shape;
  const std::array strides = {broadcast_strides(*l.in[0].shape, out),
                              broadcast_strides(*l.in[1].shape, out),
                              broadcast_strides(*l.in[2].shape, out)};
  const int64_t n = out.rank() == 0 ? 1 : out.back();
  const std::array step = {row_step(out, strides[0]), row_step(out, strides[1]),
                           row_step(out, strides[2])};
  with_bits(size_of(l.record.type), [&]<class T>() {
    const auto* const condition = l.in[0].as<const Truth>();
    const T* const a = l.in[1].as<const T>();
    const T* const b = l.in[2].as<const T>();
    T* const y = l.out[0].as<T>();
    for_rows(l.threads, out, strides, 16384, [=](int64_t row, const std::array<int64_t, 3>& at) {
      for (int64_t i = 0; i < n; ++i) {
        y[row * n + i] = condition[at[0] + i * step[0]].byte != 0 ? a[at[1] + i * step[1]]
                                                                  : b[at[2] + i * step[2]];
      }
    });
  });
}

}  // namespace

BOWLINE_KERNEL(where, .run = run);

}  // namespace bowline::detail::cpu::where_kernels
