// See convolution_direct.h.
#include "compute/convolution_direct.h"

#include <algorithm>
#include <bit>

#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/convolution_direct.cpp"
#include "hwy/foreach_target.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_CONVOLUTION_DIRECT_ONCE
#define BOWLINE_CPU_CONVOLUTION_DIRECT_ONCE
namespace bowline::detail::cpu {
namespace {

// A plane with zeros around it, so that all windows are complete. Rows are grouped by their index
// modulo the stride, and so are the elements of a row. Elements that neighbouring outputs multiply
// with the same window element are therefore neighbours, within a row and from row to row.
struct Padded {
  explicit Padded(const Windows& w) : windows(w) {
    for (size_t a = 0; a < kMostSpatial; ++a) {
      extent[a] = to_size((w.axis[a].out - 1) * w.axis[a].stride + w.axis[a].reach());
      parts[a] = std::min(to_size(w.axis[a].stride), extent[a]);  // a single output needs no stride
    }
    rows = (extent[1] + parts[1] - 1) / parts[1];
    row = (extent[2] + parts[2] - 1) / parts[2];
  }
  size_t slice() const { return parts[1] * parts[2] * rows * row; }
  size_t floats() const { return extent[0] * slice(); }
  // The position of the window of the first output of a row.
  size_t row_of(size_t z, size_t y) const {
    return z * to_size(windows.axis[0].stride) * slice() + y * row;
  }
  size_t place(size_t z, size_t y, size_t x) const {
    const size_t part = y % parts[1] * parts[2] + x % parts[2];
    return z * slice() + (part * rows + y / parts[1]) * row + x / parts[2];
  }
  // The distance from this position to element k of the window.
  size_t tap(size_t k) const {
    const auto& [az, ay, ax] = windows.axis;
    return place(k / to_size(ax.window * ay.window) * to_size(az.dilation),
                 k / to_size(ax.window) % to_size(ay.window) * to_size(ay.dilation),
                 k % to_size(ax.window) * to_size(ax.dilation));
  }

  Windows windows;
  size_t extent[kMostSpatial];
  size_t parts[kMostSpatial];  // number of groups along each axis
  size_t rows;                 // rows per group
  size_t row;                  // elements per row of a group
};

// Rows with fewer outputs are computed together with the gap between rows.
constexpr size_t kShortRow = 32;

// The planes of one group of one sample, and their operands.
struct DirectJob {
  const Padded& padded;
  const size_t* taps;
  size_t window;
  size_t rows_z, rows_y, row;  // of y
  float* staged;               // as large as the padded plane
  bool apart = false;          // rows of y are processed one by one

  // Number of outputs if the rows of y are as far apart as the rows of the padded plane.
  size_t flat() const { return (rows_y - 1) * padded.row + row; }
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Copies rows of n elements with gaps between rows.
void copy_rows(size_t rows, size_t n, const float* from, size_t from_row, float* to,
               size_t to_row) {
  for (size_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    for_vectors(n, [&](size_t i, auto part) HWY_ATTR { part.store(part.load(from + i), to + i); });
  }
}

// Rows of n elements: elements 0, 2, 4 ... to `even`, the others to `odd`.
void part_rows(size_t rows, size_t n, const float* from, size_t from_row, float* even, float* odd,
               size_t to_row) {
  for (size_t r = 0; r < rows; ++r, from += from_row, even += to_row, odd += to_row) {
    size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d;
    for (; i + 8 <= n; i += 8) {
      hn::Vec<decltype(d)> a, b;
      hn::LoadInterleaved2(d, from + i, a, b);
      hn::StoreU(a, d, even + i / 2);
      hn::StoreU(b, d, odd + i / 2);
    }
#endif
    for (; i < n; ++i) {
      (i % 2 == 0 ? even : odd)[i / 2] = from[i];
    }
  }
}

// The reverse of part_rows, which adds to the target.
void join_rows(size_t rows, size_t n, const float* even, const float* odd, size_t from_row,
               float* to, size_t to_row) {
  for (size_t r = 0; r < rows; ++r, even += from_row, odd += from_row, to += to_row) {
    size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d;
    for (; i + 8 <= n; i += 8) {
      hn::Vec<decltype(d)> a, b;
      hn::LoadInterleaved2(d, to + i, a, b);
      hn::StoreInterleaved2(hn::Add(a, hn::LoadU(d, even + i / 2)),
                            hn::Add(b, hn::LoadU(d, odd + i / 2)), d, to + i);
    }
#endif
    for (; i < n; ++i) {
      to[i] += (i % 2 == 0 ? even : odd)[i / 2];
    }
  }
}

void add_rows(size_t rows, size_t n, const float* from, size_t from_row, float* to, size_t to_row) {
  for (size_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
      part.store(hn::Add(part.load(from + i), part.load(to + i)), to + i);
    });
  }
}

// Computes n neighbouring outputs. kWindow is the number of window elements, or 0 for any number.
template <size_t kWindow>
HWY_INLINE void slide_window(const DirectJob& job, const float* from, const float* weight,
                             float bias, size_t n, float* to) {
  const FloatTag d;
  const size_t window = kWindow != 0 ? kWindow : job.window;
  const size_t* HWY_RESTRICT taps = job.taps;
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    FloatVector sum = hn::Set(d, bias);
    HWY_UNROLL(9)
    for (size_t k = 0; k < window; ++k) {
      sum = hn::MulAdd(hn::Set(d, weight[k]), part.load(from + taps[k] + i), sum);
    }
    part.store(sum, to + i);
  });
}

void direct_forward(const DirectJob& job, const float* padded, const float* weight, float bias,
                    float* y) {
  const auto slide = [&](const float* from, size_t n, float* to) HWY_ATTR {
    if (job.window == 9) {
      slide_window<9>(job, from, weight, bias, n, to);
    } else {
      slide_window<0>(job, from, weight, bias, n, to);
    }
  };
  const bool together = job.row < kShortRow;
  for (size_t z = 0; z < job.rows_z; ++z) {
    if (together) {
      slide(padded + job.padded.row_of(z, 0), job.flat(), job.staged);
    }
    if (together) {
      copy_rows(job.rows_y, job.row, job.staged, job.padded.row, y, job.row);
      y += job.rows_y * job.row;
      continue;
    }
    for (size_t r = 0; r < job.rows_y; ++r, y += job.row) {
      slide(padded + job.padded.row_of(z, r), job.row, y);
    }
  }
}

// Adds to the padded plane.
void direct_back(const DirectJob& job, const float* dy, const float* weight, float* padded) {
  const FloatTag d;
  const auto add = [&](const float* from, size_t n, float* to) HWY_ATTR {
    for (size_t k = 0; k < job.window; ++k) {
      const FloatVector w = hn::Set(d, weight[k]);
      float* at = to + job.taps[k];
      for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
        part.store(hn::MulAdd(w, part.load(from + i), part.load(at + i)), at + i);
      });
    }
  };
  const bool together = job.row < kShortRow && !job.apart;
  if (together) {
    std::fill_n(job.staged, job.flat(), 0.0f);
  }
  for (size_t z = 0; z < job.rows_z; ++z, dy += job.rows_y * job.row) {
    if (together) {
      copy_rows(job.rows_y, job.row, dy, job.row, job.staged, job.padded.row);
      add(job.staged, job.flat(), padded + job.padded.row_of(z, 0));
    }
    for (size_t r = 0; r < job.rows_y && !together; ++r) {
      add(dy + r * job.row, job.row, padded + job.padded.row_of(z, r));
    }
  }
}

// Adds to dweight.
void direct_weights(const DirectJob& job, const float* padded, const float* dy, float* dweight) {
  const auto product = [](size_t n, const float* a, const float* b) HWY_ATTR {
    return sum_vectors(n, [=](size_t i, auto part)
                              HWY_ATTR { return hn::Mul(part.load(a + i), part.load(b + i)); });
  };
  const bool together = !job.apart;
  if (together) {
    std::fill_n(job.staged, job.flat(), 0.0f);
  }
  for (size_t z = 0; z < job.rows_z; ++z, dy += job.rows_y * job.row) {
    if (together) {
      copy_rows(job.rows_y, job.row, dy, job.row, job.staged, job.padded.row);
    }
    for (size_t k = 0; k < job.window; ++k) {
      const float* from = padded + job.taps[k];
      if (together) {
        dweight[k] += product(job.flat(), from + job.padded.row_of(z, 0), job.staged);
      }
      for (size_t r = 0; r < job.rows_y && !together; ++r) {
        dweight[k] += product(job.row, from + job.padded.row_of(z, r), dy + r * job.row);
      }
    }
  }
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

// Scratch of the direct method: offsets of the taps, then per thread a padded plane and as much
// room for rows.
size_t tap_floats(const Convolution& c) {
  return aligned(to_size(c.windows.window()) * sizeof(size_t) / sizeof(float));
}

struct Direct {
  Direct(const Convolution& c, void* scratch, bool turned = false)
      : padded(c.windows),
        taps(static_cast<size_t*>(scratch)),
        planes(static_cast<float*>(scratch)) {
    const size_t window = to_size(c.windows.window());
    for (size_t k = 0; k < window; ++k) {
      taps[turned ? window - 1 - k : k] = padded.tap(k);
    }
    planes += tap_floats(c);
  }
  DirectJob job(size_t thread) const {
    const Windows& w = padded.windows;
    return {padded,
            taps,
            to_size(w.window()),
            to_size(w.axis[0].out),
            to_size(w.axis[1].out),
            to_size(w.axis[2].out),
            plane(thread) + aligned(padded.floats())};
  }
  float* plane(size_t thread) const { return planes + thread * 2 * aligned(padded.floats()); }

  // Rows of the input that are consecutive in a part of the padded plane.
  template <class Element>
  struct Rows {
    Element* first;
    size_t step;  // from row to row
    size_t count, columns;
    size_t z, y;  // of the padded plane
  };
  // Calls f(Rows) for all rows of the input that the padded plane contains.
  template <class Element, class F>
  void for_rows(Element* x, F&& f) const {
    const auto& axis = padded.windows.axis;
    const auto there = [&](size_t a) {
      return to_size(
          std::clamp<int64_t>(static_cast<int64_t>(padded.extent[a]) - axis[a].pad, 0, axis[a].in));
    };
    const size_t rows = there(1), parts = padded.parts[1], width = to_size(axis[2].in);
    for (size_t z = 0; z < there(0); ++z) {
      for (size_t y = 0; y < std::min(rows, parts); ++y) {
        f(Rows<Element>{x + (z * to_size(axis[1].in) + y) * width, parts * width,
                        (rows - y + parts - 1) / parts, there(2), z + to_size(axis[0].pad),
                        y + to_size(axis[1].pad)});
      }
    }
  }
  // The position of element `column` of the first row of `r` in the padded plane.
  template <class Element>
  size_t place(const Rows<Element>& r, size_t column) const {
    return padded.place(r.z, r.y, column + to_size(padded.windows.axis[2].pad));
  }
  // Copies the input into the padded plane, whose zeros are already written.
  void pack(const float* x, float* to) const {
    const size_t parts = padded.parts[2], row = padded.row;
    for_rows(x, [&](const Rows<const float>& r) {
      if (parts == 1) {
        BOWLINE_BEST(copy_rows)(r.count, r.columns, r.first, r.step, to + place(r, 0), row);
      } else if (parts == 2) {
        BOWLINE_BEST(part_rows)
        (r.count, r.columns, r.first, r.step, to + place(r, 0), to + place(r, 1), row);
      } else {
        for (size_t i = 0; i < r.count; ++i) {
          for (size_t e = 0; e < r.columns; ++e) {
            to[place(r, e) + i * row] = r.first[i * r.step + e];
          }
        }
      }
    });
  }
  // Adds to dx.
  void unpack(const float* from, float* dx) const {
    const size_t parts = padded.parts[2], row = padded.row;
    for_rows(dx, [&](const Rows<float>& r) {
      if (parts == 1) {
        BOWLINE_BEST(add_rows)(r.count, r.columns, from + place(r, 0), row, r.first, r.step);
      } else if (parts == 2) {
        BOWLINE_BEST(join_rows)
        (r.count, r.columns, from + place(r, 0), from + place(r, 1), row, r.first, r.step);
      } else {
        for (size_t i = 0; i < r.count; ++i) {
          for (size_t e = 0; e < r.columns; ++e) {
            r.first[i * r.step + e] += from[place(r, e) + i * row];
          }
        }
      }
    });
  }

  Padded padded;
  size_t* taps;
  float* planes;
};

}  // namespace

bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7F800000;  // of NaN and infinity
  uint32_t found = 0;
  for (const float value : values) {
    found |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1 : 0;
  }
  return found == 0;
}

bool is_direct(const Convolution& c) { return c.inputs == 1 && c.groups > 1; }

bool has_finite_weights(const Convolution& c, const float* weight) {
  return all_finite({weight, to_size(c.groups * c.windows.window())});
}

bool turns_around(const Convolution& c) {
  return c.outputs == 1 && std::ranges::all_of(c.windows.axis, [](const WindowAxis& a) {
           return a.stride == 1 && a.pad < a.reach();
         });
}
Convolution turned_around(Convolution c) {
  for (WindowAxis& a : c.windows.axis) {
    std::swap(a.in, a.out);
    a.pad = a.reach() - 1 - a.pad;
  }
  return c;
}

size_t direct_scratch_floats(const Convolution& c, const Threads& threads) {
  const size_t turned = turns_around(c) ? Padded(turned_around(c).windows).floats() : 0;
  const size_t plane = aligned(std::max(Padded(c.windows).floats(), turned));
  return tap_floats(c) + threads.count() * 2 * plane;
}

void convolve_direct(Threads& threads, const Convolution& c, const float* x, const float* weight,
                     const float* bias, float* y, void* scratch, bool turned) {
  const Direct direct(c, scratch, turned);
  const Group size(c);
  const size_t outputs = to_size(c.outputs), planes = to_size(c.batch * c.groups);
  // A task processes several planes, because the zeros around them can stay.
  const size_t unit = planes_per_task(planes, threads);
  threads.parallel_for((planes + unit - 1) / unit, [&](size_t task, size_t thread) {
    float* plane = direct.plane(thread);
    std::fill_n(plane, direct.padded.floats(), 0.0f);  // once per task
    for (size_t p = task * unit; p < std::min(planes, (task + 1) * unit); ++p) {
      direct.pack(x + p * size.inputs, plane);
      for (size_t m = 0; m < outputs; ++m) {
        const size_t channel = p % to_size(c.groups) * outputs + m;
        BOWLINE_BEST(direct_forward)
        (direct.job(thread), plane, weight + channel * size.window,
         bias != nullptr ? bias[channel] : 0.0f, y + (p * outputs + m) * size.outputs);
      }
    }
  });
}

void convolve_back_direct(Threads& threads, const Convolution& c, const float* dy,
                          const float* weight, float* dx, void* scratch) {
  const Direct direct(c, scratch);
  const Group size(c);
  const size_t outputs = to_size(c.outputs);
  threads.parallel_for(to_size(c.batch * c.groups), [&](size_t task, size_t thread) {
    float* plane = direct.plane(thread);
    std::fill_n(plane, direct.padded.floats(), 0.0f);
    for (size_t m = 0; m < outputs; ++m) {
      const size_t channel = task % to_size(c.groups) * outputs + m;
      const std::span<const float> kernel(weight + channel * size.window, size.window);
      // The gap between two rows of y counts as 0, so it must not be multiplied by a non-finite
      // weight.
      DirectJob job = direct.job(thread);
      job.apart = !all_finite(kernel);
      BOWLINE_BEST(direct_back)
      (job, dy + (task * outputs + m) * size.outputs, kernel.data(), plane);
    }
    direct.unpack(plane, dx + task * size.inputs);
  });
}

void convolve_weights_direct(Threads& threads, const Convolution& c, const float* x,
                             const float* dy, float* dweight, void* scratch) {
  const Direct direct(c, scratch);
  const Group size(c);
  const size_t outputs = to_size(c.outputs), groups = to_size(c.groups);
  threads.parallel_for(groups, [&](size_t g, size_t thread) {
    float* plane = direct.plane(thread);
    DirectJob job = direct.job(thread);
    const std::span<float> made(dweight + g * outputs * size.window, outputs * size.window);
    std::fill_n(plane, direct.padded.floats(), 0.0f);
    // The gap between two rows of y counts as 0, so it must not be multiplied by a non-finite x.
    for (const bool apart : {false, true}) {
      job.apart = apart;
      std::ranges::fill(made, 0.0f);
      for (size_t n = 0; n < to_size(c.batch); ++n) {
        direct.pack(x + (n * groups + g) * size.inputs, plane);
        for (size_t m = 0; m < outputs; ++m) {
          BOWLINE_BEST(direct_weights)
          (job, plane, dy + ((n * groups + g) * outputs + m) * size.outputs,
           made.data() + m * size.window);
        }
      }
      if (all_finite(made)) {
        break;
      }
    }
  });
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
