// Convolutions in f32 over up to three spatial axes (core/windows.h), and their gradients.
//
// Groups with one input channel slide their window over a copy of the plane: in one run if the size
// stays or is halved (compute/depthwise.h), otherwise row by row of a padded copy. All other groups
// are matrix products (compute/gemm.h) over columns, each of which holds the window of one output:
// Chellapilla, Puri, Simard, "High Performance Convolutional Neural Networks for Document
// Processing", 2006.
//
// Numerics  f32 sums in an order that depends on the shapes and the instruction set, never on the
//           number of threads.
// Threads   uses the pool; nothing is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/windows.h"
#include "threads.h"

namespace bowline::detail::cpu {

constexpr size_t to_size(int64_t n) { return static_cast<size_t>(n); }

// The number of planes that one task processes, so that each thread has about 16 tasks.
inline size_t planes_per_task(size_t planes, const Threads& threads) {
  constexpr size_t kTasksPerThread = 16;
  return std::max<size_t>(1, planes / (threads.count() * kTasksPerThread));
}

// True if no value is NaN or infinite.
bool all_finite(std::span<const float> values);

// Bytes of scratch memory, aligned to 64, for each of the functions below.
uint64_t convolution_scratch_bytes(const Convolution& c, const Threads& threads);

// y = bias + x * weight. A null bias counts as 0.
void convolve(Threads& threads, const Convolution& c, const float* x, const float* weight,
              const float* bias, float* y, void* scratch);

// dx = bias + the gradient of the convolution with respect to x. ConvTranspose passes a bias.
void convolve_back(Threads& threads, const Convolution& c, const float* dy, const float* weight,
                   const float* bias, float* dx, void* scratch);

void convolve_weights(Threads& threads, const Convolution& c, const float* x, const float* dy,
                      float* dweight, void* scratch);

}  // namespace bowline::detail::cpu
