#include "plan/step_layout.h"

#include <algorithm>

#include "core/checked.h"

namespace bowline::plan {

const StepLayout::Place* StepLayout::find(std::string_view name) const {
  const auto at = std::ranges::find(places_, name, [](const Place& p) { return p.word->name; });
  return at == places_.end() ? nullptr : &*at;
}

std::vector<uint32_t> StepLayout::add(Op op) {
  std::vector<uint32_t> offsets;
  for (const StepWordInfo& word : step_words(op)) {
    auto at = std::ranges::find(places_, word.name, [](const Place& p) { return p.word->name; });
    if (at == places_.end()) {
      const uint32_t bytes = size_of(word.type);
      const auto offset = static_cast<uint32_t>(round_up(bytes_, bytes));
      bytes_ = offset + bytes;
      at = places_.insert(at, {&word, offset, false});
    }
    at->written = at->written || word.written;
    offsets.push_back(at->offset);
  }
  return offsets;
}

}  // namespace bowline::plan
