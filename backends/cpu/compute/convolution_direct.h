// Convolutions of groups with one input channel, which need no matrix products: the window slides
// row by row over a copy of the plane with zeros around it.
#pragma once

#include "compute/convolution.h"

namespace bowline::detail::cpu {

// Scratch memory in whole cache lines.
constexpr size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

// Planes of one group.
struct Group {
  explicit Group(const Convolution& c)
      : inputs(to_size(c.windows.inputs())),
        outputs(to_size(c.windows.outputs())),
        window(to_size(c.windows.window())) {}
  size_t inputs, outputs, window;
};

// True if the functions below support the convolution.
bool is_direct(const Convolution& c);

bool has_finite_weights(const Convolution& c, const float* weight);

// The gradient dx of a convolution with stride 1 is a convolution of dy with the flipped window.
bool turns_around(const Convolution& c);
Convolution turned_around(Convolution c);

size_t direct_scratch_floats(const Convolution& c, const Threads& threads);

// y = bias + x * weight. `turned` flips the window.
void convolve_direct(Threads& threads, const Convolution& c, const float* x, const float* weight,
                     const float* bias, float* y, void* scratch, bool turned = false);

// Adds the gradient to dx.
void convolve_back_direct(Threads& threads, const Convolution& c, const float* dy,
                          const float* weight, float* dx, void* scratch);

void convolve_weights_direct(Threads& threads, const Convolution& c, const float* x,
                             const float* dy, float* dweight, void* scratch);

}  // namespace bowline::detail::cpu
