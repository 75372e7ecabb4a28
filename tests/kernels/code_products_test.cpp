// Products of a row with quantized weights equal those with the dequantized weights, for every
// block layout and instruction set, with and without integer instructions. Nothing outside of the
// weights is touched.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/float16.h"
#include "kernels/row_products.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kBlock = 32;

struct Form {
  const char* name;
  uint32_t bits;
  uint32_t half;
  bool zero_points;
  bool by_row;
  DType scale_type;
  bool with_scale = false;  // each block starts with its scale
};
constexpr Form kForms[] = {
    {"int8 by row", 8, 0, false, true, DType::f32},
    {"int8 by row with zero points", 8, 0, true, true, DType::f16},
    {"int8 in blocks", 8, 0, false, false, DType::f16},
    {"int8 in blocks with zero points", 8, 0, true, false, DType::bf16},
    {"int4 pairs", 4, 0, false, false, DType::f16},
    {"int4 pairs with zero points", 4, 0, true, false, DType::f32},
    {"int4 halves", 4, 16, false, false, DType::f16},
    {"int4 halves with zero points", 4, 16, true, false, DType::bf16},
    {"q8_0", 8, 0, false, false, DType::f16, true},
    {"q4_0", 4, 16, false, false, DType::f16, true},
};

// n rows of k quantized values with powers of two as scales: sums of small integers are exact in
// any order.
class Matrix {
 public:
  Matrix(const Form& form, size_t n, size_t k) : values_(n * k), n_(n), k_(k) {
    CodeLayout& l = layout_;
    l.bits = form.bits;
    l.half = form.half;
    l.zero = form.bits == 4 ? 8 : 0;
    l.zero_points = form.zero_points;
    l.scale_type = form.scale_type;
    l.columns = k;
    l.block = form.by_row ? k : kBlock;
    const size_t blocks = form.by_row ? 1 : k / kBlock;
    const size_t scale_bytes = size_of(form.scale_type);
    l.block_bytes = l.block * form.bits / 8 + (form.with_scale ? scale_bytes : 0);
    l.row_bytes = blocks * l.block_bytes;
    l.scale_block = form.with_scale ? l.block_bytes : scale_bytes;
    l.scale_row = blocks * l.scale_block;
    first_code_ = form.with_scale ? scale_bytes : 0;
    l.zero_block = 1;
    l.zero_row = blocks;
    codes_.resize(n * l.row_bytes);
    scales_.resize(form.with_scale ? 0 : n * l.scale_row);
    zeros_.resize(n * l.zero_row);
    std::mt19937 bits(1);
    for (size_t row = 0; row < n; ++row) {
      for (size_t block = 0; block < blocks; ++block) {
        fill(row, block, bits);
      }
    }
  }

  double at(size_t row, size_t column) const { return values_[row * k_ + column]; }
  size_t rows() const { return n_; }
  size_t columns() const { return k_; }

  // Calls f(codes) with quantized values, scales and zero points that end at a protected page.
  template <class F>
  void with_codes(const F& f) const {
    EdgeOf<std::byte> codes(codes_.size()), scales(scales_.size()), zeros(zeros_.size());
    std::ranges::copy(codes_, static_cast<std::byte*>(codes));
    std::ranges::copy(scales_, static_cast<std::byte*>(scales));
    std::ranges::copy(zeros_, static_cast<std::byte*>(zeros));
    const std::byte* const all_scales = scales_.empty() ? codes : scales;
    f(Codes{codes + first_code_, all_scales, zeros, layout_});
  }

 private:
  void fill(size_t row, size_t block, std::mt19937& bits) {
    const CodeLayout& l = layout_;
    const float scale = std::ldexp(1.0f, static_cast<int>(bits() % 4) - 2);
    const uint32_t word = std::bit_cast<uint32_t>(scale);
    const uint16_t half =
        l.scale_type == DType::f16 ? from_f32<f16>(scale).bits : from_f32<bf16>(scale).bits;
    const void* const from = l.scale_type == DType::f32 ? static_cast<const void*>(&word) : &half;
    std::byte* const scales = scales_.empty() ? codes_.data() : scales_.data();
    std::memcpy(scales + row * l.scale_row + block * l.scale_block, from, size_of(l.scale_type));
    const int zero = l.zero_points ? static_cast<int>(bits() % 17) - 8 : l.zero;
    zeros_[row * l.zero_row + block] = static_cast<std::byte>(zero);
    std::byte* const to = codes_.data() + first_code_ + row * l.row_bytes + block * l.block_bytes;
    for (size_t i = 0; i < l.block; ++i) {
      const int code =
          l.bits == 8 ? static_cast<int>(bits() % 256) - 128 : static_cast<int>(bits() % 16);
      values_[row * k_ + block * l.block + i] = scale * static_cast<float>(code - zero);
      if (l.bits == 8) {
        to[i] = static_cast<std::byte>(code);
      } else if (l.half == 0) {
        to[i / 2] |= static_cast<std::byte>(code << (i % 2 * 4));
      } else {
        to[i % l.half] |= static_cast<std::byte>(code << (i / l.half * 4));
      }
    }
  }

  CodeLayout layout_;
  std::vector<std::byte> codes_, scales_, zeros_;
  std::vector<float> values_;
  size_t n_, k_, first_code_;
};

class CodeProducts : public RowProducts {
 protected:
  // Calls f(matrix) for each form, with integer instructions if they exist, and without.
  template <class F>
  void each(size_t n, size_t k, const F& f) {
    for (const Form& form : kForms) {
      const Matrix matrix(form, n, k);
      for (const bool allow : {true, false}) {
        SCOPED_TRACE(std::string(form.name) + (allow ? "" : " without integers"));
        allow_integer_dots(allow);
        f(matrix);
      }
    }
  }
};

// Integers below 2^8, fewer for many columns, are exact in any order, so any wrong digit, quantized
// value, zero point or scale is visible.
TEST_P(CodeProducts, ExactOfWholeNumbers) {
  for (const size_t n : {1, 4, 6, 17, 70}) {
    for (const size_t k : {32, 64, 96, 160, 256, 288, 2080}) {
      std::mt19937 bits(2);
      std::vector<float> a(k);
      const int limit = k < 1000 ? 256 : 16;
      for (float& x : a) {
        x = static_cast<float>(static_cast<int>(bits() % (2 * limit - 1)) - (limit - 1));
      }
      a[k / 2] = static_cast<float>(-limit);
      each(n, k, [&](const Matrix& b) {
        for (const IntegersOf of : {IntegersOf::f32, IntegersOf::bf16}) {
          const std::vector<float> c = product_of(b, a, of);
          for (size_t j = 0; j < n; ++j) {
            double sum = 0;
            for (size_t i = 0; i < k; ++i) {
              sum += a[i] * b.at(j, i);
            }
            ASSERT_EQ(c[j], sum) << "row " << j << " of " << n << " x " << k;
          }
        }
      });
    }
  }
}

// Each input has an error of at most 2^-20 of the largest value of its block, and 2^-14 for bf16.
TEST_P(CodeProducts, WithinTheRoundingOfABlock) {
  constexpr size_t n = 5, k = 256;
  for (const int exponent : {-140, -120, -30, 0, 60, 112}) {
    std::mt19937 bits(3);
    std::vector<float> a(k);
    for (float& x : a) {
      const float sign = bits() % 2 == 0 ? 1.0f : -1.0f;
      const auto mantissa = static_cast<float>(bits() % (1u << 23)) / (1u << 23);
      x = std::ldexp(sign * (1 + mantissa), exponent - static_cast<int>(bits() % 8));
    }
    std::fill_n(a.begin() + kBlock, kBlock, 0.0f);
    const auto expect = [&](const Matrix& b, IntegersOf of) {
      const std::vector<float> c = product_of(b, a, of);
      for (size_t j = 0; j < n; ++j) {
        double sum = 0, bound = 0;
        for (size_t block = 0; block < k; block += kBlock) {
          double largest = 0x1p-106;  // smaller values have the same absolute error
          for (size_t i = block; i < block + kBlock; ++i) {
            largest = std::max<double>(largest, std::fabs(a[i]));
          }
          for (size_t i = block; i < block + kBlock; ++i) {
            sum += a[i] * b.at(j, i);
            bound += std::ldexp(largest, of == IntegersOf::f32 ? -20 : -14) * std::fabs(b.at(j, i));
          }
        }
        ASSERT_NEAR(c[j], sum, bound) << "row " << j << ", numbers of 2^" << exponent;
      }
    };
    each(n, k, [&](const Matrix& b) {
      expect(b, IntegersOf::f32);
      expect(b, IntegersOf::bf16);
    });
  }
}

TEST_P(CodeProducts, InfinitiesAndNaNStay) {
  constexpr size_t n = 4, k = 64;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> a(k, 1.0f);
    a[40] = odd;
    each(n, k, [&](const Matrix& b) {
      const std::vector<float> c = product_of(b, a);
      for (size_t j = 0; j < n; ++j) {
        const double factor = b.at(j, 40);
        if (std::isnan(odd) || factor == 0) {
          EXPECT_TRUE(std::isnan(c[j]));
        } else {
          EXPECT_EQ(c[j], odd * factor);
        }
      }
    });
  }
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(CodeProducts);

}  // namespace
}  // namespace bowline::detail::cpu
