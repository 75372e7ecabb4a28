// Convolutions in f32 over up to three spatial axes (core/windows.h), and their gradients.
//
// Groups of one input channel slide their window over a copy of the plane: in one run where its
// size stays or is halved (compute/depthwise.h), else row by row of a padded copy. All others are
// products of matrices (compute/gemm.h) over columns, each of which holds the window of one output:
// Chellapilla, Puri, Simard, "High Performance Convolutional Neural Networks for Document
// Processing", 2006.
//
// Numerics  f32 sums, in an order that the shapes and the instruction set decide, never the number
//           of threads.
// Threads   uses the pool; nothing is allocated.
#pragma once

#include <cstdint>
#include <span>

#include "core/windows.h"
#include "threads.h"

namespace bowline::detail::cpu {

// Whether no value is NaN or infinite.
bool all_finite(std::span<const float> values);

// Bytes of scratch, aligned to 64, for any of the functions below.
uint64_t convolution_scratch_bytes(const Convolution& c, const Threads& threads);

// y = bias + x * weight; without a bias it is 0.
void convolve(Threads& threads, const Convolution& c, const float* x, const float* weight,
              const float* bias, float* y, void* scratch);

// dx = bias + what dy says of it; a bias is one of ConvTranspose.
void convolve_back(Threads& threads, const Convolution& c, const float* dy, const float* weight,
                   const float* bias, float* dx, void* scratch);

void convolve_weights(Threads& threads, const Convolution& c, const float* x, const float* dy,
                      float* dweight, void* scratch);

}  // namespace bowline::detail::cpu
