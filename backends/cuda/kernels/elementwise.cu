//! elementwise
//! elementwise(f16, bf16)
// Operators with formulas (runtime/ops/formulas); those of two operands broadcast (numpy rules).
#include <type_traits>

#include "device/elements.cuh"
#include "device/formulas.cuh"
#include "device/loops.cuh"
#include "device/storage.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace {

// Four at a time where `four` says that all three may be read so, which is of f32 alone.
template <class T, class F>
__global__ void same_shape_kernel(F f, const T* a, const T* b, T* y, uint64_t n, bool four) {
  for_elements(
      n, four, [&](uint64_t i) { write(y + i, f(read(a + i), read(b + i))); },
      [&](uint64_t i) {
        if constexpr (std::is_same_v<T, float>) {
          const float4 u = load4(a + i);
          const float4 v = load4(b + i);
          store4(y + i, make_float4(f(u.x, v.x), f(u.y, v.y), f(u.z, v.z), f(u.w, v.w)));
        }
      });
}

template <class T, class F>
__global__ void broadcast_kernel(F f, const T* a, const T* b, T* y, uint64_t n, Loops<2> loops) {
  for_elements(
      n, false,
      [&](uint64_t i) {
        int64_t at[2];
        loops.offsets(i, at);
        write(y + i, f(read(a + at[0]), read(b + at[1])));
      },
      [](uint64_t) {});
}

// y = f(first operand, last operand).
template <class T, class F>
void same_shape(Launch& l, F f) {
  const uint64_t n = static_cast<uint64_t>(l.out_shape(0).elements());
  const T* a = l.in_as<T>(0);
  const T* b = l.in_as<T>(l.inputs() - 1);
  T* y = l.out_as<T>(0);
  const bool four = std::is_same_v<T, float> && aligned16(a, b, y);
  l.launch("elementwise", same_shape_kernel<T, F>, element_blocks(n), kElementThreads, f, a, b, y,
           n, four);
}

Loops<2> broadcast_loops(const Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto a = broadcast_strides(l.in_shape(0), y);
  const auto b = broadcast_strides(l.in_shape(1), y);
  Loops<2> loops;
  for (int axis = 0; axis < y.rank(); ++axis) {
    loops.add(y[axis], {a[static_cast<size_t>(axis)], b[static_cast<size_t>(axis)]});
  }
  return loops;
}

template <class T, class F>
void broadcasting(Launch& l, F f) {
  const Shape& y = l.out_shape(0);
  if (l.in_shape(0).elements() == y.elements() && l.in_shape(1).elements() == y.elements()) {
    same_shape<T>(l, f);
    return;
  }
  const uint64_t n = static_cast<uint64_t>(y.elements());
  l.launch("broadcast", broadcast_kernel<T, F>, element_blocks(n), kElementThreads, f,
           l.in_as<T>(0), l.in_as<T>(1), l.out_as<T>(0), n, broadcast_loops(l));
}

// Of 16 bits: these kernels wait for memory, so that one for all functions does.
struct AnyFunction {
  FunctionCall call;
  __device__ float operator()(float a, float b) const {
    switch (call.function) {
#define BOWLINE_FORWARD(name) \
  case Function::name:        \
    return formulas::name##_forward(a, call.p, call.q);
#define BOWLINE_GRADIENT(name)    \
  case Function::name##_gradient: \
    return formulas::name##_gradient(a, b, call.p, call.q);
#define BOWLINE_BINARY(name) \
  case Function::name:       \
    return formulas::name##_binary(a, b);
#include "generated/functions.inc"
    }
    return a;
  }
};

template <class T>
void run_any(Launch& l) {
  const AnyFunction f{function_of(l.op(), l.attributes())};
  if (l.inputs() == 1) {
    same_shape<T>(l, f);
  } else {
    broadcasting<T>(l, f);
  }
}

void run(Launch& l) {
  const FunctionCall call = function_of(l.op(), l.attributes());
  switch (call.function) {
#define BOWLINE_FORWARD(name) \
  case Function::name:        \
    return same_shape<float>(l, formulas::name##Function{call.p, call.q});
#define BOWLINE_GRADIENT(name)    \
  case Function::name##_gradient: \
    return same_shape<float>(l, formulas::name##Gradient{call.p, call.q});
#define BOWLINE_BINARY(name) \
  case Function::name:       \
    return broadcasting<float>(l, formulas::name##Function{call.p, call.q});
#include "generated/functions.inc"
  }
}

}  // namespace

BOWLINE_CUDA_KERNEL(elementwise, .run = run);
BOWLINE_CUDA_KERNEL(elementwise_f16, .run = run_any<__half>);
BOWLINE_CUDA_KERNEL(elementwise_bf16, .run = run_any<__nv_bfloat16>);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
