// The index of a table by storage and by owner equals a walk over the rows after every verb. Verbs
// do not walk over the rows: they touch only a few pages of a large table.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "need.h"
#include "params/table_fixture.h"

namespace bowline {
namespace {

using params::ParameterRow;
using params::Role;
using params::Storage;
using params::Table;
using Numbers = std::vector<uint32_t>;

void expect_index(const Table& t) {
  for (uint32_t tie = 0; tie < t.storages.size(); ++tie) {
    Numbers users, owned;
    for (uint32_t p = 0; p < t.parameters.size(); ++p) {
      if (t.parameters[p].tie == tie) {
        users.push_back(p);
      }
    }
    for (uint32_t row = 0; row < t.storages.size(); ++row) {
      if (t.storages[row].owner == static_cast<int32_t>(tie)) {
        owned.push_back(row);
      }
    }
    EXPECT_EQ(sorted(t.users(tie)), users) << tie;
    EXPECT_EQ(t.users(tie).has_several(), users.size() > 1) << tie;
    EXPECT_EQ(sorted(t.owned(tie)), owned) << tie;
    for (const Role role : {Role::moment, Role::gradient}) {
      const auto first = std::ranges::find_if(owned, [&](uint32_t row) {
        return !t.storages[row].empty && t.storages[row].role == role && t.storages[row].slot == 0;
      });
      const auto found = t.owned(tie, role, 0);
      EXPECT_EQ(found, first == owned.end() ? std::nullopt : std::optional(*first)) << tie;
    }
  }
  const auto past = static_cast<uint32_t>(t.storages.size());
  EXPECT_EQ(sorted(t.users(past)), Numbers());
  EXPECT_EQ(sorted(t.owned(past)), Numbers());
  for (uint32_t p = 0; p < t.parameters.size(); ++p) {
    EXPECT_EQ(t.find(t.parameters[p].name), p);
  }
}

Storage moment_of(const Table& t, uint32_t owner, uint32_t slot) {
  Storage row;
  row.shape = t.storages[owner].shape;
  row.role = Role::moment;
  row.owner = static_cast<int32_t>(owner);
  row.slot = slot;
  row.home = params::make_home(t.device(), std::vector<std::byte>(row.bytes())).value();
  return row;
}

TEST(Index, IsThatOfAWalkWhateverIsDone) {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return static_cast<uint32_t>(random() % n); };
  Table t = test::make_table();
  Table kept = t;
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    const auto any = [&] { return t.parameters[pick(t.parameters.size())].name; };
    switch (pick(10)) {
      case 0:
        (void)params::add_parameter(t, format("new{}", i), DType::f32, Shape{2, 2}.dims(),
                                    Init::zeros(), 0);
        break;
      case 1:
        (void)params::add_tied_parameter(t, format("tied{}", i), pick(t.parameters.size()), {}, 0);
        break;
      case 2:
      case 3:
      case 4:
        refused += params::tie(t, any(), any(), {}, 0).ok() ? 0 : 1;
        break;
      case 5:
      case 6:
        (void)params::materialize(t, 1, 0);
        EXPECT_TRUE(params::untie(t, any(), 0).ok());
        break;
      case 7:
        if (const uint32_t tie = pick(t.storages.size());
            !t.storages[tie].empty && t.storages[tie].role == Role::weight) {
          t.add(moment_of(t, tie, t.owned(tie, Role::moment, 0) ? 1 : 0));
        }
        break;
      case 8:
        if (pick(8) == 0) {
          params::drop_training(t);
        }
        break;
      default:
        if (pick(8) == 0) {
          kept = params::clone(t).value();
          expect_index(kept);
        } else if (pick(8) == 0) {
          t = kept;
        }
    }
    expect_index(t);
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(t.parameters.size(), 20u);
}

TEST(Index, OfRowsInAnyOrderOfTheirOwners) {
  std::vector<Storage> rows(4);
  rows[0].owner = 3;
  rows[0].role = Role::moment;
  rows[2].owner = 1;
  rows[2].role = Role::gradient;
  Table t(std::move(rows));
  t.add({"w", 3, {}, {}});
  expect_index(t);
  EXPECT_EQ(t.owned(3, Role::moment, 0), 0u);
  // Changes the owner, as a rollback can do.
  Storage other = t.storages[0];
  other.owner = 1;
  t.put(0, other);
  expect_index(t);
  EXPECT_EQ(t.owned(3, Role::moment, 0), std::nullopt);
  other.owner = 3;
  t.put(0, other);
  t.shrink(3, 0);  // removes the owner
  EXPECT_EQ(sorted(t.owned(3)), Numbers());
  EXPECT_EQ(t.find("w"), std::nullopt);
}

TEST(Index, FindsTheNamesThatAreLeft) {
  std::vector<std::string> all;
  params::Names names;
  const auto name_of = [&](uint32_t number) -> std::string_view { return all[number]; };
  EXPECT_EQ(names.find("0", name_of), params::Names::kNone);
  std::vector<uint32_t> left;
  for (uint32_t n = 0; n < 3000; ++n) {
    all.push_back(format("{}", n));
    names.reserve(1);
    names.add(all.back(), n);
    left.push_back(n);
  }
  std::mt19937 random(3);
  std::ranges::shuffle(left, random);
  while (!left.empty()) {
    names.remove(all[left.back()], left.back());
    EXPECT_EQ(names.find(all[left.back()], name_of), params::Names::kNone);
    left.pop_back();
    for (size_t i = 0; i < left.size(); i += 1 + left.size() / 50) {
      ASSERT_EQ(names.find(all[left[i]], name_of), left[i]);
    }
  }
}

constexpr uint64_t kPage = 4096;

uint64_t referenced_pages() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word == "Referenced:") {
      uint64_t kib = 0;
      file >> kib;
      return kib * 1024 / kPage;
    }
  }
  return 0;
}

// Returns the number of pages that the process touches during the call. The kernel marks touched
// pages.
template <class Call>
uint64_t pages_touched(const Call& call) {
  std::ofstream("/proc/self/clear_refs") << "1";
  call();
  return referenced_pages();
}

TEST(Index, AVerbTouchesAFewPagesOfALargeTable) {
  constexpr int kParameters = 40'000;
  constexpr uint64_t kTable =
      kParameters * (sizeof(Storage) + sizeof(ParameterRow)) / kPage;  // without names and index
  const auto name = [](int i) { return format("layers.{}.weight", i); };
  Table t;
  for (int i = 0; i < kParameters; ++i) {
    ASSERT_TRUE(
        params::add_parameter(t, name(i), DType::f32, Shape{1}.dims(), Init::ones(), 0).ok());
  }
  ASSERT_TRUE(params::materialize(t, 1, 0).ok());
  const uint64_t walk = pages_touched([&] { (void)t.list_parameters(); });
  BOWLINE_NEED(walk > kTable ? "" : "The kernel does not tell which pages are touched.");
  const uint64_t nothing = pages_touched([] {});
  // Other processes can mark pages as touched. A verb that walks touches the pages in every call,
  // so the smallest count decides.
  const auto expect_few = [&](const char* what, const auto& call) {
    uint64_t fewest = UINT64_MAX;
    for (int i = 1; i <= 8; ++i) {
      fewest = std::min(fewest, pages_touched([&] { EXPECT_TRUE(call(4000 * i)) << what; }));
    }
    EXPECT_LT(fewest, nothing + kTable / 10) << what << " of a table of " << kTable << " pages";
  };
  std::vector<float> value = {2};
  const Tensor tensor = test::tensor_of(value, {1});
  t.reserve(8, 16);
  expect_few("tie", [&](int i) { return params::tie(t, name(0), name(i), {}, 0).ok(); });
  expect_few("untie", [&](int i) { return params::untie(t, name(i), 0).ok(); });
  expect_few("untie alone", [&](int i) { return params::untie(t, name(i), 0).ok(); });
  expect_few("freeze", [&](int i) { return params::freeze(t, name(i), true, false, 0).ok(); });
  expect_few("thaw", [&](int i) { return params::freeze(t, name(i), false, false, 0).ok(); });
  expect_few("set_value", [&](int i) { return params::set_value(t, name(i), tensor, 0).ok(); });
  expect_few("get_value", [&](int i) { return params::get_value(t, name(i), tensor).ok(); });
  expect_few("owned", [&](int i) {
    return !t.owned(static_cast<uint32_t>(i), Role::moment, 0).has_value();
  });
  expect_few("parameter", [&](int i) {
    const std::string fresh = format("new.{}", i);
    return params::add_parameter(t, fresh, DType::f32, Shape{1}.dims(), Init::ones(), 0).ok();
  });
  expect_few("tied_parameter", [&](int i) {
    const auto other = static_cast<uint32_t>(i);
    return params::add_tied_parameter(t, format("also.{}", i), other, {}, 0).ok();
  });
}

}  // namespace
}  // namespace bowline
