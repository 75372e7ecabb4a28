// See elementwise.h.
#include "compute/elementwise.h"

#include <algorithm>
#include <cmath>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "compute/formulas-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ELEMENTWISE_ONCE
#define BOWLINE_CPU_ELEMENTWISE_ONCE
namespace bowline::detail::cpu {
namespace {

// Elements per task. It is also the unit of the sum of squares, so it decides the order of that
// sum.
constexpr size_t kBlock = 8192;

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

using formulas::F;

// Operands with step 1 are loaded; an operand with step 0 is broadcast. Never inline: inlining all
// functions into function_block makes compilation with sanitizers ten times slower.
template <class Function>
HWY_NOINLINE void map(const Function& f, size_t n, const RowOf<const float>& a,
                      const RowOf<const float>& b, float* y) {
  const float* const u = a.data;
  const float* const v = b.data;
  if (a.step == 1 && b.step == 1) {
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(f(i, part, part.load(u + i), part.load(v + i)).v, y + i);
    });
  } else if (a.step == 1) {
    const F value = *v;
    for_vectors(n, [=](size_t i, auto part)
                       HWY_ATTR { part.store(f(i, part, part.load(u + i), value).v, y + i); });
  } else if (b.step == 1) {
    const F value = *u;
    for_vectors(n, [=](size_t i, auto part)
                       HWY_ATTR { part.store(f(i, part, value, part.load(v + i)).v, y + i); });
  } else {
    const F value = *u;
    const F other = *v;
    for_vectors(
        n, [=](size_t i, auto part) HWY_ATTR { part.store(f(i, part, value, other).v, y + i); });
  }
}

// A function of one operand.
template <class Function>
HWY_NOINLINE void map(const Function& f, size_t n, const float* x, float* y) {
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR { part.store(f(part.load(x + i)).v, y + i); });
}

void function_block(const FunctionCall& call, size_t n, const Operands<float>& in, float* y) {
  const F p = call.p;
  const F q = call.q;
  [[maybe_unused]] const float* const c = in.c;
  switch (call.function) {
#define BOWLINE_FORWARD(name)    \
  case Function::name##_forward: \
    return map([=](F x) HWY_ATTR { return formulas::name##_forward(x, p, q); }, n, in.a.data, y);
#define BOWLINE_GRADIENT(name)                                                  \
  case Function::name##_gradient:                                               \
    return map([=](size_t, auto, F x, F dy)                                     \
                   HWY_ATTR { return formulas::name##_gradient(x, dy, p, q); }, \
               n, in.a, in.b, y);
#define BOWLINE_BINARY(name)                                                                     \
  case Function::name##_binary:                                                                  \
    return map([](size_t, auto, F u, F v) HWY_ATTR { return formulas::name##_binary(u, v); }, n, \
               in.a, in.b, y);
#define BOWLINE_GRADIENT_A(name)                                                             \
  case Function::name##_gradient_a:                                                          \
    return map([=](size_t i, auto part, F u, F v)                                            \
                   HWY_ATTR { return formulas::name##_gradient_a(u, v, part.load(c + i)); }, \
               n, in.a, in.b, y);
#define BOWLINE_GRADIENT_B(name)                                                             \
  case Function::name##_gradient_b:                                                          \
    return map([=](size_t i, auto part, F u, F v)                                            \
                   HWY_ATTR { return formulas::name##_gradient_b(u, v, part.load(c + i)); }, \
               n, in.a, in.b, y);
#define BOWLINE_COMPARE(name)                                                                     \
  case Function::name##_compare:                                                                  \
    return map([](size_t, auto, F u, F v)                                                         \
                   HWY_ATTR { return select(formulas::name##_compare(u, v), F(1.0f), F(0.0f)); }, \
               n, in.a, in.b, y);
#include "generated/functions.inc"
    default:  // functions of bool
      return;
  }
}

#if HWY_HAVE_FLOAT64
double sum_of_squares_block(size_t n, const float* x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(half, x + i));
    const auto x1 = hn::PromoteTo(d, hn::LoadU(half, x + i + lanes));
    s0 = hn::MulAdd(x0, x0, s0);
    s1 = hn::MulAdd(x1, x1, s1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  for (; i < n; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}
#else  // WebAssembly in Highway 1.0
double sum_of_squares_block(size_t n, const float* x) {
  double sums[4] = {};
  for (size_t i = 0; i < n; ++i) {
    sums[i % 4] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}
#endif

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

constexpr size_t blocks_of(size_t n) { return (n + kBlock - 1) / kBlock; }

// Calls f(begin, size) for each block of 0 .. n - 1.
template <class F>
void for_blocks(Threads& threads, size_t n, F&& f) {
  if (n <= kBlock) {
    if (n > 0) {
      f(size_t{0}, n);
    }
    return;
  }
  threads.parallel_for(blocks_of(n), [&](size_t block, size_t) {
    f(block * kBlock, std::min(kBlock, n - block * kBlock));
  });
}

}  // namespace

void elementwise(Threads& threads, const FunctionCall& f, size_t n, const Operands<float>& in,
                 float* y) {
  for_blocks(threads, n, [=, &f](size_t i, size_t size) {
    BOWLINE_BEST(function_block)(f, size, in.at(i), y + i);
  });
}

void elementwise_row(const FunctionCall& f, size_t n, const Operands<float>& in, float* y) {
  BOWLINE_BEST(function_block)(f, n, in, y);
}

size_t sum_of_squares_scratch_bytes(size_t n) { return blocks_of(n) * sizeof(double); }

double sum_of_squares(Threads& threads, size_t n, const float* x, void* scratch) {
  double* sums = static_cast<double*>(scratch);
  for_blocks(threads, n, [=](size_t i, size_t size) {
    sums[i / kBlock] = BOWLINE_BEST(sum_of_squares_block)(size, x + i);
  });
  double sum = 0;
  for (size_t block = 0; block < blocks_of(n); ++block) {
    sum += sums[block];
  }
  return sum;
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
