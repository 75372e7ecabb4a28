// Matrix products by cuBLASLt, where the machine has the library.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// y[batch, m, n] = a' b' + bias of f32, rows after rows. a' is a [m, k], or the transpose of a [k,
// m]; b' likewise. The bias [n] is added to every row.
struct BlasProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0;  // elements between the matrices of a batch; 0: one for all
  int64_t stride_b = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  // y is added to: `multiply` gets two factors in device memory, of the product and of what y
  // holds.
  bool adds = false;
  auto operator<=>(const BlasProduct&) const = default;
};

// The algorithm of a product is what the heuristic of the library says for its sizes, asked once.
// Never by timing: another algorithm is another order of the sums.
class Blas {
 public:
  // Null if there is no library that fits; the products are then those of kernels/matmul.cu.
  static std::unique_ptr<Blas> open();
  // "cuBLASLt 13.0.2", or why it is not used.
  static std::string description();

  virtual ~Blas() = default;
  // Scratch bytes of the product.
  virtual uint64_t workspace(const BlasProduct& product) const = 0;
  // Puts the product on the stream; `factor` and `keep` are for `adds`. False: the library has none
  // for it, and nothing was done.
  virtual bool multiply(const BlasProduct& product, const float* a, const float* b,
                        const float* bias, float* y, const float* factor, const float* keep,
                        void* workspace, uint64_t workspace_bytes, cudaStream_t stream) const = 0;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
