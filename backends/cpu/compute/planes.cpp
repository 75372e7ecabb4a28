// See planes.h.
#include "compute/planes.h"

#include <limits>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/planes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu {
namespace HWY_NAMESPACE {

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

void scale_each(size_t n, const float* x, float mean, float scale, float bias, float* y) {
  const FloatTag d;
  const FloatVector m = hn::Set(d, mean), s = hn::Set(d, scale), b = hn::Set(d, bias);
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    part.store(hn::MulAdd(hn::Sub(part.load(x + i), m), s, b), y + i);
  });
}

void scale_planes(size_t planes, size_t n, const float* x, const float* mean, const float* inverse,
                  const float* scale, const float* bias, float* y) {
  for (size_t c = 0; c < planes; ++c, x += n, y += n) {
    scale_each(n, x, mean[c], inverse[c] * scale[c], bias[c], y);
  }
}

void mix_each(size_t n, const float* x, const float* dy, float mean, float a, float b, float c,
              float* dx) {
  const FloatTag d;
  const FloatVector m = hn::Set(d, mean), va = hn::Set(d, a), vb = hn::Set(d, b),
                    vc = hn::Set(d, c);
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector of_x = hn::MulAdd(hn::Sub(part.load(x + i), m), vb, vc);
    part.store(hn::MulAdd(part.load(dy + i), va, of_x), dx + i);
  });
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

}  // namespace HWY_NAMESPACE
}  // namespace bowline::detail::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

HWY_EXPORT(sum_run);
HWY_EXPORT(squares_run);
HWY_EXPORT(products_run);
HWY_EXPORT(scale_each);
HWY_EXPORT(scale_planes);
HWY_EXPORT(mix_each);
HWY_EXPORT(largest_each);
HWY_EXPORT(mean_each);

}  // namespace

float sum_of(size_t n, const float* x) { return HWY_DYNAMIC_DISPATCH(sum_run)(n, x); }

float squares_of(size_t n, const float* x, float mean) {
  return HWY_DYNAMIC_DISPATCH(squares_run)(n, x, mean);
}

float products_of(size_t n, const float* x, const float* dy, float mean) {
  return HWY_DYNAMIC_DISPATCH(products_run)(n, x, dy, mean);
}

void scale_run(size_t n, const float* x, float mean, float scale, float bias, float* y) {
  HWY_DYNAMIC_DISPATCH(scale_each)(n, x, mean, scale, bias, y);
}

void scale_each_plane(size_t planes, size_t n, const float* x, const float* mean,
                      const float* inverse, const float* scale, const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(scale_planes)(planes, n, x, mean, inverse, scale, bias, y);
}

void mix_run(size_t n, const float* x, const float* dy, float mean, float a, float b, float c,
             float* dx) {
  HWY_DYNAMIC_DISPATCH(mix_each)(n, x, dy, mean, a, b, c, dx);
}

void largest_of_rows(std::span<const float* const> rows, size_t n, bool first, float* y) {
  HWY_DYNAMIC_DISPATCH(largest_each)(rows.data(), rows.size(), n, first, y);
}

void mean_of_rows(std::span<const float* const> rows, size_t n, bool first, float divisor,
                  float* y) {
  HWY_DYNAMIC_DISPATCH(mean_each)(rows.data(), rows.size(), n, first, divisor, y);
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
