#include "model/verify.h"

#include <gtest/gtest.h>

#include "model/sample_file.h"

namespace bowline {
namespace {

using test::Bytes;

TEST(Verify, SampleIsValid) {
  const auto file = test::verify(test::make_sample().bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file.value()->verify_all().ok()) << file.value()->verify_all().message();
  EXPECT_EQ(file.value()->tables().storages()->size(), 6u);
  const auto range = file.value()->range(*file.value()->tables().storages()->Get(1)->range());
  const auto bytes = range->copy();
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(reinterpret_cast<const float*>(bytes.value().data())[3], 4.0f);
}

TEST(Verify, EveryTruncationIsRefused) {
  const Bytes whole = test::make_sample().bytes();
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto file = test::verify(Bytes(whole.begin(), whole.begin() + static_cast<long>(n)));
    ASSERT_FALSE(file.ok()) << n;
    ASSERT_EQ(file.status().code(), Code::bad_file) << n;
  }
}

TEST(Verify, LongerThanStatedIsRefused) {
  Bytes bytes = test::make_sample().bytes();
  bytes.resize(bytes.size() + 64);
  EXPECT_EQ(test::verify(std::move(bytes)).status().code(), Code::bad_file);
}

// open() refuses every flipped bit, or verify_all() finds it.
TEST(Verify, EveryFlippedBitIsFound) {
  Bytes bytes = test::make_sample().bytes();
  size_t refused = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const std::byte mask{static_cast<uint8_t>(1u << (bit % 8))};
    bytes[bit / 8] ^= mask;
    const auto file = test::verify(bytes);
    if (!file.ok()) {
      ++refused;
      EXPECT_EQ(file.status().code(), Code::bad_file) << file.status().message();
    } else {
      EXPECT_EQ(file.value()->verify_all().code(), Code::bad_file) << "bit " << bit;
    }
    bytes[bit / 8] ^= mask;
  }
  RecordProperty("refused_at_open", static_cast<int>(refused));
  RecordProperty("bits", static_cast<int>(bytes.size() * 8));
}

TEST(Verify, ChecksumIsCheckedWhenFirstRead) {
  test::Sample sample = test::make_sample();
  sample.data[0] ^= std::byte{1};
  const auto file = test::verify(sample.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto range = file.value()->range(*file.value()->tables().storages()->Get(0)->range());
  EXPECT_EQ(range->check().code(), Code::bad_file);
  EXPECT_EQ(file.value()->verify_all().code(), Code::bad_file);
}

}  // namespace
}  // namespace bowline
