#include "plan/step_layout.h"

#include <algorithm>

#include "core/checked.h"

namespace bowline::plan {

size_t StepLayout::index_of(std::string_view name) const {
  const auto at = std::ranges::find(places_, name, [](const Place& p) { return p.word->name; });
  return static_cast<size_t>(at - places_.begin());
}

const StepLayout::Place* StepLayout::find(std::string_view name) const {
  const size_t index = index_of(name);
  return index == places_.size() ? nullptr : &places_[index];
}

std::vector<uint32_t> StepLayout::add(Op op) {
  std::vector<uint32_t> offsets;
  for (const StepWordInfo& word : step_words(op)) {
    const size_t index = index_of(word.name);
    if (index == places_.size()) {
      const uint32_t bytes = size_of(word.type);
      const auto offset = static_cast<uint32_t>(round_up(bytes_, bytes));
      bytes_ = offset + bytes;
      places_.push_back({&word, offset, false});
    }
    places_[index].written = places_[index].written || word.written;
    offsets.push_back(places_[index].offset);
  }
  return offsets;
}

}  // namespace bowline::plan
