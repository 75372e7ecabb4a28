// Finds an element by its name.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

namespace bowline::command {

// Returns the element whose member `name` is `name`. Null if there is none.
template <class Range>
auto* find_named(Range&& range, std::string_view name) {
  const auto found = std::ranges::find_if(range, [&](const auto& e) { return e.name == name; });
  return found == std::ranges::end(range) ? nullptr : std::to_address(found);
}

}  // namespace bowline::command
