//! elementwise
//! elementwise(f16, bf16)
// Operators with formulas (runtime/ops/formulas); those of two operands broadcast (numpy rules).
#include "device/elements.cuh"
#include "device/formulas.cuh"
#include "device/loops.cuh"
#include "device/storage.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace {

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

template <class F>
void broadcasting(Launch& l, F f) {
  const Shape& y = l.out_shape(0);
  if (l.in_shape(0).elements() == y.elements() && l.in_shape(1).elements() == y.elements()) {
    same_shape(l, f);
    return;
  }
  const uint64_t n = static_cast<uint64_t>(y.elements());
  l.launch("broadcast", broadcast_kernel<F>, element_blocks(n), kElementThreads, f, l.in(0),
           l.in(1), l.out(0), n, broadcast_loops(l));
}

// Of 16 bits: these kernels wait for memory, so that one for all functions does.
__device__ float call(Function function, float a, float b, float p, float q) {
  switch (function) {
#define BOWLINE_FORWARD(name) \
  case Function::name:        \
    return formulas::name##_forward(a, p, q);
#define BOWLINE_GRADIENT(name)    \
  case Function::name##_gradient: \
    return formulas::name##_gradient(a, b, p, q);
#define BOWLINE_BINARY(name) \
  case Function::name:       \
    return formulas::name##_binary(a, b);
#include "generated/functions.inc"
  }
  return a;
}

template <class T>
__global__ void stored_kernel(FunctionCall f, const T* a, const T* b, T* y, uint64_t n) {
  for_elements(
      n, false,
      [&](uint64_t i) { write(y + i, call(f.function, read(a + i), read(b + i), f.p, f.q)); },
      [](uint64_t) {});
}

template <class T>
__global__ void stored_broadcast_kernel(FunctionCall f, const T* a, const T* b, T* y, uint64_t n,
                                        Loops<2> loops) {
  for_elements(
      n, false,
      [&](uint64_t i) {
        int64_t at[2];
        loops.offsets(i, at);
        write(y + i, call(f.function, read(a + at[0]), read(b + at[1]), f.p, f.q));
      },
      [](uint64_t) {});
}

template <class T>
void run_stored(Launch& l) {
  const FunctionCall f = function_of(l.op(), l.attributes());
  const size_t last = l.inputs() - 1;
  const Shape& y = l.out_shape(0);
  const auto n = static_cast<uint64_t>(y.elements());
  if (l.in_shape(0).elements() == y.elements() && l.in_shape(last).elements() == y.elements()) {
    l.launch("elementwise", stored_kernel<T>, element_blocks(n), kElementThreads, f, l.in_as<T>(0),
             l.in_as<T>(last), l.out_as<T>(0), n);
  } else {
    l.launch("broadcast", stored_broadcast_kernel<T>, element_blocks(n), kElementThreads, f,
             l.in_as<T>(0), l.in_as<T>(1), l.out_as<T>(0), n, broadcast_loops(l));
  }
}

void run(Launch& l) {
  const FunctionCall call = function_of(l.op(), l.attributes());
  switch (call.function) {
#define BOWLINE_FORWARD(name) \
  case Function::name:        \
    return same_shape(l, formulas::name##Function{call.p, call.q});
#define BOWLINE_GRADIENT(name)    \
  case Function::name##_gradient: \
    return same_shape(l, formulas::name##Gradient{call.p, call.q});
#define BOWLINE_BINARY(name) \
  case Function::name:       \
    return broadcasting(l, formulas::name##Function{call.p, call.q});
#include "generated/functions.inc"
  }
}

}  // namespace

BOWLINE_CUDA_KERNEL(elementwise, .run = run);
BOWLINE_CUDA_KERNEL(elementwise_f16, .run = run_stored<__half>);
BOWLINE_CUDA_KERNEL(elementwise_bf16, .run = run_stored<__nv_bfloat16>);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
