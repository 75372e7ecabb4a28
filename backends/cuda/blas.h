// Matrix products with cuBLASLt, if the machine has the library.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "bowline.h"
#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The product y[batch, m, n] = a' b' + bias in f32, row-major. a' is a [m, k], or the transpose of
// a [k, m]. b' is b [k, n], or the transpose of b [n, k]. The bias [n] is added to every row.
struct BlasProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0;  // elements between the matrices of a batch; 0: one matrix for all
  int64_t stride_b = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  // Adds to y: `multiply` then receives two factors in device memory, for the product and for the
  // old y.
  bool adds = false;
  auto operator<=>(const BlasProduct&) const = default;
};

// The library's heuristic chooses the algorithm once per size. Timing never decides, because
// another algorithm adds in another order.
class Blas {
 public:
  // Null if no suitable library exists; kernels/matmul.cu then computes all products.
  static std::unique_ptr<Blas> open();
  // "cuBLASLt 13.0.2", or the reason why the library is not used.
  static std::string description();

  virtual ~Blas() = default;
  // Bytes of scratch memory for the product.
  virtual uint64_t workspace(const BlasProduct& product) const = 0;
  // Enqueues the product on the stream. `factor` and `keep` are for `adds`. Returns false, without
  // doing anything, if the library does not support the product.
  virtual bool multiply(const BlasProduct& product, const float* a, const float* b,
                        const float* bias, float* y, const float* factor, const float* keep,
                        void* workspace, uint64_t workspace_bytes, cudaStream_t stream) const = 0;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
