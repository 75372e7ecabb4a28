// The rules that both the builder and the verifier hold a model to, so that what one makes the
// other accepts. Each returns bad_argument with a sentence that starts with `what`.
#pragma once

#include <string_view>

#include "base/status.h"
#include "bowline.h"

namespace bowline {

constexpr size_t kMaxNameBytes = 1024;     // of a parameter, graph, dim, node, key, asset, ...
constexpr size_t kMaxTextBytes = 1 << 20;  // of a metadata value
constexpr int64_t kMaxRepeat = 65'536;     // iterations

// Not empty, not too long, valid UTF-8 without control characters.
Status check_name(std::string_view name, std::string_view what);
// As check_name(), or empty.
Status check_optional_name(std::string_view name, std::string_view what);
// Valid UTF-8, not too long.
Status check_text(std::string_view text, std::string_view what);
// A dim that is a number, in lowest..kMaxDim.
Status check_dim(int64_t value, int64_t lowest);
Status check_repeat(int64_t count, int64_t carried);
// The limits of a named dim: 1..kMaxDim, in order.
Status check_limits(std::string_view dim, int64_t min, int64_t max);
// Of attributes: the entries of a list; a size, in -kMaxDim..kMaxDim; a float, which is a number.
Status check_list(size_t entries, std::string_view attribute, size_t most);
Status check_size(int64_t value, std::string_view attribute);
Status check_number(double value, std::string_view attribute);

}  // namespace bowline
