// Convolutions of single channels that keep the size of a plane, or halve it: stride 1 or 2 with
// matching pads. All outputs of a plane form one run: each window element is a fixed distance, and
// a mask per window column removes products past the ends of rows.
//
// Numerics  f32 sums in an order that depends on the shapes and the instruction set, never on the
//           number of threads. Weights must be finite, because some zeros around a plane are
//           skipped.
// Threads   uses the pool; nothing is allocated.
#pragma once

#include <cstddef>

#include "core/windows.h"
#include "threads.h"

namespace bowline::detail::cpu {

// True if the functions below support the convolution. sum_runs() supports only 3 x 3 windows.
bool slides_in_runs(const Convolution& c);
bool sums_in_runs(const Convolution& c);

size_t run_scratch_floats(const Convolution& c, const Threads& threads);

// y = bias + x * weight. A null bias counts as 0.
void slide_runs(Threads& threads, const Convolution& c, const float* x, const float* weight,
                const float* bias, float* y, float* scratch);

// dx = bias + the gradient with respect to x.
void slide_runs_back(Threads& threads, const Convolution& c, const float* dy, const float* weight,
                     const float* bias, float* dx, float* scratch);

// dweight of all channels. If a sum is not finite, it is not reliable, because zeros were
// multiplied.
void sum_runs(Threads& threads, const Convolution& c, const float* x, const float* dy,
              float* dweight, float* scratch);

}  // namespace bowline::detail::cpu
