#include "context.h"

#ifndef BOWLINE_CUDA_EMULATED
#include <dlfcn.h>
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {
namespace {

// The functions of the driver API. 0 is success (CUDA_SUCCESS).
struct Driver {
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int (*get_device)(int* device) = nullptr;
};

#ifdef BOWLINE_CUDA_EMULATED
const Driver& driver() {
  static const Driver functions = {push_context, pop_context, get_context_device};
  return functions;
}
#else
// The CUDA runtime has opened the driver. The names are those of CUDA 4.0, which no version
// changed.
const Driver& driver() {
  static const Driver functions = [] {
    Driver out;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto load = [&]<class F>(F& function, const char* name) {
      function = library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, name));
    };
    load(out.push, "cuCtxPushCurrent_v2");
    load(out.pop, "cuCtxPopCurrent_v2");
    load(out.get_device, "cuCtxGetDevice");
    return out;
  }();
  return functions;
}
#endif

}  // namespace

Current::Current(void* context) {
  if (context == nullptr) {
    return;
  }
  if (driver().push == nullptr || driver().pop == nullptr || driver().get_device == nullptr) {
    status_ = Status(Code::unsupported, "There is no NVIDIA driver (libcuda.so.1).");
    return;
  }
  const int error = driver().push(context);
  pushed_ = error == 0;
  if (!pushed_) {
    status_ = Status(Code::bad_argument,
                     format("The CUcontext of the program is not valid (CUresult {}).", error));
  }
}

Current::~Current() {
  if (pushed_) {
    void* context = nullptr;
    (void)driver().pop(&context);
  }
}

Result<int> device_of_context() {
  int device = 0;
  const int error = driver().get_device(&device);
  BOWLINE_REQUIRE(error == 0, "The CUcontext of the program has no device (CUresult {}).", error);
  return device;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
