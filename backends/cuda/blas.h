// Matrix products by cuBLASLt, where the machine has the library.
#pragma once

#include <memory>
#include <string>

#include "core/status.h"
#include "platform.h"

namespace bowline::BOWLINE_CUDA_NAMESPACE {

class Blas {
 public:
  // Null if there is no library that fits; the products are then those of kernels/matmul.cu.
  static std::unique_ptr<Blas> open();
  // "cuBLASLt 13.0.2", or why it is not used.
  static std::string description();
};

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
