// Conversions of f16 and bf16 vectors equal those of single elements, on every instruction set, and
// touch nothing outside of the vectors.
#include "compute/convert.h"

#include <cmath>
#include <numeric>

#include "kernels/instruction_sets.h"

namespace bowline::detail::cpu {
namespace {

using Convert = OnInstructionSet;

template <class T>
void expect_as_single_elements() {
  std::vector<T> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].bits = static_cast<uint16_t>(i);
  }
  std::vector<float> wide(all.size());
  widen(all.size(), all.data(), wide.data());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(to_f32(all[i]))) << i;
  }
  // Each value, the middle to the next value, and the values beside the middle.
  std::vector<float> numbers;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const float middle = wide[i] / 2 + wide[i + 1] / 2;
    numbers.insert(numbers.end(), {wide[i], middle, std::nextafter(middle, -INFINITY),
                                   std::nextafter(middle, INFINITY), wide[i] * 1.001f});
  }
  std::vector<T> narrowed(numbers.size());
  narrow(numbers.size(), numbers.data(), narrowed.data());
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(narrowed[i].bits, from_f32<T>(numbers[i]).bits) << numbers[i];
  }
}

TEST_P(Convert, F16AsSingleElements) { expect_as_single_elements<f16>(); }
TEST_P(Convert, Bf16AsSingleElements) { expect_as_single_elements<bf16>(); }

TEST_P(Convert, TouchesNothingElse) {
  for (size_t n = 1; n <= 67; ++n) {
    EdgeOf<float> wide(n, 0.5f);
    EdgeOf<f16> half(n);
    EdgeOf<bf16> brain(n);
    narrow(n, wide, half);
    narrow(n, wide, brain);
    std::fill_n(static_cast<float*>(wide), n, 0.0f);
    widen(n, half, wide);
    EXPECT_EQ(std::accumulate(static_cast<float*>(wide), wide + n, 0.0f),
              0.5f * static_cast<float>(n));
    widen(n, brain, wide);
  }
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(Convert);

}  // namespace
}  // namespace bowline::detail::cpu
