#include "plan/step_layout.h"

#include <algorithm>

#include "core/checked.h"

namespace bowline::plan {

const StepLayout::Place* StepLayout::find(std::string_view name) const {
  const auto at = std::ranges::find(places_, name, [](const Place& p) { return p.word->name; });
  return at == places_.end() ? nullptr : &*at;
}

const StepLayout::Place* StepLayout::append(const StepWordInfo& word) {
  const uint32_t bytes = size_of(word.type);
  const auto offset = static_cast<uint32_t>(round_up(bytes_, bytes));
  bytes_ = offset + bytes;
  return &places_.emplace_back(Place{&word, offset});
}

std::vector<uint32_t> StepLayout::add(Op op) {
  std::vector<uint32_t> offsets;
  for (const StepWordInfo& word : step_words(op)) {
    const Place* found = find(word.name);
    found = found != nullptr ? found : append(word);
    Place& place = places_[static_cast<size_t>(found - places_.data())];
    place.written = place.written || word.written;
    offsets.push_back(place.offset);
  }
  return offsets;
}

Status StepLayout::clash(Op op) const {
  for (const StepWordInfo& word : step_words(op)) {
    const Place* found = find(word.name);
    BOWLINE_REQUIRE(found == nullptr || !found->is_count,
                    "Dim \"{}\" is counted, but {} has a step word of this name.", word.name, op);
  }
  return {};
}

Result<uint32_t> StepLayout::add_count(const std::string& dim, int64_t capacity) {
  if (const Place* found = find(dim)) {
    BOWLINE_REQUIRE(found->is_count,
                    "Dim \"{}\" is counted, but an operator has a step word of this name.", dim);
    return found->offset;
  }
  auto count = std::make_shared<CountWord>(CountWord{dim, {}});
  count->word = {count->name, StepType::u32, static_cast<uint64_t>(capacity), false};
  counts_.push_back(count);
  const Place* place = append(count->word);
  places_[static_cast<size_t>(place - places_.data())].is_count = true;
  return place->offset;
}

}  // namespace bowline::plan
