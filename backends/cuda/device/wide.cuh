// f16 and bf16 kernels that run the f32 kernel between conversions. Operands of the node's storage
// dtype become f32 in the workspace, and results are rounded once at the end. f32 and quantized
// operands are used in place.
#pragma once

#include <vector>

#include "base/checked.h"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

class Wide {
 public:
  // Launches the conversions of the inputs.
  explicit Wide(Launch& l) : l_(l), workspace_(l.workspace()) {
    for (size_t i = 0; i < l.inputs(); ++i) {
      in_.push_back(l.in(i));
      if (is_narrow(l.in_type(i)) && !l.is_encoded(i)) {
        float* const wide = take(l.in_shape(i));
        convert(l, l.in(i), l.type(), wide, DType::f32, elements(l.in_shape(i)));
        in_.back() = wide;
      }
    }
    for (size_t o = 0; o < l.outputs(); ++o) {
      out_.push_back(is_narrow(l.out_type(o)) ? take(l.out_shape(o)) : l.out(o));
    }
  }
  // Launches the conversions of the results.
  void finish() {
    for (size_t o = 0; o < l_.outputs(); ++o) {
      if (is_narrow(l_.out_type(o))) {
        convert(l_, out_[o], DType::f32, l_.out(o), l_.type(), elements(l_.out_shape(o)));
      }
    }
  }

  const float* in(size_t i) const { return in_[i]; }
  float* out(size_t o) const { return out_[o]; }
  // The scratch memory of the f32 kernel.
  float* workspace() const { return workspace_; }
  uint64_t workspace_bytes() const {
    return l_.workspace_bytes() -
           static_cast<uint64_t>(workspace_ - l_.workspace()) * sizeof(float);
  }

  // Bytes of the converted operands, which precede this scratch memory.
  static uint64_t bytes(const NodeView& node) {
    uint64_t sum = 0;
    const auto add = [&](const device::Operand& o) {
      const bool narrow =
          node.query.type != DType::f32 && o.dtype == node.query.type && o.encoding.is_plain();
      sum += narrow ? floats(o.shape) * sizeof(float) : 0;
    };
    for (const device::Operand& in : node.query.inputs) {
      add(in);
    }
    for (const device::Operand& out : node.query.outputs) {
      add(out);
    }
    return sum;
  }

 private:
  static uint64_t elements(const Shape& shape) { return static_cast<uint64_t>(shape.elements()); }
  static uint64_t floats(const Shape& shape) { return round_up(elements(shape), 64); }
  bool is_narrow(DType type) const { return l_.type() != DType::f32 && type == l_.type(); }
  float* take(const Shape& shape) {
    float* const at = workspace_;
    workspace_ += floats(shape);
    return at;
  }

  Launch& l_;
  float* workspace_;
  std::vector<const float*> in_;
  std::vector<float*> out_;
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
