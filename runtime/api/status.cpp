#include "bowline/status.h"

#include <cstddef>
#include <new>

namespace bowline {

struct Status::Error {
  Code code;
  std::string message;
  bool is_shared = false;  // never changed or released

  // Returns the error for which no memory is needed.
  static Error* without_memory();
  static Error* create(Code code, std::string message);
};

// Not inline: a shared library would export the variables of inline functions.
Status::Error* Status::Error::without_memory() {
  alignas(Error) static std::byte place[sizeof(Error)];
  static Error* const error = new (place) Error{Code::out_of_memory, "Out of memory.", true};
  return error;
}

Status::Error* Status::Error::create(Code code, std::string message) {
  Error* const error = new (std::nothrow) Error{code, std::move(message)};
  return error != nullptr ? error : without_memory();
}

Status::Status(Code code, std::string message)
    : error_(code == Code::ok ? nullptr : Error::create(code, std::move(message))) {}

Status::Error* Status::copy_of(const Error& error) {
  return Error::create(error.code, std::string(error.message));
}

void Status::release(Error* error) noexcept {
  if (!error->is_shared) {
    delete error;
  }
}

Code Status::code() const { return ok() ? Code::ok : error_->code; }

const std::string& Status::message() const {
  alignas(std::string) static std::byte place[sizeof(std::string)];
  static const std::string* const empty = new (place) std::string;
  return ok() ? *empty : error_->message;
}

Status Status::at(std::string_view context) && {
  if (!ok() && !error_->is_shared) {
    error_->message += "\n- ";
    error_->message += context;
  }
  return std::move(*this);
}

Status Status::as(Code code) && {
  if (!ok() && !error_->is_shared) {
    error_->code = code;
  }
  return std::move(*this);
}

}  // namespace bowline
