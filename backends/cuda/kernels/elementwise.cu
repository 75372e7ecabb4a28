//! ops Add Sub Mul Relu Silu Gelu Tanh Scale ReluGrad SiluGrad GeluGrad
// Functions of one or two operands, element by element.
#include "device/elements.cuh"
#include "device/loops.cuh"
#include "device/math.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace {

// Functions are types, so that a kernel holds one of them. Those of one operand ignore the second, which is the same.
struct AddF {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct SubF {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct MulF {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct ReluF {
  // A NaN stays one.
  __device__ float operator()(float x, float) const { return x < 0 ? 0 : x; }
};
struct SiluF {
  __device__ float operator()(float x, float) const { return silu(x); }
};
struct GeluErfF {
  __device__ float operator()(float x, float) const { return gelu_erf(x); }
};
struct GeluTanhF {
  __device__ float operator()(float x, float) const { return gelu_tanh(x); }
};
struct TanhF {
  __device__ float operator()(float x, float) const { return tanhf(x); }
};
struct ScaleF {
  float factor;
  __device__ float operator()(float x, float) const { return x * factor; }
};
struct ReluGradF {
  __device__ float operator()(float x, float dy) const { return x > 0 ? dy : 0; }
};
struct SiluGradF {
  __device__ float operator()(float x, float dy) const { return dy * silu_slope(x); }
};
struct GeluErfGradF {
  __device__ float operator()(float x, float dy) const { return dy * gelu_erf_slope(x); }
};
struct GeluTanhGradF {
  __device__ float operator()(float x, float dy) const { return dy * gelu_tanh_slope(x); }
};

template <class F>
__global__ void same_shape_kernel(F f, const float* a, const float* b, float* y, uint64_t n,
                                  bool four) {
  for_elements(
      n, four, [&](uint64_t i) { y[i] = f(a[i], b[i]); },
      [&](uint64_t i) {
        const float4 u = load4(a + i);
        const float4 v = load4(b + i);
        store4(y + i, make_float4(f(u.x, v.x), f(u.y, v.y), f(u.z, v.z), f(u.w, v.w)));
      });
}

template <class F>
__global__ void broadcast_kernel(F f, const float* a, const float* b, float* y, uint64_t n,
                                 Loops<2> loops) {
  for_elements(
      n, false,
      [&](uint64_t i) {
        int64_t at[2];
        loops.offsets(i, at);
        y[i] = f(a[at[0]], b[at[1]]);
      },
      [](uint64_t) {});
}

// y = f(first operand, last operand).
template <class F>
void same_shape(Launch& l, F f) {
  const uint64_t n = static_cast<uint64_t>(l.out_shape(0).elements());
  const float* a = l.in(0);
  const float* b = l.in(l.inputs() - 1);
  l.launch("elementwise", same_shape_kernel<F>, element_blocks(n), kElementThreads, f, a, b,
           l.out(0), n, aligned16(a, b, l.out(0)));
}

template <class F>
void broadcasting(Launch& l) {
  const Shape& y = l.out_shape(0);
  if (l.in_shape(0).elements() == y.elements() && l.in_shape(1).elements() == y.elements()) {
    same_shape(l, F{});
    return;
  }
  const auto a = broadcast_strides(l.in_shape(0), y);
  const auto b = broadcast_strides(l.in_shape(1), y);
  Loops<2> loops;
  for (int axis = 0; axis < y.rank(); ++axis) {
    loops.add(y[axis], {a[static_cast<size_t>(axis)], b[static_cast<size_t>(axis)]});
  }
  const uint64_t n = static_cast<uint64_t>(y.elements());
  l.launch("broadcast", broadcast_kernel<F>, element_blocks(n), kElementThreads, F{}, l.in(0),
           l.in(1), l.out(0), n, loops);
}

template <class F>
void unary(Launch& l) {
  same_shape(l, F{});
}

void scale(Launch& l) { same_shape(l, ScaleF{l.attributes<ScaleAttributes>().factor()}); }

bool is_erf(const Launch& l) { return l.attributes<GeluAttributes>().form() == GeluForm::erf; }
void gelu(Launch& l) { is_erf(l) ? same_shape(l, GeluErfF{}) : same_shape(l, GeluTanhF{}); }
void gelu_grad(Launch& l) {
  is_erf(l) ? same_shape(l, GeluErfGradF{}) : same_shape(l, GeluTanhGradF{});
}

}  // namespace

BOWLINE_CUDA_KERNEL(add, .run = broadcasting<AddF>);
BOWLINE_CUDA_KERNEL(sub, .run = broadcasting<SubF>);
BOWLINE_CUDA_KERNEL(mul, .run = broadcasting<MulF>);
BOWLINE_CUDA_KERNEL(relu, .run = unary<ReluF>);
BOWLINE_CUDA_KERNEL(silu, .run = unary<SiluF>);
BOWLINE_CUDA_KERNEL(gelu, .run = gelu);
BOWLINE_CUDA_KERNEL(tanh, .run = unary<TanhF>);
BOWLINE_CUDA_KERNEL(scale, .run = scale);
BOWLINE_CUDA_KERNEL(relu_grad, .run = unary<ReluGradF>);
BOWLINE_CUDA_KERNEL(silu_grad, .run = unary<SiluGradF>);
BOWLINE_CUDA_KERNEL(gelu_grad, .run = gelu_grad);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
