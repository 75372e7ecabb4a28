#include "index.h"

namespace bowline::detail::vulkan {

void Loops::add(int64_t dim, std::initializer_list<int64_t> strides) {
  if (dim == 1) {
    return;
  }
  bool continues = !dims_.empty();
  size_t operand = 0;
  for (const int64_t stride : strides) {
    continues = continues && strides_[operand].back() == stride * dim;
    ++operand;
  }
  if (!continues) {
    dims_.push_back(1);
  }
  dims_.back() *= dim;
  operand = 0;
  for (const int64_t stride : strides) {
    if (continues) {
      strides_[operand].back() = stride;
    } else {
      strides_[operand].push_back(stride);
    }
    ++operand;
  }
}

void Loops::finish() {
  if (dims_.empty()) {
    dims_.push_back(1);
    for (auto& strides : strides_) {
      strides.push_back(0);
    }
  }
}

int64_t Loops::elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims_) {
    n *= dim;
  }
  return n;
}

void append_divisors(const std::vector<int64_t>& dims, std::vector<uint32_t>* words) {
  for (const int64_t dim : dims) {
    words->push_back(static_cast<uint32_t>(dim));
  }
  std::vector<uint32_t> shifts;
  for (const int64_t dim : dims) {
    const auto d = static_cast<uint64_t>(dim < 1 ? 1 : dim);
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < d) {
      ++shift;
    }
    words->push_back(static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1));
    shifts.push_back(shift);
  }
  words->insert(words->end(), shifts.begin(), shifts.end());
}

void Loops::append_to(std::vector<uint32_t>* words) const {
  append_divisors(dims_, words);
  for (const auto& strides : strides_) {
    for (const int64_t stride : strides) {
      words->push_back(static_cast<uint32_t>(stride));
    }
  }
}

}  // namespace bowline::detail::vulkan
