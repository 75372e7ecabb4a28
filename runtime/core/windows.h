// The windows of convolutions and pools over the spatial axes of [N, C, spatial...], for kernels.
#pragma once

#include <array>
#include <span>

#include "core/shape.h"

namespace bowline {

constexpr int kMostSpatial = 3;

// One spatial axis. Element k of the window of output o is input element o * stride + k * dilation
// - pad, or a pad if this is outside the input.
struct WindowAxis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad = 0;
  int64_t pad_end = 0;

  // The number of input elements that a window spans.
  int64_t reach() const { return dilation * (window - 1) + 1; }
};

// Always has kMostSpatial axes, in row-major order. Missing axes have one element.
struct Windows {
  std::array<WindowAxis, kMostSpatial> axis;

  int64_t inputs() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t outputs() const { return axis[0].out * axis[1].out * axis[2].out; }
  int64_t window() const { return axis[0].window * axis[1].window * axis[2].window; }
};

// Makes windows from attributes that shape inference has checked. `in` and `out` are whole shapes;
// `window` has only the spatial dims.
template <class Table>
Windows windows_of(const Table& t, const Shape& in, std::span<const int64_t> window,
                   const Shape& out) {
  Windows w;
  const auto rank = static_cast<uint32_t>(window.size());
  for (uint32_t a = 0; a < rank; ++a) {
    WindowAxis& axis = w.axis[kMostSpatial - rank + a];
    axis.in = in[static_cast<int>(2 + a)];
    axis.out = out[static_cast<int>(2 + a)];
    axis.window = window[a];
    axis.stride = t.strides()->size() == 0 ? 1 : t.strides()->Get(a);
    axis.dilation = t.dilations()->size() == 0 ? 1 : t.dilations()->Get(a);
    axis.pad = t.pads()->size() == 0 ? 0 : t.pads()->Get(a);
    axis.pad_end = t.pads()->size() == 0 ? 0 : t.pads()->Get(rank + a);
  }
  return w;
}

// The spatial dims of [.., .., spatial...].
inline std::span<const int64_t> spatial_dims(const Shape& shape) { return shape.dims().subspan(2); }

template <class Table>
std::span<const int64_t> pool_window(const Table& t) {
  return {t.window()->data(), t.window()->size()};
}

// The sizes of a grouped convolution from x [batch, inputs, ..] to y [batch, outputs, ..]. Its
// gradients use the same struct. ConvTranspose uses the convolution in the other direction: its y
// is x here.
struct Convolution {
  Windows windows;
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t inputs = 0;   // channels of x in a group
  int64_t outputs = 0;  // channels of y in a group
};

template <class Table>
Convolution convolution_of(const Table& t, const Shape& x, const Shape& weight, const Shape& y) {
  return {windows_of(t, x, spatial_dims(weight), y), x[0], t.groups(), weight[1],
          weight[0] / t.groups()};
}

}  // namespace bowline
