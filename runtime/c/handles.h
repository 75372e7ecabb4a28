// Handles: what the opaque types of bowline_c.h point to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "bowline.h"
#include "bowline/external.h"
#include "bowline_c.h"

namespace bowline::c {

// What one thread at a time may use: a model with its shares, sessions, trainers, generators and
// builders. It keeps the devices that the model was moved to.
struct Family {
  std::atomic<uint64_t> thread{0};  // the one that is inside a call; 0: none
  std::atomic<int> waiting{0};  // calls of Use::wait_for() whose Use still exists; they go first
  std::set<std::shared_ptr<const Device>> devices;
};

// The types of handles. The values are unlikely in other memory.
enum class Kind : uint32_t {
  closed = 0xB0C1'05ED,
  device = 0xB0D0'0001,
  model,
  builder,
  session,
  trainer,
  tokenizer,
  decoder,
  chat_template,
  generator,
  stop_strings,
  device_buffer,
  pending_run,
  device_semaphore,
};

struct Handle {
  std::atomic<Kind> kind{Kind::closed};
  std::shared_ptr<void> object;
  std::shared_ptr<Family> family;  // null: any thread may use the object
  Handle* next = nullptr;          // in the list of closed handles
};

// The objects of handles.
struct ModelObject {
  Model model;
  // Only of a model that import_model() made: the weights that are not finite, as JSON.
  std::function<std::string()> not_finite = {};
};
// Members are destroyed from last to first: the model after what uses it.
struct BuilderObject {
  std::shared_ptr<ModelObject> model;
  std::unique_ptr<GraphBuilder> own;
  GraphBuilder* builder;  // `own`, or the builder of a body during a callback
};
struct SessionObject {
  std::shared_ptr<ModelObject> model;
  std::shared_ptr<const Device> device;
  Session session;
};
struct TrainerObject {
  std::shared_ptr<ModelObject> model;
  std::shared_ptr<const Device> device;
  Trainer trainer;
};

// What a handle of the C type C points to, and its kind.
template <class T, Kind kind>
struct HandleOf {
  using Object = T;
  static constexpr Kind kKind = kind;
};
template <class C>
struct HandleType;
template <>
struct HandleType<bowline_device> : HandleOf<const Device, Kind::device> {};
template <>
struct HandleType<bowline_model> : HandleOf<ModelObject, Kind::model> {};
template <>
struct HandleType<bowline_builder> : HandleOf<BuilderObject, Kind::builder> {};
template <>
struct HandleType<bowline_session> : HandleOf<SessionObject, Kind::session> {};
template <>
struct HandleType<bowline_trainer> : HandleOf<TrainerObject, Kind::trainer> {};

template <>
struct HandleType<bowline_device_buffer> : HandleOf<const DeviceBuffer, Kind::device_buffer> {};
template <>
struct HandleType<bowline_pending_run> : HandleOf<const PendingRun, Kind::pending_run> {};
template <>
struct HandleType<bowline_device_semaphore>
    : HandleOf<const DeviceSemaphore, Kind::device_semaphore> {};

std::string_view name_of(Kind kind);

// A closed handle for reuse, or a new one.
Handle* new_handle();
// Empties a handle. It stays readable: the last 1,024 closed handles are not reused.
void retire(Handle* handle);

// bad_argument: the handle is null, closed or of another kind.
Status check_handle(const Handle* handle, Kind kind);

template <class C>
Handle* handle_of(C* pointer) {
  return reinterpret_cast<Handle*>(pointer);
}

template <class C>
C* make_handle(std::shared_ptr<typename HandleType<C>::Object> object,
               std::shared_ptr<Family> family) {
  Handle* const handle = new_handle();
  handle->object = std::const_pointer_cast<std::remove_const_t<typename HandleType<C>::Object>>(
      std::move(object));
  handle->family = std::move(family);
  handle->kind = HandleType<C>::kKind;
  return reinterpret_cast<C*>(handle);
}

template <class C>
Result<std::shared_ptr<typename HandleType<C>::Object>> object_of(C* pointer) {
  using Type = HandleType<C>;
  const Handle* const handle = handle_of(pointer);
  BOWLINE_TRY(check_handle(handle, Type::kKind));
  return std::static_pointer_cast<typename Type::Object>(handle->object);
}

// Marks a family as used by this thread, until it is destroyed.
class Use {
 public:
  // bad_argument: another thread uses the family, or this one does, in a callback.
  static Result<Use> of(std::shared_ptr<Family> family);
  // bad_argument: this thread uses the family, in a callback.
  static Status check_callback(const Family& family);
  // Waits until no other thread uses the family. bad_argument: this one does, in a callback.
  static Result<Use> wait_for(std::shared_ptr<Family> family);
  Use(Use&& other) noexcept = default;
  Use& operator=(Use&&) = delete;
  ~Use();

 private:
  Use(std::shared_ptr<Family> family, bool waits) : family_(std::move(family)), waits_(waits) {}
  std::shared_ptr<Family> family_;
  bool waits_;
};

}  // namespace bowline::c
