// format("{} of {}", a, b): text for messages and listings, without locale and without <format>.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace bowline {

void append_text(std::string& out, bool v);
void append_text(std::string& out, int64_t v);
void append_text(std::string& out, uint64_t v);
// The shortest text that reads back as the same double; a float prints as the shortest of its own
// precision.
void append_text(std::string& out, double v);
void append_text(std::string& out, float v);
inline void append_text(std::string& out, std::string_view v) { out += v; }
inline void append_text(std::string& out, const std::string& v) { out += v; }
inline void append_text(std::string& out, const char* v) { out += v; }
inline void append_text(std::string& out, char v) { out += v; }

template <class T>
  requires(std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
           !std::same_as<T, int64_t> && !std::same_as<T, uint64_t>)
void append_text(std::string& out, T v) {
  if constexpr (std::is_signed_v<T>) {
    append_text(out, static_cast<int64_t>(v));
  } else {
    append_text(out, static_cast<uint64_t>(v));
  }
}

namespace detail {
struct FormatArg {
  const void* value;
  void (*append)(std::string& out, const void* value);
};
std::string format_args(std::string_view text, std::span<const FormatArg> args);

template <class T>
void append_erased(std::string& out, const void* value) {
  append_text(out, *static_cast<const T*>(value));  // arrays of char decay here
}
}  // namespace detail

// Replaces each "{}" of `text` by the next argument. Surplus braces stay as they are. An object and
// no function, beside which an argument of namespace std would bring std::format into the call.
struct Format {
  std::string operator()(std::string_view text) const { return std::string(text); }

  template <class... Ts>
  std::string operator()(std::string_view text, const Ts&... values) const {
    const detail::FormatArg args[] = {
        {static_cast<const void*>(&values), detail::append_erased<Ts>}...};
    return detail::format_args(text, args);
  }
};
inline constexpr Format format{};

}  // namespace bowline
