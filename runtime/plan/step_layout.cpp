#include "plan/step_layout.h"

#include <algorithm>

#include "base/checked.h"

namespace bowline::detail::plan {

size_t StepLayout::index_of(std::string_view name) const {
  const auto at = std::ranges::find(places_, name, [](const Place& p) { return p.word->name; });
  return static_cast<size_t>(at - places_.begin());
}

const StepLayout::Place* StepLayout::find(std::string_view name) const {
  const size_t index = index_of(name);
  return index == places_.size() ? nullptr : &places_[index];
}

size_t StepLayout::append(const StepWordInfo& word) {
  const uint32_t bytes = size_of(word.type);
  const auto offset = static_cast<uint32_t>(round_up(bytes_, bytes));
  bytes_ = offset + bytes;
  places_.push_back({&word, offset});
  return places_.size() - 1;
}

std::vector<uint32_t> StepLayout::add(Op op) {
  std::vector<uint32_t> offsets;
  for (const StepWordInfo& word : step_words(op)) {
    size_t index = index_of(word.name);
    if (index == places_.size()) {
      index = append(word);
    }
    places_[index].written = places_[index].written || word.written;
    offsets.push_back(places_[index].offset);
  }
  return offsets;
}

Status StepLayout::clash(Op op) const {
  for (const StepWordInfo& word : step_words(op)) {
    const Place* found = find(word.name);
    BOWLINE_REQUIRE(found == nullptr || !found->is_count,
                    "Dim \"{}\" is dynamic, but {} has a per-step scalar of this name.", word.name,
                    op);
  }
  return {};
}

Result<uint32_t> StepLayout::add_count(const std::string& dim, int64_t capacity) {
  if (const Place* found = find(dim)) {
    BOWLINE_REQUIRE(found->is_count,
                    "Dim \"{}\" is dynamic, but an operator has a per-step scalar of this name.",
                    dim);
    return found->offset;
  }
  auto count = std::make_shared<CountWord>(CountWord{dim, {}});
  count->word = {count->name, StepType::u32, static_cast<uint64_t>(capacity), false};
  counts_.push_back(count);
  Place& place = places_[append(count->word)];
  place.is_count = true;
  return place.offset;
}

}  // namespace bowline::detail::plan
