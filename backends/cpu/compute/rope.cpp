// See rope.h.
#include "compute/rope.h"

#include <algorithm>
#include <cmath>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/rope.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::cpu {
namespace HWY_NAMESPACE {

// `half` pairs (x[i], x[i + half]); sign is -1 for the inverse.
void rotate_halves(size_t half, const float* x, const float* cosine, const float* sine, float sign,
                   float* y) {
  const FloatVector s = hn::Set(FloatTag(), sign);
  for_vectors(half, [=](size_t i, auto part) HWY_ATTR {
    const FloatVector a = part.load(x + i);
    const FloatVector b = part.load(x + half + i);
    const FloatVector c = part.load(cosine + i);
    const FloatVector si = hn::Mul(s, part.load(sine + i));
    part.store(hn::NegMulAdd(b, si, hn::Mul(a, c)), y + i);
    part.store(hn::MulAdd(a, si, hn::Mul(b, c)), y + half + i);
  });
}

// `half` pairs (x[2 i], x[2 i + 1]).
void rotate_interleaved(size_t half, const float* x, const float* cosine, const float* sine,
                        float sign, float* y) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    const float s = sign * sine[i];
    y[2 * i] = a * cosine[i] - b * s;
    y[2 * i + 1] = a * s + b * cosine[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bowline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::cpu {
namespace {

HWY_EXPORT(rotate_halves);
HWY_EXPORT(rotate_interleaved);

constexpr size_t kTaskElements = 8192;

}  // namespace

size_t rope_table_bytes(const RopeShape& shape) {
  const size_t rows = shape.per_outer ? shape.outer * shape.positions : shape.positions;
  return rows * shape.rotary_dims * sizeof(float);
}

void rope(Threads& threads, const RopeShape& shape, const float* x, float* y, const void* table) {
  const float* rows = static_cast<const float*>(table);
  const size_t half = shape.rotary_dims / 2;
  const float sign = shape.inverse ? -1.0f : 1.0f;
  const size_t lines = shape.outer * shape.positions;
  const size_t unit =
      std::max<size_t>(1, kTaskElements / std::max<size_t>(1, shape.heads * shape.dim));
  threads.parallel_for((lines + unit - 1) / unit, [&](size_t task, size_t) {
    for (size_t line = task * unit; line < std::min(lines, (task + 1) * unit); ++line) {
      const size_t outer = line / shape.positions;
      const size_t position = line % shape.positions;
      const float* cosine = rows + (shape.per_outer ? line : position) * 2 * half;
      for (size_t head = 0; head < shape.heads; ++head) {
        const float* in =
            x + outer * shape.x_outer + position * shape.x_position + head * shape.x_head;
        float* out = y + outer * shape.y_outer + position * shape.y_position + head * shape.y_head;
        if (shape.interleaved) {
          HWY_DYNAMIC_DISPATCH(rotate_interleaved)(half, in, cosine, cosine + half, sign, out);
        } else {
          HWY_DYNAMIC_DISPATCH(rotate_halves)(half, in, cosine, cosine + half, sign, out);
        }
        if (in != out) {
          std::copy(in + 2 * half, in + shape.dim, out + 2 * half);
        }
      }
    }
  });
}

}  // namespace bowline::cpu
#endif  // HWY_ONCE
