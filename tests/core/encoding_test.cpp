// Encodings: sizes, supported shapes and views, and decoding within half a step.
#include "core/encoding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "base/status.h"
#include "bowline.h"
#include "core/encoding_check.h"

namespace bowline {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

Encoding int8(uint32_t block, int32_t axis = -1, DType scale = DType::f32, bool symmetric = true) {
  return {find_encoding_form("int8"), block, axis, scale, symmetric};
}

Floats drawn(size_t count) {
  Floats out(count);
  for (uint32_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(static_cast<int32_t>(philox({i, 1, 2, 3}, {4, 5})[0])) * 0x1p-28f;
  }
  return out;
}

Floats round_trip(const Encoding& e, const Shape& shape, const Floats& values) {
  EXPECT_EQ(e.check(DType::f32, shape).message(), "");
  Bytes bytes(e.bytes(DType::f32, shape));
  e.encode(values, DType::f32, shape, bytes);
  Floats out(values.size());
  e.decode(bytes, DType::f32, shape, {0, shape.elements()}, out);
  return out;
}

TEST(Encodings, AreKnownByName) {
  EXPECT_TRUE(Encoding().is_plain());
  EXPECT_EQ(find_encoding_form("q9"), nullptr);
  EXPECT_EQ(format("{}", Encoding()), "plain");
  EXPECT_EQ(format("{}", int8(0)), "int8 scale f32");
  EXPECT_EQ(format("{}", int8(32, 0, DType::f16, false)),
            "int8 block 32 axis 0 scale f16 with zero points");
}

TEST(Encodings, CountTheirBytes) {
  EXPECT_EQ(Encoding().bytes(DType::bf16, {3, 5}), 30u);
  EXPECT_EQ(int8(0).bytes(DType::f32, {3, 5}), 16u + 4);
  EXPECT_EQ(int8(0, -1, DType::f16, false).bytes(DType::f32, {3, 5}), 16u + 2 + 1);
  EXPECT_EQ(int8(4).bytes(DType::f32, {3, 5}), 16u + 6 * 4);                  // 2 blocks per row
  EXPECT_EQ(int8(2, 0, DType::f16).bytes(DType::f32, {3, 5}), 16u + 10 * 2);  // 2 blocks per column
  EXPECT_EQ(int8(1).bytes(DType::f32, {0, 5}), 0u);
}

TEST(Encodings, TakeRowsThatHaveTheirOwnScales) {
  const Shape shape = {3, 2, 4};
  EXPECT_TRUE(int8(4).takes_rows(shape));
  EXPECT_TRUE(int8(2, 2).takes_rows(shape));
  EXPECT_FALSE(int8(0).takes_rows(shape));
  EXPECT_FALSE(int8(2, 1).takes_rows(shape));
  EXPECT_FALSE(int8(4, -1, DType::f16).takes_rows(shape));
  EXPECT_FALSE(int8(4, -1, DType::f32, false).takes_rows(shape));
  EXPECT_FALSE(Encoding().takes_rows(shape));
  Encoding four = int8(4);
  four.form = find_encoding_form("int4");
  EXPECT_FALSE(four.takes_rows(shape));
}

TEST(Encodings, SayWhatTheyDoNotFit) {
  const Shape shape = {3, 5};
  EXPECT_EQ(int8(4).check(DType::i32, shape).message(),
            "A storage of i32 cannot be int8: only floats can be quantized.");
  EXPECT_EQ(int8(4, -1, DType::u8).check(DType::f32, shape).message(),
            "The scales of int8 cannot be u8: they must be floats.");
  EXPECT_EQ(int8(6).check(DType::f32, shape).message(),
            "A block of 6 is longer than axis -1 of [3,5].");
  EXPECT_EQ(int8(1, 2).check(DType::f32, shape).message(),
            "Axis 2 of the encoding lies outside the rank (2).");
  EXPECT_EQ(int8(0, 1).check(DType::f32, shape).message(),
            "The encoding \"int8\" has an axis (1) but no block.");
  Encoding plain;
  plain.block = 2;
  EXPECT_EQ(plain.check(DType::f32, shape).message(),
            "The encoding \"plain\" takes no parameters.");
}

// Every element is within half a step of its value, plus the rounding of the scale if it is
// rounded.
TEST(Encodings, RoundTripsAreHalfAStepAway) {
  const Shape shapes[] = {{1}, {7}, {3, 5}, {4, 3, 6}, {64, 33}};
  for (const Shape& shape : shapes) {
    const Floats values = drawn(static_cast<size_t>(shape.elements()));
    for (int axis = -1; axis < shape.rank(); ++axis) {
      const int64_t length = shape[axis < 0 ? shape.rank() - 1 : axis];
      for (const int64_t block : {int64_t{0}, int64_t{1}, std::min<int64_t>(length, 4), length}) {
        for (const DType scale : {DType::f32, DType::f16, DType::bf16}) {
          for (const bool symmetric : {true, false}) {
            const Encoding e =
                int8(static_cast<uint32_t>(block), block == 0 ? -1 : axis, scale, symmetric);
            SCOPED_TRACE(format("{} of {}", e, shape));
            const Floats got = round_trip(e, shape, values);
            for (size_t i = 0; i < values.size(); ++i) {
              const float step = 16.0f / (symmetric ? 127 : 255);
              const float rounding = scale == DType::f32   ? 0
                                     : scale == DType::f16 ? 0x1p-10f
                                                           : 0x1p-7f;
              ASSERT_NEAR(got[i], values[i], 0.51f * step + 8 * rounding) << i;
            }
          }
        }
      }
    }
  }
}

// Elements share a scale only within a block: a large value makes only its own block inaccurate.
TEST(Encodings, ABlockHasAScaleOfItsOwn) {
  const Shape shape = {2, 6};
  Floats values(12, 0.5f);
  values[1] = 1000;
  const Floats along_rows = round_trip(int8(3), shape, values);
  const Floats along_columns = round_trip(int8(2, 0), shape, values);
  for (size_t i = 0; i < 12; ++i) {
    const bool in_row_block = i < 3;
    const bool in_column_block = i % 6 == 1;
    EXPECT_EQ(std::abs(along_rows[i] - values[i]) > 0.01f, in_row_block && i != 1) << i;
    EXPECT_EQ(std::abs(along_columns[i] - values[i]) > 0.01f, in_column_block && i != 1) << i;
  }
}

TEST(Encodings, APartIsDecodedAsInTheWhole) {
  const Shape shape = {6, 5};
  const Encoding e = int8(2, 0, DType::f16, false);
  const Floats values = drawn(30);
  Bytes bytes(e.bytes(DType::f32, shape));
  e.encode(values, DType::f32, shape, bytes);
  const Floats whole = round_trip(e, shape, values);
  Floats part(10);
  e.decode(bytes, DType::f32, shape, {10, 10}, part);
  EXPECT_EQ(part, Floats(whole.begin() + 10, whole.begin() + 20));
}

TEST(Encodings, WhatIsNoNumberIsAZero) {
  const Floats got = round_trip(int8(2), {2, 2}, {NAN, 1, 3, -4});
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], 0);
  EXPECT_NEAR(got[2], 3, 0.02);
  EXPECT_EQ(round_trip(int8(0, -1, DType::f32, false), {3}, {0, 0, 0}), (Floats{0, 0, 0}));
  EXPECT_EQ(round_trip(int8(0), {3}, {5, NAN, 1}), (Floats{0, 0, 0}));
}

std::string refused(const Encoding& e, const View& view) {
  return e.check_view(view, {4, 6}).message();
}

TEST(Encodings, ViewsKeepBlocksWhole) {
  const View rows{1, 2, {}, false};
  const View even_rows{2, 2, {}, false};
  const View to_the_end{2, -1, {}, false};
  const View reshaped{0, -1, {2, 2, 6}, false};
  const View flat{0, -1, {24}, false};
  const View transposed{0, -1, {}, true};
  for (const View& v : {rows, even_rows, to_the_end, reshaped, flat, transposed}) {
    EXPECT_EQ(refused(Encoding(), v), "");
    EXPECT_EQ(refused(int8(0), v), "");
  }
  EXPECT_EQ(refused(int8(3), rows), "");
  EXPECT_EQ(refused(int8(3), reshaped), "");
  EXPECT_EQ(refused(int8(3), flat), "A view cannot reshape the axis along which blocks of 3 lie.");
  EXPECT_EQ(refused(int8(3), transposed), "A view cannot transpose blocks along axis -1.");
  EXPECT_EQ(refused(int8(2, 0), even_rows), "");
  EXPECT_EQ(refused(int8(2, 0), to_the_end), "");
  EXPECT_EQ(refused(int8(2, 0), rows),
            "A view of rows begins or ends inside a block of 2 along axis 0.");
  EXPECT_EQ(refused(int8(2, 0), {0, 3, {}, false}),
            "A view of rows begins or ends inside a block of 2 along axis 0.");
  EXPECT_EQ(refused(int8(2, 0), reshaped), "A view cannot reshape blocks along axis 0.");
}

Encoding encoding_of(std::string_view text) {
  const Result<Encoding> parsed = parse_encoding(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed.value() : Encoding();
}

Bytes encoded(std::string_view text, const Shape& shape, const Floats& values) {
  const Encoding e = encoding_of(text);
  EXPECT_EQ(e.check(DType::f32, shape).message(), "");
  Bytes bytes(e.bytes(DType::f32, shape));
  e.encode(values, DType::f32, shape, bytes);
  return bytes;
}

Floats decoded(std::string_view text, const Shape& shape, const Bytes& bytes) {
  Floats out(static_cast<size_t>(shape.elements()));
  encoding_of(text).decode(bytes, DType::f32, shape, {0, shape.elements()}, out);
  return out;
}

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (const int v : values) {
    out.push_back(static_cast<std::byte>(v));
  }
  return out;
}

TEST(Encodings, AreReadFromTheirText) {
  for (const char* text :
       {"int8 scale f32", "int8 block 32 axis -1 scale f16",
        "int8 block 3 axis 0 scale bf16 with zero points", "int8 block row axis -1 scale f32",
        "int4 block 32 axis -1 scale f16", "q8_0", "q4_0", "plain"}) {
    EXPECT_EQ(format("{}", encoding_of(text)), text);
  }
  EXPECT_EQ(encoding_of("int8"), int8(0));
  EXPECT_EQ(format("{}", encoding_of("int4")), "int4 block 32 axis -1 scale f16");
  EXPECT_EQ(encoding_of("int8 block row").for_shape({3, 5}), int8(5));
  for (const char* text :
       {"", "q9", "int8 block", "int8 block x", "int8 scale f64", "int8 with zero",
        "int8 block 4294967296", "q8_0 scale f16", "plain block 2"}) {
    EXPECT_FALSE(parse_encoding(text).ok()) << text;
  }
}

TEST(Encodings, OneBlockIsTheWholeTensor) {
  EXPECT_EQ(int8(5).simplest({1, 5}), int8(0));
  EXPECT_EQ(int8(5).simplest({2, 5}), int8(5));
  EXPECT_EQ(int8(4).simplest({1, 5}), int8(4));
}

// The first value is in the low bits.
TEST(Encodings, Int4HasTheFirstCodeInTheLowBits) {
  const Bytes symmetric = bytes_of({0x10, 0x32, 0x54, 0x76, 0x00, 0x3C});
  EXPECT_EQ(decoded("int4 block 8", {8}, symmetric), (Floats{-8, -7, -6, -5, -4, -3, -2, -1}));
  const Bytes zero = bytes_of({0x10, 0x32, 0x54, 0x76, 0x00, 0x3C, 0});
  EXPECT_EQ(decoded("int4 block 8 with zero points", {8}, zero), (Floats{0, 1, 2, 3, 4, 5, 6, 7}));
  Floats sixteen(16);
  for (size_t i = 0; i < 16; ++i) {
    sixteen[i] = static_cast<float>(i);
  }
  EXPECT_EQ(encoded("int4 block 16 with zero points", {16}, sixteen),
            bytes_of({0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0x00, 0x3C, 0}));
  // Every row starts at a byte; its last block may be shorter.
  EXPECT_EQ(encoded("int4 block 2", {2, 3}, {7, -7, 14, 1, 0, 0}),
            bytes_of({0x1F, 0x0F, 0x8F, 0x08, 0x00, 0x3C, 0x00, 0x40, 0x92, 0x30, 0x00, 0x00}));
}

// Bytes as in ggml, computed by hand: a block has a scale and 32 quantized values.
TEST(Encodings, AreBitExactAsGgufDefinesThem) {
  Floats x(32);
  x[0] = 127;
  x[1] = -127;
  x[2] = 0.5f;  // ties away from zero
  x[3] = -0.5f;
  x[4] = 1.4f;
  x[5] = 2.5f;
  Bytes q8 = bytes_of({0x00, 0x3C, 127, -127, 1, -1, 1, 3});
  q8.resize(34);
  EXPECT_EQ(encoded("q8_0", {32}, x), q8);

  x.assign(32, 0);
  x[0] = -8;
  x[1] = 7;
  x[2] = 0.5f;
  x[3] = -0.5f;
  x[16] = 1;
  x[17] = -8;
  x[18] = 7.6f;
  Bytes q4 = bytes_of({0x00, 0x3C, 0x90, 0x0F, 0xF9, 0x88});
  q4.resize(18, std::byte{0x88});
  EXPECT_EQ(encoded("q4_0", {32}, x), q4);
  const Floats back = decoded("q4_0", {32}, q4);
  EXPECT_EQ((Floats{back[0], back[1], back[2], back[16], back[17], back[18], back[31]}),
            (Floats{-8, 7, 1, 1, -8, 7, 0}));

  x.assign(32, 0);
  x[7] = 4;  // the scale has the sign of the extreme value, negated
  q4 = bytes_of({0x00, 0xB8});
  q4.resize(18, std::byte{0x88});
  q4[9] = std::byte{0x80};
  EXPECT_EQ(encoded("q4_0", {32}, x), q4);
  EXPECT_EQ(decoded("q4_0", {32}, q4), x);
}

TEST(Encodings, RowsOfGgufAreWholeBlocks) {
  EXPECT_EQ(encoding_of("q8_0").check(DType::f32, {3, 33}).message(),
            "Rows of 33 elements are not a multiple of 32, the block size of q8_0.");
  EXPECT_EQ(encoding_of("q4_0").bytes(DType::f32, {3, 64}), 3u * 2 * 18);
  Encoding other = encoding_of("q8_0");
  other.block = 16;
  EXPECT_EQ(other.check(DType::f32, {3, 32}).message(),
            "The encoding \"q8_0\" takes no parameters.");
  EXPECT_EQ(encoding_of("int4 block 3").check(DType::f32, {3, 33}).message(),
            "A block of int4 cannot have 3 elements: it needs an even number of at least 2.");
  EXPECT_EQ(encoding_of("int4 axis 0").check(DType::f32, {3, 33}).message(),
            "The blocks of int4 lie along the last axis, not 0.");
  EXPECT_EQ(encoding_of("int4").bytes(DType::f32, {3, 33}), 3u * 17 + 1 + 3 * 2 * 2);
}

// Half a step, plus the rounding of the scale. Decoding a part gives the values at that place.
TEST(Encodings, FourBitsAreHalfAStepAway) {
  const Shape shape = {4, 64};
  const Floats values = drawn(256);
  const std::pair<const char*, float> steps[] = {{"int4", 8.0f / 7},
                                                 {"int4 block 6 scale f32", 8.0f / 7},
                                                 {"int4 with zero points", 16.0f / 15},
                                                 {"q8_0", 8.0f / 127},
                                                 {"q4_0", 1.0f}};
  for (const auto& [text, step] : steps) {
    SCOPED_TRACE(text);
    const Encoding e = encoding_of(text);
    const Bytes bytes = encoded(text, shape, values);
    const Floats got = decoded(text, shape, bytes);
    // q4_0 has no value 8 in its positive half: the error is up to a step.
    const float most = e.name() == "q4_0" ? 1.01f * step : 0.51f * step + 0.01f;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(got[i], values[i], most) << i;
    }
    Floats part(40);
    e.decode(bytes, DType::f32, shape, {70, 40}, part);
    EXPECT_EQ(part, Floats(got.begin() + 70, got.begin() + 110));
  }
}

TEST(Encodings, FourBitsThatAreNoNumbersAreZeros) {
  Floats values(64, 1.0f);
  values[3] = NAN;
  values[40] = INFINITY;
  for (const char* text : {"int4", "int4 with zero points", "q8_0", "q4_0"}) {
    EXPECT_EQ(decoded(text, {2, 32}, encoded(text, {2, 32}, values)), Floats(64)) << text;
  }
}

TEST(Encodings, RowsOfFourBitsAreShownWhole) {
  EXPECT_EQ(refused(encoding_of("int4 block 2"), {1, 2, {}, false}), "");
  EXPECT_EQ(refused(encoding_of("int4 block 2"), {0, -1, {2, 2, 6}, false}), "");
  EXPECT_EQ(refused(encoding_of("int4 block 2"), {0, -1, {}, true}),
            "A view cannot transpose blocks along axis -1.");
  EXPECT_EQ(refused(encoding_of("int4 block 2"), {0, -1, {24}, false}),
            "A view cannot reshape the axis along which blocks of 2 lie.");
}

struct Form {
  const char* text;
  double steps;       // from 0 to the largest magnitude, or over the range
  double most_wrong;  // in steps
  bool symmetric;
  bool is_wide;  // the scale is f32, so every float has a scale
};
constexpr Form kForms[] = {
    {"int8", 127, 0.5, true, true},
    {"int8 block row", 127, 0.5, true, true},
    {"int8 block 32 scale f16", 127, 0.5, true, false},
    {"int8 block 32 scale bf16", 127, 0.5, true, false},
    {"int8 block 32 with zero points", 255, 0.5, false, true},
    {"int8 block 32 scale f16 with zero points", 255, 0.5, false, false},
    {"int8 block 32 scale bf16 with zero points", 255, 0.5, false, false},
    {"int4", 7, 0.5, true, false},
    {"int4 scale f32", 7, 0.5, true, true},
    {"int4 scale bf16", 7, 0.5, true, false},
    {"int4 with zero points", 15, 0.5, false, false},
    {"q8_0", 127, 0.5, true, false},
    {"q4_0", 8, 1, true, false},
};

// The step of a block in double precision, not the stored step.
double step_of(const Form& form, std::span<const float> block) {
  double least = 0;
  double most = 0;
  for (const float x : block) {
    least = std::min(least, double{x});
    most = std::max(most, double{x});
  }
  return (form.symmetric ? std::max(-least, most) : most - least) / form.steps;
}

// Values that pass check_encoded() have an error of at most half a step. Magnitudes that the scale
// can represent pass.
TEST(Encodings, NoMagnitudeIsMoreThanHalfAStepAway) {
  const Shape shape = {2, 32};
  const Floats drawn_values = drawn(64);
  for (const Form& form : kForms) {
    for (int exponent = -149; exponent <= 127; ++exponent) {
      SCOPED_TRACE(format("{} at 2^{}", form.text, exponent));
      Floats values(64);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::ldexp(drawn_values[i] / 8, exponent);
      }
      const Encoding e = encoding_of(form.text).for_shape(shape);
      Bytes bytes(e.bytes(DType::f32, shape));
      e.encode(values, DType::f32, shape, bytes);
      const Status fits = check_encoded(e, values, bytes, DType::f32, shape);
      // Denormal scales have larger relative steps.
      const bool has_room = form.is_wide ? exponent >= -136 : exponent >= -8 && exponent <= 14;
      EXPECT_TRUE(fits.ok() || !has_room) << fits.message();
      if (!fits.ok()) {
        continue;
      }
      Floats got(64);
      e.decode(bytes, DType::f32, shape, {0, 64}, got);
      const size_t block = e.block == 0 ? 64 : 32;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[i])) << i;
        const double step = step_of(form, std::span(values).subspan(i / block * block, block));
        ASSERT_LE(std::abs(double{got[i]} - values[i]), (form.most_wrong + 0.125) * step) << i;
      }
    }
  }
}

TEST(Encodings, NoFiniteValueBecomesInfinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const Shape shape = {2, 32};
  Floats values(64, 1);
  values[0] = kLargest;
  values[1] = -kLargest;
  for (const Form& form : kForms) {
    const Encoding e = encoding_of(form.text).for_shape(shape);
    Bytes bytes(e.bytes(DType::f32, shape));
    e.encode(values, DType::f32, shape, bytes);
    Floats got(64);
    e.decode(bytes, DType::f32, shape, {0, 64}, got);
    const bool all_finite = std::ranges::all_of(got, [](float x) { return std::isfinite(x); });
    EXPECT_TRUE(all_finite || !check_encoded(e, values, bytes, DType::f32, shape).ok())
        << form.text;
  }
}

std::string loss_of(const char* text, DType dtype, const Floats& values) {
  const Encoding e = encoding_of(text);
  const Shape shape = {1, static_cast<int64_t>(values.size())};
  Bytes bytes(e.bytes(dtype, shape));
  e.encode(values, dtype, shape, bytes);
  return std::string(check_encoded(e, values, bytes, dtype, shape).message());
}

TEST(Encodings, SayWhatTheyCannotHold) {
  EXPECT_EQ(loss_of("int4 block 2", DType::f32, {1, 2}), "");
  EXPECT_EQ(loss_of("int4 block 2", DType::f32, {1, 500001}).substr(0, 31),
            "Element 1 (500001) would become");
  EXPECT_EQ(loss_of("int4 block 2", DType::f32, {NAN, 1}),
            "Element 0 is nan, which cannot be quantized.");
  EXPECT_EQ(loss_of("int8 scale f16", DType::f16, {65504, 0}),
            "Element 0 (65504) would become inf in f16.");
  EXPECT_EQ(loss_of("plain", DType::f16, {1, 65504, INFINITY}), "");
  EXPECT_EQ(loss_of("plain", DType::f16, {1, 70001}), "Element 1 (70001) would become inf in f16.");
}

}  // namespace
}  // namespace bowline
