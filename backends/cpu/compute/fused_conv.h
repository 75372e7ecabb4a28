// Convolutions with channels last that scale, shift, add an addend and clip while computing.
//
// With one group, they are matrix products: a row per output, whose window is read in place, or
// from a padded copy of a part of x. With one channel per group, the window slides over vectors of
// channels.
//
// Numerics  f32 sums over the window and the channels, in ascending order. The bits do not depend
//           on the number of threads.
// Threads   uses the pool; nothing is allocated.
#pragma once

#include "core/packed_conv.h"
#include "threads.h"

namespace bowline::detail::cpu {

// The operands of FusedConv.
struct FusedConvolution {
  Convolution shape;
  const float* x = nullptr;
  const float* weight = nullptr;  // packed
  const float* bias = nullptr;
  const float* scale = nullptr;  // (optional) given together with mean and variance
  const float* mean = nullptr;
  const float* variance = nullptr;
  const float* addend = nullptr;  // (optional)
  float* y = nullptr;
  float eps = 0, min = 0, max = 0;
};

// Bytes of scratch memory, aligned to 64.
uint64_t fused_convolution_scratch_bytes(const Convolution& c, const Threads& threads);

void convolve_fused(Threads& threads, const FusedConvolution& f, void* scratch);

// Packs x [outputs, inputs, window] to y [ceil(outputs / kPackedOutputs), window, inputs,
// kPackedOutputs].
void pack_outputs(Threads& threads, size_t outputs, size_t inputs, size_t window, const float* x,
                  float* y);

}  // namespace bowline::detail::cpu
