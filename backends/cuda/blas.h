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

// What a product does with its sums before it writes them.
enum class BlasEpilogue : uint8_t {
  none,
  bias,       // adds bias[n] to every row
  gelu,       // adds bias[n], writes the result to `aux`, and applies Gelu (tanh form)
  gelu_grad,  // multiplies by the derivative of Gelu (tanh form) at `aux`
  sums_a,     // also writes bias[m], the sums of a' over k
  sums_b,     // also writes bias[n], the sums of b' over k
};

// The product y[batch, m, n] = a' b', row-major. a' is a [m, k], or the transpose of a [k, m]. b'
// is b [k, n], or the transpose of b [n, k]. Sums are f32.
struct BlasProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0;  // elements between the matrices of a batch; 0: one matrix for all
  int64_t stride_b = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  DType type = DType::f32;    // of a and b
  DType y_type = DType::f32;  // of y, bias, aux and c
  bool adds = false;          // adds c [batch, m, n]
  BlasEpilogue epilogue = BlasEpilogue::none;
  auto operator<=>(const BlasProduct&) const = default;
};

struct BlasOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  const void* c = nullptr;  // for `adds`; may be y
  void* bias = nullptr;
  void* aux = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
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
  // True if the library has the product, for addresses at multiples of 16 bytes.
  virtual bool supports(const BlasProduct& product) const = 0;
  // Chooses the algorithm for these addresses. It must be called before multiply(), and not during
  // a capture. Returns false if the library does not support the product.
  virtual bool prepare(const BlasProduct& product, const BlasOperands& operands) const = 0;
  // Enqueues the product on the stream. Returns false, without doing anything, if prepare() was
  // not called or returned false.
  virtual bool multiply(const BlasProduct& product, const BlasOperands& operands,
                        cudaStream_t stream) const = 0;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
