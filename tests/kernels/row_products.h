// Helpers for tests of products of one row with quantized weights.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/gemm.h"
#include "compute/integer_dots.h"
#include "kernels/instruction_sets.h"

namespace bowline::detail::cpu {

// The product of the row a with `weights`: an object with rows(), columns() and with_codes(f).
// Nothing past the end of a may be read.
template <class Weights>
std::vector<float> row_product(const Weights& weights, const std::vector<float>& a,
                               IntegersOf of = IntegersOf::f32) {
  Threads threads(1);
  const size_t n = weights.rows(), k = weights.columns();
  const GemmShape shape{GemmLayout::nt, 1, n, k, k, k, n};
  std::vector<float> c(n);
  EdgeOf<float> edge_a(k);
  std::ranges::copy(a, static_cast<float*>(edge_a));
  const size_t bytes = gemm_scratch_bytes(shape, threads);
  std::vector<float> scratch(bytes / sizeof(float) + 16);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  weights.with_codes([&](const Codes& codes) {
    gemm(threads, shape, edge_a, nullptr, c.data(), {.b_codes = &codes, .a_of = of},
         reinterpret_cast<void*>((address + 63) / 64 * 64));
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
