// Error handling of bowline::text: conditions with messages, and the boundary that turns a failed
// allocation into a Status. The same helpers of the library are in core/, which is not visible
// here.
#pragma once

#include <concepts>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "bowline.h"

namespace bowline::text {

inline std::string shown(std::string_view value) { return std::string(value); }
inline std::string shown(std::integral auto value) { return std::to_string(value); }

// Replaces each "{}" by the next value.
template <class... Ts>
std::string sentence(std::string_view text, const Ts&... values) {
  const std::string parts[] = {shown(values)..., std::string()};
  std::string out;
  size_t next = 0;
  for (size_t at = text.find("{}"); at != std::string_view::npos && next < sizeof...(Ts);
       at = text.find("{}")) {
    out.append(text.substr(0, at)).append(parts[next++]);
    text.remove_prefix(at + 2);
  }
  return out.append(text);
}

// Runs `call`. A failed allocation becomes a Status or an empty value.
template <class F>
auto guarded(F&& call) -> std::invoke_result_t<F> {
  using R = std::invoke_result_t<F>;
  try {
    return call();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  if constexpr (std::is_constructible_v<R, Status>) {
    return Status(Code::out_of_memory, "Out of memory.");  // short enough to need no allocation
  } else {
    return R();
  }
}

}  // namespace bowline::text

#define BOWLINE_TEXT_REQUIRE(condition, code, ...)                            \
  do {                                                                        \
    if (!(condition)) {                                                       \
      return ::bowline::Status(code, ::bowline::text::sentence(__VA_ARGS__)); \
    }                                                                         \
  } while (false)
