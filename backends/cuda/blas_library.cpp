#include "blas_library.h"

#include "base/format.h"

#ifndef BOWLINE_CUDA_EMULATED
#include "opened_library.h"
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

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
  const std::string of_version = format("cu{}", CUBLAS_VER_MAJOR);
  const std::string_view packages[] = {of_version, "cublas"};
  OpenedLibrary library(format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "BOWLINE_CUBLASLT",
                        packages);
  decltype(&cublasLtGetVersion) get_version = nullptr;
  library.load(get_version, "cublasLtGetVersion");
#define BOWLINE_LOAD(member, symbol) library.load(member, #symbol);
  BOWLINE_CUBLASLT_FUNCTIONS(BOWLINE_LOAD)
#undef BOWLINE_LOAD
  problem = library.problem();
  if (!problem.empty()) {
    return;
  }
  const size_t number = get_version();  // in the format of CUBLAS_VERSION
  version = format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  if (number / 10000 != CUBLAS_VER_MAJOR) {
    problem = format("{} is version {}, this build needs {}.x", library.path(), version,
                     CUBLAS_VER_MAJOR);
  }
}

const BlasLibrary& BlasLibrary::get() {
  static const BlasLibrary library;
  return library;
}

#endif

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
