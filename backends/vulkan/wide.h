// f16 and bf16 kernels that run the f32 kernel between conversions. Operands of the node's storage
// dtype become f32 in the workspace, and results are rounded once at the end. f32 and quantized
// operands are used in place.
#pragma once

#include <vector>

#include "base/checked.h"
#include "convert.h"
#include "kernel.h"

namespace bowline::detail::vulkan {

class Wide {
 public:
  // Appends the conversions of the inputs, and a barrier.
  explicit Wide(Launch& l) : l_(l), workspace_(l.workspace()) {
    for (size_t i = 0; i < l.inputs(); ++i) {
      in_.push_back(l.in(i));
      if (is_narrow(l.in_type(i)) && !l.is_encoded(i)) {
        in_.back() = take(l.in_shape(i));
        convert(l, l.in(i), l.type(), in_.back(), DType::f32, elements(l.in_shape(i)));
      }
    }
    for (size_t o = 0; o < l.outputs(); ++o) {
      out_.push_back(is_narrow(l.out_type(o)) ? take(l.out_shape(o)) : l.out(o));
    }
    if (l.type() != DType::f32) {
      l.barrier();
    }
  }
  // Appends the conversions of the results.
  void finish() {
    if (l_.type() != DType::f32) {
      l_.barrier();
    }
    for (size_t o = 0; o < l_.outputs(); ++o) {
      if (is_narrow(l_.out_type(o))) {
        convert(l_, out_[o], DType::f32, l_.out(o), l_.type(), elements(l_.out_shape(o)));
      }
    }
  }

  VkDeviceAddress in(size_t i) const { return in_[i]; }
  VkDeviceAddress out(size_t o) const { return out_[o]; }
  // The scratch memory of the f32 kernel.
  VkDeviceAddress workspace() const { return workspace_; }

  // Bytes of the converted operands, which precede this scratch memory.
  static uint64_t bytes(const NodeView& node) {
    uint64_t sum = 0;
    const auto add = [&](const device::Operand& o) {
      const bool narrow =
          node.query.type != DType::f32 && o.dtype == node.query.type && o.encoding.is_plain();
      sum += narrow ? bytes_of(o.shape) : 0;
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
  static uint64_t bytes_of(const Shape& shape) {
    return round_up(elements(shape) * sizeof(float), 256);
  }
  bool is_narrow(DType type) const { return l_.type() != DType::f32 && type == l_.type(); }
  VkDeviceAddress take(const Shape& shape) {
    const VkDeviceAddress at = workspace_;
    workspace_ += bytes_of(shape);
    return at;
  }

  Launch& l_;
  VkDeviceAddress workspace_;
  std::vector<VkDeviceAddress> in_;
  std::vector<VkDeviceAddress> out_;
};

}  // namespace bowline::detail::vulkan
