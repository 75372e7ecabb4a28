#include "opened_library.h"

#include <glob.h>

#include <cstdlib>
#include <vector>

#include "base/format.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {
namespace {

// A variable of the environment; empty if it is not set, and in a program that runs with more
// rights than its user.
std::string_view value_of(const char* name) {
  const char* const value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

#ifdef BOWLINE_CUDA_EMULATED

// No library of NVIDIA can use the memory of the emulation, so a test names a stand-in.
std::vector<std::string> places(const std::string& /*file*/,
                                std::span<const std::string_view> /*packages*/) {
  return {};
}

#else

// The files that match a pattern of a shell.
void add_matches(std::vector<std::string>& to, const std::string& pattern) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    to.insert(to.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
}

// Paths of the library, best first.
std::vector<std::string> places(const std::string& file,
                                std::span<const std::string_view> packages) {
  std::vector<std::string> out;
  // Where pip installs the library below a folder of Python packages.
  const auto add_packages = [&](const std::string& folder) {
    for (const std::string_view package : packages) {
      add_matches(out, format("{}/nvidia/{}/lib/{}", folder, package, file));
    }
  };
  for (const char* const environment : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string_view root = value_of(environment); !root.empty()) {
      add_packages(format("{}/lib/python3*/site-packages", root));
      add_matches(out, format("{}/lib/{}", root, file));
    }
  }
  out.push_back(file);
  add_matches(out, "/usr/local/cuda/lib64/" + file);
  add_matches(out, format("/usr/local/cuda-{}*/lib64/{}", CUDART_VERSION / 1000, file));
  add_matches(out, "/opt/cuda/lib64/" + file);
  if (const std::string_view home = value_of("HOME"); !home.empty()) {
    add_packages(format("{}/.local/lib/python3*/site-packages", home));
  }
  add_packages("/usr/local/lib/python3*/dist-packages");
  add_packages("/usr/local/lib/python3*/site-packages");
  add_packages("/usr/lib/python3*/site-packages");
  return out;
}

#endif

}  // namespace

OpenedLibrary::OpenedLibrary(const std::string& file, const char* variable,
                             std::span<const std::string_view> packages) {
  const std::string given(value_of(variable));
  if (given == "off") {
    problem_ = format("{} is \"off\"", std::string_view(variable));
    return;
  }
  for (const std::string& place : given.empty() ? places(file, packages) : std::vector{given}) {
    handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = place;
      return;
    }
  }
  problem_ = format("{} is not found", given.empty() ? file : given);
}

void OpenedLibrary::note_missing(std::string_view symbol) {
  if (problem_.empty()) {
    problem_ = format("{} lacks {}", path_, symbol);
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
