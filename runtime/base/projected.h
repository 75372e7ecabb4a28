// The values of a projection. std::views::transform does the same, but Clang 14 compiles no views
// of libstdc++ 12.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

namespace bowline {

// Returns projection(item) for each item. `projection` may be a pointer to a member.
template <class Range, class Projection>
auto projected(const Range& items, Projection projection) {
  using Item = decltype(*std::begin(items));
  std::vector<std::decay_t<std::invoke_result_t<Projection, Item>>> out;
  for (const auto& item : items) {
    out.push_back(std::invoke(projection, item));
  }
  return out;
}

}  // namespace bowline
