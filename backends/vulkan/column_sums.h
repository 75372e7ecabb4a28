// Sums over long columns. The terms of each sum are divided into parts, so that a GPU has enough
// invocations; the parts are added in their order.
#pragma once

#include "kernel.h"

namespace bowline::detail::vulkan {

struct ColumnParts {
  uint64_t count = 1;
  uint64_t terms = 0;  // of a part; the last may have less
};

// The parts of sums of `terms` terms each. A part of all sums takes `invocations` invocations.
ColumnParts column_parts(uint64_t terms, uint64_t invocations);

// Output `output` [n] = factor * the sum over the parts of `parts` (f32, [count, n]). The output
// may be a gradient.
void add_column_parts(Launch& l, VkDeviceAddress parts, size_t output, uint64_t count, uint64_t n,
                      double factor = 1);

}  // namespace bowline::detail::vulkan
