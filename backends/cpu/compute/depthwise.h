// Convolutions of single channels whose outputs lie where the inputs do, or where every second one
// does: strides of 1 or 2 with the pads that keep the size of a plane, or halve it. All outputs of
// a plane are one run: an element of the window is a distance, and a mask per column of the window
// takes out what it meets beyond the ends of rows.
//
// Numerics  f32 sums, in an order that the shapes and the instruction set decide, never the number
//           of threads. Weights are finite: the zeros around a plane are left out here and there.
// Threads   uses the pool; nothing is allocated.
#pragma once

#include <cstddef>

#include "core/windows.h"
#include "threads.h"

namespace bowline::detail::cpu {

// Whether the functions below compute it; sum_runs() is for windows of 3 x 3 alone.
bool slides_in_runs(const Convolution& c);
bool sums_in_runs(const Convolution& c);

size_t run_scratch_floats(const Convolution& c, const Threads& threads);

// y = bias + x * weight; without a bias it is 0.
void slide_runs(Threads& threads, const Convolution& c, const float* x, const float* weight,
                const float* bias, float* y, float* scratch);

// dx = bias + what dy says of it.
void slide_runs_back(Threads& threads, const Convolution& c, const float* dy, const float* weight,
                     const float* bias, float* dx, float* scratch);

// dweight of all channels. Where a sum is not finite it is not what the terms say: zeros were
// multiplied.
void sum_runs(Threads& threads, const Convolution& c, const float* x, const float* dy,
              float* dweight, float* scratch);

}  // namespace bowline::detail::cpu
