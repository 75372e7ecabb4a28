// All that the command prints goes through here: nothing that comes from a file, an argument or a
// device can act on a terminal or be invisible. tools/checks/printing.py holds it.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/escape.h"
#include "bowline.h"

namespace bowline::command {

// Text whose newlines are meant: a listing, a message with its context.
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

// As fmt::print, with all text among the values escaped.
template <class... T>
void print(std::FILE* out, fmt::format_string<printing::Shown<T>...> format, const T&... values) {
  printing::write(out, fmt::format(format, printing::shown(values)...));
}
template <class... T>
void print(fmt::format_string<printing::Shown<T>...> format, const T&... values) {
  command::print(stdout, format, values...);
}

// Text that a model writes, at once. Where stdout is a terminal, what could act on it is escaped;
// tabs, joiners and variation selectors are parts of words and emoji, and stay. Elsewhere nothing
// is changed.
void print_answer(std::string_view text);

// Indented, in ASCII; bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::json& value);

// The same in one line, for output of many values.
void print_json_line(const nlohmann::json& value);

// Replaces the live line of a terminal.
void print_live(std::FILE* out, std::string_view text);

void flush(std::FILE* out);

// True if all that was printed to stdout has been written, or its reader left early (| head); else
// `why` says what failed first.
bool printed(std::string& why);

// Whether the reader of stdout has left: nobody sees what is printed from now on.
bool reader_left();

// Whether `out` is a terminal that understands escape sequences: not if TERM is dumb, or NO_COLOR
// is set.
bool is_terminal(std::FILE* out);

}  // namespace bowline::command
