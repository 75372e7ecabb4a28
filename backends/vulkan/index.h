// Index arithmetic for shaders: sizes with one stride per operand, merged where possible.
#pragma once

#include <vector>

#include "core/strides.h"

namespace bowline::detail::vulkan {

// Nested loops, innermost last, with one stride per operand.
class Loops {
 public:
  explicit Loops(size_t operands) : strides_(operands) {}
  // Loops over the axes of `dims`.
  Loops(const Shape& dims, std::initializer_list<Strides> operands);
  // Loops over `target`, to which the operands broadcast.
  static Loops broadcast(const Shape& target, std::initializer_list<const Shape*> operands);

  // Adds an inner loop. A size of 1 adds nothing; a loop that continues the previous loop is merged
  // with it.
  void add(int64_t dim, const std::vector<int64_t>& strides);
  // At least one loop, so that a shader for rank 1 handles a single element.
  uint32_t rank() const { return dims_.empty() ? 1 : static_cast<uint32_t>(dims_.size()); }
  int64_t elements() const;
  // True for a single loop over consecutive elements of all operands.
  bool is_run() const;
  const std::vector<int64_t>& strides(size_t operand) const { return strides_[operand]; }
  // The table for shaders/lib/index.glsl: the sizes, the magic numbers and shifts to divide by
  // them, then the strides of each operand.
  std::vector<uint32_t> words() const;

 private:
  std::vector<int64_t> dims_;
  std::vector<std::vector<int64_t>> strides_;
};

// Sizes with the magic numbers and shifts to divide by them: the start of a table.
std::vector<uint32_t> divisors(const std::vector<int64_t>& dims);

}  // namespace bowline::detail::vulkan
