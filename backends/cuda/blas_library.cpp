#include "blas_library.h"

#ifndef BOWLINE_CUDA_EMULATED
#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <vector>
#endif

#include "base/format.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

#ifndef BOWLINE_CUDA_EMULATED

namespace {

// A variable of the environment; empty if it is not set, and in a program that runs with more
// rights than its user.
std::string_view variable(const char* name) {
  const char* const value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

// The files that match a pattern of a shell.
void add_matches(std::vector<std::string>& to, const std::string& pattern) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    to.insert(to.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
}

// The places where pip installs the library below a folder of Python packages.
void add_packages(std::vector<std::string>& to, const std::string& packages,
                  const std::string& name) {
  add_matches(to, format("{}/nvidia/cu{}/lib/{}", packages, CUBLAS_VER_MAJOR, name));
  add_matches(to, format("{}/nvidia/cublas/lib/{}", packages, name));
}

// The names to open, best first.
std::vector<std::string> candidates(const std::string& name) {
  if (const std::string_view path = variable("BOWLINE_CUBLASLT"); !path.empty()) {
    return {std::string(path)};
  }
  std::vector<std::string> out;
  for (const char* const environment : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string_view root = variable(environment); !root.empty()) {
      add_packages(out, format("{}/lib/python3*/site-packages", root), name);
      add_matches(out, format("{}/lib/{}", root, name));
    }
  }
  out.push_back(name);
  add_matches(out, "/usr/local/cuda/lib64/" + name);
  add_matches(out, format("/usr/local/cuda-{}*/lib64/{}", CUBLAS_VER_MAJOR, name));
  add_matches(out, "/opt/cuda/lib64/" + name);
  if (const std::string_view home = variable("HOME"); !home.empty()) {
    add_packages(out, format("{}/.local/lib/python3*/site-packages", home), name);
  }
  add_packages(out, "/usr/local/lib/python3*/dist-packages", name);
  add_packages(out, "/usr/local/lib/python3*/site-packages", name);
  add_packages(out, "/usr/lib/python3*/site-packages", name);
  return out;
}

}  // namespace

#endif

#ifdef BOWLINE_CUDA_EMULATED

BlasLibrary::BlasLibrary() : version("of the emulation") {
#define BOWLINE_TAKE(member, symbol) member = &symbol;
  BOWLINE_CUBLASLT_FUNCTIONS(BOWLINE_TAKE)
#undef BOWLINE_TAKE
}

const BlasLibrary& BlasLibrary::get() {
  static BlasLibrary library;
  library.problem = machine().has_cublas ? "" : "the emulated machine has no cuBLASLt";
  return library;
}

#else

BlasLibrary::BlasLibrary() {
  if (variable("BOWLINE_CUBLASLT") == "off") {
    problem = "BOWLINE_CUBLASLT is \"off\"";
    return;
  }
  const std::string wanted = format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::string name = wanted;
  void* handle = nullptr;
  for (const std::string& candidate : candidates(wanted)) {
    name = candidate;
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      break;
    }
  }
  if (handle == nullptr) {
    const std::string_view given = variable("BOWLINE_CUBLASLT");
    problem = format("{} is not found", given.empty() ? std::string_view(wanted) : given);
    return;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr && problem.empty()) {
      problem = format("{} lacks {}", name, symbol);
    }
  };
  decltype(&cublasLtGetVersion) get_version = nullptr;
  find(get_version, "cublasLtGetVersion");
#define BOWLINE_FIND(member, symbol) find(member, #symbol);
  BOWLINE_CUBLASLT_FUNCTIONS(BOWLINE_FIND)
#undef BOWLINE_FIND
  if (!problem.empty()) {
    return;
  }
  const size_t number = get_version();  // in the format of CUBLAS_VERSION
  version = format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  if (number / 10000 != CUBLAS_VER_MAJOR) {
    problem = format("{} is version {}, this build needs {}.x", name, version, CUBLAS_VER_MAJOR);
  }
}

const BlasLibrary& BlasLibrary::get() {
  static const BlasLibrary library;
  return library;
}

#endif

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
