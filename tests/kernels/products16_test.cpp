// Products of 16-bit operands equal those of their f32 values, in every layout and at every edge,
// on every instruction set, with and without the bf16 instruction. Nothing outside of the operands
// is touched.
#include <cmath>
#include <limits>
#include <random>

#include "compute/arm_extensions.h"
#include "compute/gemm16.h"
#include "kernels/instruction_sets.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kGap = 3;  // elements between the rows of operands with gaps

template <class T>
std::vector<T> random_numbers(size_t n, uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<T> out(n);
  for (T& x : out) {
    x = from_f32<T>(static_cast<float>(static_cast<int32_t>(bits() % 2001) - 1000) / 256.0f);
  }
  return out;
}

struct Sizes {
  size_t m, n, k;
};

template <class T>
class Problem {
 public:
  Problem(GemmLayout layout, const Sizes& z, size_t gap = 0)
      : turned_a(layout == GemmLayout::tn || layout == GemmLayout::tt) {
    const bool turned_b = layout == GemmLayout::nt || layout == GemmLayout::tt;
    shape.layout = layout;
    shape.m = z.m;
    shape.n = z.n;
    shape.k = z.k;
    shape.lda = (turned_a ? z.m : z.k) + gap;
    shape.ldb = (turned_b ? z.k : z.n) + gap;
    shape.ldc = z.n + gap;
    const auto elements = [gap](size_t rows, size_t row) {
      return rows == 0 ? 0 : rows * row - gap;
    };
    a = random_numbers<T>(elements(turned_a ? z.k : z.m, shape.lda), 1);
    b = random_numbers<T>(elements(turned_b ? z.n : z.k, shape.ldb), 2);
    bias = random_numbers<T>(z.n, 3);
    c_elements = elements(z.m, shape.ldc);
    const auto dense = [k = z.k](const std::vector<T>& from, size_t lines, size_t at_line,
                                 size_t at_k) {
      std::vector<double> out(lines * k);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<double>(to_f32(from[i / k * at_line + i % k * at_k]));
      }
      return out;
    };
    rows_of_a = dense(a, z.m, turned_a ? 1 : shape.lda, turned_a ? shape.lda : 1);
    columns_of_b = dense(b, z.n, turned_b ? shape.ldb : 1, turned_b ? 1 : shape.ldb);
  }

  size_t at_a(size_t i, size_t k) const { return turned_a ? k * shape.lda + i : i * shape.lda + k; }

  // Operands end at a protected page. Memory between the rows of C stays unchanged.
  std::vector<T> run(Threads& threads, bool with_bias) const {
    EdgeOf<T> edge_a(a.size()), edge_b(b.size()), edge_c(c_elements, kMark), edge_bias(bias.size());
    std::copy(a.begin(), a.end(), static_cast<T*>(edge_a));
    std::copy(b.begin(), b.end(), static_cast<T*>(edge_b));
    std::copy(bias.begin(), bias.end(), static_cast<T*>(edge_bias));
    EdgeOf<float> scratch(gemm16_scratch_bytes(shape, threads) / sizeof(float));
    gemm(threads, shape, edge_a, edge_b, edge_c, with_bias ? static_cast<T*>(edge_bias) : nullptr,
         static_cast<float*>(scratch));
    const T* const c = edge_c;
    return {c, c + c_elements};
  }

  // An f32 sum of `z.k` products of values below 4 has an error of less than k^2 roundings of 16.
  // The result adds half a unit in the last place.
  void expect(const std::vector<T>& c, bool with_bias) const {
    const double unit = std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11;
    for (size_t i = 0; i < shape.m; ++i) {
      for (size_t j = 0; j < shape.ldc && i * shape.ldc + j < c.size(); ++j) {
        const T got = c[i * shape.ldc + j];
        if (j >= shape.n) {
          ASSERT_EQ(got.bits, kMark.bits) << "between rows " << i << " and " << i + 1;
          continue;
        }
        double sum = with_bias ? static_cast<double>(to_f32(bias[j])) : 0;
        double size = std::abs(sum);
        for (size_t k = 0; k < shape.k; ++k) {
          const double term = rows_of_a[i * shape.k + k] * columns_of_b[j * shape.k + k];
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(static_cast<double>(to_f32(got)), sum,
                    std::abs(sum) * unit + size * static_cast<double>(shape.k + 2) * 0x1p-24)
            << "[" << i << ", " << j << "] of " << shape.m << " x " << shape.n << ", k " << shape.k;
      }
    }
  }

  static constexpr T kMark{0x1234};
  bool turned_a;
  GemmShape shape;
  std::vector<T> a, b, bias;
  size_t c_elements = 0;
  std::vector<double> rows_of_a, columns_of_b;  // without gaps, k elements each
};

constexpr GemmLayout kLayouts[] = {GemmLayout::nn, GemmLayout::nt, GemmLayout::tn, GemmLayout::tt};

template <class T>
void expect_products(const Sizes& z, size_t gap = 0) {
  Threads threads(1);
  for (const GemmLayout layout : kLayouts) {
    for (const bool with_bias : {false, true}) {
      const Problem<T> p(layout, z, gap);
      SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
      p.expect(p.run(threads, with_bias), with_bias);
    }
  }
}

class Products16 : public OnInstructionSet {
 protected:
  void TearDown() override {
    allow_bf16_products(true);
    OnInstructionSet::TearDown();
  }

  // With the instruction, if the set has it, and without.
  template <class F>
  void each_way(const F& f) {
    for (const bool allow : {true, false}) {
      allow_bf16_products(allow);
      SCOPED_TRACE(bf16_products() ? "with the instruction" : "without the instruction");
      ASSERT_TRUE(allow || !bf16_products());
      f();
    }
  }
};

// Around the edges of tiles, vectors and words.
TEST_P(Products16, AtEveryEdge) {
  each_way([] {
    for (const size_t m : {1, 2, 6, 7, 13}) {
      for (const size_t n : {1, 4, 15, 17, 33, 64, 65}) {
        for (const size_t k : {1, 2, 31, 33, 64}) {
          expect_products<bf16>({m, n, k});
          expect_products<f16>({m, n, k});
        }
      }
    }
  });
}

// Around the edges of blocks.
TEST_P(Products16, OverSeveralBlocks) {
  each_way([] {
    for (const Sizes& z : {Sizes{7, 5, 511}, Sizes{7, 65, 513}, Sizes{13, 17, 1025},
                           Sizes{3, 9, 1030}, Sizes{97, 257, 33}, Sizes{391, 19, 515}}) {
      expect_products<bf16>(z);
      expect_products<f16>(z);
    }
  });
}

TEST_P(Products16, OfRowsThatAreApart) {
  each_way([] {
    for (const Sizes& z : {Sizes{1, 7, 33}, Sizes{6, 65, 32}, Sizes{14, 33, 517}}) {
      expect_products<bf16>(z, kGap);
      expect_products<f16>(z, kGap);
    }
  });
}

TEST_P(Products16, OfNothing) {
  each_way([] {
    for (const Sizes& z : {Sizes{0, 5, 3}, Sizes{5, 0, 3}, Sizes{7, 19, 0}, Sizes{0, 0, 0}}) {
      expect_products<bf16>(z);
      expect_products<f16>(z);
    }
  });
}

TEST_P(Products16, HaveTheSameBitsWithAnyThreads) {
  each_way([] {
    Threads one(1), three(3);
    for (const GemmLayout layout : kLayouts) {
      const Problem<bf16> p(layout, {205, 131, 1027});
      const auto bits = [&](Threads& threads) {
        std::vector<uint16_t> out;
        for (const bf16 x : p.run(threads, true)) {
          out.push_back(x.bits);
        }
        return out;
      };
      EXPECT_EQ(bits(one), bits(three));
    }
  });
}

// Infinity times a denormal is infinity, even if the instruction flushes the denormal to 0. Other
// small products are at most 0.
TEST_P(Products16, OfInfinitiesAndDenormals) {
  each_way([] {
    const float infinity = std::numeric_limits<float>::infinity();
    Threads threads(1);
    for (const size_t m : {1, 9}) {
      for (const GemmLayout layout : kLayouts) {
        Problem<bf16> p(layout, {m, 70, 35});
        std::fill(p.b.begin(), p.b.end(), from_f32<bf16>(1e-40f));
        p.a[p.at_a(m - 1, 34)] = from_f32<bf16>(-infinity);
        const std::vector<bf16> c = p.run(threads, false);
        for (size_t i = 0; i < m; ++i) {
          for (size_t j = 0; j < 70; ++j) {
            const float got = to_f32(c[i * 70 + j]);
            ASSERT_TRUE(i == m - 1 ? got == -infinity : std::abs(got) < 1e-36f) << i << " " << got;
          }
        }
      }
    }
  });
}

TEST_P(Products16, KeepNaN) {
  each_way([] {
    Threads threads(1);
    for (const size_t m : {1, 9}) {
      for (const GemmLayout layout : kLayouts) {
        Problem<bf16> p(layout, {m, 5, 35});
        p.a[p.at_a(m - 1, 0)] = bf16{0xFFC1};
        const std::vector<bf16> c = p.run(threads, false);
        for (size_t i = 0; i < m; ++i) {
          ASSERT_EQ(std::isnan(to_f32(c[i * 5 + 4])), i == m - 1) << i;
        }
      }
    }
  });
}

// The instruction exists only for AVX-512 and aarch64. A requested instruction set must be used as
// requested.
TEST_P(Products16, AreThoseOfTheSet) {
#ifdef __x86_64__
  const bool there = GetParam() == HWY_AVX3 && __builtin_cpu_supports("avx512bf16") != 0;
#elif defined(BOWLINE_ARM_EXTENSIONS)
  const bool there = has_arm_bf16();
#else
  const bool there = false;
#endif
  EXPECT_EQ(bf16_products(), there);
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(Products16);

}  // namespace
}  // namespace bowline::detail::cpu
