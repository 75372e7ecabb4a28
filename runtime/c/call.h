// What each function of the C interface does around its work: handles, errors and exceptions.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/boundary.h"
#include "c/handles.h"
#include "c/json.h"

// The two opaque types that are not handles.
struct bowline_error {
  bowline_code code;
  std::string message;
};
struct bowline_buffer {
  std::string bytes;
};

namespace bowline::c {

// error_free(): an error that the caller got may be static.
void free_error(bowline_error* error);

// Stores an error, if the caller wants it, and returns its code.
bowline_code give(Status status, bowline_error** error) noexcept;

// Runs the work of a function. No exception leaves it.
template <class F>
bowline_code call(bowline_error** error, F&& work) noexcept {
  if (error != nullptr) {
    *error = nullptr;
  }
  try {
    return give(guarded(std::forward<F>(work)), error);
  } catch (...) {
    return give(Status(Code::internal, "An exception left a function of the library."), error);
  }
}

// The same with the object of a handle, which this thread then uses.
template <class C, class F>
bowline_code with(C* pointer, bowline_error** error, F&& work) noexcept {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto object, object_of(pointer));
    BOWLINE_TRY_ASSIGN(const Use use, Use::of(handle_of(pointer)->family));
    return work(*object);
  });
}

// Closes a handle. NULL is not an error.
template <class C>
Status close_handle(C* pointer) {
  if (pointer == nullptr) {
    return {};
  }
  Handle* const handle = handle_of(pointer);
  BOWLINE_TRY(check_handle(handle, HandleType<C>::kKind));
  // Destroying it uses the family, too.
  BOWLINE_TRY_ASSIGN(const Use use, Use::of(handle->family));
  retire(handle);
  return {};
}
template <class C>
bowline_code close(C* pointer, bowline_error** error) noexcept {
  return call(error, [&] { return close_handle(pointer); });
}

// bad_argument: a pointer is null.
Status given(const void* pointer, std::string_view name);

// Writes a result to an output of the caller. A null `out` that is optional is ignored.
Status put_bytes(std::string bytes, bowline_buffer** out);
Status put_bytes(const std::vector<std::byte>& bytes, bowline_buffer** out);
template <class T>
Status put_json(Result<T> value, bowline_buffer** out) {
  if (!value.ok()) {
    return std::move(value).status();
  }
  return out == nullptr ? Status() : put_bytes(text_of(json_of(value.value())), out);
}
template <class T, class Out>
Status put(Result<T> value, Out* out) {
  if (!value.ok()) {
    return std::move(value).status();
  }
  if (out != nullptr) {
    *out = static_cast<Out>(value.value());
  }
  return {};
}
inline Status put_text(Result<std::string> text, bowline_buffer** out) {
  return text.ok() ? put_bytes(std::move(text).value(), out) : std::move(text).status();
}

// Runs a callback of the program, and returns its error.
template <class F>
Status call_back(F&& callback) {
  bowline_error* error = nullptr;
  bowline_code code = 0;
  bool thrown = false;
  try {
    code = callback(&error);
  } catch (...) {
    thrown = true;
  }
  const std::unique_ptr<bowline_error, void (*)(bowline_error*)> owned(error, free_error);
  if (thrown) {
    return Status(Code::internal, "A callback of the program threw an exception.");
  }
  if (code == BOWLINE_OK) {
    return {};
  }
  const bool known = code > BOWLINE_OK && code <= BOWLINE_INTERNAL;
  return Status(
      known ? static_cast<Code>(code) : Code::bad_argument,
      owned != nullptr ? owned->message : format("A callback of the program returned {}.", code));
}

}  // namespace bowline::c
