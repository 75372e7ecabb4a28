// Where a kernel writes results that may be a gradient.
#pragma once

#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Results of type T, or a gradient, which is f32. A frozen gradient has neither: nothing is
// written.
template <class T>
struct Target {
  T* data = nullptr;
  float* gradient = nullptr;  // (optional) instead of `data`
  bool adds = false;          // to the gradient

  bool is_frozen() const { return data == nullptr && gradient == nullptr; }
  __device__ void put(uint64_t i, float x) const {
    float v[1] = {x};
    put_some(i, v);
  }
  // kWidth elements that can be accessed at once (read_some).
  template <int kWidth>
  __device__ void put_some(uint64_t i, float (&v)[kWidth]) const {
    if (data != nullptr) {
      write_some(data + i, v);
    } else if (gradient != nullptr) {
      float old[kWidth] = {};
      if (adds) {
        read_some(gradient + i, old);
      }
      for (int k = 0; k < kWidth; ++k) {
        v[k] += old[k];
      }
      write_some(gradient + i, v);
    }
  }
};

// Output i of a node whose storage dtype is T.
template <class T>
Target<T> target_of(const Launch& l, size_t i) {
  if (!l.is_gradient(i)) {
    return {.data = l.out_as<T>(i)};
  }
  return {.gradient = l.entry(l.out_operand(i)).elements == 0 ? nullptr : l.out(i),
          .adds = l.adds(i)};
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
