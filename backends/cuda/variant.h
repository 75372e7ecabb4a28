// Variants of the kernels, for tests: a GPU is used as if it were older, or as if another kernel
// were the fastest.
#pragma once

#include <string>

#include "traits.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Applies the variants that BOWLINE_CUDA_VARIANT names. Returns an empty text, or why its value is
// wrong (device/variants.h).
std::string apply_variants(Traits* traits);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
