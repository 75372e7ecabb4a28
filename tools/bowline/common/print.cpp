#include "common/print.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

namespace bowline::command {
namespace {

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
