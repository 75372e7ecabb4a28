// Encodings: bytes, what they fit, which views they allow, and that decoding gives what was encoded, as near as a step.
#include "core/encoding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "core/status.h"

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
  EXPECT_EQ(int8(4).bytes(DType::f32, {3, 5}), 16u + 6 * 4);                  // 2 blocks a row
  EXPECT_EQ(int8(2, 0, DType::f16).bytes(DType::f32, {3, 5}), 16u + 10 * 2);  // 2 blocks a column
  EXPECT_EQ(int8(1).bytes(DType::f32, {0, 5}), 0u);
}

TEST(Encodings, SayWhatTheyDoNotFit) {
  const Shape shape = {3, 5};
  EXPECT_EQ(int8(4).check(DType::i32, shape).message(),
            "A storage of i32 cannot be int8: it stands for floats.");
  EXPECT_EQ(int8(4, -1, DType::u8).check(DType::f32, shape).message(),
            "The scales of int8 are u8, not floats.");
  EXPECT_EQ(int8(6).check(DType::f32, shape).message(),
            "A block of 6 is longer than axis -1 of [3,5].");
  EXPECT_EQ(int8(1, 2).check(DType::f32, shape).message(),
            "Axis 2 of the encoding lies outside the rank (2).");
  EXPECT_EQ(int8(0, 1).check(DType::f32, shape).message(),
            "The encoding \"int8\" has an axis (1) but no block.");
  Encoding plain;
  plain.block = 2;
  EXPECT_EQ(plain.check(DType::f32, shape).message(), "The encoding \"plain\" has parameters.");
}

// Every element is at most half a step from what it was; where the scale is rounded, its rounding comes on top.
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

// Two elements of one block share a scale, two of different blocks do not: a large one spoils its own block alone.
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

}  // namespace
}  // namespace bowline
