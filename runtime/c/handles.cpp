#include "c/handles.h"

#include <mutex>
#include <new>

namespace bowline::c {
namespace {

constexpr size_t kRemembered = 1024;

// Closed handles, oldest first. try_lock: after fork(), the lock may belong to no thread.
struct ClosedHandles {
  std::mutex mutex;
  Handle* first = nullptr;
  Handle* last = nullptr;
  size_t count = 0;
};
ClosedHandles& closed_handles() {
  static ClosedHandles handles;
  return handles;
}

uint64_t this_thread() {
  thread_local const char marker = 0;
  return reinterpret_cast<uintptr_t>(&marker);
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::closed:
      return "closed handle";
    case Kind::device:
      return "device";
    case Kind::model:
      return "model";
    case Kind::builder:
      return "builder";
    case Kind::session:
      return "session";
    case Kind::trainer:
      return "trainer";
    case Kind::tokenizer:
      return "tokenizer";
    case Kind::decoder:
      return "decoder";
    case Kind::chat_template:
      return "chat template";
    case Kind::generator:
      return "generator";
    case Kind::device_buffer:
      return "device buffer";
    case Kind::pending_run:
      return "pending run";
    case Kind::device_semaphore:
      return "device semaphore";
    case Kind::stop_strings:
      return "stop strings";
  }
  return "";
}

Handle* new_handle() {
  ClosedHandles& closed = closed_handles();
  const std::unique_lock lock(closed.mutex, std::try_to_lock);
  if (!lock.owns_lock() || closed.count <= kRemembered) {
    return new Handle;
  }
  Handle* const handle = closed.first;
  closed.first = handle->next;
  handle->next = nullptr;
  --closed.count;
  return handle;
}

void retire(Handle* handle) {
  // A handle that was in the list twice would be given to two callers.
  if (handle->kind.exchange(Kind::closed) == Kind::closed) {
    return;
  }
  // The object may close other handles, so it is destroyed outside the lock.
  handle->object.reset();
  handle->family.reset();
  ClosedHandles& closed = closed_handles();
  const std::unique_lock lock(closed.mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    return;  // the handle is never reused
  }
  (closed.last == nullptr ? closed.first : closed.last->next) = handle;
  closed.last = handle;
  ++closed.count;
}

Status check_handle(const Handle* handle, Kind kind) {
  const std::string_view name = name_of(kind);
  BOWLINE_REQUIRE(handle != nullptr, "The handle of the {} is NULL.", name);
  const Kind is = handle->kind;
  BOWLINE_REQUIRE(is != Kind::closed, "The handle of the {} is closed.", name);
  const std::string_view other = name_of(is);
  BOWLINE_REQUIRE(!other.empty(), "The pointer is not a handle of a {}.", name);
  BOWLINE_REQUIRE(is == kind, "The handle of a {} is needed; this is a {}.", name, other);
  return {};
}

Result<Use> Use::of(std::shared_ptr<Family> family) {
  if (family == nullptr) {
    return Use(nullptr, false);
  }
  uint64_t user = family->thread;
  for (int waiting = 0; user != this_thread() && (waiting = family->waiting) > 0;) {
    family->waiting.wait(waiting);
  }
  user = 0;
  if (family->thread.compare_exchange_strong(user, this_thread())) {
    return Use(std::move(family), false);
  }
  return Status(Code::bad_argument,
                user == this_thread()
                    ? "A callback of the model calls a function of the same model."
                    : "Another thread uses the model. One thread at a time may do that.");
}

Status Use::check_callback(const Family& family) {
  BOWLINE_REQUIRE(family.thread != this_thread(),
                  "A callback of the model calls a function of the same model.");
  return {};
}

Result<Use> Use::wait_for(std::shared_ptr<Family> family) {
  BOWLINE_TRY(check_callback(*family));
  ++family->waiting;
  for (uint64_t user = 0; !family->thread.compare_exchange_strong(user, this_thread()); user = 0) {
    family->thread.wait(user);
  }
  return Use(std::move(family), true);
}

Use::~Use() {
  if (family_ != nullptr) {
    family_->thread = 0;
    family_->thread.notify_all();
    if (waits_) {
      --family_->waiting;
      family_->waiting.notify_all();
    }
  }
}

}  // namespace bowline::c
