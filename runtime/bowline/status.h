/// \file
/// Status, Result and error codes.
///
/// A function that can fail returns a Status, or a Result<T> with a value. The compiler warns if a
/// program ignores the returned object.
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

/// The kind of an error. Each code asks the caller for a different reaction.
enum class Code : uint8_t {
  ok,                  ///< No error.
  bad_argument,        ///< Fix the call.
  bad_file,            ///< Do not use this file. The message says what is wrong and where.
  index_out_of_range,  ///< Fix the input data. The message names the node that failed.
  unsupported,         ///< Choose another device, model or precision.
  non_finite,          ///< Look for the cause of the infinity or NaN. The message names the node.
  out_of_memory,       ///< Free memory of the host or the device.
  over_budget,         ///< Raise DeviceOptions::memory_budget, or Budget if you trust the file.
  io_error,            ///< Try again, or choose another path.
  device_lost,         ///< Open the device again and resume from the last checkpoint.
  device_poisoned,     ///< Restart the process. A GPU fault has made CUDA unusable in it.
  cancelled,           ///< No action is needed: the program cancelled the call.
  internal,            ///< Report a bug.
};

/// Returns the name of a code, for example "bad_file".
std::string_view name_of(Code code);

/// Success, or an error code with a message.
///
/// The first line of the message states what failed. Each further line starts with "- " and says
/// what the library was doing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// An error, or success if `code` is ok.
  ///
  /// If there is no memory for an error, its code is out_of_memory.
  Status(Code code, std::string message);
  Status(const Status& other) : error_(other.ok() ? nullptr : copy_of(*other.error_)) {}
  Status(Status&& other) noexcept : error_(std::exchange(other.error_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(error_, other.error_);
    return *this;
  }
  ~Status() {
    if (!ok()) {
      release(error_);
    }
  }

  bool ok() const { return error_ == nullptr; }
  Code code() const;
  /// Returns the message. It is empty if ok() is true.
  const std::string& message() const;

  /// Adds a line of context to an error, for example "While loading \"a.bowline\".".
  Status at(std::string_view context) &&;

  /// Replaces the code of an error. The message stays.
  Status as(Code code) &&;

 private:
  struct [[gnu::visibility("hidden")]] Error;
  static Error* copy_of(const Error& error);
  static void release(Error* error) noexcept;

  Error* error_ = nullptr;  // null: success
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

/// A value of type T, or the Status of the call that failed.
///
/// Check ok() before value(): value() of a failed Result prints the message and aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  /// A failed result. `status` must be an error.
  Result(Status status) : status_(std::move(status)) {}

  /// Returns true if there is a value.
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

/// Evaluates `call`, which yields a Status. If it is an error, the enclosing function returns it.
///
/// The enclosing function must return a Status or a Result.
#define BOWLINE_TRY(call)                                                  \
  do {                                                                     \
    if (::bowline::Status bowline_status = (call); !bowline_status.ok()) { \
      return bowline_status;                                               \
    }                                                                      \
  } while (false)

/// Evaluates `call`, which yields a Result, and assigns the value: BOWLINE_TRY_ASSIGN(auto x, f()).
///
/// If the Result failed, the enclosing function returns its Status, as with BOWLINE_TRY.
#define BOWLINE_TRY_ASSIGN(target, call) \
  BOWLINE_TRY_ASSIGN_AS(BOWLINE_CONCAT(bowline_result_, __LINE__), target, call)
// Parts of BOWLINE_TRY_ASSIGN.
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
