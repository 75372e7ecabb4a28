// Windows over three spatial axes (core/windows.h), passed to kernels by value.
#pragma once

#include "core/windows.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

struct DeviceAxis {
  uint32_t size;  // of the input
  uint32_t outs;
  uint32_t window;
  uint32_t stride;
  uint32_t dilation;
  uint32_t pad;
  uint32_t pad_end;

  // The position of element k of the window of output o. Positions before the input wrap to large
  // values.
  __device__ uint32_t input(uint32_t o, uint32_t k) const {
    return o * stride + k * dilation - pad;
  }
  // The output whose window has element i of the input as its element k, or outs if there is none.
  __device__ uint32_t output(uint32_t i, uint32_t k) const {
    const uint32_t from = i + pad - k * dilation;
    const uint32_t o = from / stride;
    return o * stride == from && o < outs ? o : outs;
  }
  // Number of elements of the window of output o inside the input. With `pads`, elements in the
  // pads count too.
  __device__ uint32_t count(uint32_t o, bool pads) const {
    uint32_t n = 0;
    for (uint32_t k = 0; k < window; ++k) {
      n += input(o, k) + (pads ? pad : 0) < size + (pads ? pad + pad_end : 0) ? 1 : 0;
    }
    return n;
  }
};

struct DeviceWindows {
  DeviceAxis z, y, x;

  __device__ uint64_t inputs() const { return uint64_t{z.size} * y.size * x.size; }
  __device__ uint64_t outputs() const { return uint64_t{z.outs} * y.outs * x.outs; }
  __device__ uint64_t window() const { return uint64_t{z.window} * y.window * x.window; }
};

inline DeviceWindows device_windows(const Windows& w) {
  const auto of = [&](size_t a) {
    const WindowAxis& from = w.axis[a];
    const auto u = [](int64_t n) { return static_cast<uint32_t>(n); };
    return DeviceAxis{u(from.in),       u(from.out), u(from.window), u(from.stride),
                      u(from.dilation), u(from.pad), u(from.pad_end)};
  };
  return {of(0), of(1), of(2)};
}

// A position in planes with three axes of these sizes. Divisions of 32-bit numbers are faster.
template <class I>
struct Place {
  uint32_t z, y, x;
  I plane;
};
template <class I>
__device__ Place<I> place_of(I i, uint32_t z, uint32_t y, uint32_t x) {
  Place<I> p;
  p.x = static_cast<uint32_t>(i % x);
  i /= x;
  p.y = static_cast<uint32_t>(i % y);
  i /= y;
  p.z = static_cast<uint32_t>(i % z);
  p.plane = i / z;
  return p;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
