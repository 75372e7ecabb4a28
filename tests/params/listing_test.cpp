// Listings with names that would break the format without quoting.
#include <gtest/gtest.h>

#include "params/table_fixture.h"

namespace bowline {
namespace {

std::string ties_of(const std::vector<std::pair<const char*, uint32_t>>& parameters) {
  params::Table t = test::make_table();
  t.shrink(t.storages.size(), 0);
  for (const auto& [name, tie] : parameters) {
    t.add({name, tie, {}, {}});
  }
  return t.list_ties();
}

TEST(Listing, OtherPartitionsPrintOtherTies) {
  EXPECT_EQ(ties_of({{"a", 0}, {"b", 0}, {"c", 0}}), "0: a, b, c\n");
  EXPECT_EQ(ties_of({{"a", 0}, {"b, c", 0}}), "0: a, \"b, c\"\n");
  EXPECT_EQ(ties_of({{"a", 0}, {"b\n1: c", 0}, {"d", 1}, {"e", 1}}),
            "0: a, \"b\\n1: c\"\n1: d, e\n");
  EXPECT_EQ(ties_of({{"a", 0}, {"b transposed", 0}}), "0: a, \"b transposed\"\n");
}

TEST(Listing, ParametersAreOneLineEach) {
  params::Table t = test::make_table();
  t.shrink(t.storages.size(), 0);
  t.add({"b tie 4 f32[1]\nq", 3, {}, "w\u202e"});
  EXPECT_EQ(t.list_parameters(), "\"b tie 4 f32[1]\\nq\" tie 3 f32[4] changes \"w\\u{202e}\"\n");
}

}  // namespace
}  // namespace bowline
