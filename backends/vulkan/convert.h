// Converts elements between dtypes: the kernel of Cast, and part of kernels that compute in f32 on
// operands of another dtype.
#pragma once

#include "device/wide.h"
#include "kernel.h"

namespace bowline::detail::vulkan {

// Converts `n` elements from `x` to `y`, which do not overlap.
void convert(Launch& l, VkDeviceAddress x, DType x_type, VkDeviceAddress y, DType y_type,
             uint64_t n);

using Wide = device::Wide<Launch>;

}  // namespace bowline::detail::vulkan
