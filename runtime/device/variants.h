// Variants of the kernels of a device, for tests. An environment variable names them, separated by
// commas.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bowline::detail::device {

// Target describes a device to the launchers of its backend.
template <class Target>
struct KernelVariant {
  std::string_view name;
  void (*apply)(Target&);
};

// Applies the variants that the environment variable names. Returns an empty text, or why its value
// is wrong. `bowline devices` then shows this text as the reason of every device of the backend.
template <class Target>
std::string apply_variants(const char* variable, std::span<const KernelVariant<Target>> known,
                           Target* target) {
  const char* const value = std::getenv(variable);
  const std::string_view words = value == nullptr ? "" : value;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string_view name = words.substr(begin, end - begin);
    const auto found = std::ranges::find(known, name, &KernelVariant<Target>::name);
    if (found == known.end()) {
      std::string names;
      for (const KernelVariant<Target>& v : known) {
        names += format("{}{}", names.empty() ? "" : ", ", v.name);
      }
      return format("{} names '{}'. The variants are: {}.", variable, name, names);
    }
    found->apply(*target);
    begin = end + 1;
  }
  return {};
}

}  // namespace bowline::detail::device
