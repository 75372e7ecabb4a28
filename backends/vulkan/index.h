// Index arithmetic that kernels hand to shaders: dims with one stride per operand, merged where
// they can be.
#pragma once

#include <vector>

#include "core/strides.h"

namespace bowline::detail::vulkan {

// Nested loops over dims, the last the innermost, with one stride per operand.
class Loops {
 public:
  explicit Loops(int operands) : strides_(static_cast<size_t>(operands)) {}

  // Adds an inner loop. A dim of 1 adds nothing; a dim that continues the one before it is merged
  // with it.
  void add(int64_t dim, std::initializer_list<int64_t> strides);
  // At least one loop, so that a shader of rank 1 serves a single element.
  uint32_t rank() const { return static_cast<uint32_t>(dims_.size()); }
  void finish();
  int64_t elements() const;
  // Appends the dims, magic numbers and shifts for the division by them, then the strides of each
  // operand; read by shaders/lib/index.glsl.
  void append_to(std::vector<uint32_t>* words) const;
  const std::vector<int64_t>& dims() const { return dims_; }
  const std::vector<int64_t>& strides(size_t operand) const { return strides_[operand]; }

 private:
  std::vector<int64_t> dims_;
  std::vector<std::vector<int64_t>> strides_;
};

// Dims with the magic numbers and shifts for the division by them: how a table begins.
void append_divisors(const std::vector<int64_t>& dims, std::vector<uint32_t>* words);

}  // namespace bowline::detail::vulkan
