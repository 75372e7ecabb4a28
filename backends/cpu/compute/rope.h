// Rotary position embedding of T = f32, f16 or bf16, computed in f32.
//
//   angle[t, i] = (position_offset + position[t]) * frequency(i)
//   (x[a], x[b]) -> (x[a] cos - x[b] sin, x[a] sin + x[b] cos)
//   inverse: with -angle, which is also the gradient
//
// Pairs     halves (NeoX, Llama): a = i, b = i + rotary_dims / 2; interleaved (GPT-J): a = 2 i, b =
//           2 i + 1.
// Shapes    x and y [outer, positions, heads, dim], where dim is contiguous and the other axes have
//           strides. rotary_dims is even and at most dim; elements from rotary_dims on are copied.
//           y may be x. Positions are 0, 1 ... or given.
// Numerics  angles, sines and cosines in f64, rounded once to f32.
// Threads   uses the pool; nothing is allocated.
// Source    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float16.h"
#include "threads.h"

namespace bowline::detail::cpu {

struct RopeShape {
  size_t outer = 0;
  size_t positions = 0;
  size_t heads = 0;
  size_t dim = 0;
  size_t rotary_dims = 0;
  // Elements from one outer index, position or head to the next, in x and in y.
  size_t x_outer = 0, x_position = 0, x_head = 0;
  size_t y_outer = 0, y_position = 0, y_head = 0;
  int64_t position_offset = 0;
  const int32_t* given = nullptr;  // (optional) [positions], or [outer, positions] if per_outer
  bool per_outer = false;
  bool interleaved = false;
  bool inverse = false;
};

// The table of sines and cosines. It can be reused while frequencies, positions and rotary_dims
// stay the same. frequency[i]: radians per position of pair i, for rotary_dims / 2 pairs.
size_t rope_table_bytes(const RopeShape& shape);
void rope_table(Threads& threads, const RopeShape& shape, const double* frequency, void* table);

template <class T>
void rope(Threads& threads, const RopeShape& shape, const T* x, T* y, const void* table);

}  // namespace bowline::detail::cpu
