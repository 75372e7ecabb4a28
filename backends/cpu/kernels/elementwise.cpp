//! elementwise
//! elementwise(f16, bf16)
// Operators with formulas (runtime/ops/formulas); those of two operands broadcast (numpy rules). Elements of 16 bits pass through
// blocks of f32.
#include "compute/elementwise.h"

#include <algorithm>

#include "compute/convert.h"
#include "core/strides.h"
#include "kernel.h"

namespace bowline::cpu {
namespace {

void row_of(const FunctionCall& f, size_t n, const float* a, size_t step_a, const float* b,
            size_t step_b, float* y) {
  elementwise_row(f, n, a, step_a, b, step_b, y);
}

template <class T>
void row_of(const FunctionCall& f, size_t n, const T* a, size_t step_a, const T* b, size_t step_b,
            T* y) {
  constexpr size_t kBlock = 512;
  alignas(64) float wide_a[kBlock];
  alignas(64) float wide_b[kBlock];
  alignas(64) float wide_y[kBlock];
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t size = std::min(kBlock, n - i);
    widen(step_a == 0 ? 1 : size, a + i * step_a, wide_a);
    widen(step_b == 0 ? 1 : size, b + i * step_b, wide_b);
    elementwise_row(f, size, wide_a, step_a, wide_b, step_b, wide_y);
    narrow(size, wide_y, y + i);
  }
}

// Unequal shapes: rows of the last axis, whose two operands each step by 0 or 1.
template <class T>
void broadcast(const Launch& l, const FunctionCall& f) {
  const Shape& out = *l.out[0].shape;
  if (out.elements() == 0) {
    return;
  }
  const T* const data[] = {l.in[0].as<const T>(), l.in[1].as<const T>()};
  const Strides strides[] = {broadcast_strides(*l.in[0].shape, out),
                             broadcast_strides(*l.in[1].shape, out)};
  const int last = out.rank() - 1;
  const int64_t n = out.back();
  const auto steps = [&](size_t operand) {
    return static_cast<size_t>(strides[operand][static_cast<size_t>(last)]);
  };
  T* y = l.out[0].as<T>();
  parallel_blocks(l.threads, out.elements() / n, std::max<int64_t>(1, 16384 / n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      int64_t rest = row;
                      int64_t at[2] = {0, 0};
                      for (int a = last - 1; a >= 0; --a) {
                        at[0] += rest % out[a] * strides[0][static_cast<size_t>(a)];
                        at[1] += rest % out[a] * strides[1][static_cast<size_t>(a)];
                        rest /= out[a];
                      }
                      row_of(f, static_cast<size_t>(n), data[0] + at[0], steps(0), data[1] + at[1],
                             steps(1), y + row * n);
                    }
                  });
}

void same_shape(Threads& threads, const FunctionCall& f, int64_t n, const float* a, const float* b,
                float* y) {
  elementwise(threads, f, static_cast<size_t>(n), a, b, y);
}

template <class T>
void same_shape(Threads& threads, const FunctionCall& f, int64_t n, const T* a, const T* b, T* y) {
  parallel_blocks(threads, n, 16384, [&](int64_t begin, int64_t end) {
    row_of(f, static_cast<size_t>(end - begin), a + begin, 1, b + begin, 1, y + begin);
  });
}

template <class T>
void run(const Launch& l) {
  const FunctionCall f = function_of(l.record.op, l.record.attributes);
  const Arg& last = l.in[l.in.size() - 1];
  if (*l.in[0].shape == *l.out[0].shape && *last.shape == *l.out[0].shape) {
    same_shape(l.threads, f, l.out[0].elements(), l.in[0].as<const T>(), last.as<const T>(),
               l.out[0].as<T>());
  } else {
    broadcast<T>(l, f);
  }
}

}  // namespace

extern const Kernel kernel_elementwise, kernel_elementwise_f16, kernel_elementwise_bf16;
const Kernel kernel_elementwise{.run = run<float>};
const Kernel kernel_elementwise_f16{.run = run<f16>};
const Kernel kernel_elementwise_bf16{.run = run<bf16>};

}  // namespace bowline::cpu
