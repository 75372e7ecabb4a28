// Devices.
#include "call.h"

using namespace bowline_jni;

namespace {

// The library logs in any thread.
void log_to_java(void* user, int32_t level, const char* message) {
  notify(library.log, user, level, message);
}

}  // namespace

BOWLINE_NATIVE(jbyteArray, version) {
  const char* const version = library.api->version();
  return bytes_of(env, version, std::strlen(version));
}

BOWLINE_NATIVE(jbyteArray, deviceList) { return buffer_from(env, library.api->device_list); }

BOWLINE_NATIVE(jlong, deviceOpen, jbyteArray name, jint threads, jint nice, jdouble max_load,
               jlong memory_budget, jbyteArray cache_folder, jlong log) {
  auto options = sized<bowline_device_options>();
  bowline_device* out = nullptr;
  const Text folder(env, cache_folder);
  if (!call(env, library.api->device_options_init, &options)) {
    return 0;
  }
  options.threads = threads < 0 ? options.threads : threads;
  options.nice = nice < 0 ? options.nice : nice;
  options.max_load = max_load < 0 ? options.max_load : max_load;
  options.memory_budget =
      memory_budget < 0 ? options.memory_budget : static_cast<uint64_t>(memory_budget);
  options.cache_folder = folder.c_str() == nullptr ? options.cache_folder : folder.c_str();
  options.log = log == 0 ? nullptr : log_to_java;
  options.log_user = user_of(log);
  call(env, library.api->device_open, Text(env, name), &options, &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, deviceClose, jlong device) {
  call(env, library.api->device_close, Handle{device});
}

BOWLINE_NATIVE(jbyteArray, deviceInfo, jlong device) {
  return buffer_from(env, library.api->device_info, Handle{device});
}
