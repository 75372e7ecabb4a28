// Checked arithmetic for numbers that come from outside.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace bowline {

// Each returns false when the exact result does not fit into `out`.
template <std::integral A, std::integral B, std::integral R>
[[nodiscard]] bool checked_add(A a, B b, R& out) {
  return !__builtin_add_overflow(a, b, &out);
}
template <std::integral A, std::integral B, std::integral R>
[[nodiscard]] bool checked_mul(A a, B b, R& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

// A number from a file. It offers no arithmetic: only checked products, sums and comparisons.
template <std::unsigned_integral T>
class Untrusted {
 public:
  explicit constexpr Untrusted(T value) : value_(value) {}
  // True if begin + this <= limit, computed without overflow.
  [[nodiscard]] bool fits_at(Untrusted begin, T limit) const {
    T end = 0;
    return checked_add(begin.value_, value_, end) && end <= limit;
  }
  [[nodiscard]] bool at_most(T limit) const { return value_ <= limit; }
  [[nodiscard]] bool times(T factor, T& out) const { return checked_mul(value_, factor, out); }
  [[nodiscard]] bool plus(T term, T& out) const { return checked_add(value_, term, out); }
  // The number itself, after it was checked.
  T checked() const { return value_; }

 private:
  T value_;
};

constexpr uint64_t round_up(uint64_t n, uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace bowline
