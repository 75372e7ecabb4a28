#include "common/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace bowline::command {
namespace {

// The columns where the descriptions of flags and of verbs begin.
constexpr size_t kDescription = 30;
constexpr size_t kVerbs = 14;

// The first short and the first long name: "-n, --max-tokens".
std::string names(const CLI::Option& option) {
  std::string out;
  if (!option.get_snames().empty()) {
    out = "-" + option.get_snames()[0];
  }
  if (!option.get_lnames().empty()) {
    out += (out.empty() ? "--" : ", --") + option.get_lnames()[0];
  }
  return out;
}

// Converts "TEXT:{a,b}", the type that CLI11 makes from a list of choices, to "a|b". Empty: any
// value.
std::string choices(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}', std::min(begin, type.size()));
  if (end == std::string::npos) {
    return "";
  }
  std::string out = type.substr(begin + 1, end - begin - 1);
  std::ranges::replace(out, ',', '|');
  return out;
}

// Converts the type and range that CLI11 prints to a short name: "INT:1..8" to "N".
std::string value_name(const std::string& type) {
  const std::string name = type.substr(0, type.find(':'));
  return type.ends_with("BYTES")           ? "BYTES"
         : name == "INT" || name == "UINT" ? "N"
         : name == "FLOAT"                 ? "X"
                                           : name;
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kVerbs); }

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string type = option->get_type_size() == 0 ? "" : option->get_type_name();
  const bool is_missed = option->get_required() && !is_positional;
  const std::string fallback = is_missed ? "required" : option->get_default_str();
  std::string listed = choices(type);
  std::string left = "  " + (is_positional ? option->get_name(true) : names(*option));
  if (!is_positional && left.size() + 1 + listed.size() < kDescription && !listed.empty()) {
    left += " " + std::exchange(listed, "");
  } else if (!is_positional && !type.empty()) {
    left += " " + value_name(type);
  }
  std::string right = option->get_description();
  if (!listed.empty()) {
    right += (right.empty() ? "" : ": ") + listed;
  }
  if (!fallback.empty()) {
    right += fmt::format(" [{}]", fallback);
  }
  return fmt::format("{:<{}} {}\n", left, kDescription - 1, right);
}

// CLI11 writes two empty lines between groups.
std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string out = CLI::Formatter::make_help(app, std::move(name), mode);
  for (size_t at = out.find("\n\n\n"); at != std::string::npos; at = out.find("\n\n\n")) {
    out.erase(at, 1);
  }
  return out;
}

}  // namespace bowline::command
