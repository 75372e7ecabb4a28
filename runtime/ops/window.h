// Checks for operators with windows over the spatial axes, and iteration for their reference
// implementations.
#pragma once

#include "core/windows.h"
#include "ops/counted.h"
#include "ops/op.h"

namespace bowline {

inline Status check_sizes(std::string_view what, const flatbuffers::Vector<int64_t>& sizes,
                          size_t wanted, int64_t least) {
  BOWLINE_REQUIRE(sizes.size() == 0 || sizes.size() == wanted,
                  "There are {} {} for {} spatial axes.", sizes.size(), what,
                  what == "pads" ? wanted / 2 : wanted);
  for (const int64_t size : sizes) {
    BOWLINE_REQUIRE(size >= least && size <= kMaxDim, "One of the {} is {}, outside {} to {}.",
                    what, size, least, kMaxDim);
  }
  return {};
}

// Checks the rank of x, and the strides, pads and dilations for windows of these sizes.
template <class Table>
Status check_windows(const Table& t, const Shape& x, std::span<const int64_t> window) {
  BOWLINE_REQUIRE(x.rank() >= 3 && x.rank() <= 2 + kMostSpatial,
                  "Input 0 ({}) has rank {}, outside 3 to 5.", x, x.rank());
  const auto spatial = static_cast<size_t>(x.rank() - 2);
  BOWLINE_REQUIRE(window.size() == spatial,
                  "The window has {} axes, but input 0 ({}) has {} spatial axes.", window.size(), x,
                  spatial);
  for (const int64_t size : window) {
    BOWLINE_REQUIRE(size >= 1 && size <= kMaxDim, "The window has an axis of {} elements.", size);
  }
  BOWLINE_TRY(check_sizes("strides", *t.strides(), spatial, 1));
  BOWLINE_TRY(check_sizes("dilations", *t.dilations(), spatial, 1));
  return check_sizes("pads", *t.pads(), 2 * spatial, 0);
}

// The size of an input axis including pads. A window must fit into it.
inline Result<int64_t> padded_size(const WindowAxis& a, int spatial_axis) {
  const int64_t padded = a.in + a.pad + a.pad_end;
  BOWLINE_REQUIRE(padded <= kMaxDim, "Spatial axis {} has {} elements with its pads, above {}.",
                  spatial_axis, padded, kMaxDim);
  BOWLINE_REQUIRE(a.reach() <= padded,
                  "A window spans {} elements of spatial axis {}, which has {} with its pads.",
                  a.reach(), spatial_axis, padded);
  return padded;
}

// The number of windows in an axis. With `ceil`, one more window may extend past the end if it
// starts before the end pads.
inline Result<int64_t> windows_that_fit(const WindowAxis& a, int spatial_axis, bool ceil) {
  BOWLINE_TRY_ASSIGN(const int64_t padded, padded_size(a, spatial_axis));
  const int64_t rest = padded - a.reach();
  int64_t out = rest / a.stride + 1;
  if (ceil && rest % a.stride != 0 && out * a.stride < a.in + a.pad) {
    ++out;
  }
  return out;
}

// The output shape [N, C, spatial...].
template <class Table>
Result<Shape> slid_over(const Table& t, const Shape& x, std::span<const int64_t> window,
                        int64_t channels, bool ceil = false) {
  BOWLINE_TRY(check_windows(t, x, window));
  const Windows w = windows_of(t, x, window, x);
  Shape y{x[0], channels};
  for (int a = 0; a < x.rank() - 2; ++a) {
    const WindowAxis& axis = w.axis[static_cast<size_t>(kMostSpatial - (x.rank() - 2) + a)];
    BOWLINE_TRY_ASSIGN(const int64_t size, windows_that_fit(axis, a, ceil));
    y.push_back(size);
  }
  return y;
}

// Checks for pools that no window contains only pads.
template <class Table>
Result<Shape> pooled(const Table& t, const Shape& x) {
  const auto window = pool_window(t);
  BOWLINE_TRY_ASSIGN(const Shape y, slid_over(t, x, window, x.rank() >= 3 ? x[1] : 0, t.ceil()));
  for (const WindowAxis& a : windows_of(t, x, window, y).axis) {
    BOWLINE_REQUIRE(a.pad < a.reach() && a.pad_end < a.reach(),
                    "Pads {} and {} are not smaller than the window, which spans {} elements.",
                    a.pad, a.pad_end, a.reach());
  }
  return y;
}

// The number of elements of the window of a pool.
template <class Table>
int64_t window_elements(const Table& t) {
  int64_t n = 1;
  for (const int64_t size : pool_window(t)) {
    n *= size;
  }
  return n;
}

// Checks the channels of x and y against the weight [outputs, inputs / groups, window...].
inline Status check_channels(int64_t inputs, int64_t outputs, const Shape& weight, int64_t groups) {
  BOWLINE_REQUIRE(groups >= 1, "The number of groups is {}, not at least 1.", groups);
  BOWLINE_REQUIRE(outputs % groups == 0 && inputs % groups == 0,
                  "{} and {} channels are not multiples of {} groups.", inputs, outputs, groups);
  BOWLINE_REQUIRE(weight[0] == outputs && weight[1] == inputs / groups,
                  "The weight {} does not fit {} and {} channels in {} groups.", weight, inputs,
                  outputs, groups);
  return {};
}

inline Status check_weight(const Shape& weight) {
  BOWLINE_REQUIRE(weight.rank() >= 3, "The weight ({}) has rank {}, below 3.", weight,
                  weight.rank());
  return {};
}

// Checks the optional bias, input 2 of a convolution.
inline Status check_bias(const InferContext& c, int64_t channels) {
  BOWLINE_REQUIRE(c.inputs() <= 2 || c.in(2) == Shape{channels},
                  "Shape of the bias ({}) is not [{}].", c.in(2), channels);
  return {};
}

// Checks that x, weight and y of a convolution gradient fit together. y may have fewer windows than
// fit.
template <class Table>
Status check_convolution(const Table& t, const Shape& x, const Shape& weight, const Shape& y) {
  BOWLINE_REQUIRE(x.rank() == y.rank() && weight.rank() == y.rank() && y.rank() >= 3,
                  "Shapes {}, {} and {} do not have the same rank of at least 3.", x, weight, y);
  BOWLINE_TRY(check_channels(x[1], y[1], weight, t.groups()));
  BOWLINE_TRY_ASSIGN(const Shape most, slid_over(t, x, spatial_dims(weight), y[1]));
  bool fits = x[0] == y[0];
  for (int a = 2; a < y.rank(); ++a) {
    fits = fits && y[a] <= most[a];
  }
  BOWLINE_REQUIRE(fits,
                  "Shape of dy ({}) does not fit windows over {}, whose output is at most {}.", y,
                  x, most);
  return {};
}

// The sizes of an attribute as a vector.
inline std::vector<int64_t> listed(const flatbuffers::Vector<int64_t>& sizes) {
  return {sizes.begin(), sizes.end()};
}
inline std::vector<int64_t> listed(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

// The attributes T of a convolution gradient, from the attributes of the convolution.
template <class T, class Table>
Attributes gradient_attributes(const Table& t, const Shape& dims) {
  T g;
  g.strides = listed(*t.strides());
  g.pads = listed(*t.pads());
  g.dilations = listed(*t.dilations());
  g.dims = listed(dims);
  g.groups = t.groups();
  return Attributes::of(g);
}

// Sums dy over the batch and all spatial axes: the gradient of the bias.
inline GradientValue bias_gradient(GradientContext& c, GradientValue dy) {
  ReduceAttributesT sum;
  for (int a = 0; a < c.shape(dy).rank(); ++a) {
    if (a != 1) {
      sum.axes.push_back(a);
    }
  }
  return c.add1(Op::ReduceSum, {dy}, Attributes::of(sum));
}

// Calls f(output, window element, input) for every window element inside the input, and
// outside(output, window element) for the others. The arguments are positions in a plane of the
// spatial axes. For reference implementations, so it is simple and slow.
template <class F, class G>
void each_tap(const Windows& w, F f, G outside) {
  const auto& [z, y, x] = w.axis;
  const auto inside = [](const WindowAxis& a, int64_t o, int64_t k) {
    const int64_t i = o * a.stride + k * a.dilation - a.pad;
    return i >= 0 && i < a.in ? i : -1;
  };
  for (int64_t o = 0; o < w.outputs(); ++o) {
    for (int64_t k = 0; k < w.window(); ++k) {
      const int64_t iz = inside(z, o / (x.out * y.out), k / (x.window * y.window));
      const int64_t iy = inside(y, o / x.out % y.out, k / x.window % y.window);
      const int64_t ix = inside(x, o % x.out, k % x.window);
      if (iz >= 0 && iy >= 0 && ix >= 0) {
        f(static_cast<size_t>(o), static_cast<size_t>(k),
          static_cast<size_t>((iz * y.in + iy) * x.in + ix));
      } else {
        outside(static_cast<size_t>(o), static_cast<size_t>(k));
      }
    }
  }
}
template <class F>
void each_tap(const Windows& w, F f) {
  each_tap(w, f, [](size_t, size_t) {});
}

// The divisor of the average of each window: the number of its elements in the input. With `pads`,
// elements in the pads count too.
inline std::vector<double> counts_of(const Windows& w, bool pads) {
  const auto count = [pads](const WindowAxis& a, int64_t o) {
    double n = 0;
    for (int64_t k = 0; k < a.window; ++k) {
      const int64_t i = o * a.stride + k * a.dilation - a.pad;
      n += i >= (pads ? -a.pad : 0) && i < a.in + (pads ? a.pad_end : 0) ? 1 : 0;
    }
    return n;
  };
  const auto& [z, y, x] = w.axis;
  std::vector<double> out;
  for (int64_t o = 0; o < w.outputs(); ++o) {
    out.push_back(count(z, o / (x.out * y.out)) * count(y, o / x.out % y.out) *
                  count(x, o % x.out));
  }
  return out;
}

// Calls f(element of x, element of weight, element of y) for every product of a convolution, and
// outside(element of weight, element of y) for products with a zero of the pads.
template <class F, class G>
void each_product(const Convolution& c, F f, G outside) {
  const auto inputs = static_cast<size_t>(c.windows.inputs());
  const auto window = static_cast<size_t>(c.windows.window());
  const auto outputs = static_cast<size_t>(c.windows.outputs());
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t m = 0; m < c.groups * c.outputs; ++m) {
      for (int64_t i = 0; i < c.inputs; ++i) {
        const auto y = static_cast<size_t>(n * c.groups * c.outputs + m) * outputs;
        const auto w = static_cast<size_t>(m * c.inputs + i) * window;
        const auto x = static_cast<size_t>((n * c.groups + m / c.outputs) * c.inputs + i) * inputs;
        each_tap(
            c.windows, [&](size_t o, size_t k, size_t at) { f(x + at, w + k, y + o); },
            [&](size_t o, size_t k) { outside(w + k, y + o); });
      }
    }
  }
}
template <class F>
void each_product(const Convolution& c, F f) {
  each_product(c, f, [](size_t, size_t) {});
}

// Axes of input 0 before `first` are independent and may be dynamic. The other axes must be static.
template <int first>
Status counted_in_front_of(CountedContext& c) {
  BOWLINE_TRY(counted::none(c, 0, first, c.in(0).rank(), "the axes under a window must be static"));
  for (int i = 1; i < c.inputs(); ++i) {
    BOWLINE_TRY(counted::none(c, i, "a weight must be static"));
  }
  counted::pass(c, 0, first);
  return {};
}

// Initializes output 0 of a reference implementation [N, C, spatial...] with input 2 [C] if it is
// given.
inline void begin_with_bias(const OracleContext& c) {
  const auto plane = static_cast<size_t>(c.out_shape(0).elements(2, c.out_shape(0).rank()));
  for (size_t i = 0; i < c.out(0).size() && c.inputs() > 2; ++i) {
    c.add(0, i, c.in(2)[i / plane % c.in(2).size()]);
  }
}

}  // namespace bowline
