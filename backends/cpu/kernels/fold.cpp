//! ops(f32, f16, bf16, i8, u8, i32, i64) ReduceProd CumSum
//! ops(i8, u8, i32, i64) ReduceSum
//! ops(f32, f16, bf16) ReduceProdGrad
// Products over axes and their gradient, sums of integers, and cumulative sums. Integers wrap
// around.
#include "core/element_types.h"
#include "reduction.h"

namespace bowline::detail::cpu::fold_kernels {
namespace {

// The accumulator: double for floats, 64 bits for integers.
template <class T>
auto number(T x) {
  if constexpr (Float<T>) {
    return static_cast<double>(to_f32(x));
  } else {
    return static_cast<uint64_t>(static_cast<int64_t>(x));
  }
}
template <class T>
using Number = decltype(number(T{}));

template <class T>
T stored(Number<T> x) {
  if constexpr (Float<T>) {
    return from_f32<T>(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

template <class T, bool kProduct>
void run_fold(const Launch& l) {
  const T* const x = l.in[0].as<const T>();
  T* const y = l.out[0].as<T>();
  for_reductions(l.threads, *l.in[0].shape, named_axes_of(l), [=](int64_t output, auto walk) {
    Number<T> total = kProduct ? 1 : 0;
    walk([&](int64_t at) { total = kProduct ? total * number(x[at]) : total + number(x[at]); });
    y[output] = stored<T>(total);
  });
}

// Each element gets the product of the elements before it, multiplied by the product of those
// behind it, in f32.
template <class T>
void run_prod_grad(const Launch& l) {
  const ElementGroups groups = groups_of(*l.in[0].shape, named_axes_of(l));
  const T* const x = l.in[0].as<const T>();
  const T* const dy = l.in[1].as<const T>();
  T* const dx = l.out[0].as<T>();
  auto* const products = std::same_as<T, float> ? reinterpret_cast<float*>(l.out[0].data)
                                                : reinterpret_cast<float*>(l.workspace);
  parallel_rows(l.threads, static_cast<int64_t>(groups.outputs),
                static_cast<int64_t>(4 * groups.length), [&](int64_t output) {
                  const int64_t base = groups.begin(static_cast<uint64_t>(output));
                  float before = 1;
                  for (uint64_t i = 0; i < groups.length; ++i) {
                    const int64_t at = base + groups.element(i);
                    products[at] = before;
                    before *= to_f32(x[at]);
                  }
                  float behind = to_f32(dy[output]);
                  for (uint64_t i = groups.length; i-- > 0;) {
                    const int64_t at = base + groups.element(i);
                    const float factor = to_f32(x[at]);
                    dx[at] = from_f32<T>(products[at] * behind);
                    behind *= factor;
                  }
                });
}

uint64_t prod_grad_workspace(const device::NodeQuery& node, const Threads&) {
  return node.type == DType::f32
             ? 0
             : static_cast<uint64_t>(node.outputs[0].shape.elements()) * sizeof(float);
}

template <class T>
void run_cum_sum(const Launch& l) {
  const auto& t = l.attributes<CumSumAttributes>();
  const Shape& shape = *l.in[0].shape;
  const Lines lines(shape, positive_axis(t.axis(), shape.rank()));
  const bool exclusive = t.exclusive();
  const bool reverse = t.reverse();
  const T* const x = l.in[0].as<const T>();
  T* const y = l.out[0].as<T>();
  for_lines(l.threads, lines, [=](int64_t, int64_t begin, size_t) {
    Number<T> sum = 0;
    for (int64_t k = 0; k < lines.n; ++k) {
      const int64_t at = begin + (reverse ? lines.n - 1 - k : k) * lines.step;
      const Number<T> with = sum + number(x[at]);
      y[at] = stored<T>(exclusive ? sum : with);
      sum = with;
    }
  });
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(reduce_prod, .run = run_fold<T, true>);
BOWLINE_KERNELS_OF_INTEGERS(reduce_sum, .run = run_fold<T, false>);
BOWLINE_KERNELS_OF_NUMBERS(cum_sum, .run = run_cum_sum<T>);
BOWLINE_KERNELS_OF_FLOATS(reduce_prod_grad, .run = run_prod_grad<T>,
                          .workspace = prod_grad_workspace);

}  // namespace bowline::detail::cpu::fold_kernels
