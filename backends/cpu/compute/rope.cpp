// See rope.h.
#include "compute/rope.h"

#include <algorithm>
#include <cmath>
#include <concepts>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/rope.cpp"
#include "hwy/foreach_target.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_ROPE_ONCE
#define BOWLINE_CPU_ROPE_ONCE
namespace bowline::detail::cpu {
namespace {

template <class T>
using Rotation = void (*)(size_t half, const T* x, const float* cosine, const float* sine,
                          float sign, T* y);

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// `half` pairs (x[i], x[i + half]); sign is -1 for the inverse.
template <class T>
void rotate_halves(size_t half, const T* x, const float* cosine, const float* sine, float sign,
                   T* y) {
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
template <class T>
void rotate_interleaved(size_t half, const T* x, const float* cosine, const float* sine, float sign,
                        T* y) {
  for (size_t i = 0; i < half; ++i) {
    const float a = to_f32(x[2 * i]);
    const float b = to_f32(x[2 * i + 1]);
    const float s = sign * sine[i];
    y[2 * i] = from_f32<T>(a * cosine[i] - b * s);
    y[2 * i + 1] = from_f32<T>(a * s + b * cosine[i]);
  }
}

template <class T>
Rotation<T> rotation(bool interleaved) {
  return interleaved ? rotate_interleaved<T> : rotate_halves<T>;
}
Rotation<float> rotation_f32(bool interleaved) { return rotation<float>(interleaved); }
Rotation<f16> rotation_f16(bool interleaved) { return rotation<f16>(interleaved); }
Rotation<bf16> rotation_bf16(bool interleaved) { return rotation<bf16>(interleaved); }

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

constexpr size_t kTaskElements = 8192;
constexpr size_t kTaskAngles = 256;

template <class T>
Rotation<T> rotation_of(bool interleaved) {
  return BOWLINE_BEST_FOR(T, rotation)(interleaved);
}

}  // namespace

size_t rope_table_bytes(const RopeShape& shape) {
  const size_t rows = shape.per_outer ? shape.outer * shape.positions : shape.positions;
  return rows * shape.rotary_dims * sizeof(float);
}

void rope_table(Threads& threads, const RopeShape& shape, const double* frequency, void* table) {
  // Row t: the cosines of all angles, then the sines.
  float* rows = static_cast<float*>(table);
  const size_t half = shape.rotary_dims / 2;
  const size_t count = shape.per_outer ? shape.outer * shape.positions : shape.positions;
  const size_t unit = std::max<size_t>(1, kTaskAngles / std::max<size_t>(1, half));
  threads.parallel_for((count + unit - 1) / unit, [&](size_t task, size_t) {
    for (size_t t = task * unit; t < std::min(count, (task + 1) * unit); ++t) {
      const int64_t index = shape.given == nullptr ? static_cast<int64_t>(t) : shape.given[t];
      const double position = static_cast<double>(shape.position_offset + index);
      float* cosines = rows + t * 2 * half;
      for (size_t i = 0; i < half; ++i) {
        cosines[i] = static_cast<float>(std::cos(position * frequency[i]));
        cosines[half + i] = static_cast<float>(std::sin(position * frequency[i]));
      }
    }
  });
}

template <class T>
void rope(Threads& threads, const RopeShape& shape, const T* x, T* y, const void* table) {
  const Rotation<T> rotate = rotation_of<T>(shape.interleaved);
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
        const T* in = x + outer * shape.x_outer + position * shape.x_position + head * shape.x_head;
        T* out = y + outer * shape.y_outer + position * shape.y_position + head * shape.y_head;
        rotate(half, in, cosine, cosine + half, sign, out);
        if (in != out) {
          std::copy(in + 2 * half, in + shape.dim, out + 2 * half);
        }
      }
    }
  });
}

template void rope(Threads&, const RopeShape&, const float*, float*, const void*);
template void rope(Threads&, const RopeShape&, const f16*, f16*, const void*);
template void rope(Threads&, const RopeShape&, const bf16*, bf16*, const void*);

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
