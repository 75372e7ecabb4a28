#include "base/format.h"

#include <array>
#include <charconv>
#include <cmath>

namespace bowline {
namespace {

template <class T>
void append_number(std::string& out, T v) {
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v);
  out.append(buffer.data(), end.ptr);
}

}  // namespace

void append_text(std::string& out, bool v) { out += v ? "true" : "false"; }
void append_text(std::string& out, int64_t v) { append_number(out, v); }
void append_text(std::string& out, uint64_t v) { append_number(out, v); }
void append_text(std::string& out, double v) { append_number(out, v); }
void append_text(std::string& out, float v) { append_number(out, v); }

namespace detail {

std::string format_args(std::string_view text, std::span<const FormatArg> args) {
  std::string out;
  out.reserve(text.size() + 16 * args.size());
  size_t next = 0;
  while (!text.empty()) {
    const size_t hole = next < args.size() ? text.find("{}") : std::string_view::npos;
    out += text.substr(0, hole);
    if (hole == std::string_view::npos) {
      break;
    }
    args[next].append(out, args[next].value);
    ++next;
    text.remove_prefix(hole + 2);
  }
  return out;
}

}  // namespace detail
}  // namespace bowline
