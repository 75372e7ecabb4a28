// Rules that both the builder and the file verifier check, so that the verifier accepts every model
// that can be built. Each function returns bad_argument; the message starts with `what`.
#pragma once

#include <string_view>

#include "base/status.h"
#include "bowline.h"

namespace bowline {

constexpr size_t kMaxNameBytes = 1024;     // of a parameter, graph, dim, node, key, asset, ...
constexpr size_t kMaxTextBytes = 1 << 20;  // of a metadata value
constexpr int64_t kMaxRepeat = 65'536;     // iterations

// A name must be valid UTF-8 without control characters, not empty and not too long.
Status check_name(std::string_view name, std::string_view what);
// The same, but the name may be empty.
Status check_optional_name(std::string_view name, std::string_view what);
// A text must be valid UTF-8 and not too long.
Status check_text(std::string_view text, std::string_view what);
// A size must be in lowest..kMaxDim.
Status check_dim(int64_t value, int64_t lowest);
Status check_repeat(int64_t count, int64_t carried);
// The limits of a named dim must be in 1..kMaxDim, with min <= max.
Status check_limits(std::string_view dim, int64_t min, int64_t max);
// Attributes: a list has at most `most` entries, a size is in -kMaxDim..kMaxDim, a float is not
// NaN.
Status check_list(size_t entries, std::string_view attribute, size_t most);
Status check_size(int64_t value, std::string_view attribute);
Status check_number(double value, std::string_view attribute);

}  // namespace bowline
