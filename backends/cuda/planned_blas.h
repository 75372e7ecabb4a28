// cuBLASLt for plans without a device.
#pragma once

#include "blas.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Has every product that the documentation of cuBLASLt lists, and multiplies nothing. It asks for
// no workspace, where the library asks for up to 32 MiB.
class PlannedBlas final : public Blas {
 public:
  uint64_t workspace(const BlasProduct&, uint32_t) const override { return 0; }
  bool supports(const BlasProduct& product, uint32_t alignment) const override {
    const bool sums =
        product.epilogue == BlasEpilogue::sums_a || product.epilogue == BlasEpilogue::sums_b;
    return product.rounds_once(alignment) && (!sums || product.batch == 1);
  }
  bool prepare(const BlasProduct&, const BlasOperands&) const override { return false; }
  bool multiply(const BlasProduct&, const BlasOperands&, cudaStream_t) const override {
    return false;
  }
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
