// Helpers for tests of products with quantized weights.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/gemm.h"
#include "compute/integer_dots.h"
#include "kernels/instruction_sets.h"

namespace bowline::detail::cpu {

// The product of the rows in `a` with `b`, either f32 values [n, k] or options.b_codes. Nothing
// past the end of a may be read.
inline std::vector<float> product(const std::vector<float>& a, size_t n, size_t k, const float* b,
                                  const GemmOptions& options) {
  Threads threads(1);
  const size_t m = a.size() / k;
  const GemmShape shape{GemmLayout::nt, m, n, k, k, k, n};
  std::vector<float> c(m * n);
  EdgeOf<float> edge_a(a.size());
  std::ranges::copy(a, static_cast<float*>(edge_a));
  const size_t bytes = gemm_scratch_bytes(shape, threads);
  std::vector<float> scratch(bytes / sizeof(float) + 16);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  gemm(threads, shape, edge_a, b, c.data(), options,
       reinterpret_cast<void*>((address + 63) / 64 * 64));
  return c;
}

// The same for `weights`: an object with rows(), columns() and with_codes(f).
template <class Weights>
std::vector<float> product_of(const Weights& weights, const std::vector<float>& a,
                              IntegersOf of = IntegersOf::f32) {
  std::vector<float> c;
  weights.with_codes([&](const Codes& codes) {
    c = product(a, weights.rows(), weights.columns(), nullptr, {.b_codes = &codes, .a_of = of});
  });
  return c;
}

// A test that runs on one instruction set and may forbid integer products.
class RowProducts : public OnInstructionSet {
 protected:
  void TearDown() override {
    allow_integer_dots(true);
    OnInstructionSet::TearDown();
  }
};

}  // namespace bowline::detail::cpu
