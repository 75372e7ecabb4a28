//! elementwise
//! elementwise(f16, bf16)
//! elementwise(i8, u8, i32, i64, boolean)
// Operators with formulas (runtime/ops/formulas), 16 bytes of floats per thread. Two operands
// broadcast by the rules of NumPy; a third operand has the shape of the result.
#include <type_traits>

#include "core/loops.h"
#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/formulas.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::elementwise_kernels {
namespace {

// A thread loads and stores 16 bytes at once if inputs and result have the same float dtype.
template <class In, class Out>
constexpr bool kPacks =
    std::is_same_v<In, Out> && !std::is_integral_v<In> && !std::is_same_v<In, Truth>;
template <class In, class Out>
constexpr unsigned kEach = kPacks<In, Out> ? kPack<In> : kElementsEach;

// The functions that f16 and bf16 have no kernels for: one kernel for all, because their
// instructions are many.
struct AnyFunction {
  FunctionCall call;
  __device__ float operator()(float a, float b, float c) const {
    switch (call.function) {
#define BOWLINE_FORWARD(name)    \
  case Function::name##_forward: \
    return formulas::name##_forward(a, call.p, call.q);
#define BOWLINE_GRADIENT(name)    \
  case Function::name##_gradient: \
    return formulas::name##_gradient(a, b, call.p, call.q);
#define BOWLINE_GRADIENT_A(name)    \
  case Function::name##_gradient_a: \
    return formulas::name##_gradient_a(a, b, c);
#define BOWLINE_GRADIENT_B(name)    \
  case Function::name##_gradient_b: \
    return formulas::name##_gradient_b(a, b, c);
#include "generated/functions.inc"
      default:
        return a;
    }
  }
};

// All comparisons of floats.
struct AnyComparison {
  FunctionCall call;
  __device__ bool operator()(float a, float b, float) const {
    switch (call.function) {
#define BOWLINE_COMPARE(name)    \
  case Function::name##_compare: \
    return formulas::name##_compare(a, b);
#include "generated/functions.inc"
      default:
        return false;
    }
  }
};

// Two elements of 16 bits.
template <class T, class F>
__device__ uint32_t apply_word(const F& f, uint32_t a, uint32_t b, uint32_t c) {
  using Pair = Some<T, 2>;
  const Pair u = __builtin_bit_cast(Pair, a);
  const Pair v = __builtin_bit_cast(Pair, b);
  const Pair w = __builtin_bit_cast(Pair, c);
  Pair y;
  for (int k = 0; k < 2; ++k) {
    write(&y.x[k], f(read(&u.x[k]), read(&v.x[k]), read(&w.x[k])));
  }
  return __builtin_bit_cast(uint32_t, y);
}

__device__ inline uint4 next_word(uint4 x, uint32_t last) { return {x.y, x.z, x.w, last}; }

// f of 16 bytes of elements of each operand.
template <class T, class F>
__device__ uint4 apply_pack(const F& f, uint4 a, uint4 b, uint4 c) {
  uint4 y = {};
  if constexpr (std::is_same_v<T, float>) {
    const float4 u = __builtin_bit_cast(float4, a);
    const float4 v = __builtin_bit_cast(float4, b);
    const float4 w = __builtin_bit_cast(float4, c);
    y = __builtin_bit_cast(
        uint4, make_float4(f(u.x, v.x, w.x), f(u.y, v.y, w.y), f(u.z, v.z, w.z), f(u.w, v.w, w.w)));
  } else if constexpr (std::is_same_v<F, AnyFunction>) {
    BOWLINE_ROLL  // f contains all functions
        for (int i = 0; i < 4; ++i) {
      y = next_word(y, apply_word<T>(f, a.x, b.x, c.x));
      a = next_word(a, 0);
      b = next_word(b, 0);
      c = next_word(c, 0);
    }
  } else {
    y = {apply_word<T>(f, a.x, b.x, c.x), apply_word<T>(f, a.y, b.y, c.y),
         apply_word<T>(f, a.z, b.z, c.z), apply_word<T>(f, a.w, b.w, c.w)};
  }
  return y;
}

template <class T>
__device__ uint4 load_pack(const T* at) {
  return *reinterpret_cast<const uint4*>(at);
}
// The pack at `at`, or of the element there if `stride` is 0.
template <class T>
__device__ uint4 load_pack(const T* at, int64_t stride) {
  if (stride != 0) {
    return load_pack(at);
  }
  Some<T, kPack<T>> same;
  for (T& x : same.x) {
    x = *at;
  }
  return __builtin_bit_cast(uint4, same);
}

template <class In, class Out, class F>
__global__ void same_shape_kernel(F f, const In* a, const In* b, const In* c, Out* y, uint64_t n,
                                  bool packs) {
  begin_kernel();
  for_elements<kEach<In, Out>>(
      n, packs, [&](uint64_t i) { write(y + i, f(read(a + i), read(b + i), read(c + i))); },
      [&](uint64_t i) {
        if constexpr (kPacks<In, Out>) {
          *reinterpret_cast<uint4*>(y + i) =
              apply_pack<In>(f, load_pack(a + i), load_pack(b + i), load_pack(c + i));
        }
      });
}

template <class In, class Out, class F>
__global__ void broadcast_kernel(F f, const In* a, const In* b, const In* c, Out* y, uint64_t n,
                                 Loops<2> loops, bool packs) {
  begin_kernel();
  for_elements<kEach<In, Out>>(
      n, packs,
      [&](uint64_t i) {
        int64_t at[2];
        loops.offsets(i, at);
        const In* const third = c == nullptr ? a + at[0] : c + i;
        write(y + i, f(read(a + at[0]), read(b + at[1]), read(third)));
      },
      [&](uint64_t i) {
        if constexpr (kPacks<In, Out>) {
          int64_t at[2];
          loops.offsets(i, at);
          const uint4 u = load_pack(a + at[0], loops.strides[0][loops.rank - 1]);
          const uint4 v = load_pack(b + at[1], loops.strides[1][loops.rank - 1]);
          *reinterpret_cast<uint4*>(y + i) =
              apply_pack<In>(f, u, v, c == nullptr ? u : load_pack(c + i));
        }
      });
}

// True if packs of the result belong to packs, or to single elements, of the operands.
template <class T>
bool has_packs(const Loops<2>& loops) {
  const int last = loops.rank - 1;
  bool has = last >= 0 && loops.sizes[last] % kPack<T> == 0;
  for (int axis = 0; axis <= last && has; ++axis) {
    for (const auto& strides : loops.strides) {
      has = has && (axis == last         ? strides[axis] == 0 || strides[axis] == 1
                    : strides[last] == 1 ? strides[axis] % kPack<T> == 0
                                         : true);
    }
  }
  return has;
}

// y = f(first, second, third operand). A missing operand is replaced by the first.
template <class In, class Out, class F>
void same_shape(Launch& l, F f) {
  const uint64_t n = static_cast<uint64_t>(l.out_shape(0).elements());
  const In* a = l.in_as<In>(0);
  const In* b = l.in_as<In>(l.has_input(1) ? 1 : 0);
  const In* c = l.in_as<In>(l.has_input(2) ? 2 : 0);
  Out* y = l.out_as<Out>(0);
  const bool packs = kPacks<In, Out> && aligned16(a, b, c, y);
  l.launch("elementwise", same_shape_kernel<In, Out, F>, element_blocks(n, kEach<In, Out>),
           kElementThreads, f, a, b, c, y, n, packs);
}

template <class In, class Out, class F>
void broadcasting(Launch& l, F f) {
  const Shape& y = l.out_shape(0);
  if (l.in_shape(0).elements() == y.elements() && l.in_shape(1).elements() == y.elements()) {
    same_shape<In, Out>(l, f);
    return;
  }
  const uint64_t n = static_cast<uint64_t>(y.elements());
  const In* const third = l.has_input(2) ? l.in_as<In>(2) : nullptr;
  const auto loops = Loops<2>::broadcast(y, {&l.in_shape(0), &l.in_shape(1)});
  bool packs = false;
  if constexpr (kPacks<In, Out>) {
    packs = has_packs<In>(loops) && aligned16(l.in(0), l.in(1), third, l.out(0));
  }
  l.launch("broadcast", broadcast_kernel<In, Out, F>, element_blocks(n, kEach<In, Out>),
           kElementThreads, f, l.in_as<In>(0), l.in_as<In>(1), third, l.out_as<Out>(0), n, loops,
           packs);
}

struct AnyWhole {
  FunctionCall call;
  __device__ whole::F operator()(whole::F a, whole::F b, whole::F) const {
    switch (call.function) {
#define BOWLINE_FORWARD(name)    \
  case Function::name##_forward: \
    return whole::name##_forward(a, call.p, call.q);
#define BOWLINE_BINARY(name)    \
  case Function::name##_binary: \
    return whole::name##_binary(a, b);
#define BOWLINE_COMPARE(name)    \
  case Function::name##_compare: \
    return whole::F(int64_t{whole::name##_compare(a, b)});
#include "generated/functions_whole.inc"
      default:
        return a;
    }
  }
};

// Integers cannot be divided by 0.
template <class T>
__global__ void divisor_kernel(const T* b, device::StepHead* head, uint32_t node, uint64_t n) {
  begin_kernel();
  for_elements(n, [&](uint64_t i) {
    if (b[i] == 0) {
      bad_index(head, node, 0);
    }
  });
}

template <class T>
void check_divisors(Launch& l) {
  const auto n = static_cast<uint64_t>(l.in_shape(1).elements());
  if (l.out_shape(0).elements() > 0) {
    l.launch("divisors", divisor_kernel<T>, element_blocks(n), kElementThreads, l.in_as<T>(1),
             l.head(), l.node(), n);
  }
}

template <class In, class Out, class F>
void run_into(Launch& l, F f) {
  if (l.inputs() == 1) {
    same_shape<In, Out>(l, f);
  } else {
    broadcasting<In, Out>(l, f);
  }
}

// A comparison returns bool; other operators return the dtype of their inputs.
template <class T, class F, class Comparison>
void run_any(Launch& l) {
  const FunctionCall call = function_of(l.op(), l.attributes());
  if constexpr (std::is_integral_v<T>) {
    if (divides(call.function)) {
      check_divisors<T>(l);
    }
  }
  if (l.out_type(0) == l.in_type(0)) {
    run_into<T, T>(l, F{call});
  } else {
    run_into<T, Truth>(l, Comparison{call});
  }
}

void run(Launch& l) {
  const FunctionCall call = function_of(l.op(), l.attributes());
  switch (call.function) {
#define BOWLINE_FORWARD(name)    \
  case Function::name##_forward: \
    return same_shape<float, float>(l, formulas::name##_forwardFunction{call.p, call.q});
#define BOWLINE_GRADIENT(name)    \
  case Function::name##_gradient: \
    return same_shape<float, float>(l, formulas::name##_gradientFunction{call.p, call.q});
#define BOWLINE_BINARY(name)    \
  case Function::name##_binary: \
    return broadcasting<float, float>(l, formulas::name##_binaryFunction{call.p, call.q});
#define BOWLINE_GRADIENT_A(name)    \
  case Function::name##_gradient_a: \
    return broadcasting<float, float>(l, formulas::name##_gradient_aFunction{call.p, call.q});
#define BOWLINE_GRADIENT_B(name)    \
  case Function::name##_gradient_b: \
    return broadcasting<float, float>(l, formulas::name##_gradient_bFunction{call.p, call.q});
#include "generated/functions.inc"
    default:
      return run_into<float, Truth>(l, AnyComparison{call});
  }
}

template <class T>
void run_narrow(Launch& l) {
  const FunctionCall call = function_of(l.op(), l.attributes());
  switch (call.function) {
#define BOWLINE_BINARY(name)    \
  case Function::name##_binary: \
    return broadcasting<T, T>(l, formulas::name##_binaryFunction{call.p, call.q});
#include "generated/functions.inc"
    default:
      return run_any<T, AnyFunction, AnyComparison>(l);
  }
}

}  // namespace

BOWLINE_KERNEL(elementwise, .run = run);
BOWLINE_KERNEL(elementwise_f16, .run = run_narrow<__half>);
BOWLINE_KERNEL(elementwise_bf16, .run = run_narrow<__nv_bfloat16>);
BOWLINE_KERNELS_OF_INTEGERS(elementwise, .run = run_any<T, AnyWhole, AnyWhole>);
BOWLINE_KERNEL(elementwise_boolean, .run = run_any<Truth, AnyWhole, AnyWhole>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::elementwise_kernels
