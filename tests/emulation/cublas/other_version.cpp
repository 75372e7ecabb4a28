// A libcublasLt of version 11.9.0 under any file name.
#include <cstddef>

extern "C" {
size_t cublasLtGetVersion() { return 110900; }
void cublasLtCreate() {}
void cublasLtDestroy() {}
void cublasLtMatmul() {}
void cublasLtMatmulAlgoGetHeuristic() {}
void cublasLtMatmulDescCreate() {}
void cublasLtMatmulDescDestroy() {}
void cublasLtMatmulDescSetAttribute() {}
void cublasLtMatrixLayoutCreate() {}
void cublasLtMatrixLayoutDestroy() {}
void cublasLtMatrixLayoutSetAttribute() {}
void cublasLtMatmulPreferenceCreate() {}
void cublasLtMatmulPreferenceDestroy() {}
void cublasLtMatmulPreferenceSetAttribute() {}
}
