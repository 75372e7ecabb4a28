// Status, Result and the error codes.
#pragma once

#if defined(__cplusplus) && __cplusplus < 202002L
#error "bowline.h needs C++20: compile with -std=c++20 (GCC 12, Clang 14 or newer)."
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)

namespace bowline {

// What the caller should do next.
enum class Code : uint8_t {
  ok,
  bad_argument,        // fix the call
  bad_file,            // do not use this file; the place is in the message
  index_out_of_range,  // fix the data row; the node is named
  unsupported,         // choose another device, model or precision
  non_finite,          // look at the named node
  out_of_memory,       // free memory
  over_budget,         // raise the Budget, if the file is trusted, or DeviceOptions::memory_budget
  io_error,            // retry, or choose another path
  device_lost,         // make a new device, resume from the last checkpoint
  device_poisoned,     // end this process and start again
  cancelled,           // nothing; the state is as before
  internal,            // report a bug
};

// "bad_file" for Code::bad_file.
std::string_view name_of(Code code);

// Success, or a code with a sentence that states what failed. Lines added by callers follow it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // Adds a line of context ("- While loading ...") to a failure.
  Status at(std::string_view context) && {
    if (!ok()) {
      message_ += "\n- ";
      message_ += context;
    }
    return std::move(*this);
  }
  // The same failure under another code.
  Status as(Code code) && {
    if (!ok()) {
      code_ = code;
    }
    return std::move(*this);
  }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

namespace detail {

// The only place where the library prints or aborts.
[[noreturn]] inline void abort_with(const Status& status) {
  const std::string_view code = name_of(status.code());
  std::fprintf(stderr, "bowline: value() was called on a failed Result: %.*s: %s\n",
               static_cast<int>(code.size()), code.data(), status.message().c_str());
  std::abort();
}

}  // namespace detail

// A value, or the Status that says why there is none. value() of a failure ends the program.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }
  T& value() & {
    require_value();
    return *value_;
  }
  const T& value() const& {
    require_value();
    return *value_;
  }
  T&& value() && {
    require_value();
    return *std::move(value_);
  }

 private:
  void require_value() const {
    if (!value_.has_value()) {
      detail::abort_with(status_);
    }
  }
  std::optional<T> value_;
  Status status_;
};

// In a function that returns Status or Result: passes a failed Status up.
#define BOWLINE_TRY(call)                                                  \
  do {                                                                     \
    if (::bowline::Status bowline_status = (call); !bowline_status.ok()) { \
      return bowline_status;                                               \
    }                                                                      \
  } while (false)

// BOWLINE_TRY_ASSIGN(auto x, call): x is the value of a Result, or its Status is passed up.
#define BOWLINE_TRY_ASSIGN(target, call) \
  BOWLINE_TRY_ASSIGN_AS(BOWLINE_CONCAT(bowline_result_, __LINE__), target, call)
#define BOWLINE_TRY_ASSIGN_AS(result, target, call) \
  auto result = (call);                             \
  if (!result.ok()) {                               \
    return std::move(result).status();              \
  }                                                 \
  target = std::move(result).value()
#define BOWLINE_CONCAT_INNER(a, b) a##b
#define BOWLINE_CONCAT(a, b) BOWLINE_CONCAT_INNER(a, b)

}  // namespace bowline

#pragma GCC visibility pop
