// Printing to stdout and stderr. Text from files, arguments and devices is escaped, so that it
// cannot control the terminal or be invisible. tools/checks/patterns.py checks that all code of the
// command prints with these functions.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/escape.h"
#include "bowline.h"

namespace bowline::command {

// Text that keeps its newlines: a listing, a message with its context.
struct Lines {
  std::string_view text;
};

namespace printing {

template <class T>
auto shown(const T& value) {
  if constexpr (std::is_same_v<T, Lines>) {
    return escaped_lines(value.text);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return escaped(value);
  } else {
    return value;
  }
}

template <class T>
using Shown = decltype(shown(std::declval<const T&>()));

void write(std::FILE* out, std::string_view text);

}  // namespace printing

// As fmt::print, but escapes all text in `values`.
template <class... T>
void print(std::FILE* out, fmt::format_string<printing::Shown<T>...> format, const T&... values) {
  printing::write(out, fmt::format(format, printing::shown(values)...));
}
template <class... T>
void print(fmt::format_string<printing::Shown<T>...> format, const T&... values) {
  command::print(stdout, format, values...);
}

// Prints text of a model and flushes. On a terminal, control characters are escaped; tabs, joiners
// and variation selectors are kept, because words and emoji need them. In a pipe or file the text
// is unchanged.
void print_answer(std::string_view text);

// Prints indented ASCII JSON. Invalid UTF-8 becomes U+FFFD.
void print_json(const nlohmann::json& value);

// As print_json(), but on one line.
void print_json_line(const nlohmann::json& value);

// Replaces the live line of a terminal.
void print_live(std::FILE* out, std::string_view text);

void flush(std::FILE* out);

// Flushes stdout. Returns false and sets `why` if a write failed. A reader that has closed the pipe
// (| head) is not a failure.
bool printed(std::string& why);

// True if the reader of stdout has closed the pipe.
bool reader_left();

// True if `out` is a terminal, TERM is not "dumb" and NO_COLOR is not set.
bool is_terminal(std::FILE* out);

}  // namespace bowline::command
