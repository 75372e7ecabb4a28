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

// What a product does with its sums before it writes them. The library's Gelu and its derivative
// are not used, because they approximate tanh: on an H100, cuBLASLt 13.1 errs by 1.7 tolerances of
// f32, and by 0.8 units in the last place of bf16.
enum class BlasEpilogue : uint8_t {
  none,
  bias,    // adds bias[n] to every row
  sums_a,  // also writes bias[m], the sums of a' over k
  sums_b,  // also writes bias[n], the sums of b' over k
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
  DType y_type = DType::f32;  // of y, bias and c
  bool adds = false;          // adds c [batch, m, n]
  BlasEpilogue epilogue = BlasEpilogue::none;
  bool tf32 = false;  // f32 operands may be rounded to TF32
  // Elements between the lines of a, and of y and c; 0: the lines follow each other.
  int64_t line_a = 0;
  int64_t line_y = 0;

  int64_t between_a() const { return line_a != 0 ? line_a : transpose_a ? m : k; }
  int64_t between_y() const { return line_y != 0 ? line_y : n; }
  // True if the distances of the lines of all operands are whole packs of 8 elements.
  bool has_packs() const {
    constexpr int64_t kPack = 8;
    return between_a() % kPack == 0 && (transpose_b ? k : n) % kPack == 0 &&
           between_y() % kPack == 0;
  }

  // False if the library would round the product to 16 bits before it adds the bias: if not all
  // rows have packs, or addresses are no multiples of 16 bytes (cuBLASLt 13.1 on an H100).
  bool rounds_once(uint32_t alignment) const {
    return epilogue != BlasEpilogue::bias || y_type == DType::f32 ||
           (has_packs() && alignment % 16 == 0);
  }

  auto operator<=>(const BlasProduct&) const = default;
};

struct BlasOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  const void* c = nullptr;  // for `adds`; may be y
  void* bias = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
};

constexpr uint32_t kBestAlignment = 16;  // the largest that changes the choice of the library

// The library's heuristic chooses the algorithm once per size. Timing never decides, because
// another algorithm adds in another order.
class Blas {
 public:
  // Null if no suitable library exists; kernels/matmul.cu then computes all products.
  static std::unique_ptr<Blas> open();
  // "cuBLASLt 13.0.2", or the reason why the library is not used.
  static std::string description();

  virtual ~Blas() = default;
  // Bytes of scratch memory for the product, for addresses at multiples of `alignment` bytes.
  virtual uint64_t workspace(const BlasProduct& product,
                             uint32_t alignment = kBestAlignment) const = 0;
  // True if the library has the product for such addresses.
  virtual bool supports(const BlasProduct& product, uint32_t alignment = kBestAlignment) const = 0;
  // Chooses the algorithm for these addresses. It must be called before multiply(), and the first
  // time not during a capture. Returns false if the library does not support the product.
  virtual bool prepare(const BlasProduct& product, const BlasOperands& operands) const = 0;
  // Enqueues the product on the stream. Returns false, without doing anything, if prepare() was
  // not called or returned false.
  virtual bool multiply(const BlasProduct& product, const BlasOperands& operands,
                        cudaStream_t stream) const = 0;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
