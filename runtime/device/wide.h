// The operands of kernels that run the f32 kernel for f16 and bf16, between conversions. Operands
// of the node's storage dtype become f32 in the workspace, and results are rounded once at the end.
// f32 and quantized operands are used in place.
#pragma once

#include <type_traits>
#include <vector>

#include "base/checked.h"
#include "device/backend.h"

namespace bowline::detail::device {

// Launch is the class of a backend that describes a launch. Its namespace has
// convert(launch, from, from_dtype, to, to_dtype, elements). An address is a float* or a number.
template <class Launch>
class Wide {
 public:
  using In = decltype(std::declval<Launch>().in(0));
  using Out = decltype(std::declval<Launch>().out(0));

  // Launches the conversions of the inputs.
  explicit Wide(Launch& l) : l_(l) {
    for (size_t i = 0; i < l.inputs(); ++i) {
      in_.push_back(l.in(i));
      if (is_narrow(l.in_type(i)) && !l.is_encoded(i)) {
        const Out wide = take(l.in_shape(i));
        convert(l, l.in(i), l.type(), wide, DType::f32, elements(l.in_shape(i)));
        in_.back() = wide;
      }
    }
    for (size_t o = 0; o < l.outputs(); ++o) {
      out_.push_back(is_narrow(l.out_type(o)) ? take(l.out_shape(o)) : l.out(o));
    }
    separate();
  }
  // Launches the conversions of the results.
  void finish() {
    separate();
    for (size_t o = 0; o < l_.outputs(); ++o) {
      if (is_narrow(l_.out_type(o))) {
        convert(l_, out_[o], DType::f32, l_.out(o), l_.type(), elements(l_.out_shape(o)));
      }
    }
  }

  In in(size_t i) const { return in_[i]; }
  Out out(size_t o) const { return out_[o]; }
  // The scratch memory of the f32 kernel.
  Out workspace() const {
    if constexpr (std::is_pointer_v<Out>) {
      return l_.workspace() + used_ / sizeof(float);
    } else {
      return l_.workspace() + used_;
    }
  }
  uint64_t workspace_bytes() const { return l_.workspace_bytes() - used_; }

  // Bytes of the converted operands, which precede this scratch memory.
  template <class NodeView>
  static uint64_t bytes(const NodeView& node) {
    uint64_t sum = 0;
    const auto add = [&](std::span<const Operand> operands) {
      for (const Operand& o : operands) {
        const bool narrow =
            o.dtype == node.query.type && o.dtype != DType::f32 && o.encoding.is_plain();
        sum += narrow ? bytes_of(o.shape) : 0;
      }
    };
    add(node.query.inputs);
    add(node.query.outputs);
    return sum;
  }

 private:
  static uint64_t elements(const Shape& shape) { return static_cast<uint64_t>(shape.elements()); }
  static uint64_t bytes_of(const Shape& shape) {
    return round_up(elements(shape) * sizeof(float), 256);
  }
  bool is_narrow(DType type) const { return type != DType::f32 && type == l_.type(); }
  Out take(const Shape& shape) {
    const Out at = workspace();
    used_ += bytes_of(shape);
    return at;
  }
  // Some backends need a barrier between the conversions and the kernel.
  void separate() {
    if constexpr (requires { l_.barrier(); }) {
      if (l_.type() != DType::f32) {
        l_.barrier();
      }
    }
  }

  Launch& l_;
  uint64_t used_ = 0;  // bytes of the workspace
  std::vector<In> in_;
  std::vector<Out> out_;
};

}  // namespace bowline::detail::device
