#include "base/status.h"

#include <gtest/gtest.h>

namespace bowline {
namespace {

Status check(int64_t rows) {
  BOWLINE_REQUIRE(rows == 3, "There are {} rows, not {}.", rows, 3);
  return {};
}

TEST(Status, TakesOnePointer) { EXPECT_EQ(sizeof(Status), sizeof(void*)); }

TEST(Status, SuccessHasNoMessage) {
  const Status status(Code::ok, "not an error");
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(Status().at("While testing.").as(Code::internal).message(), "");
}

TEST(Status, ACopyIsIndependent) {
  Status first = check(2);
  const Status copy = first;
  first = std::move(first).at("While testing.").as(Code::bad_file);
  EXPECT_EQ(first.code(), Code::bad_file);
  EXPECT_EQ(first.message(), "There are 2 rows, not 3.\n- While testing.");
  EXPECT_EQ(copy.code(), Code::bad_argument);
  EXPECT_EQ(copy.message(), "There are 2 rows, not 3.");
  const Status moved = std::move(first);
  EXPECT_EQ(moved.code(), Code::bad_file);
  first = copy;
  EXPECT_EQ(first.message(), copy.message());
  EXPECT_TRUE(check(3).ok());
}

}  // namespace
}  // namespace bowline
