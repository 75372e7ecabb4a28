#include "convert.h"

namespace bowline::detail::vulkan {
namespace {

// Indexed by the element sizes 1, 2, 4 and 8 bytes.
constexpr uint32_t kVariants[4][4] = {
    {shader::cast_1_1, shader::cast_1_2, shader::cast_1_4, shader::cast_1_8},
    {shader::cast_2_1, shader::cast_2_2, shader::cast_2_4, shader::cast_2_8},
    {shader::cast_4_1, shader::cast_4_2, shader::cast_4_4, shader::cast_4_8},
    {shader::cast_8_1, shader::cast_8_2, shader::cast_8_4, shader::cast_8_8}};

size_t width_of(DType type) {
  const size_t bytes = size_of(type);
  return bytes == 8 ? 3 : bytes / 2;
}

}  // namespace

void convert(Launch& l, VkDeviceAddress x, DType x_type, VkDeviceAddress y, DType y_type,
             uint64_t n) {
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(x, y).u32(n, grid.per_group);
  const auto elements = static_cast<double>(n);
  l.dispatch(kVariants[width_of(x_type)][width_of(y_type)],
             {static_cast<uint32_t>(x_type), static_cast<uint32_t>(y_type)}, push, grid,
             {elements * 10, elements * static_cast<double>(size_of(x_type) + size_of(y_type))});
}

}  // namespace bowline::detail::vulkan
