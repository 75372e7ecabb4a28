#include "params/stage.h"

#include <algorithm>

namespace bowline::params {

Status require_idle(int busy, std::string_view verb) {
  BOWLINE_REQUIRE(busy == 0, "The model is busy: {} would change storages that are read now.",
                  verb);
  return {};
}

Result<Stage> Stage::begin(Table& table, int busy, std::string_view verb) {
  BOWLINE_TRY(require_idle(busy, verb));
  return Stage(table);
}

std::vector<uint32_t> Stage::owned_by(uint32_t owner) const {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < copy_.storages.size(); ++i) {
    const Storage& s = copy_.storages[i];
    if (!s.empty && s.owner == static_cast<int32_t>(owner)) {
      out.push_back(i);
    }
  }
  return out;
}

void Stage::retire(uint32_t tie) {
  if (std::ranges::count(copy_.parameters, tie, &ParameterRow::tie) > 0) {
    return;
  }
  const auto make_empty = [&](uint32_t row) {
    Storage& s = copy_.storages[row];
    s.empty = true;
    s.home = {};
    ++s.generation;
  };
  for (const uint32_t row : owned_by(tie)) {
    make_empty(row);
  }
  make_empty(tie);
}

}  // namespace bowline::params
