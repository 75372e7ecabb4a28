#include "column_sums.h"

#include <algorithm>

namespace bowline::detail::vulkan {
namespace {

constexpr uint64_t kInvocations = 128 << 10;  // occupy a large GPU
constexpr uint64_t kLeastTerms = 32;
constexpr uint64_t kMostParts = 256;

}  // namespace

ColumnParts column_parts(uint64_t terms, uint64_t invocations) {
  const uint64_t useful =
      std::min(terms / kLeastTerms, kInvocations / std::max<uint64_t>(invocations, 1));
  const uint64_t wanted = std::clamp<uint64_t>(useful, 1, kMostParts);
  const uint64_t per_part = std::max<uint64_t>((terms + wanted - 1) / wanted, 1);
  // No part is empty.
  return {std::max<uint64_t>((terms + per_part - 1) / per_part, 1), per_part};
}

void add_column_parts(Launch& l, VkDeviceAddress parts, size_t output, uint64_t count, uint64_t n,
                      double factor) {
  const bool is_gradient = l.is_gradient(output);
  const ListEntry gradient = is_gradient ? l.gradient(output) : ListEntry();
  if (is_gradient && gradient.elements == 0) {
    return;
  }
  const VkDeviceAddress y = is_gradient ? gradient.address : l.out(output);
  const Grid grid = l.over_single_elements(n);
  Push push;
  push.add(parts, y, is_gradient ? l.step() : y)
      .u32(n, count, grid.per_group)
      .f32(factor)
      .u32(gradient.first);
  const auto terms = static_cast<double>(count * n);
  l.dispatch(is_gradient ? shader::column_sums.f32 : variant(shader::column_sums, l.type()),
             {is_gradient}, push, grid, {terms, terms * sizeof(float)});
}

}  // namespace bowline::detail::vulkan
