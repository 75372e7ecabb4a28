// Formulas of integers and bool (runtime/ops/formulas), computed one element at a time in 64 bits.
// The result keeps the low bits (two's complement).
#pragma once

#include <cstdint>

#include "compute/elementwise.h"
#include "core/element_types.h"

namespace bowline::detail::cpu {
namespace whole {

struct F {
  F(float x) : v(static_cast<int64_t>(x)) {}
  explicit F(int64_t x) : v(x) {}
  int64_t v;
};
using M = bool;

// Overflow wraps around.
inline uint64_t bits(F x) { return static_cast<uint64_t>(x.v); }
inline F of_bits(uint64_t x) { return F(static_cast<int64_t>(x)); }
inline F operator+(F a, F b) { return of_bits(bits(a) + bits(b)); }
inline F operator-(F a, F b) { return of_bits(bits(a) - bits(b)); }
inline F operator*(F a, F b) { return of_bits(bits(a) * bits(b)); }
inline F operator-(F a) { return of_bits(0 - bits(a)); }

inline F select(M m, F a, F b) { return m ? a : b; }
inline M less(F a, F b) { return a.v < b.v; }
inline M equal(F a, F b) { return a.v == b.v; }
inline M is_nan(F) { return false; }
inline M negative(F x) { return x.v < 0; }
inline M positive(F x) { return x.v > 0; }
inline F quotient_of(F a, F b) { return b.v == 0 ? F(int64_t{0}) : b.v == -1 ? -a : F(a.v / b.v); }
inline F abs_of(F x) { return select(negative(x), -x, x); }

#define FORWARD(name) \
  inline F name##_forward([[maybe_unused]] F x, [[maybe_unused]] F p, [[maybe_unused]] F q)
#define BINARY(name) inline F name##_binary(F a, F b)
#define COMPARE(name) inline M name##_compare(F a, F b)
// Gradients are only for floats; no kernel calls these functions.
#define GRADIENT(name) \
  inline F name##_gradient([[maybe_unused]] F x, F dy, [[maybe_unused]] F p, [[maybe_unused]] F q)
#define GRADIENT_A(name) \
  inline F name##_gradient_a([[maybe_unused]] F a, [[maybe_unused]] F b, F dy)
#define GRADIENT_B(name) \
  inline F name##_gradient_b([[maybe_unused]] F a, [[maybe_unused]] F b, F dy)
#include "generated/formulas_whole.inc"
#undef FORWARD
#undef BINARY
#undef COMPARE
#undef GRADIENT
#undef GRADIENT_A
#undef GRADIENT_B

template <class T>
F load(T x) {
  if constexpr (std::same_as<T, Truth>) {
    return F(int64_t{x.byte != 0});
  } else {
    return F(int64_t{x});
  }
}

template <class T>
T stored(F x) {
  if constexpr (std::same_as<T, Truth>) {
    return {static_cast<uint8_t>(x.v != 0)};
  } else {
    return static_cast<T>(x.v);
  }
}

}  // namespace whole

// y = f of one row. A comparison returns bool.
template <class In, class Out>
void whole_row(const FunctionCall& call, size_t n, const Operands<In>& in, Out* y) {
  const auto map = [&](auto f) {
    for (size_t i = 0; i < n; ++i) {
      y[i] = whole::stored<Out>(
          f(whole::load(in.a.data[i * in.a.step]), whole::load(in.b.data[i * in.b.step])));
    }
  };
  switch (call.function) {
#define BOWLINE_FORWARD(name)    \
  case Function::name##_forward: \
    return map([&](whole::F x, whole::F) { return whole::name##_forward(x, call.p, call.q); });
#define BOWLINE_BINARY(name)    \
  case Function::name##_binary: \
    return map([](whole::F a, whole::F b) { return whole::name##_binary(a, b); });
#define BOWLINE_COMPARE(name)    \
  case Function::name##_compare: \
    return map(                  \
        [](whole::F a, whole::F b) { return whole::F(int64_t{whole::name##_compare(a, b)}); });
#include "generated/functions_whole.inc"
    default:
      return;
  }
}

}  // namespace bowline::detail::cpu
