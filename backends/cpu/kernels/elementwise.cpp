//! elementwise
//! elementwise(f16, bf16)
//! elementwise(i8, u8, i32, i64, boolean)
// Operators with formulas (runtime/ops/formulas). Two operands broadcast by the rules of NumPy; a
// third operand has the shape of the result. Other dtypes are converted in blocks, floats to f32
// and integers to 64 bits.
#include "compute/elementwise.h"

#include <algorithm>

#include "compute/convert.h"
#include "compute/whole.h"
#include "rows.h"

namespace bowline::detail::cpu::elementwise_kernels {
namespace {

template <class T>
void narrow(size_t n, const float* x, T* y) {
  if constexpr (std::same_as<T, Truth>) {
    for (size_t i = 0; i < n; ++i) {
      y[i] = {static_cast<uint8_t>(x[i] != 0)};
    }
  } else {
    cpu::narrow(n, x, y);
  }
}

// A block of an operand as f32. f32 operands are not copied.
template <class T>
const float* wide(const RowOf<const T>& x, size_t n, [[maybe_unused]] float* block) {
  if constexpr (std::same_as<T, float>) {
    return x.data;
  } else {
    widen(x.step == 0 ? 1 : n, x.data, block);
    return block;
  }
}

template <class In, class Out>
void float_row(const FunctionCall& f, size_t n, const Operands<In>& in, Out* y) {
  if constexpr (std::same_as<Out, float>) {
    elementwise_row(f, n, in, y);
  } else {
    constexpr size_t kBlock = 512;
    alignas(64) float a[kBlock];
    alignas(64) float b[kBlock];
    alignas(64) float c[kBlock];
    alignas(64) float out[kBlock];
    for (size_t i = 0; i < n; i += kBlock) {
      const size_t size = std::min(kBlock, n - i);
      const Operands<In> part = in.at(i);
      elementwise_row(f, size,
                      {{wide(part.a, size, a), part.a.step},
                       {wide(part.b, size, b), part.b.step},
                       part.c == nullptr ? nullptr : wide(RowOf<const In>{part.c}, size, c)},
                      out);
      narrow(size, out, y + i);
    }
  }
}

template <class In, class Out>
void row_of(const FunctionCall& f, size_t n, const Operands<In>& in, Out* y) {
  if constexpr (Float<In>) {
    float_row(f, n, in, y);
  } else {
    whole_row(f, n, in, y);
  }
}

// Operands 0 and 1. A missing operand is replaced by operand 0.
template <class In>
Operands<In> operands_of(const Launch& l) {
  const auto at = [&](size_t i) { return l.in[l.has_input(i) ? i : 0].as<const In>(); };
  return {{at(0)}, {at(1)}, l.has_input(2) ? at(2) : nullptr};
}

// Operands of different shapes: rows of the last axis, in which each operand steps by 0 or 1.
template <class In, class Out>
void broadcast(const Launch& l, const FunctionCall& f) {
  const auto loops = Loops<2>::broadcast(*l.out[0].shape, {l.in[0].shape, l.in[1].shape});
  const Operands<In> all = operands_of<In>(l);
  const auto step = [&](int k) { return static_cast<size_t>(row_step(loops, k)); };
  Out* const y = l.out[0].as<Out>();
  for_rows(l.threads, loops, [&](int64_t i, int64_t n, const int64_t* at) {
    const Operands<In> part = {{all.a.data + at[0], step(0)},
                               {all.b.data + at[1], step(1)},
                               all.c == nullptr ? nullptr : all.c + i};
    row_of(f, static_cast<size_t>(n), part, y + i);
  });
}

template <class In, class Out>
void run_into(const Launch& l, const FunctionCall& f) {
  const Shape& out = *l.out[0].shape;
  const bool same = *l.in[0].shape == out && (!l.has_input(1) || *l.in[1].shape == out);
  if (!same) {
    return broadcast<In, Out>(l, f);
  }
  const Operands<In> in = operands_of<In>(l);
  Out* const y = l.out[0].as<Out>();
  if constexpr (std::same_as<In, float> && std::same_as<Out, float>) {
    elementwise(l.threads, f, static_cast<size_t>(out.elements()), in, y);
  } else {
    parallel_blocks(l.threads, out.elements(), kGrain, [&](int64_t begin, int64_t end) {
      row_of(f, static_cast<size_t>(end - begin), in.at(static_cast<size_t>(begin)), y + begin);
    });
  }
}

// Integers cannot be divided by 0.
template <class T>
void check_divisors(const Launch& l) {
  const T* const b = l.in[1].as<const T>();
  const int64_t n = l.out[0].elements() == 0 ? 0 : l.in[1].elements();
  if (std::find(b, b + n, T{0}) != b + n) {
    l.bad_index(0);
  }
}

// A comparison returns bool; other operators return the dtype of their inputs.
template <class T>
void run(const Launch& l) {
  const FunctionCall f = function_of(l.record.op, l.record.attributes);
  if constexpr (std::is_integral_v<T>) {
    if (divides(f.function)) {
      check_divisors<T>(l);
    }
  }
  if (l.record.outputs[0].dtype == l.record.inputs[0].dtype) {
    run_into<T, T>(l, f);
  } else {
    run_into<T, Truth>(l, f);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_NUMBERS(elementwise, .run = run<T>);
BOWLINE_KERNEL(elementwise_boolean, .run = run<Truth>);

}  // namespace bowline::detail::cpu::elementwise_kernels
