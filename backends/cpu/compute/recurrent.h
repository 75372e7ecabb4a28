// Recurrent layers in f32, forward and backward. runtime/ops/lstm.cpp and gru.cpp define the
// results and the shapes.
//
// Each call packs the weight once, into panels as wide as a tile of the matrix product. A step is
// then one pass over the panels, which computes the cells while their sums are in the cache.
//
// Numerics  the bits depend on the instruction set and the shape, never on the number of threads.
// Threads   uses the pool, once or twice per step; nothing is allocated. `activations` may be
//           `gates`, `dgates` may be `activations`.
#pragma once

#include <cstddef>

#include "threads.h"

namespace bowline::detail::cpu {

struct RecurrentShape {
  size_t gates = 0;  // 4 for an LSTM, 3 for a GRU
  size_t steps = 0;
  size_t batch = 0;
  size_t units = 0;
  bool reverse = false;
};

// For each of the four functions. The scratch memory is aligned to 64 bytes.
size_t recurrent_scratch_bytes(const RecurrentShape& shape, const Threads& threads);

struct LstmForward {
  const float* gates;
  const float* w;
  const float* h0;
  const float* c0;
  float* y;
  float* c;
  float* activations;
};
void lstm(Threads& threads, const RecurrentShape& shape, const LstmForward& x, void* scratch);

struct LstmBackward {
  const float* activations;
  const float* w;
  const float* c0;
  const float* c;
  const float* dy;
  const float* dc;  // (optional) [T, B, H], default zeros
  float* dgates;
  float* dh0;
  float* dc0;
};
void lstm_backward(Threads& threads, const RecurrentShape& shape, const LstmBackward& x,
                   void* scratch);

struct GruForward {
  const float* gates;
  const float* w;
  const float* h0;
  const float* bias;  // (optional) [H], default zeros
  float* y;
  float* activations;
  float* recurrent;
  bool reset_after;
};
void gru(Threads& threads, const RecurrentShape& shape, const GruForward& x, void* scratch);

struct GruBackward {
  const float* activations;
  const float* recurrent;
  const float* w;
  const float* h0;
  const float* y;
  const float* dy;
  float* dgates;
  float* d_new;
  float* dh0;
  bool reset_after;
};
void gru_backward(Threads& threads, const RecurrentShape& shape, const GruBackward& x,
                  void* scratch);

}  // namespace bowline::detail::cpu
