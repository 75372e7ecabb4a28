// Progress output of a running command: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "common/timing.h"

namespace bowline::command {

std::string bytes_text(uint64_t bytes);    // "41.2 MiB"
std::string seconds_text(double seconds);  // "1:05", "2:03:00"

class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* out);
  ~ProgressLine() { finish(); }
  // Shows the text: on a terminal at most ten times per second, elsewhere only if `plain` is true.
  void show(const std::string& text, bool plain);
  // Ends the live line, so that other text can be printed.
  void finish();

 private:
  std::FILE* out_;
  bool terminal_;
  bool open_ = false;
  Clock::time_point last_;
};

// Peak resident set of this process, as the kernel counts it.
uint64_t peak_resident_bytes();

}  // namespace bowline::command
