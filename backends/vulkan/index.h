// Index arithmetic for shaders: sizes with one stride per operand, merged where possible.
#pragma once

#include <vector>

#include "core/strides.h"

namespace bowline::detail::vulkan {

// Nested loops, innermost last, with one stride per operand.
class Loops {
 public:
  explicit Loops(int operands) : strides_(static_cast<size_t>(operands)) {}

  // Adds an inner loop. A size of 1 adds nothing; a loop that continues the previous loop is merged
  // with it.
  void add(int64_t dim, std::initializer_list<int64_t> strides);
  // At least one loop, so that a shader for rank 1 handles a single element.
  uint32_t rank() const { return static_cast<uint32_t>(dims_.size()); }
  void finish();
  int64_t elements() const;
  // Appends the sizes, the magic numbers and shifts to divide by them, then the strides of each
  // operand. shaders/lib/index.glsl reads this table.
  void append_to(std::vector<uint32_t>* words) const;
  const std::vector<int64_t>& dims() const { return dims_; }
  const std::vector<int64_t>& strides(size_t operand) const { return strides_[operand]; }

 private:
  std::vector<int64_t> dims_;
  std::vector<std::vector<int64_t>> strides_;
};

// Appends sizes with the magic numbers and shifts to divide by them: the start of a table.
void append_divisors(const std::vector<int64_t>& dims, std::vector<uint32_t>* words);

}  // namespace bowline::detail::vulkan
