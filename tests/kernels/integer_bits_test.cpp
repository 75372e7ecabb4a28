// Integer products of block formats have the bits of one definition, with AVX512_VNNI and with the
// dot products of aarch64 (SDOT): the order of their f32 sums is that of a row in 16 lanes.
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "base/float16.h"
#include "compute/arm_extensions.h"
#include "compute/block_variants.h"
#include "compute/code_rows.h"
#include "compute/spans.h"
#include "core/encoding.h"
#include "kernels/row_products.h"

namespace bowline::detail::cpu {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kFour = 4;  // elements whose products are summed exactly
using Lanes = std::array<float, kLanes>;

// 32 elements as integers times a unit.
struct Numbers {
  std::array<int32_t, 32> of;
  float unit;
};
Numbers numbers_of(const float* a, int bits) {
  float largest = 0;
  for (size_t i = 0; i < 32; ++i) {
    largest = std::max(largest, std::fabs(a[i]));
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  Numbers out;
  for (size_t i = 0; i < 32; ++i) {
    out.of[i] = static_cast<int32_t>(std::nearbyint(std::ldexp(a[i], bits - exponent)));
  }
  out.unit = std::ldexp(1.0f, exponent - bits);
  return out;
}

// The sums of a row of weights: lane l of `products` has elements 4l .. 4l + 3 of every 64, and
// lane g of `least` has group g of every span.
struct Sums {
  Lanes products{};
  Lanes least{};
};

void add_span(const UnpackedSpan& span, int offset, const float* a, int bits, Sums& sums) {
  for (size_t first = 0; first < kSpan; first += 32) {
    const Numbers numbers = numbers_of(a + first, bits);
    for (size_t at = 0; at < 32; at += kFour) {
      int64_t dot = 0;
      for (size_t i = at; i < at + kFour; ++i) {
        dot += int64_t{span.codes[first + i]} * numbers.of[i];
      }
      const size_t group = (first + at) / kSpanGroup;
      float& lane = sums.products[(first + at) / kFour % kLanes];
      lane = std::fma(static_cast<float>(dot), span.scales[group] * numbers.unit, lane);
    }
    for (size_t at = 0; at < 32; at += kSpanGroup) {
      int32_t sum = 0;
      for (size_t i = at; i < at + kSpanGroup; ++i) {
        sum += numbers.of[i];
      }
      const size_t group = (first + at) / kSpanGroup;
      const float least =
          std::fma(span.scales[group], static_cast<float>(offset), span.least[group]);
      sums.least[group] =
          std::fma(least, static_cast<float>(sum) * numbers.unit, sums.least[group]);
    }
  }
}

// Lanes 2 apart, 1 apart, 8 apart, 4 apart.
float sum_of_lanes(const Sums& s) {
  Lanes v;
  for (size_t i = 0; i < kLanes; ++i) {
    v[i] = s.products[i] - s.least[i];
  }
  for (const size_t apart : {2, 1, 8, 4}) {
    for (size_t i = 0; i < kLanes; ++i) {
      if ((i & apart) == 0) {
        v[i] += v[i + apart];
      }
    }
  }
  return v[0];
}

// Random blocks with small scales.
std::vector<std::byte> random_blocks(const BlockFormat& format, size_t count, std::mt19937& bits) {
  std::vector<std::byte> out(count * format.bytes);
  std::ranges::generate(out, [&] { return static_cast<std::byte>(bits()); });
  for (size_t i = 0; i < count; ++i) {
    for (size_t half = 0; half < format.half_count; ++half) {
      const f16 scale = from_f32<f16>(static_cast<float>(bits() % 1000) / 999 - 0.25f);
      std::memcpy(out.data() + i * format.bytes + format.halves[half], &scale, sizeof(scale));
    }
  }
  return out;
}

const BlockDots* dots_of_this_set() {
  return block_dots_vnni() != nullptr ? block_dots_vnni() : block_dots_dotprod();
}

class IntegerBits : public OnInstructionSet {};

Codes codes_of(const BlockFormat& format, const std::vector<std::byte>& weights,
               const Shape& shape) {
  const Encoding encoding = parse_encoding(format.name).value();
  const CodePlace place = encoding.place(DType::f32, shape, 0);
  return {weights.data() + place.codes, weights.data() + place.scales, weights.data() + place.zeros,
          *encoding.layout(shape)};
}

TEST_P(IntegerBits, AreThoseOfTheDefinition) {
  const BlockDots* const dots = dots_of_this_set();
  if (dots == nullptr) {
    GTEST_SKIP() << "The set has neither AVX512_VNNI nor dot products of aarch64.";
  }
  constexpr size_t kRows = 7, kColumns = 3 * kSpan;
  std::mt19937 bits(1);
  std::vector<float> a(kColumns);
  for (float& x : a) {
    x = std::ldexp(static_cast<float>(static_cast<int32_t>(bits())),
                   -31 - static_cast<int>(bits() % 6));
  }
  for (const BlockFormat& format : block_formats()) {
    const std::vector<std::byte> weights =
        random_blocks(format, kRows * kColumns / format.block, bits);
    const Codes codes = codes_of(format, weights, {kRows, kColumns});
    const SpanReader reader = span_reader(format);
    const size_t row_bytes = kColumns / format.block * format.bytes;
    for (const IntegersOf of : {IntegersOf::f32, IntegersOf::bf16}) {
      std::vector<float> row(kColumns / kSpan * dots->span_bytes / sizeof(float) + 16);
      const auto address = reinterpret_cast<uintptr_t>(row.data());
      auto* const integers = reinterpret_cast<float*>((address + 63) / 64 * 64);
      ASSERT_TRUE(dots->to_integers(of, a.data(), kColumns, integers));
      std::array<float, kRows> out;
      dots->dots(format, of)(codes, 0, kRows, integers, out.data());
      for (size_t j = 0; j < kRows; ++j) {
        Sums sums;
        for (size_t i = 0; i < kColumns / kSpan; ++i) {
          UnpackedSpan span;
          reader.unpack(weights.data() + j * row_bytes + i * reader.bytes, span);
          add_span(span, reader.offset, a.data() + i * kSpan, of == IntegersOf::f32 ? 20 : 14,
                   sums);
        }
        const float expected = sum_of_lanes(sums);
        if (std::isnan(expected)) {  // of large scales of mxfp4
          ASSERT_TRUE(std::isnan(out[j])) << format.name << " row " << j;
        } else {
          ASSERT_EQ(out[j], expected) << format.name << " row " << j;
        }
      }
    }
  }
}

// A set that has the instructions uses them, so the tests of products do not all take another way.
TEST_P(IntegerBits, AreUsedIfTheSetHasThem) {
  const bool lanes = dots_of_this_set() != nullptr;
  const Shape shape{1, kSpan};
  const auto is_used = [&](std::string_view encoding) {
    return has_integer_dots(*parse_encoding(encoding).value().layout(shape));
  };
  EXPECT_EQ(is_used("q4_k"), lanes || block_dots_avx2() != nullptr);
  EXPECT_EQ(is_used("q8_0"), lanes || block_dots_avx2() != nullptr);
  EXPECT_EQ(is_used("int8 block row"), lanes);
  EXPECT_EQ(is_used("int4"), lanes);
#ifdef BOWLINE_ARM_EXTENSIONS
  EXPECT_EQ(lanes, has_dotprod());
  EXPECT_EQ(has_code_rows(*parse_encoding("q4_k").value().layout(shape)), has_i8mm());
#endif
}

// One row of code_rows.h: sums of 16 elements are exact.
float row_of_definition(const std::vector<UnpackedSpan>& spans, int offset, const float* a,
                        int bits) {
  float c = 0;
  for (const UnpackedSpan& span : spans) {
    float products = 0, least = 0;
    for (size_t first = 0; first < kSpan; first += 32, a += 32) {
      Numbers numbers = numbers_of(a, bits);
      std::array<float, 2> scaled;
      for (size_t half = 0; half < 2; ++half) {
        int64_t dot = 0;
        int32_t sum = 0;
        for (size_t i = half * kSpanGroup; i < (half + 1) * kSpanGroup; ++i) {
          const int32_t number = std::clamp(numbers.of[i], 1 - (1 << bits), (1 << bits) - 1);
          dot += int64_t{span.codes[first + i] - offset} * number;
          sum += number;
        }
        scaled[half] = static_cast<float>(dot);
        const size_t group = first / kSpanGroup + half;
        least = std::fma(static_cast<float>(sum) * numbers.unit, span.least[group], least);
      }
      const size_t group = first / kSpanGroup;
      const float two = std::fma(scaled[1], span.scales[group + 1], scaled[0] * span.scales[group]);
      products = std::fma(two, numbers.unit, products);
    }
    c += products - least;
  }
  return c;
}

TEST_P(IntegerBits, OfSeveralRowsAreThoseOfTheirDefinition) {
  constexpr size_t kRows = 3, kColumns = 2 * kSpan, kInputs = 5;
  std::mt19937 bits(2);
  std::vector<float> a(kInputs * kColumns);
  for (float& x : a) {
    x = std::ldexp(static_cast<float>(static_cast<int32_t>(bits())), -31);
  }
  a[7] = 0x1.FFFFFEp0f;  // rounds to a power of two
  for (const BlockFormat& format : block_formats()) {
    const std::vector<std::byte> weights =
        random_blocks(format, kRows * kColumns / format.block, bits);
    const Codes codes = codes_of(format, weights, {kRows, kColumns});
    if (!has_code_rows(codes.layout)) {
      GTEST_SKIP() << "The set has no matrix products of bytes.";
    }
    const SpanReader reader = span_reader(format);
    for (const IntegersOf of : {IntegersOf::f32, IntegersOf::bf16}) {
      const std::vector<float> c =
          product(a, kRows, kColumns, nullptr, {.b_codes = &codes, .a_of = of});
      for (size_t at = 0; at < c.size(); ++at) {
        std::vector<UnpackedSpan> spans(kColumns / kSpan);
        for (size_t i = 0; i < spans.size(); ++i) {
          reader.unpack(weights.data() + (at % kRows * spans.size() + i) * reader.bytes, spans[i]);
        }
        const float expected =
            row_of_definition(spans, reader.offset, a.data() + at / kRows * kColumns,
                              of == IntegersOf::f32 ? 20 : 14);
        if (std::isnan(expected)) {  // of large scales of mxfp4
          ASSERT_TRUE(std::isnan(c[at])) << format.name << " element " << at;
        } else {
          ASSERT_EQ(c[at], expected) << format.name << " element " << at;
        }
      }
    }
  }
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(IntegerBits);

}  // namespace
}  // namespace bowline::detail::cpu
