//! ops(f32, f16, bf16) MaxPool MaxPoolGrad AveragePool AveragePoolGrad
// Pools over planes of [N, C, spatial...], one thread per result.
#include <cmath>

#include "device/begin.cuh"
#include "device/storage.cuh"
#include "device/windows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::pool_kernels {
namespace {

constexpr unsigned kThreads = 256;

__device__ inline uint64_t thread_of_grid() {
  return uint64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// Calls f(input) for the elements of the window of output o inside a plane, in row-major order.
template <class F>
__device__ void for_window(const DeviceWindows& w, const Place<uint64_t>& o, F&& f) {
  for (uint32_t kz = 0; kz < w.z.window; ++kz) {
    const uint32_t iz = w.z.input(o.z, kz);
    for (uint32_t ky = 0; ky < w.y.window && iz < w.z.size; ++ky) {
      const uint32_t iy = w.y.input(o.y, ky);
      for (uint32_t kx = 0; kx < w.x.window && iy < w.y.size; ++kx) {
        const uint32_t ix = w.x.input(o.x, kx);
        if (ix < w.x.size) {
          f((uint64_t{iz} * w.y.size + iy) * w.x.size + ix);
        }
      }
    }
  }
}

// Calls f(output) for the windows of a plane that contain element i.
template <class F>
__device__ void for_outputs(const DeviceWindows& w, const Place<uint64_t>& i, F&& f) {
  for (uint32_t kz = 0; kz < w.z.window; ++kz) {
    const uint32_t oz = w.z.output(i.z, kz);
    for (uint32_t ky = 0; ky < w.y.window && oz < w.z.outs; ++ky) {
      const uint32_t oy = w.y.output(i.y, ky);
      for (uint32_t kx = 0; kx < w.x.window && oy < w.y.outs; ++kx) {
        const uint32_t ox = w.x.output(i.x, kx);
        if (ox < w.x.outs) {
          f(Place<uint64_t>{oz, oy, ox, (uint64_t{oz} * w.y.outs + oy) * w.x.outs + ox});
        }
      }
    }
  }
}

__device__ inline float divisor(const DeviceWindows& w, const Place<uint64_t>& o, bool pads) {
  const uint64_t n = uint64_t{w.z.count(o.z, pads)} * w.y.count(o.y, pads) * w.x.count(o.x, pads);
  return static_cast<float>(n < 1 ? 1 : n);
}

template <bool kMax, class T>
__global__ void pool_kernel(const T* x, T* y, uint64_t n, DeviceWindows w, bool pads) {
  begin_kernel();
  const uint64_t i = thread_of_grid();
  if (i >= n) {
    return;
  }
  const Place o = place_of(i, w.z.outs, w.y.outs, w.x.outs);
  const T* const from = x + o.plane * w.inputs();
  float result = kMax ? -INFINITY : 0.0f;
  for_window(w, o, [&](uint64_t at) {
    const float v = read(from + at);
    if constexpr (kMax) {
      result = v > result || v != v ? v : result;
    } else {
      result += v;
    }
  });
  write(y + i, kMax ? result : result / divisor(w, o, pads));
}

// The first element that equals y gets dy.
template <class T>
__global__ void max_grad_kernel(const T* x, const T* y, const T* dy, T* dx, uint64_t n,
                                DeviceWindows w) {
  begin_kernel();
  const uint64_t element = thread_of_grid();
  if (element >= n) {
    return;
  }
  const Place i = place_of(element, w.z.size, w.y.size, w.x.size);
  const uint64_t own = element - i.plane * w.inputs();
  const T* const from = x + i.plane * w.inputs();
  const float value = read(x + element);
  float sum = 0;
  for_outputs(w, i, [&](const Place<uint64_t>& o) {
    const uint64_t at = i.plane * w.outputs() + o.plane;
    const float top = read(y + at);
    const auto is_top = [&](float v) { return v == top || (v != v && top != top); };
    if (is_top(value)) {
      bool first = true;
      for_window(w, o, [&](uint64_t other) {
        first = first && (other >= own || !is_top(read(from + other)));
      });
      sum += first ? read(dy + at) : 0.0f;
    }
  });
  write(dx + element, sum);
}

template <class T>
__global__ void average_grad_kernel(const T* dy, T* dx, uint64_t n, DeviceWindows w, bool pads) {
  begin_kernel();
  const uint64_t element = thread_of_grid();
  if (element >= n) {
    return;
  }
  const Place i = place_of(element, w.z.size, w.y.size, w.x.size);
  const T* const from = dy + i.plane * w.outputs();
  float sum = 0;
  for_outputs(w, i,
              [&](const Place<uint64_t>& o) { sum += read(from + o.plane) / divisor(w, o, pads); });
  write(dx + element, sum);
}

template <class Table>
DeviceWindows windows(const Launch& l, const Shape& x, const Shape& y) {
  const auto& t = l.attributes<Table>();
  return device_windows(windows_of(t, x, pool_window(t), y));
}

uint64_t made(const Launch& l) { return static_cast<uint64_t>(l.out_shape(0).elements()); }

template <bool kMax, class T>
void pool(Launch& l) {
  l.launch("pool", pool_kernel<kMax, T>, blocks_for(made(l), kThreads), kThreads, l.in_as<T>(0),
           l.out_as<T>(0), made(l), windows<PoolAttributes>(l, l.in_shape(0), l.out_shape(0)),
           l.attributes<PoolAttributes>().count_pads());
}

template <class T>
void max_pool_grad(Launch& l) {
  l.launch("gradient of a max pool", max_grad_kernel<T>, blocks_for(made(l), kThreads), kThreads,
           l.in_as<T>(0), l.in_as<T>(1), l.in_as<T>(2), l.out_as<T>(0), made(l),
           windows<PoolAttributes>(l, l.in_shape(0), l.in_shape(1)));
}

template <class T>
void average_pool_grad(Launch& l) {
  l.launch("gradient of an average pool", average_grad_kernel<T>, blocks_for(made(l), kThreads),
           kThreads, l.in_as<T>(0), l.out_as<T>(0), made(l),
           windows<AveragePoolGradAttributes>(l, l.out_shape(0), l.in_shape(0)),
           l.attributes<AveragePoolGradAttributes>().count_pads());
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(max_pool, .run = pool<true, T>);
BOWLINE_KERNELS_OF_FLOATS(max_pool_grad, .run = max_pool_grad<T>);
BOWLINE_KERNELS_OF_FLOATS(average_pool, .run = pool<false, T>);
BOWLINE_KERNELS_OF_FLOATS(average_pool_grad, .run = average_pool_grad<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::pool_kernels
