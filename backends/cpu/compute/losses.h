// Elementwise losses of f32 arrays against a target, with the formulas of ops/formulas/losses.inc.
// One task; the caller divides larger arrays.
//
// Numerics  NaN and infinities propagate.
#pragma once

#include <cstddef>

#include "core/losses.h"

namespace bowline::detail::cpu {

// y = loss(x, t)
void loss_of(const LossCall& f, size_t n, const float* x, const float* t, float* y);

// Sum of loss(x, t).
float sum_of_losses(const LossCall& f, size_t n, const float* x, const float* t);

// dx = slope(x, t) * factor; dx may be x or t.
void loss_slope(const LossCall& f, size_t n, const float* x, const float* t, float factor,
                float* dx);

// dx = slope(x, t) * dloss; dx may be x or t.
void loss_slope(const LossCall& f, size_t n, const float* x, const float* t, const float* dloss,
                float* dx);

}  // namespace bowline::detail::cpu
