// Convolutions with the channels last, scaled, shifted, added to and clipped where they are
// computed.
//
// What sees all channels is a product of matrices: a row per output, whose window is read where it
// lies, in x or in a copy of a part of x with zeros around it. Where every channel sees itself
// alone, the window slides over vectors of channels.
//
// Numerics  f32 sums over the window and the channels in their order, whatever the number of
//           threads.
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
  const float* scale = nullptr;  // (optional) then mean and variance too
  const float* mean = nullptr;
  const float* variance = nullptr;
  const float* addend = nullptr;  // (optional)
  float* y = nullptr;
  float eps = 0, min = 0, max = 0;
};

// Bytes of scratch, aligned to 64.
uint64_t fused_convolution_scratch_bytes(const Convolution& c, const Threads& threads);

void convolve_fused(Threads& threads, const FusedConvolution& f, void* scratch);

// y [ceil(outputs / kPackedOutputs), window, inputs, kPackedOutputs] of x [outputs, inputs,
// window].
void pack_outputs(Threads& threads, size_t outputs, size_t inputs, size_t window, const float* x,
                  float* y);

}  // namespace bowline::detail::cpu
