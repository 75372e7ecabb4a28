#include "index.h"

#include <algorithm>
#include <bit>

namespace bowline::detail::vulkan {

Loops::Loops(const Shape& dims, std::initializer_list<Strides> operands)
    : strides_(operands.size()) {
  for (int axis = 0; axis < dims.rank(); ++axis) {
    std::vector<int64_t> strides;
    for (const Strides& of : operands) {
      strides.push_back(of[static_cast<size_t>(axis)]);
    }
    add(dims[axis], strides);
  }
}

Loops Loops::broadcast(const Shape& target, std::initializer_list<const Shape*> operands) {
  Loops loops(operands.size());
  for (int axis = 0; axis < target.rank(); ++axis) {
    std::vector<int64_t> strides;
    for (const Shape* of : operands) {
      strides.push_back(broadcast_strides(*of, target)[static_cast<size_t>(axis)]);
    }
    loops.add(target[axis], strides);
  }
  return loops;
}

void Loops::add(int64_t dim, const std::vector<int64_t>& strides) {
  if (dim == 1) {
    return;
  }
  bool continues = !dims_.empty();
  for (size_t operand = 0; operand < strides.size(); ++operand) {
    continues = continues && strides_[operand].back() == strides[operand] * dim;
  }
  if (!continues) {
    dims_.push_back(1);
  }
  dims_.back() *= dim;
  for (size_t operand = 0; operand < strides.size(); ++operand) {
    strides_[operand].resize(dims_.size());
    strides_[operand].back() = strides[operand];
  }
}

int64_t Loops::elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims_) {
    n *= dim;
  }
  return n;
}

bool Loops::is_run() const {
  return dims_.size() == 1 &&
         std::ranges::all_of(strides_, [](const auto& strides) { return strides[0] == 1; });
}

std::vector<uint32_t> divisors(const std::vector<int64_t>& dims) {
  std::vector<uint32_t> words, magic, shifts;
  for (const int64_t dim : dims) {
    const auto d = static_cast<uint64_t>(dim < 1 ? 1 : dim);
    const auto shift = static_cast<uint32_t>(std::bit_width(d - 1));
    words.push_back(static_cast<uint32_t>(dim));
    magic.push_back(static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1));
    shifts.push_back(shift);
  }
  words.insert(words.end(), magic.begin(), magic.end());
  words.insert(words.end(), shifts.begin(), shifts.end());
  return words;
}

std::vector<uint32_t> Loops::words() const {
  std::vector<uint32_t> words = divisors(dims_.empty() ? std::vector<int64_t>{1} : dims_);
  for (const auto& strides : strides_) {
    for (const int64_t stride : dims_.empty() ? std::vector<int64_t>{0} : strides) {
      words.push_back(static_cast<uint32_t>(stride));
    }
  }
  return words;
}

}  // namespace bowline::detail::vulkan
