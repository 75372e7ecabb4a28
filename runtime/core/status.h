// Status and Result: how everything in Bowline fails. No exceptions.
//
// The codes themselves are public (bowline.h). A message is a sentence in the present tense that
// states what failed, with values; callers add lines on the way up with Status::at().
#pragma once

#include "bowline.h"
#include "core/format.h"

#define BOWLINE_CONCAT_INNER(a, b) a##b
#define BOWLINE_CONCAT(a, b) BOWLINE_CONCAT_INNER(a, b)

// Passes a failed Status up.
#define BOWLINE_TRY(call)                                                  \
  do {                                                                     \
    if (::bowline::Status bowline_status = (call); !bowline_status.ok()) { \
      return bowline_status;                                               \
    }                                                                      \
  } while (false)

// BOWLINE_ASSIGN(auto x, call): x is the value of a Result, or its Status is passed up.
#define BOWLINE_ASSIGN(target, call) \
  BOWLINE_ASSIGN_AS(BOWLINE_CONCAT(bowline_result_, __LINE__), target, call)
#define BOWLINE_ASSIGN_AS(result, target, call) \
  auto result = (call);                         \
  if (!result.ok()) {                           \
    return std::move(result).status();          \
  }                                             \
  target = std::move(result).value()

// A false condition returns bad_argument with the sentence; while a file is loaded the caller turns
// it into bad_file.
#define BOWLINE_REQUIRE(condition, ...) \
  BOWLINE_REQUIRE_CODE(condition, ::bowline::Code::bad_argument, __VA_ARGS__)
#define BOWLINE_REQUIRE_CODE(condition, code, ...)                    \
  do {                                                                \
    if (!(condition)) {                                               \
      return ::bowline::Status(code, ::bowline::format(__VA_ARGS__)); \
    }                                                                 \
  } while (false)
