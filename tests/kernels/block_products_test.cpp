// Products of a row with weights in a block format equal those with the dequantized weights, for
// every format and instruction set, with and without integer instructions. Dequantized values are
// the bits that the description of the format gives.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/float16.h"
#include "core/encoding.h"
#include "kernels/row_products.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kSharesUnit = 32;  // elements of a that share a unit

// n rows of k values in random blocks, whose scales are powers of two.
class Weights {
 public:
  Weights(const BlockFormat& format, size_t n, size_t k)
      : bytes_(n * k / format.block * format.bytes), values_(n * k), k_(k) {
    const Shape shape{static_cast<int64_t>(n), static_cast<int64_t>(k)};
    const Encoding encoding = parse_encoding(format.name).value();
    layout_ = *encoding.layout(shape);
    place_ = encoding.place(DType::f32, shape, 0);
    std::mt19937 bits(1);
    for (size_t i = 0; i < values_.size(); i += format.block) {
      fill(format, bits, bytes_.data() + i / format.block * format.bytes, values_.data() + i);
    }
  }

  const std::vector<float>& values() const { return values_; }
  size_t rows() const { return values_.size() / k_; }
  size_t columns() const { return k_; }

  // Calls f(codes) with blocks that end at a protected page.
  template <class F>
  void with_codes(const F& f) const {
    EdgeOf<std::byte> edge(bytes_.size());
    std::ranges::copy(bytes_, static_cast<std::byte*>(edge));
    std::byte* const from = edge;
    f(Codes{from + place_.codes, from + place_.scales, from + place_.zeros, layout_});
  }

 private:
  static void fill(const BlockFormat& format, std::mt19937& bits, std::byte* block, float* values) {
    const auto is_usable = [](float x) { return std::isfinite(x) && std::fabs(x) < 0x1p20f; };
    do {
      for (size_t i = 0; i < format.bytes; ++i) {
        block[i] = static_cast<std::byte>(bits());
      }
      for (size_t i = 0; i < format.half_count; ++i) {
        const f16 scale = from_f32<f16>(std::ldexp(1.0f, -static_cast<int>(bits() % 4)));
        std::memcpy(block + format.halves[i], &scale, sizeof(scale));
      }
      format.decode(block, values);
    } while (!std::all_of(values, values + format.block, is_usable));
  }

  std::vector<std::byte> bytes_;
  std::vector<float> values_;
  CodeLayout layout_;
  CodePlace place_;
  size_t k_;
};

class BlockProducts : public RowProducts {
 protected:
  // Calls f(weights) for every format and some numbers of rows and columns.
  template <class F>
  void each(const F& f) {
    for (const BlockFormat& format : block_formats()) {
      for (const size_t n : {1, 7}) {
        for (const size_t k : {size_t{format.block}, size_t{256}, size_t{1024}}) {
          SCOPED_TRACE(std::string(format.name) + " " + std::to_string(n) + " x " +
                       std::to_string(k));
          f(Weights(format, n, k));
        }
      }
    }
  }
};

// Each input has an error of at most 2^-20 of the largest value of its 32, and 2^-14 for bf16. The
// f32 sums may also hold a value with an offset of at most 128 steps.
TEST_P(BlockProducts, WithinTheRoundingOfABlock) {
  each([&](const Weights& b) {
    const size_t k = b.columns();
    std::mt19937 bits(2);
    std::normal_distribution<float> draw;
    constexpr size_t kMost = 53;  // rows
    std::vector<float> a(kMost * k);
    std::ranges::generate(a, [&] { return draw(bits); });
    std::vector<float> largest(kMost * k);  // of the elements that share a unit
    for (size_t i = 0; i < kMost * k; i += kSharesUnit) {
      float most = 0;
      for (size_t at = i; at < i + kSharesUnit; ++at) {
        most = std::max(most, std::fabs(a[at]));
      }
      std::fill_n(largest.begin() + static_cast<ptrdiff_t>(i), kSharesUnit, most);
    }
    for (const IntegersOf of : {IntegersOf::f32, IntegersOf::bf16}) {
      for (const bool allow : {true, false}) {
        allow_integer_dots(allow);
        for (const size_t m : {size_t{1}, size_t{2}, kMost}) {
          const std::vector<float> some(a.begin(), a.begin() + static_cast<ptrdiff_t>(m * k));
          const std::vector<float> c = product_of(b, some, of);
          for (size_t at = 0; at < c.size(); ++at) {
            const size_t r = at / b.rows() * k;
            const float* const row = b.values().data() + at % b.rows() * k;
            double sum = 0, bound = 0, most = 0, inputs = 0;
            for (size_t i = 0; i < k; ++i) {
              sum += double{a[r + i]} * row[i];
              bound +=
                  std::ldexp(largest[r + i], of == IntegersOf::f32 ? -20 : -14) * std::fabs(row[i]);
              most = std::max<double>(most, std::fabs(row[i]));
              inputs += std::fabs(a[r + i]);
            }
            ASSERT_NEAR(c[at], sum, bound + most * inputs * 0x1p-20)
                << "row " << at / b.rows() << " of " << m << " by row " << at % b.rows();
          }
        }
      }
    }
  });
}

// Rows of weights are packed in vectors, of which the last may be partial.
TEST_P(BlockProducts, ManyRowsHaveTheBitsOfDequantizedWeights) {
  allow_integer_dots(false);
  constexpr size_t kRows = 67;  // fewer are multiplied without packing
  for (const BlockFormat& format : block_formats()) {
    for (const size_t n : {1, 37, 150}) {
      for (const size_t k : {size_t{format.block}, size_t{512}}) {
        const Weights b(format, n, k);
        std::mt19937 bits(3);
        std::normal_distribution<float> draw;
        std::vector<float> a(kRows * k);
        std::ranges::generate(a, [&] { return draw(bits); });
        const std::vector<float> c = product_of(b, a);
        const std::vector<float> expected = product(a, n, k, b.values().data(), {});
        ASSERT_EQ(std::memcmp(c.data(), expected.data(), c.size() * sizeof(float)), 0)
            << format.name << " " << n << " x " << k;
      }
    }
  }
}

// Also in a product of several rows, of which the others are finite.
TEST_P(BlockProducts, InfinitiesStay) {
  constexpr size_t k = 256;
  for (const BlockFormat& format : block_formats()) {
    const Weights b(format, 3, k);
    for (const size_t m : {1, 3}) {
      std::vector<float> a(m * k, 1.0f);
      a[(m - 1) * k + 40] = std::numeric_limits<float>::infinity();
      const std::vector<float> c = product_of(b, a);
      for (size_t at = 0; at < c.size(); ++at) {
        ASSERT_EQ(std::isfinite(c[at]), at / b.rows() + 1 < m) << format.name << " " << at;
      }
    }
  }
}

TEST_P(BlockProducts, DequantizeToTheBitsOfTheDescription) {
  each([&](const Weights& b) {
    const size_t k = b.columns();
    b.with_codes([&](const Codes& codes) {
      for (const size_t first : {size_t{0}, k / 2, size_t{5}}) {
        for (const size_t count : {k - first, size_t{16}, size_t{1}}) {
          if (first + count > k) {
            continue;
          }
          EdgeOf<float> out(count);
          decode(codes, b.rows() - 1, first, count, out);
          const float* const expected = b.values().data() + (b.rows() - 1) * k + first;
          ASSERT_EQ(std::memcmp(out, expected, count * sizeof(float)), 0)
              << count << " elements from " << first;
        }
      }
    });
  });
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(BlockProducts);

}  // namespace
}  // namespace bowline::detail::cpu
