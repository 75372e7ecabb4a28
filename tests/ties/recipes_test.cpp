// Runs every recipe on every device and on the mocks. To test one device, run bowline conform
// --suite ties.
#include "ties/recipe.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

std::vector<const Recipe*> all() {
  std::vector<const Recipe*> out;
  for (const std::span<const Recipe> topic : recipes()) {
    for (const Recipe& recipe : topic) {
      out.push_back(&recipe);
    }
  }
  return out;
}

class Recipes : public testing::TestWithParam<const Recipe*> {};
INSTANTIATE_TEST_SUITE_P(All, Recipes, testing::ValuesIn(all()),
                         [](const auto& p) { return test_name(p.param->id); });

TEST_P(Recipes, Holds) {
  std::vector<std::string> devices = computing_device_names();
  devices.insert(devices.end(), std::begin(kMocks), std::end(kMocks));
  for (const std::string& device : usable(devices)) {
    const std::string problems =
        run(*GetParam(), open_test_device("cpu"), open_test_device(device));
    EXPECT_TRUE(problems.empty()) << device << ": " << problems;
  }
}

TEST(RecipeNames, AreUnique) {
  std::map<std::string_view, int> seen;
  for (const Recipe* recipe : all()) {
    EXPECT_EQ(seen[recipe->id]++, 0) << recipe->id;
  }
}

}  // namespace
}  // namespace bowline::test
