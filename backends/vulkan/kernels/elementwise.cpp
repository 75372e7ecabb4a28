//! ops Add Sub Mul Relu Silu Gelu Tanh Scale ReluGrad SiluGrad GeluGrad
// Functions of one or two operands, element by element.
#include "index.h"
#include "kernel.h"

namespace bowline::vulkan {
namespace {

// Numbers of the functions in elementwise.comp.
enum Function : uint32_t {
  kAdd,
  kSub,
  kMul,
  kRelu,
  kSilu,
  kGeluErf,
  kGeluTanh,
  kTanh,
  kScale,
  kReluGrad,
  kSiluGrad,
  kGeluErfGrad,
  kGeluTanhGrad,
};

void same_shape(Launch& l, uint32_t function, size_t operands, float factor = 1) {
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(operands - 1)).add(l.out(0)).u32(n).u32(grid.per_group).f32(factor);
  const auto elements = static_cast<double>(n);
  l.dispatch(shader::elementwise, {function}, push, grid, elements * (function > kMul ? 40 : 1),
             elements * 4 * static_cast<double>(operands + 1));
}

void broadcasting(Launch& l, uint32_t function) {
  const Shape& y = l.out_shape(0);
  if (l.in_shape(0).elements() == y.elements() && l.in_shape(1).elements() == y.elements()) {
    same_shape(l, function, 2);
    return;
  }
  const auto a = broadcast_strides(l.in_shape(0), y);
  const auto b = broadcast_strides(l.in_shape(1), y);
  Loops loops(2);
  for (int axis = 0; axis < y.rank(); ++axis) {
    loops.add(y[axis], {a[static_cast<size_t>(axis)], b[static_cast<size_t>(axis)]});
  }
  loops.finish();
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const auto n = static_cast<uint64_t>(y.elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.in(1)).add(l.out(0)).table(l.table(words)).u32(n).u32(grid.per_group);
  l.dispatch(shader::broadcast, {function, loops.rank()}, push, grid, static_cast<double>(n) * 20,
             static_cast<double>(n) * 12);
}

void add(Launch& l) { broadcasting(l, kAdd); }
void sub(Launch& l) { broadcasting(l, kSub); }
void mul(Launch& l) { broadcasting(l, kMul); }
void relu(Launch& l) { same_shape(l, kRelu, 1); }
void silu(Launch& l) { same_shape(l, kSilu, 1); }
void tanh(Launch& l) { same_shape(l, kTanh, 1); }
void scale(Launch& l) { same_shape(l, kScale, 1, l.attributes<ScaleAttributes>().factor()); }
void relu_grad(Launch& l) { same_shape(l, kReluGrad, 2); }
void silu_grad(Launch& l) { same_shape(l, kSiluGrad, 2); }

bool is_erf(const Launch& l) { return l.attributes<GeluAttributes>().form() == GeluForm::erf; }
void gelu(Launch& l) { same_shape(l, is_erf(l) ? kGeluErf : kGeluTanh, 1); }
void gelu_grad(Launch& l) { same_shape(l, is_erf(l) ? kGeluErfGrad : kGeluTanhGrad, 2); }

}  // namespace

BOWLINE_VULKAN_KERNEL(add, .launch = add);
BOWLINE_VULKAN_KERNEL(sub, .launch = sub);
BOWLINE_VULKAN_KERNEL(mul, .launch = mul);
BOWLINE_VULKAN_KERNEL(relu, .launch = relu);
BOWLINE_VULKAN_KERNEL(silu, .launch = silu);
BOWLINE_VULKAN_KERNEL(gelu, .launch = gelu);
BOWLINE_VULKAN_KERNEL(tanh, .launch = tanh);
BOWLINE_VULKAN_KERNEL(scale, .launch = scale);
BOWLINE_VULKAN_KERNEL(relu_grad, .launch = relu_grad);
BOWLINE_VULKAN_KERNEL(silu_grad, .launch = silu_grad);
BOWLINE_VULKAN_KERNEL(gelu_grad, .launch = gelu_grad);

}  // namespace bowline::vulkan
