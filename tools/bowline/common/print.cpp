#include "common/print.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/escape.h"

namespace bowline::command {
namespace {

// Returns the length of a character that a terminal gets unchanged: a tab, a zero-width joiner or a
// variation selector. Returns 0 if there is none at `at`.
size_t length_of_kept(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0};
  };
  const bool joiner = byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0x8C || byte(2) == 0x8D);
  const bool selector = byte(0) == 0xEF && byte(1) == 0xB8 && byte(2) >= 0x80 && byte(2) <= 0x8F;
  return byte(0) == '\t' ? 1 : joiner || selector ? 3 : 0;
}

int stdout_error = 0;  // errno of the first write that failed

void note(const std::FILE* out, bool written) {
  if (!written && out == stdout && stdout_error == 0) {
    stdout_error = errno == 0 ? EIO : errno;
  }
}

}  // namespace

void printing::write(std::FILE* out, std::string_view text) {
  errno = 0;
  note(out, std::fwrite(text.data(), 1, text.size(), out) == text.size());
}

void print_answer(std::string_view text) {
  if (isatty(STDOUT_FILENO) == 0) {
    printing::write(stdout, text);
  } else {
    size_t begin = 0;
    for (size_t at = 0; at <= text.size(); ++at) {
      const size_t kept = length_of_kept(text, at);
      if (kept > 0 || at == text.size()) {
        printing::write(stdout, escaped_lines(text.substr(begin, at - begin)));
        printing::write(stdout, text.substr(at, kept));
        begin = at + kept;
      }
    }
  }
  flush(stdout);
}

void print_json(const nlohmann::json& value) {
  printing::write(stdout, value.dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
  printing::write(stdout, "\n");
}

void print_json_line(const nlohmann::json& value) {
  printing::write(stdout, value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  printing::write(stdout, "\n");
}

void print_live(std::FILE* out, std::string_view text) {
  printing::write(out, fmt::format("\r{}\x1b[K", escaped(text)));
}

void flush(std::FILE* out) {
  errno = 0;
  note(out, std::fflush(out) == 0);
}

bool printed(std::string& why) {
  flush(stdout);
  const bool failed = stdout_error != 0 && !reader_left();
  why = failed ? std::strerror(stdout_error) : "";
  return !failed;
}

bool reader_left() { return stdout_error == EPIPE; }

bool is_terminal(std::FILE* out) {
  const char* const term = std::getenv("TERM");
  const char* const no_color = std::getenv("NO_COLOR");
  const bool is_plain = (term != nullptr && std::string_view(term) == "dumb") ||
                        (no_color != nullptr && *no_color != '\0');
  return !is_plain && isatty(fileno(out)) == 1;
}

}  // namespace bowline::command
