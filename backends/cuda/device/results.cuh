// What a matrix product does with its sums: the steps that follow, and where the results go.
#pragma once

#include "core/products.h"
#include "device/elements.cuh"
#include "device/formulas.cuh"
#include "device/target.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// kCount elements of type T, of which the first `count` are read or written. `packs`: all of them
// at once.
template <class T, int kCount>
__device__ void read_first(const T* at, bool packs, int count, float (&v)[kCount]) {
  if (packs) {
    read_some(at, v);
    return;
  }
  BOWLINE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    v[i] = i < count ? read(at + i) : 0.0f;
  }
}
template <class T, int kCount>
__device__ void write_first(T* at, bool packs, int count, const float (&v)[kCount]) {
  if (packs) {
    write_some(at, v);
    return;
  }
  BOWLINE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (i < count) {
      write(at + i, v[i]);
    }
  }
}

// The steps that have an operand.
enum class Step : uint8_t { bias, addend, slope };

// The steps are those of runtime/ops/fused_mat_mul.cpp; null: no such step. Operands have the dtype
// of the node, except a gradient, which is f32.
struct Results {
  const void* bias = nullptr;    // [n]
  const void* addend = nullptr;  // as y
  const void* slope = nullptr;   // as y: where the derivative of Gelu is taken
  void* sums = nullptr;          // as y: receives the sums before Gelu
  void* y = nullptr;
  float* gradient = nullptr;  // (optional) instead of y
  bool adds = false;          // to the gradient

  // The gradient of a frozen storage: nothing is written.
  __host__ __device__ bool is_frozen() const { return y == nullptr && gradient == nullptr; }

  // Takes kCount sums in a row, from element `at` of y on, which is in column `column`. Only the
  // first `count` are inside y. `packs`: all are, and allow_packs() holds for groups of kCount.
  template <class T, int kCount>
  __device__ void put(float (&v)[kCount], int64_t at, int column, bool packs, int count) const {
    const auto operand = [&]<Step kStep>(float(&x)[kCount]) {
      read_first(static_cast<const T*>(operand_of(kStep)) + (kStep == Step::bias ? column : at),
                 packs, count, x);
    };
    put_with(v, at, packs, count, operand, store_of<T, kCount>(at, packs, count));
  }
  template <class T>
  __device__ void put(float sum, int64_t at, int column) const {
    float v[1] = {sum};
    put<T>(v, at, column, false, 1);
  }
  // The dtype must be the same for all threads. The steps for each dtype would be three times the
  // code.
  __device__ void put(DType type, float sum, int64_t at, int column) const {
    float v[1] = {sum};
    const auto operand = [&]<Step kStep>(float(&x)[1]) {
      x[0] = read(operand_of(kStep), type, kStep == Step::bias ? column : at);
    };
    const auto store = [&](void* to, const float(&x)[1]) { write(to, type, at, x[0]); };
    put_with(v, at, false, 1, operand, store);
  }

  // The operands of the steps for kCount results in a row.
  template <class T, int kCount>
  struct Operands {
    static constexpr int kPacks = kCount / kPack<T>;
    uint4 addend[kPacks];
    uint4 slope[kPacks];
  };
  // Loads them ahead of put(), whose steps take less time than a load.
  template <class T, int kCount>
  __device__ void load(Operands<T, kCount>& to, int64_t at) const {
    load_packs<T>(to.addend, addend, at);
    load_packs<T>(to.slope, slope, at);
  }
  template <class T, int kPacks>
  __device__ void load_bias(uint4 (&to)[kPacks], int column) const {
    load_packs<T>(to, bias, column);
  }
  // put() with operands that are loaded if `packs` holds.
  template <class T, int kCount, int kPacks>
  __device__ void put(float (&v)[kCount], int64_t at, int column, bool packs, int count,
                      const uint4 (&biases)[kPacks], const Operands<T, kCount>& loaded) const {
    const auto operand = [&]<Step kStep>(float(&x)[kCount]) {
      if (packs) {
        unpack_all<T>(kStep == Step::bias     ? biases
                      : kStep == Step::addend ? loaded.addend
                                              : loaded.slope,
                      x);
      } else {
        read_first(static_cast<const T*>(operand_of(kStep)) + (kStep == Step::bias ? column : at),
                   false, count, x);
      }
    };
    put_with(v, at, packs, count, operand, store_of<T, kCount>(at, packs, count));
  }

  // True if rows of n elements consist of groups of `many`, which can be read and written at once.
  bool allow_packs(int64_t n, unsigned many, uint64_t element_bytes) const {
    const uintptr_t all = number(bias) | number(addend) | number(slope) | number(sums) | number(y);
    return n % many == 0 && all % std::min<uint64_t>(many * element_bytes, 16) == 0 &&
           aligned16(gradient);
  }

 private:
  __device__ const void* operand_of(Step step) const {
    return step == Step::bias ? bias : step == Step::addend ? addend : slope;
  }
  template <class T, int kPacks>
  __device__ static void load_packs(uint4 (&to)[kPacks], const void* from, int64_t at) {
    if (from != nullptr) {
      BOWLINE_UNROLL
      for (int i = 0; i < kPacks; ++i) {
        to[i] = *reinterpret_cast<const uint4*>(static_cast<const T*>(from) + at + i * kPack<T>);
      }
    }
  }
  template <class T, int kPacks, int kCount>
  __device__ static void unpack_all(const uint4 (&packs)[kPacks], float (&x)[kCount]) {
    BOWLINE_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      float some[kPack<T>];
      unpack<T>(packs[i], some);
      BOWLINE_UNROLL
      for (int e = 0; e < kPack<T>; ++e) {
        x[i * kPack<T> + e] = some[e];
      }
    }
  }
  template <class T, int kCount>
  __device__ static auto store_of(int64_t at, bool packs, int count) {
    return [=](void* to, const float(&v)[kCount]) {
      write_first(static_cast<T*>(to) + at, packs, count, v);
    };
  }
  // operand.operator()<kStep>(x) gets the operands of a step; store(to, v) writes results to `sums`
  // or `y`.
  template <int kCount, class F, class S>
  __device__ void put_with(float (&v)[kCount], int64_t at, bool packs, int count, const F& operand,
                           const S& store) const {
    if (is_frozen()) {
      return;
    }
    float x[kCount];
    if (bias != nullptr) {
      operand.template operator()<Step::bias>(x);
      add(v, x);
    }
    if (addend != nullptr) {
      operand.template operator()<Step::addend>(x);
      add(v, x);
    }
    if (slope != nullptr) {
      operand.template operator()<Step::slope>(x);
      BOWLINE_UNROLL
      for (int i = 0; i < kCount; ++i) {
        v[i] = formulas::gelu_tanh_gradient(x[i], v[i], 0, 0);
      }
    }
    if (sums != nullptr) {
      store(sums, v);
      BOWLINE_UNROLL
      for (int i = 0; i < kCount; ++i) {
        v[i] = formulas::gelu_tanh_forward(v[i], 0, 0);
      }
    }
    if (y != nullptr) {
      store(y, v);
      return;
    }
    if (adds) {
      read_first(gradient + at, packs, count, x);
      add(v, x);
    }
    write_first(gradient + at, packs, count, v);
  }

  static uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }
  template <int kCount>
  __device__ static void add(float (&v)[kCount], const float (&x)[kCount]) {
    BOWLINE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      v[i] += x[i];
    }
  }
};

// The sums over k of an operand: of the rows of a', or of the columns of b'.
template <class T>
struct LineSums {
  int operand = -1;  // 0: a, 1: b, -1: none is summed
  Target<T> to = {};
};

template <class T>
LineSums<T> line_sums_of(const Launch& l) {
  if (l.op() != Op::FusedMatMul) {
    return {};
  }
  const auto& t = l.attributes<file::FusedMatMulAttributes>();
  const bool sums = (t.sum_a() || t.sum_b()) && !target_of<T>(l, 1).is_frozen();
  return sums ? LineSums<T>{t.sum_a() ? 0 : 1, target_of<T>(l, 1)} : LineSums<T>();
}

// Of a MatMul, Linear or FusedMatMul.
inline Results results_of(const Launch& l) {
  Results r;
  const Target<float> y = target_of<float>(l, 0);
  r.y = y.data;
  r.gradient = y.gradient;
  r.adds = y.adds;
  if (l.op() != Op::FusedMatMul) {
    r.bias = l.has_input(2) ? l.in(2) : nullptr;
    return r;
  }
  const FusedInputs inputs(l.attributes<file::FusedMatMulAttributes>());
  const auto in = [&](int i) { return i < 0 ? nullptr : l.in(static_cast<size_t>(i)); };
  r.bias = in(inputs.bias);
  r.addend = in(inputs.addend);
  r.slope = in(inputs.slope);
  r.sums = l.attributes<file::FusedMatMulAttributes>().gelu() ? l.out(1) : nullptr;
  return r;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
