// The functions of cuBLASLt. The library is opened at run time.
#pragma once

#include <string>

#include "platform.h"

#ifdef BOWLINE_CUDA_EMULATED
#include "emu/cublaslt.h"
#else
#include <cublasLt.h>
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

#define BOWLINE_CUBLASLT_FUNCTIONS(F)                    \
  F(create, cublasLtCreate)                              \
  F(destroy, cublasLtDestroy)                            \
  F(matmul, cublasLtMatmul)                              \
  F(heuristic, cublasLtMatmulAlgoGetHeuristic)           \
  F(desc_create, cublasLtMatmulDescCreate)               \
  F(desc_destroy, cublasLtMatmulDescDestroy)             \
  F(desc_set, cublasLtMatmulDescSetAttribute)            \
  F(layout_create, cublasLtMatrixLayoutCreate)           \
  F(layout_destroy, cublasLtMatrixLayoutDestroy)         \
  F(layout_set, cublasLtMatrixLayoutSetAttribute)        \
  F(preference_create, cublasLtMatmulPreferenceCreate)   \
  F(preference_destroy, cublasLtMatmulPreferenceDestroy) \
  F(preference_set, cublasLtMatmulPreferenceSetAttribute)

// The cuBLASLt of this machine (opened_library.h). The emulation has a stand-in.
//
// With the environment variable BOWLINE_CUBLASLT, `off` chooses Bowline's own products.
class BlasLibrary {
 public:
  static const BlasLibrary& get();

#define BOWLINE_MEMBER(member, symbol) decltype(&symbol) member = nullptr;
  BOWLINE_CUBLASLT_FUNCTIONS(BOWLINE_MEMBER)
#undef BOWLINE_MEMBER
  std::string version;
  std::string problem;  // why the library is not used; empty if it is used

 private:
  BlasLibrary();
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
