// A condition of the command: a false one returns bad_argument, or another code, with a sentence
// (fmt).
#pragma once

#include <fmt/format.h>

#include "bowline.h"

#define BOWLINE_REQUIRE(condition, ...) \
  BOWLINE_REQUIRE_CODE(condition, ::bowline::Code::bad_argument, __VA_ARGS__)
#define BOWLINE_REQUIRE_CODE(condition, code, ...)                \
  do {                                                            \
    if (!(condition)) {                                           \
      return ::bowline::Status(code, ::fmt::format(__VA_ARGS__)); \
    }                                                             \
  } while (false)
