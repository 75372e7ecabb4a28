#include <algorithm>
#include <map>
#include <set>

#include "base/pattern.h"
#include "bowline.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// Compares by number, without leading zeros.
bool is_less(std::string_view a, std::string_view b) {
  const auto strip = [](std::string_view& digits) {
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  };
  strip(a);
  strip(b);
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// Reports a storage that no parameter uses any more, and the rows that belong to it.
void note_dropped(const Table& table, uint32_t tie, TieReport& report) {
  const auto add = [&](uint32_t row) {
    const Storage& s = table.storages[row];
    if (!s.empty) {
      report.dropped.push_back({row, s.role, s.bytes()});
    }
  };
  add(tie);
  for (const uint32_t row : sorted(table.owned(tie))) {
    add(row);
  }
}

Status check_pair(const Stage& stage, const ParameterRow& first, const ParameterRow& second,
                  const View& wanted) {
  const Storage& shared = stage.current(first.tie);
  const Storage& left = stage.current(second.tie);
  BOWLINE_TRY_ASSIGN(const Shape now, view_shape(wanted, shared.shape));
  BOWLINE_TRY(shared.encoding.check_view(wanted, shared.shape));
  BOWLINE_TRY_ASSIGN(const Shape before, view_shape(second.view, left.shape));
  BOWLINE_REQUIRE(now == before && shared.dtype == left.dtype,
                  "Parameter \"{}\" is {}{}, but the view of \"{}\" is {}{}.", second.name,
                  left.dtype, before, first.name, shared.dtype, now);
  BOWLINE_REQUIRE(shared.trainable == left.trainable, "Parameter \"{}\" is {}, but \"{}\" is {}.",
                  first.name, shared.trainable ? "trainable" : "frozen", second.name,
                  left.trainable ? "trainable" : "frozen");
  return {};
}

// Ties the second parameter to the first. Adds the storage that the second leaves to `left`.
Status tie_pair(Stage& stage, const Pair& pair, TieReport& report, std::set<uint32_t>& left) {
  const ParameterRow& first = stage.current_parameter(pair.first);
  const ParameterRow& second = stage.current_parameter(pair.second);
  const View wanted = pair.view.value_or(first.view);
  if (first.tie == second.tie && wanted == second.view) {
    return {};
  }
  BOWLINE_REQUIRE(pair.first != pair.second,
                  "Parameter \"{}\" cannot be tied to itself through another view.", first.name);
  BOWLINE_TRY(check_pair(stage, first, second, wanted)
                  .at(format("While tying \"{}\" to \"{}\".", second.name, first.name)));
  report.ties.push_back({first.name, second.name});
  const uint32_t from = second.tie, to = first.tie;
  ++stage.storage(to).generation;
  if (from != to) {
    ++stage.storage(from).generation;
    left.insert(from);
  }
  stage.show(pair.second, to, wanted);
  return {};
}

}  // namespace

Result<std::vector<Pair>> numbered_pairs(const Table& table, std::string_view pattern) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> patterns, alternatives(pattern));
  for (const std::string& p : patterns) {
    const size_t number = p.find("{}");
    BOWLINE_REQUIRE(number != p.npos && p.find("{}", number + 1) == p.npos,
                    "The pattern \"{}\" must contain \"{}\" once, in place of the number.", p,
                    "{}");
  }
  struct Member {
    std::string_view number;
    uint32_t parameter;
  };
  std::map<std::string, std::vector<Member>, std::less<>> groups;  // by the name without the number
  for (uint32_t i = 0; i < table.parameters.size(); ++i) {
    const std::string_view name = table.parameters[i].name;
    for (const std::string& p : patterns) {
      if (const std::optional<Digits> digits = number_in(p, name)) {
        std::string around(name.substr(0, digits->begin));
        around.append("{}").append(name.substr(digits->end));
        groups[std::move(around)].push_back(
            {name.substr(digits->begin, digits->end - digits->begin), i});
        break;
      }
    }
  }
  std::vector<Pair> pairs;
  for (auto& [around, members] : groups) {
    std::ranges::stable_sort(members, is_less, &Member::number);
    for (size_t m = 1; m < members.size(); ++m) {
      pairs.push_back({members[0].parameter, members[m].parameter, {}});
    }
  }
  BOWLINE_REQUIRE(
      !pairs.empty(),
      "No two of the {} parameters match the pattern \"{}\" and differ only in its number.",
      table.parameters.size(), pattern);
  return pairs;
}

Result<TieReport> tie(Table& table, std::span<const Pair> pairs, int busy) {
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "tie()"));
  TieReport report;
  std::set<uint32_t> left;
  for (const Pair& pair : pairs) {
    BOWLINE_TRY(tie_pair(stage, pair, report, left));
  }
  for (const uint32_t tie : left) {
    if (stage.retire(tie)) {
      note_dropped(table, tie, report);
    }
  }
  if (!report.ties.empty()) {
    stage.commit();
  }
  return report;
}

Result<TieReport> tie(Table& table, std::string_view a, std::string_view b,
                      const std::optional<View>& view, int busy) {
  BOWLINE_TRY_ASSIGN(const uint32_t first, table.require(a));
  BOWLINE_TRY_ASSIGN(const uint32_t second, table.require(b));
  const Pair pair{first, second, view};
  return tie(table, {&pair, 1}, busy);
}

}  // namespace bowline::detail::params
