// See planes.h.
#include "compute/planes.h"

#include <limits>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/planes.cpp"
#include "hwy/foreach_target.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_PLANES_ONCE
#define BOWLINE_CPU_PLANES_ONCE
namespace bowline::detail::cpu {
namespace {

// Number of elements of small planes that are added in f32 before their sums are added in double.
constexpr size_t kElementsOfSum = 4096;

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Sums over planes: f(at, part, sums) adds a vector to each of the kSums sums. The lanes of a sum
// are added once for several small planes.
template <size_t kSums, class F>
HWY_INLINE void sum_over(const ChannelPlanes& c, double (&out)[kSums], const F& f) {
  constexpr size_t kWays = 4;  // hide the latency of the addition
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVector sums[kWays][kSums];
  const auto clear = [&]() HWY_ATTR {
    HWY_UNROLL(4)
    for (size_t w = 0; w < kWays; ++w) {
      HWY_UNROLL(2)
      for (size_t k = 0; k < kSums; ++k) {
        sums[w][k] = hn::Zero(d);
      }
    }
  };
  clear();
  const PartialVector rest(c.size % lanes);
  size_t summed = 0;
  for (size_t p = 0; p < c.count; ++p) {
    const size_t begin = p * c.step, end = begin + c.size;
    size_t at = begin;
    for (; at + kWays * lanes <= end; at += kWays * lanes) {
      HWY_UNROLL(4)
      for (size_t w = 0; w < kWays; ++w) {
        f(at + w * lanes, WholeVector{}, sums[w]);
      }
    }
    for (; at + lanes <= end; at += lanes) {
      f(at, WholeVector{}, sums[0]);
    }
    if (at < end) {
      f(at, rest, sums[kWays - 1]);
    }
    summed += c.size;
    if (summed >= kElementsOfSum || p + 1 == c.count) {
      for (size_t k = 0; k < kSums; ++k) {
        const FloatVector all =
            hn::Add(hn::Add(sums[0][k], sums[1][k]), hn::Add(sums[2][k], sums[3][k]));
        out[k] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, all)));
      }
      clear();
      summed = 0;
    }
  }
}

double sum_planes(const ChannelPlanes& c, const float* x) {
  double out[1] = {};
  sum_over(c, out, [=](size_t at, auto part, auto& sums) HWY_ATTR {
    sums[0] = hn::Add(sums[0], part.or_else(part.load(x + at), hn::Zero(FloatTag())));
  });
  return out[0];
}

double square_planes(const ChannelPlanes& c, const float* x, float mean) {
  const FloatVector m = hn::Set(FloatTag(), mean);
  double out[1] = {};
  sum_over(c, out, [=](size_t at, auto part, auto& sums) HWY_ATTR {
    const FloatVector apart = part.or_else(hn::Sub(part.load(x + at), m), hn::Zero(FloatTag()));
    sums[0] = hn::MulAdd(apart, apart, sums[0]);
  });
  return out[0];
}

PlaneSums gradient_planes(const ChannelPlanes& c, const float* x, const float* dy, float mean) {
  const FloatVector m = hn::Set(FloatTag(), mean);
  double out[2] = {};
  sum_over(c, out, [=](size_t at, auto part, auto& sums) HWY_ATTR {
    const FloatVector zero = hn::Zero(FloatTag());
    const FloatVector v = part.or_else(part.load(dy + at), zero);
    const FloatVector apart = part.or_else(hn::Sub(part.load(x + at), m), zero);
    sums[0] = hn::Add(sums[0], v);
    sums[1] = hn::MulAdd(v, apart, sums[1]);
  });
  return {out[0], out[1]};
}

// Calls store(at, part, f(at, part)) for the vectors of planes. The last vector of a plane overlaps
// the previous vector. It is computed first and stored last, so that results may overwrite
// operands.
template <class F, class Store>
HWY_INLINE void each_vector(const ChannelPlanes& c, const F& f, const Store& store) {
  const size_t lanes = hn::Lanes(FloatTag());
  const size_t whole = c.size / lanes * lanes;
  const PartialVector rest(c.size - whole);
  for (size_t p = 0; p < c.count; ++p) {
    const size_t begin = p * c.step;
    if (whole == 0) {
      store(begin, rest, f(begin, rest));
      continue;
    }
    const size_t last = begin + c.size - lanes;
    const FloatVector of_last = f(last, WholeVector{});
    for (size_t at = begin; at < begin + whole; at += lanes) {
      store(at, WholeVector{}, f(at, WholeVector{}));
    }
    store(last, WholeVector{}, of_last);
  }
}

void scale_channel(const ChannelPlanes& c, const float* x, float mean, float scale, float bias,
                   float* y) {
  const FloatTag d;
  const FloatVector m = hn::Set(d, mean), s = hn::Set(d, scale), b = hn::Set(d, bias);
  each_vector(
      c,
      [=](size_t at, auto part)
          HWY_ATTR { return hn::MulAdd(hn::Sub(part.load(x + at), m), s, b); },
      [=](size_t at, auto part, FloatVector v) HWY_ATTR { part.store(v, y + at); });
}

void mix_channel(const ChannelPlanes& c, const float* x, const float* dy, float mean, float a,
                 float b, float add, float* dx) {
  const FloatTag d;
  const FloatVector m = hn::Set(d, mean), va = hn::Set(d, a), vb = hn::Set(d, b),
                    vc = hn::Set(d, add);
  each_vector(
      c,
      [=](size_t at, auto part) HWY_ATTR {
        const FloatVector of_x = hn::MulAdd(hn::Sub(part.load(x + at), m), vb, vc);
        return hn::MulAdd(part.load(dy + at), va, of_x);
      },
      [=](size_t at, auto part, FloatVector v) HWY_ATTR { part.store(v, dx + at); });
}

float sum_run(size_t n, const float* x) {
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR { return part.load(x + i); });
}

float squares_run(size_t n, const float* x, float mean) {
  const FloatVector m = hn::Set(FloatTag(), mean);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector d = hn::Sub(part.load(x + i), m);
    return hn::Mul(d, d);
  });
}

float products_run(size_t n, const float* x, const float* dy, float mean) {
  const FloatVector m = hn::Set(FloatTag(), mean);
  return sum_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    return hn::Mul(part.load(dy + i), hn::Sub(part.load(x + i), m));
  });
}

void scale_planes(size_t planes, size_t n, const float* x, const float* mean, const float* inverse,
                  const float* scale, const float* bias, float* y) {
  for (size_t c = 0; c < planes; ++c, x += n, y += n) {
    scale_channel({1, n, n}, x, mean[c], inverse[c] * scale[c], bias[c], y);
  }
}

void largest_each(const float* const* rows, size_t count, size_t n, bool first, float* y) {
  const FloatVector least = hn::Set(FloatTag(), -std::numeric_limits<float>::infinity());
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    FloatVector most = first ? least : part.load(y + i);
    for (size_t r = 0; r < count; ++r) {
      const FloatVector x = part.load(rows[r] + i);
      most = hn::IfThenElse(hn::Or(hn::Gt(x, most), hn::IsNaN(x)), x, most);
    }
    part.store(most, y + i);
  });
}

void mean_each(const float* const* rows, size_t count, size_t n, bool first, float divisor,
               float* y) {
  const FloatTag d;
  const FloatVector by = hn::Set(d, divisor);
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    FloatVector sum = first ? hn::Zero(d) : part.load(y + i);
    for (size_t r = 0; r < count; ++r) {
      sum = hn::Add(sum, part.load(rows[r] + i));
    }
    part.store(hn::Div(sum, by), y + i);
  });
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
double sum_of(const ChannelPlanes& c, const float* x) { return BOWLINE_BEST(sum_planes)(c, x); }

double squares_of(const ChannelPlanes& c, const float* x, float mean) {
  return BOWLINE_BEST(square_planes)(c, x, mean);
}

PlaneSums gradient_sums_of(const ChannelPlanes& c, const float* x, const float* dy, float mean) {
  return BOWLINE_BEST(gradient_planes)(c, x, dy, mean);
}

void scale_planes_of(const ChannelPlanes& c, const float* x, float mean, float scale, float bias,
                     float* y) {
  BOWLINE_BEST(scale_channel)(c, x, mean, scale, bias, y);
}

void mix_planes_of(const ChannelPlanes& c, const float* x, const float* dy, float mean, float a,
                   float b, float add, float* dx) {
  BOWLINE_BEST(mix_channel)(c, x, dy, mean, a, b, add, dx);
}

float sum_of(size_t n, const float* x) { return BOWLINE_BEST(sum_run)(n, x); }

float squares_of(size_t n, const float* x, float mean) {
  return BOWLINE_BEST(squares_run)(n, x, mean);
}

float products_of(size_t n, const float* x, const float* dy, float mean) {
  return BOWLINE_BEST(products_run)(n, x, dy, mean);
}

void scale_each_plane(size_t planes, size_t n, const float* x, const float* mean,
                      const float* inverse, const float* scale, const float* bias, float* y) {
  BOWLINE_BEST(scale_planes)(planes, n, x, mean, inverse, scale, bias, y);
}

void largest_of_rows(std::span<const float* const> rows, size_t n, bool first, float* y) {
  BOWLINE_BEST(largest_each)(rows.data(), rows.size(), n, first, y);
}

void mean_of_rows(std::span<const float* const> rows, size_t n, bool first, float divisor,
                  float* y) {
  BOWLINE_BEST(mean_each)(rows.data(), rows.size(), n, first, divisor, y);
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
