#include "c/call.h"

#include "generated/c_api.h"

namespace bowline::c {
namespace {

// For an error that finds no memory. Nobody frees it.
bowline_error* exhausted() {
  static bowline_error error{BOWLINE_OUT_OF_MEMORY, "Out of memory."};
  return &error;
}

}  // namespace

void free_error(bowline_error* error) {
  if (error != exhausted()) {
    delete error;
  }
}

bowline_code give(Status status, bowline_error** error) noexcept {
  const auto code = static_cast<bowline_code>(status.code());
  if (!status.ok() && error != nullptr) {
    try {
      *error = new bowline_error{code, status.message()};
    } catch (const std::bad_alloc&) {
      *error = exhausted();
    }
  }
  return code;
}

Status given(const void* pointer, std::string_view name) {
  BOWLINE_REQUIRE(pointer != nullptr, "\"{}\" is NULL.", name);
  return {};
}

Status put_bytes(std::string bytes, bowline_buffer** out) {
  if (out != nullptr) {
    *out = new bowline_buffer{std::move(bytes)};
  }
  return {};
}

Status put_bytes(const std::vector<std::byte>& bytes, bowline_buffer** out) {
  return put_bytes(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), out);
}

namespace api {

bowline_error* error_create(bowline_code code, const char* message) {
  try {
    return new bowline_error{code, message == nullptr ? "" : message};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
bowline_code error_code(const bowline_error* error) {
  return error == nullptr ? BOWLINE_OK : error->code;
}
const char* error_message(const bowline_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}
void error_free(bowline_error* error) { free_error(error); }

const void* buffer_data(const bowline_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->bytes.c_str();
}
size_t buffer_size(const bowline_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->bytes.size();
}
void buffer_free(bowline_buffer* buffer) { delete buffer; }

}  // namespace api

}  // namespace bowline::c
