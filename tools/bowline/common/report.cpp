#include "common/report.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "common/print.h"

namespace bowline::command {

std::string bytes_text(uint64_t bytes) {
  const double kib = static_cast<double>(bytes) / 1024;
  if (bytes < 1024) {
    return fmt::format("{} B", bytes);
  }
  return kib < 1024          ? fmt::format("{:.1f} KiB", kib)
         : kib < 1024 * 1024 ? fmt::format("{:.1f} MiB", kib / 1024)
                             : fmt::format("{:.2f} GiB", kib / 1024 / 1024);
}

std::string seconds_text(double seconds) {
  const auto s = static_cast<uint64_t>(seconds + 0.5);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

ProgressLine::ProgressLine(std::FILE* out) : out_(out), terminal_(is_terminal(out)) {}

void ProgressLine::show(const std::string& text, bool plain) {
  const auto now = Clock::now();
  if (terminal_) {
    if (open_ && now - last_ < std::chrono::milliseconds(100)) {
      return;
    }
    print_live(out_, text);
    open_ = true;
  } else if (plain) {
    print(out_, "{}\n", text);
  }
  flush(out_);
  last_ = now;
}

void ProgressLine::finish() {
  if (open_) {
    print(out_, "\n");
    flush(out_);
    open_ = false;
  }
}

uint64_t peak_resident_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace bowline::command
