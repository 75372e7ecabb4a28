// Products of a few rows of A, as in decoding (matvec.comp, matvec_columns.comp).
#pragma once

#include "core/products.h"
#include "kernel.h"

namespace bowline::detail::vulkan {

// A weight, or some columns of B of a weight, and where the results go.
struct WeightPart {
  size_t weight = 1;  // input of the record
  uint32_t first = 0;
  uint32_t n = 0;
  VkDeviceAddress bias = 0;  // of column `first`; 0: none
  VkDeviceAddress y = 0;
};

// All parts have a bias or none has, and all weights are quantized or none is.
struct FewRowsProduct {
  uint32_t m = 0, k = 0;
  bool transpose_b = false;  // weights are [N, K], not [K, N]
  std::vector<WeightPart> parts = {};
  // The norm of the rows of A. Without gamma there is none, and without beta it is RmsNorm.
  VkDeviceAddress gamma = 0, beta = 0;
  float eps = 0;
  VkDeviceAddress addend = 0;  // (optional)
  VkDeviceAddress sums = 0;    // (optional) receives the results before the activation
  ProductActivation activation = ProductActivation::none;
  bool gate = false;  // part 0 is activated and multiplied with part 1; requires transpose_b
};

// True if the kernels compute products of `m` rows. With more rows, tiles are faster. On software
// devices they save only the conversion of the weights to f32.
inline bool has_few_rows(const PhysicalDevice& physical, int64_t m, DType type, bool is_quantized) {
  constexpr int64_t kMost = 8;
  return m <= (!physical.uses_cpu_kernels() ? kMost : is_quantized || type != DType::f32 ? 1 : 0);
}

// The columns of B per workgroup that the kernels offer.
std::vector<uint32_t> few_rows_columns(int64_t m, bool transpose_b, bool is_quantized);

// Input 0 is A. `columns` is one of few_rows_columns(), or 0: a table decides.
void multiply_few_rows(Launch& l, const FewRowsProduct& p, uint32_t columns);

}  // namespace bowline::detail::vulkan
