// Opens a library of NVIDIA at run time.
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// A library that is opened once and never closed.
class OpenedLibrary {
 public:
  // `file`: its name, for example libcublasLt.so.13. `variable`: an environment variable with its
  // path, or with `off`. Without it, the library is looked for in the active Python environment,
  // where the system's loader finds libraries, and in the usual folders of CUDA and Python
  // packages. `packages`: its folders below `nvidia` in Python packages.
  OpenedLibrary(const std::string& file, const char* variable,
                std::span<const std::string_view> packages);

  // Loads a function. If it is missing, problem() says so.
  template <class F>
  void load(F& function, const char* symbol) {
    function = handle_ == nullptr ? nullptr : reinterpret_cast<F>(dlsym(handle_, symbol));
    if (function == nullptr) {
      note_missing(symbol);
    }
  }

  // Why the library cannot be used; empty if it can.
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return path_; }

 private:
  void note_missing(std::string_view symbol);

  void* handle_ = nullptr;
  std::string path_;
  std::string problem_;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
