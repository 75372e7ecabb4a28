// Windows that slide over the spatial axes of [N, C, spatial...]: what the attributes of
// convolutions and pools say to a kernel.
#pragma once

#include <array>
#include <span>

#include "core/shape.h"

namespace bowline {

constexpr int kMostSpatial = 3;

// One spatial axis. Element k of the window of output o lies at o * stride + k * dilation - pad of
// the input, unless that is outside of it.
struct WindowAxis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad = 0;
  int64_t pad_end = 0;

  // Elements of the input from the first of a window to its last.
  int64_t reach() const { return dilation * (window - 1) + 1; }
};

// Always kMostSpatial axes, the slowest first: those that are not there have one element.
struct Windows {
  std::array<WindowAxis, kMostSpatial> axis;

  int64_t inputs() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t outputs() const { return axis[0].out * axis[1].out * axis[2].out; }
  int64_t window() const { return axis[0].window * axis[1].window * axis[2].window; }
};

// Of attributes that inference let through. `in` and `out` are whole shapes, `window` has the
// spatial dims alone.
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

// What a convolution has besides its windows: y [batch, outputs, ..] of x [batch, inputs, ..], in
// groups of channels that see only each other. The same numbers for its gradients and for
// ConvTranspose, whose y is the x of the convolution it turns around.
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
