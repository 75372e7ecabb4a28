// Status and Result: how everything in Bowline fails. No exceptions.
//
// The codes, BOWLINE_TRY and BOWLINE_TRY_ASSIGN are public (bowline.h). A message is a sentence in
// the present tense that states what failed, with values; callers add lines on the way up with
// Status::at().
#pragma once

#include "base/detail.h"
#include "base/format.h"
#include "bowline/status.h"

// A false condition returns bad_argument with the sentence; while a file is loaded the caller turns
// it into bad_file.
#define BOWLINE_REQUIRE(condition, ...) \
  BOWLINE_REQUIRE_CODE(condition, ::bowline::Code::bad_argument, __VA_ARGS__)
#define BOWLINE_REQUIRE_CODE(condition, code, ...)  \
  do {                                              \
    if (!(condition)) {                             \
      return ::bowline::failure(code, __VA_ARGS__); \
    }                                               \
  } while (false)

namespace bowline {
namespace detail {
Status failure_of(Code code, std::string_view text, std::span<const FormatArg> args);
}  // namespace detail

// The error with the sentence format(text, values...). A function of its own, so that a check is
// small where it stands.
template <class... Ts>
[[gnu::cold, gnu::noinline]] Status failure(Code code, const char* text, const Ts&... values) {
  if constexpr (sizeof...(values) == 0) {
    return detail::failure_of(code, text, {});
  } else {
    const detail::FormatArg args[] = {
        {static_cast<const void*>(&values), detail::append_erased<Ts>}...};
    return detail::failure_of(code, text, args);
  }
}

// The error with this sentence.
inline Status failure(Code code, std::string_view text) { return Status(code, std::string(text)); }

// Adds a line of context to the error of a failed result, as Status::at() does.
template <class T>
Result<T> in_context(Result<T> result, std::string_view context) {
  return result.ok() ? std::move(result) : std::move(result).status().at(context);
}

}  // namespace bowline
