// See elementwise.h.
#include "compute/elementwise.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
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

struct AdamWFactors {
  float decay;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_root_correction2;
  float eps;
  float step_size;
  float grad_scale;
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

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
  const float* const c = in.c;
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

void add_scaled_block(size_t n, float factor, const float* x, float* y) {
  const FloatVector f = hn::Set(FloatTag(), factor);
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    part.store(hn::MulAdd(f, part.load(x + i), part.load(y + i)), y + i);
  });
}

// The update blocks return 0 times the sum of the new weights: NaN if one is not finite.
float adamw_block(size_t n, const AdamWFactors& f, const float* g, float* w, float* m, float* v) {
  const FloatTag d;
  const FloatVector decay = hn::Set(d, f.decay);
  const FloatVector one_minus_beta1 = hn::Set(d, f.one_minus_beta1);
  const FloatVector beta2 = hn::Set(d, f.beta2);
  const FloatVector one_minus_beta2 = hn::Set(d, f.one_minus_beta2);
  const FloatVector inverse_root = hn::Set(d, f.inverse_root_correction2);
  const FloatVector eps = hn::Set(d, f.eps);
  const FloatVector step_size = hn::Set(d, f.step_size);
  const FloatVector grad_scale = hn::Set(d, f.grad_scale);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector gi = hn::Mul(part.load(g + i), grad_scale);
    const FloatVector m0 = part.load(m + i);
    const FloatVector mi = hn::MulAdd(one_minus_beta1, hn::Sub(gi, m0), m0);
    const FloatVector vi =
        hn::MulAdd(hn::Mul(one_minus_beta2, gi), gi, hn::Mul(beta2, part.load(v + i)));
    const FloatVector root = hn::MulAdd(hn::Sqrt(vi), inverse_root, eps);
    const FloatVector decayed = hn::Mul(part.load(w + i), decay);
    const FloatVector wi = hn::NegMulAdd(step_size, hn::Div(mi, root), decayed);
    part.store(wi, w + i);
    part.store(mi, m + i);
    part.store(vi, v + i);
    return hn::Mul(wi, hn::Zero(FloatTag()));
  });
}

float sgd_block(size_t n, const SgdStep& s, const float* g, float* w, float* b) {
  const FloatTag d;
  const FloatVector rate = hn::Set(d, s.learning_rate);
  const FloatVector momentum = hn::Set(d, s.momentum);
  const FloatVector decay = hn::Set(d, s.weight_decay);
  const FloatVector grad_scale = hn::Set(d, s.grad_scale);
  const bool has_momentum = s.momentum != 0;
  const bool first = s.first;
  const bool nesterov = s.nesterov;
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector wi = part.load(w + i);
    const FloatVector gi = hn::MulAdd(decay, wi, hn::Mul(part.load(g + i), grad_scale));
    FloatVector direction = gi;
    if (has_momentum) {
      const FloatVector bi = first ? gi : hn::MulAdd(momentum, part.load(b + i), gi);
      part.store(bi, b + i);
      direction = nesterov ? hn::MulAdd(momentum, bi, gi) : bi;
    }
    const FloatVector next = hn::NegMulAdd(rate, direction, wi);
    part.store(next, w + i);
    return hn::Mul(next, hn::Zero(FloatTag()));
  });
}

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

}  // namespace HWY_NAMESPACE
}  // namespace bowline::detail::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

HWY_EXPORT(function_block);
HWY_EXPORT(add_scaled_block);
HWY_EXPORT(adamw_block);
HWY_EXPORT(sgd_block);
HWY_EXPORT(sum_of_squares_block);

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
    HWY_DYNAMIC_DISPATCH(function_block)(f, size, in.at(i), y + i);
  });
}

void elementwise_row(const FunctionCall& f, size_t n, const Operands<float>& in, float* y) {
  HWY_DYNAMIC_DISPATCH(function_block)(f, n, in, y);
}

void add_scaled(Threads& threads, size_t n, float factor, const float* x, float* y) {
  for_blocks(threads, n, [=](size_t i, size_t size) {
    HWY_DYNAMIC_DISPATCH(add_scaled_block)(size, factor, x + i, y + i);
  });
}

void add_bias(Threads& threads, size_t rows, size_t n, const float* x, const float* bias,
              float* y) {
  const size_t rows_per_task = std::max<size_t>(1, kBlock / std::max<size_t>(1, n));
  threads.parallel_for((rows + rows_per_task - 1) / rows_per_task, [=](size_t task, size_t) {
    const size_t end = std::min(rows, (task + 1) * rows_per_task);
    for (size_t row = task * rows_per_task; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(function_block)
      ({Function::add_binary}, n, {{x + row * n}, {bias}}, y + row * n);
    }
  });
}

bool adamw(Threads& threads, size_t n, const AdamWStep& step, const float* g, float* w, float* m,
           float* v) {
  const AdamWFactors factors{
      .decay = static_cast<float>(1 - step.learning_rate * step.weight_decay),
      .one_minus_beta1 = static_cast<float>(1 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .one_minus_beta2 = static_cast<float>(1 - step.beta2),
      .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(step.bias_correction2)),
      .eps = static_cast<float>(step.eps),
      .step_size = static_cast<float>(step.learning_rate / step.bias_correction1),
      .grad_scale = step.grad_scale,
  };
  std::atomic<bool> finite = true;
  for_blocks(threads, n, [=, &factors, &finite](size_t i, size_t size) {
    if (HWY_DYNAMIC_DISPATCH(adamw_block)(size, factors, g + i, w + i, m + i, v + i) != 0) {
      finite = false;
    }
  });
  return finite;
}

bool sgd(Threads& threads, size_t n, const SgdStep& step, const float* g, float* w, float* b) {
  std::atomic<bool> finite = true;
  for_blocks(threads, n, [=, &step, &finite](size_t i, size_t size) {
    float* const momenta = b == nullptr ? nullptr : b + i;
    if (HWY_DYNAMIC_DISPATCH(sgd_block)(size, step, g + i, w + i, momenta) != 0) {
      finite = false;
    }
  });
  return finite;
}

size_t sum_of_squares_scratch_bytes(size_t n) { return blocks_of(n) * sizeof(double); }

double sum_of_squares(Threads& threads, size_t n, const float* x, void* scratch) {
  double* sums = static_cast<double*>(scratch);
  for_blocks(threads, n, [=](size_t i, size_t size) {
    sums[i / kBlock] = HWY_DYNAMIC_DISPATCH(sum_of_squares_block)(size, x + i);
  });
  double sum = 0;
  for (size_t block = 0; block < blocks_of(n); ++block) {
    sum += sums[block];
  }
  return sum;
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
