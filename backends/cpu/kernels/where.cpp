//! ops(any) Where
// Selects elements of two tensors by bool values. All three operands broadcast by the rules of
// NumPy.
#include "core/element_types.h"
#include "rows.h"

namespace bowline::detail::cpu::where_kernels {
namespace {

void run(const Launch& l) {
  const auto loops =
      Loops<3>::broadcast(*l.out[0].shape, {l.in[0].shape, l.in[1].shape, l.in[2].shape});
  const std::array step = {row_step(loops, 0), row_step(loops, 1), row_step(loops, 2)};
  with_bits(size_of(l.record.type), [&]<class T>() {
    const auto* const condition = l.in[0].as<const Truth>();
    const T* const a = l.in[1].as<const T>();
    const T* const b = l.in[2].as<const T>();
    T* const y = l.out[0].as<T>();
    for_rows(l.threads, loops, [=](int64_t first, int64_t n, const int64_t* at) {
      for (int64_t i = 0; i < n; ++i) {
        y[first + i] = condition[at[0] + i * step[0]].byte != 0 ? a[at[1] + i * step[1]]
                                                                : b[at[2] + i * step[2]];
      }
    });
  });
}

}  // namespace

BOWLINE_KERNEL(where, .run = run);

}  // namespace bowline::detail::cpu::where_kernels
