#include "core/rules.h"

#include <cmath>

#include "base/utf8.h"
#include "core/shape.h"

namespace bowline {

Status check_name(std::string_view name, std::string_view what) {
  BOWLINE_REQUIRE(!name.empty(), "{} has no name.", what);
  BOWLINE_REQUIRE(name.size() <= kMaxNameBytes, "{} has a name of {} bytes, above the limit of {}.",
                  what, name.size(), kMaxNameBytes);
  BOWLINE_REQUIRE(valid_name(name),
                  "{} has a name that is not valid UTF-8 or holds control characters.", what);
  return {};
}

Status check_optional_name(std::string_view name, std::string_view what) {
  return name.empty() ? Status() : check_name(name, what);
}

Status check_text(std::string_view text, std::string_view what) {
  BOWLINE_REQUIRE(text.size() <= kMaxTextBytes, "{} has {} bytes, above the limit of {}.", what,
                  text.size(), kMaxTextBytes);
  BOWLINE_REQUIRE(valid_utf8(text), "{} is not valid UTF-8.", what);
  return {};
}

Status check_dim(int64_t value, int64_t lowest) {
  BOWLINE_REQUIRE(value >= lowest && value <= kMaxDim, "Dim {} lies outside {}..{}.", value, lowest,
                  kMaxDim);
  return {};
}

Status check_repeat(int64_t count, int64_t carried) {
  BOWLINE_REQUIRE(count >= 1 && count <= kMaxRepeat, "The Repeat has a count of {}, outside 1..{}.",
                  count, kMaxRepeat);
  BOWLINE_REQUIRE(carried >= 1, "The Repeat needs at least one carried value.");
  return {};
}

Status check_list(size_t entries, std::string_view attribute, size_t most) {
  BOWLINE_REQUIRE(entries <= most, "The attribute {} has {} entries, above {}.", attribute, entries,
                  most);
  return {};
}

Status check_limits(std::string_view dim, int64_t min, int64_t max) {
  BOWLINE_REQUIRE(min >= 1 && min <= max && max <= kMaxDim,
                  "Dim \"{}\" has the invalid limits {} to {}.", dim, min, max);
  return {};
}

Status check_size(int64_t value, std::string_view attribute) {
  BOWLINE_REQUIRE(value >= -kMaxDim && value <= kMaxDim, "The attribute {} is {}, outside {}..{}.",
                  attribute, value, -kMaxDim, kMaxDim);
  return {};
}

Status check_number(double value, std::string_view attribute) {
  BOWLINE_REQUIRE(!std::isnan(value), "The attribute {} is not a number.", attribute);
  return {};
}

}  // namespace bowline
