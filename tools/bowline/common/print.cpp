#include "common/print.h"

#include <cerrno>
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
  why = stdout_error == 0 ? "" : std::strerror(stdout_error);
  return stdout_error == 0;
}

}  // namespace bowline::command
