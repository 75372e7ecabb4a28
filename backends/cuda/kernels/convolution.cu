//! ops(f32, f16, bf16) Conv ConvTranspose ConvInputGrad ConvWeightGrad
// Convolutions in groups of channels. With i = o * stride + k * dilation - pad:
//   forward  y[n, m, o] = bias[m] + sum over c, k of x[n, c, i] * w[m, c, k]
//            one thread per output
//   back     x[n, c, i] = bias[c] + sum over m, o, k of y[n, m, o] * w[m, c, k]
//            one thread per element of x
//   weights  w[m, c, k] = sum over n, o of y[n, m, o] * x[n, c, i]
//            one warp per weight
#include "device/rows.cuh"
#include "device/storage.cuh"
#include "device/windows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::convolution_kernels {
namespace {

constexpr unsigned kThreads = 256;

struct Groups {
  DeviceWindows windows;
  uint32_t batch;
  uint32_t groups;
  uint32_t inputs;   // channels of x in a group
  uint32_t outputs;  // channels of y in a group
};

template <class T>
__device__ float channel_sum(const DeviceWindows& w, const T* x, const T* weight, const Place& o) {
  float sum = 0;
  for (uint32_t kz = 0; kz < w.z.window; ++kz) {
    const uint32_t iz = w.z.input(o.z, kz);
    for (uint32_t ky = 0; ky < w.y.window; ++ky) {
      const uint32_t iy = w.y.input(o.y, ky);
      const bool is_row = iz < w.z.size && iy < w.y.size;
      const uint64_t row = (uint64_t{iz} * w.y.size + iy) * w.x.size;
      const T* const weights = weight + (uint64_t{kz} * w.y.window + ky) * w.x.window;
      for (uint32_t kx = 0; kx < w.x.window; ++kx) {
        const uint32_t ix = w.x.input(o.x, kx);
        const float element = is_row && ix < w.x.size ? read(x + row + ix) : 0.0f;
        sum += element * read(weights + kx);
      }
    }
  }
  return sum;
}

template <class T>
__global__ void forward_kernel(const T* __restrict__ x, const T* __restrict__ weight,
                               const T* __restrict__ bias, T* __restrict__ y, uint64_t n,
                               Groups g) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) {
    return;
  }
  const DeviceWindows& w = g.windows;
  const Place o = place_of(i, w.z.outs, w.y.outs, w.x.outs);
  const uint64_t m = o.plane % (g.groups * g.outputs);
  const T* const planes = x + o.plane / g.outputs * g.inputs * w.inputs();
  float sum = bias != nullptr ? read(bias + m) : 0.0f;
  for (uint32_t c = 0; c < g.inputs; ++c) {
    sum += channel_sum(w, planes + c * w.inputs(), weight + (m * g.inputs + c) * w.window(), o);
  }
  write(y + i, sum);
}

template <class T>
__global__ void back_kernel(const T* __restrict__ dy, const T* __restrict__ weight,
                            const T* __restrict__ bias, T* __restrict__ dx, uint64_t n, Groups g) {
  const uint64_t element = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element >= n) {
    return;
  }
  const DeviceWindows& w = g.windows;
  const Place i = place_of(element, w.z.size, w.y.size, w.x.size);
  const uint64_t c = i.plane % (g.groups * g.inputs);
  const T* const planes = dy + i.plane / g.inputs * g.outputs * w.outputs();
  const uint64_t per_map = g.inputs * w.window();
  const T* const weights = weight + c / g.inputs * g.outputs * per_map + c % g.inputs * w.window();
  float sum = bias != nullptr ? read(bias + c) : 0.0f;
  for (uint32_t kz = 0; kz < w.z.window; ++kz) {
    const uint32_t oz = w.z.output(i.z, kz);
    for (uint32_t ky = 0; ky < w.y.window && oz < w.z.outs; ++ky) {
      const uint32_t oy = w.y.output(i.y, ky);
      for (uint32_t kx = 0; kx < w.x.window && oy < w.y.outs; ++kx) {
        const uint32_t ox = w.x.output(i.x, kx);
        const uint64_t o = (uint64_t{oz} * w.y.outs + oy) * w.x.outs + ox;
        const uint64_t k = (uint64_t{kz} * w.y.window + ky) * w.x.window + kx;
        float part = 0;
        for (uint32_t m = 0; m < g.outputs && ox < w.x.outs; ++m) {
          part += read(planes + m * w.outputs() + o) * read(weights + m * per_map + k);
        }
        sum += part;
      }
    }
  }
  write(dx + element, sum);
}

template <class T>
__global__ void weights_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                               T* __restrict__ dweight, uint64_t n, Groups g) {
  const uint64_t i = team_row<kLanes>();
  if (i >= n) {
    return;
  }
  const DeviceWindows& w = g.windows;
  const Place k = place_of(i, w.z.window, w.y.window, w.x.window);
  const uint64_t c = k.plane % g.inputs;
  const uint64_t m = k.plane / g.inputs;
  float sum = 0;
  for (uint32_t b = 0; b < g.batch; ++b) {
    const T* const from =
        x + ((uint64_t{b} * g.groups + m / g.outputs) * g.inputs + c) * w.inputs();
    const T* const with = dy + (uint64_t{b} * g.groups * g.outputs + m) * w.outputs();
    float part = 0;
    for (uint64_t o = team_lane<kLanes>(); o < w.outputs(); o += kLanes) {
      const Place at = place_of(o, w.z.outs, w.y.outs, w.x.outs);
      const uint32_t iz = w.z.input(at.z, k.z);
      const uint32_t iy = w.y.input(at.y, k.y);
      const uint32_t ix = w.x.input(at.x, k.x);
      const bool is_there = iz < w.z.size && iy < w.y.size && ix < w.x.size;
      const float element =
          is_there ? read(from + (uint64_t{iz} * w.y.size + iy) * w.x.size + ix) : 0.0f;
      part += element * read(with + o);
    }
    sum += part;
  }
  sum = team_sum<kLanes>(sum);
  if (team_lane<kLanes>() == 0) {
    write(dweight + i, sum);
  }
}

Groups groups_of(const Convolution& c) {
  return {device_windows(c.windows), static_cast<uint32_t>(c.batch),
          static_cast<uint32_t>(c.groups), static_cast<uint32_t>(c.inputs),
          static_cast<uint32_t>(c.outputs)};
}

uint64_t made(const Launch& l) { return static_cast<uint64_t>(l.out_shape(0).elements()); }

template <class T>
const T* bias_of(const Launch& l) {
  return l.has_input(2) ? l.in_as<T>(2) : nullptr;
}

template <class T>
void convolve(Launch& l) {
  const Convolution c =
      convolution_of(l.attributes<ConvAttributes>(), l.in_shape(0), l.in_shape(1), l.out_shape(0));
  l.launch("convolution", forward_kernel<T>, blocks_for(made(l), kThreads), kThreads, l.in_as<T>(0),
           l.in_as<T>(1), bias_of<T>(l), l.out_as<T>(0), made(l), groups_of(c));
}

template <class T>
void convolve_back(Launch& l, const Convolution& c, const T* dy, const T* weight) {
  l.launch("convolution back", back_kernel<T>, blocks_for(made(l), kThreads), kThreads, dy, weight,
           bias_of<T>(l), l.out_as<T>(0), made(l), groups_of(c));
}

template <class T>
void transposed(Launch& l) {
  const Convolution c = convolution_of(l.attributes<ConvTransposeAttributes>(), l.out_shape(0),
                                       l.in_shape(1), l.in_shape(0));
  convolve_back(l, c, l.in_as<T>(0), l.in_as<T>(1));
}

template <class T>
void input_grad(Launch& l) {
  const Convolution c = convolution_of(l.attributes<ConvInputGradAttributes>(), l.out_shape(0),
                                       l.in_shape(0), l.in_shape(1));
  convolve_back(l, c, l.in_as<T>(1), l.in_as<T>(0));
}

template <class T>
void weight_grad(Launch& l) {
  const Convolution c = convolution_of(l.attributes<ConvWeightGradAttributes>(), l.in_shape(0),
                                       l.out_shape(0), l.in_shape(1));
  l.launch("convolution weights", weights_kernel<T>, blocks_for(made(l), kRowThreads / kLanes),
           kRowThreads, l.in_as<T>(0), l.in_as<T>(1), l.out_as<T>(0), made(l), groups_of(c));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(conv, .run = convolve<T>);
BOWLINE_KERNELS_OF_FLOATS(conv_transpose, .run = transposed<T>);
BOWLINE_KERNELS_OF_FLOATS(conv_input_grad, .run = input_grad<T>);
BOWLINE_KERNELS_OF_FLOATS(conv_weight_grad, .run = weight_grad<T>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::convolution_kernels
