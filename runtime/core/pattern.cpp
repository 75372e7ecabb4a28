#include "core/pattern.h"

namespace bowline {

bool matches(std::string_view pattern, std::string_view name) {
  const auto is_rest = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last "*" ...
  size_t kept = 0;                       // ... and where what follows it was tried last
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      kept = n;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      for (++n; n < name.size() && is_rest(name[n]); ++n) {
      }
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++kept;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace bowline
