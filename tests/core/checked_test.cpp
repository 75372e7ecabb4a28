// Checked arithmetic with untrusted values, at its limits.
#include "base/checked.h"

#include <gtest/gtest.h>

namespace bowline {
namespace {

constexpr uint64_t kMost = UINT64_MAX;
using Number = Untrusted<uint64_t>;

TEST(Checked, AnUntrustedNumberFitsUpToTheLimit) {
  EXPECT_TRUE(Number(4).fits_at(Number(6), 10));
  EXPECT_FALSE(Number(4).fits_at(Number(7), 10));
  EXPECT_FALSE(Number(5).fits_at(Number(6), 10));
  EXPECT_TRUE(Number(0).fits_at(Number(10), 10));
  EXPECT_FALSE(Number(0).fits_at(Number(11), 10));
  EXPECT_TRUE(Number(kMost).fits_at(Number(0), kMost));
  EXPECT_FALSE(Number(kMost).fits_at(Number(1), kMost)) << "the sum wraps to 0";
  EXPECT_TRUE(Number(10).at_most(10));
  EXPECT_FALSE(Number(11).at_most(10));
}

TEST(Checked, SumsAndProductsThatDoNotFitAreSeen) {
  uint64_t out = 0;
  EXPECT_TRUE(Number(kMost - 1).plus(1, out));
  EXPECT_EQ(out, kMost);
  EXPECT_FALSE(Number(kMost).plus(1, out));
  EXPECT_TRUE(Number(kMost / 3).times(3, out));
  EXPECT_EQ(out, kMost);
  EXPECT_FALSE(Number(kMost / 3 + 1).times(3, out));
  int32_t narrow = 0;
  EXPECT_FALSE(checked_add(int64_t{1} << 31, 0, narrow));
  EXPECT_TRUE(checked_mul(-1, int64_t{1} << 31, narrow));
  EXPECT_EQ(narrow, INT32_MIN);
}

}  // namespace
}  // namespace bowline
