// Block formats: decoded values as in PyPI's gguf, and encoders that are at least as exact as those
// of llama.cpp. tools/make_golden/formats.py makes the files.
#include "base/formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/code_rows.h"
#include "crafted.h"
#include "gguf/types.h"

namespace bowline::gguf {
namespace {

// The file of a format.
struct Golden {
  explicit Golden(const BlockFormat& format)
      : file(File::open(BOWLINE_GGUF_DATA + std::string("/formats/") + std::string(format.name) +
                        ".gguf")) {}

  const TensorEntry& tensor(std::string_view name) const {
    return *std::ranges::find(file.value()->tensors, name, &TensorEntry::name);
  }
  std::vector<float> floats(std::string_view name) const {
    const TensorEntry& t = tensor(name);
    std::vector<float> out(t.bytes.size() / sizeof(float));
    std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
    return out;
  }

  Result<std::shared_ptr<const File>> file;
};

std::vector<float> decoded(const BlockFormat& format, std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / format.bytes * format.block);
  for (size_t b = 0; b < bytes.size() / format.bytes; ++b) {
    format.decode(bytes.data() + b * format.bytes, &out[b * format.block]);
  }
  return out;
}

void expect_equal_bits(std::span<const float> got, std::span<const float> right) {
  ASSERT_EQ(got.size(), right.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(right[i]);
    ASSERT_TRUE(both_nan || std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(right[i]))
        << "element " << i << " is " << got[i] << ", not " << right[i];
  }
}

double rms_error(std::span<const float> values, std::span<const float> kept) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += (double{values[i]} - kept[i]) * (double{values[i]} - kept[i]);
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

Encoding encoding_of(const BlockFormat& format) { return parse_encoding(format.name).value(); }

class BlockFormats : public testing::TestWithParam<const BlockFormat*> {
 protected:
  void SetUp() override { ASSERT_TRUE(golden_.file.ok()) << golden_.file.status().message(); }

  const BlockFormat& format_ = *GetParam();
  Golden golden_{format_};
};

TEST_P(BlockFormats, DecodedValuesAreThoseOfThePackage) {
  const TensorEntry& blocks = golden_.tensor("blocks");
  EXPECT_EQ(blocks.type->name, format_.gguf);
  EXPECT_EQ(blocks.type->encoding, format_.name);
  ASSERT_EQ(blocks.bytes.size() % format_.bytes, 0u);
  expect_equal_bits(decoded(format_, blocks.bytes), golden_.floats("expected"));
}

// The reference decoder of backends, from any element on.
TEST_P(BlockFormats, RunsOfAnEncodingAreTheSameValues) {
  const Encoding encoding = encoding_of(format_);
  const std::vector<float> right = golden_.floats("expected");
  const Shape shape{static_cast<int64_t>(right.size() / format_.block), format_.block};
  const std::span<const std::byte> bytes = golden_.tensor("blocks").bytes;
  ASSERT_TRUE(encoding.check(DType::f32, shape).ok());
  ASSERT_EQ(encoding.bytes(DType::f32, shape), bytes.size());
  for (const size_t first : {size_t{0}, size_t{1}, size_t{format_.block + 3}}) {
    const std::span from_start = std::span(right).subspan(first, right.size() - first - 2);
    std::vector<float> run(from_start.size());
    encoding.decode(bytes, DType::f32, shape,
                    {static_cast<int64_t>(first), static_cast<int64_t>(run.size())}, run);
    expect_equal_bits(run, from_start);
    // as kernels read a view that starts at the second row
    const std::span from_row = from_start.subspan(format_.block);
    decode_codes(*encoding.layout(shape), bytes, encoding.place(DType::f32, shape, format_.block),
                 first, std::span(run).first(from_row.size()));
    expect_equal_bits(std::span(run).first(from_row.size()), from_row);
  }
}

TEST_P(BlockFormats, EncodedValuesAreAsCloseAsThoseOfLlamaCpp) {
  const std::vector<float> values = golden_.floats("values");
  const Shape shape{2, 512};
  const Encoding encoding = encoding_of(format_);
  std::vector<std::byte> bytes(encoding.bytes(DType::f32, shape));
  encoding.encode(values, DType::f32, shape, bytes);
  const double ours = rms_error(values, decoded(format_, bytes));
  const double theirs = rms_error(values, decoded(format_, golden_.tensor("llama").bytes));
  std::printf("%s: RMS error %g, llama.cpp %g\n", std::string(format_.name).c_str(), ours, theirs);
  EXPECT_LE(ours, theirs);
  EXPECT_GT(ours, 0);
}

TEST_P(BlockFormats, RowsAreWholeBlocks) {
  const Encoding encoding = encoding_of(format_);
  const Status refused = encoding.check(DType::f32, {3, int64_t{format_.block} + 32 / 2});
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            format("Rows of {} elements are not a multiple of {}, the block size of {}.",
                   format_.block + 16, format_.block, format_.name));
}

// A block with a non-finite value becomes zeros.
TEST_P(BlockFormats, OtherBlocksSurviveValuesThatAreNotFinite) {
  const Encoding encoding = encoding_of(format_);
  const Shape shape{1, 2 * int64_t{format_.block}};
  std::vector<float> values(2 * format_.block, 1.0f), kept(values.size());
  values[3] = NAN;
  std::vector<std::byte> bytes(encoding.bytes(DType::f32, shape));
  encoding.encode(values, DType::f32, shape, bytes);
  encoding.decode(bytes, DType::f32, shape, {0, shape.elements()}, kept);
  EXPECT_EQ(kept[0], 0);
  EXPECT_EQ(kept[3], 0);
  EXPECT_NEAR(kept[format_.block], 1, 0.02);
}

std::vector<const BlockFormat*> all_formats() {
  std::vector<const BlockFormat*> out;
  for (const BlockFormat& f : block_formats()) {
    out.push_back(&f);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Every, BlockFormats, testing::ValuesIn(all_formats()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace bowline::gguf
