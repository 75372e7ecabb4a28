// Convolutions as matrix products whose operand b is gathered: "implicit GEMM".
//
// y[row, column] = sum over step of a[row, step] * b[step, column], for each group of channels.
//
//            row  column     step   a       b   y
//   forward  m    n, place   c, k   weight  x   y
//   back     c    n, place   m, k   weight  dy  x
//   weights  m    c, k       n, o   dy      x   weight
//
// A column is a plane and a place on three spatial axes. So is a step, whose place is called tap.
// The element of b on an axis is place * place_step + tap * tap_step + shift, if this is inside b;
// otherwise it is 0.
//
// With a stride, the back product of a place uses only every stride-th tap. So the places of an
// axis are divided into phases: the places of a phase use the same taps, and its product is a
// product like the others.
#pragma once

#include <algorithm>
#include <numeric>

#include "device/windows.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

enum class WindowKind { forward, back, weights };

struct ProductAxis {
  uint32_t size;    // of b
  uint32_t b_step;  // elements of b between neighbours on the axis
  uint32_t places, place_step, y_step;
  uint32_t taps, tap_step, a_step;
  uint32_t phases;
  uint32_t every;     // the taps of a phase are `every` apart
  uint32_t dilation;  // of the taps, where there are several phases
  int base;           // shift of tap 0 and phase 0, times `phases`
};

// What a phase of an axis has.
struct AxisPhase {
  uint32_t phase;
  uint32_t places, taps, first_tap, shift;
};
__device__ inline AxisPhase phase_of(const ProductAxis& axis, uint32_t phase) {
  AxisPhase p = {phase, phase < axis.places ? (axis.places - phase - 1) / axis.phases + 1 : 0, 0, 0,
                 0};
  const auto phases = static_cast<int>(axis.phases);
  const auto shift = [&](uint32_t tap) {
    return axis.base + static_cast<int>(phase) - static_cast<int>(tap * axis.dilation);
  };
  while (p.first_tap < axis.every && shift(p.first_tap) % phases != 0) {
    ++p.first_tap;
  }
  if (p.first_tap < axis.every && p.first_tap < axis.taps) {
    p.taps = (axis.taps - p.first_tap - 1) / axis.every + 1;
    p.shift = static_cast<uint32_t>(shift(p.first_tap) / phases);
  }
  return p;
}

struct WindowProduct {
  ProductAxis z, y, x;
  uint32_t groups;
  uint32_t rows;
  uint32_t column_planes, step_planes;
  uint32_t a_row, a_plane, a_group;
  uint32_t b_column_plane, b_step_plane, b_group;
  uint32_t y_row, y_plane, y_group;

  __host__ __device__ uint32_t phases() const { return z.phases * y.phases * x.phases; }
  // The columns and steps of the first phase, which has the most columns. Another phase may have a
  // tap more.
  uint64_t columns() const {
    const auto of = [](const ProductAxis& a) { return uint64_t{(a.places - 1) / a.phases + 1}; };
    return column_planes * of(z) * of(y) * of(x);
  }
  uint64_t steps() const {
    const auto of = [](const ProductAxis& a) { return uint64_t{(a.taps - 1) / a.every + 1}; };
    return step_planes * of(z) * of(y) * of(x);
  }
};

// `c` is not empty, and fits_window_product() holds.
inline WindowProduct window_product(WindowKind kind, const Convolution& c) {
  const auto u = [](int64_t n) { return static_cast<uint32_t>(n); };
  const uint32_t inputs = u(c.inputs), outputs = u(c.outputs), groups = u(c.groups);
  const uint32_t in = u(c.windows.inputs()), out = u(c.windows.outputs());
  const uint32_t window = u(c.windows.window());
  WindowProduct p = {};
  p.groups = groups;
  ProductAxis* const axes[3] = {&p.z, &p.y, &p.x};
  uint32_t in_step = 1, out_step = 1, window_step = 1;
  for (size_t i = 3; i-- > 0;) {
    const WindowAxis& w = c.windows.axis[i];
    const uint32_t stride = u(w.stride), dilation = u(w.dilation);
    if (kind == WindowKind::forward) {
      *axes[i] = {u(w.in),  in_step,     u(w.out), stride, out_step, u(w.window),
                  dilation, window_step, 1,        1,      0,        -static_cast<int>(w.pad)};
    } else if (kind == WindowKind::weights) {
      *axes[i] = {u(w.in), in_step,  u(w.window), dilation, window_step, u(w.out),
                  stride,  out_step, 1,           1,        0,           -static_cast<int>(w.pad)};
    } else {
      const uint32_t common = std::gcd(stride, dilation);
      *axes[i] = {u(w.out),
                  out_step,
                  u(w.in),
                  1,
                  in_step,
                  u(w.window),
                  0u - dilation / common,
                  window_step,
                  stride,
                  stride / common,
                  dilation,
                  static_cast<int>(w.pad)};
    }
    in_step *= u(w.in);
    out_step *= u(w.out);
    window_step *= u(w.window);
  }
  p.rows = kind == WindowKind::back ? inputs : outputs;
  p.column_planes = kind == WindowKind::weights ? inputs : u(c.batch);
  p.step_planes = kind == WindowKind::forward ? inputs
                  : kind == WindowKind::back  ? outputs
                                              : u(c.batch);
  const uint32_t map = inputs * window;  // the weights of an output channel
  switch (kind) {
    case WindowKind::forward:
      p.a_row = map, p.a_plane = window, p.a_group = outputs * map;
      p.b_column_plane = groups * inputs * in, p.b_step_plane = in, p.b_group = inputs * in;
      p.y_row = out, p.y_plane = groups * outputs * out, p.y_group = outputs * out;
      break;
    case WindowKind::back:
      p.a_row = window, p.a_plane = map, p.a_group = outputs * map;
      p.b_column_plane = groups * outputs * out, p.b_step_plane = out, p.b_group = outputs * out;
      p.y_row = in, p.y_plane = groups * inputs * in, p.y_group = inputs * in;
      break;
    case WindowKind::weights:
      p.a_row = out, p.a_plane = groups * outputs * out, p.a_group = outputs * out;
      p.b_column_plane = in, p.b_step_plane = groups * inputs * in, p.b_group = inputs * in;
      p.y_row = map, p.y_plane = window, p.y_group = outputs * map;
      break;
  }
  return p;
}

// An element outside of the product has this place on z. It is outside b, whatever is added to it.
constexpr uint32_t kOutside = 1u << 30;

// The columns of a tile and the steps that are loaded next, in shared memory. Offsets are modulo
// 2^32.
template <int kColumns, int kSteps>
class SharedTables {
 public:
  // Divides a phase. A barrier of the block must follow.
  __device__ void start(const WindowProduct& p, uint32_t phase) {
    const Place<uint32_t> of = place_of(phase, p.z.phases, p.y.phases, p.x.phases);
    const unsigned i = threadIdx.x;
    if (i < 3) {
      axes_[i] = i == 0 ? phase_of(p.z, of.z) : i == 1 ? phase_of(p.y, of.y) : phase_of(p.x, of.x);
    }
  }
  __device__ uint32_t columns(const WindowProduct& p) const {
    return p.column_planes * axis(0).places * axis(1).places * axis(2).places;
  }
  __device__ uint32_t steps(const WindowProduct& p) const {
    return p.step_planes * axis(0).taps * axis(1).taps * axis(2).taps;
  }
  // Enters the columns of a tile, of which `left` are inside the product.
  __device__ void set_columns(const WindowProduct& p, uint32_t first, uint32_t left) {
    for (unsigned i = threadIdx.x; i < kColumns; i += blockDim.x) {
      if (i >= left) {
        columns_[i] = uint4{0, kOutside, 0, 0};
        continue;
      }
      const AxisPhase z = axis(0), y = axis(1), x = axis(2);
      const Place<uint32_t> at = place_of(first + i, z.places, y.places, x.places);
      const uint32_t b_z = at.z * p.z.place_step + z.shift;
      const uint32_t b_y = at.y * p.y.place_step + y.shift;
      const uint32_t b_x = at.x * p.x.place_step + x.shift;
      columns_[i] = uint4{
          at.plane * p.b_column_plane + b_z * p.z.b_step + b_y * p.y.b_step + b_x * p.x.b_step, b_z,
          b_y, b_x};
      results_[i] = at.plane * p.y_plane + (at.z * p.z.phases + z.phase) * p.z.y_step +
                    (at.y * p.y.phases + y.phase) * p.y.y_step +
                    (at.x * p.x.phases + x.phase) * p.x.y_step;
    }
  }
  // Enters kSteps steps into one of two tables. `left` of them are inside the part.
  __device__ void set_steps(const WindowProduct& p, int table, uint32_t first, int left) {
    const unsigned i = threadIdx.x;
    if (i >= kSteps) {
      return;
    }
    if (static_cast<int>(i) >= left) {
      steps_[table][i] = uint4{0, kOutside, 0, 0};
      a_steps_[table][i] = kOutside;
      return;
    }
    const AxisPhase z = axis(0), y = axis(1), x = axis(2);
    const Place<uint32_t> at = place_of(first + i, z.taps, y.taps, x.taps);
    const uint32_t b_z = at.z * p.z.tap_step;
    const uint32_t b_y = at.y * p.y.tap_step;
    const uint32_t b_x = at.x * p.x.tap_step;
    steps_[table][i] =
        uint4{at.plane * p.b_step_plane + b_z * p.z.b_step + b_y * p.y.b_step + b_x * p.x.b_step,
              b_z, b_y, b_x};
    a_steps_[table][i] = at.plane * p.a_plane + (z.first_tap + at.z * p.z.every) * p.z.a_step +
                         (y.first_tap + at.y * p.y.every) * p.y.a_step +
                         (x.first_tap + at.x * p.x.every) * p.x.a_step;
  }
  __device__ uint4 column(int i) const { return columns_[i]; }
  __device__ uint4 step(int table, int i) const { return steps_[table][i]; }
  // The offset in a, or kOutside.
  __device__ uint32_t a_step(int table, int i) const { return a_steps_[table][i]; }
  // The offset of the result of a column in y, without the offset of its row.
  __device__ uint32_t result(int i) const { return results_[i]; }

 private:
  __device__ AxisPhase axis(int i) const { return axes_[i]; }

  Shared<AxisPhase[3]> axes_;
  Shared<uint4[kColumns]> columns_;  // offset in b, places on z, y and x
  Shared<uint4[2][kSteps]> steps_;
  Shared<uint32_t[2][kSteps]> a_steps_;
  Shared<uint32_t[kColumns]> results_;
};

// True if b has the element of a column and a step.
__device__ inline bool is_inside(const WindowProduct& p, const uint4& column, const uint4& step) {
  return column.y + step.y < p.z.size && column.z + step.z < p.y.size &&
         column.w + step.w < p.x.size;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
