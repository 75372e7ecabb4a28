// See recurrent.h.
#include "compute/recurrent.h"

#include <algorithm>

#include "base/checked.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/recurrent.cpp"
#include "hwy/foreach_target.h"
#include "compute/gemm-inl.h"
#include "compute/math-inl.h"
#include "compute/vector-inl.h"
// clang-format on

#ifndef BOWLINE_CPU_RECURRENT_ONCE
#define BOWLINE_CPU_RECURRENT_ONCE
namespace bowline::detail::cpu {
namespace {

// Depth of a block of a sum. It is fixed, because it decides the order.
constexpr size_t kDepth = 256;
// Maximum number of batch rows per task, and columns of the widest panel of any instruction set.
constexpr size_t kRows = 24;
constexpr size_t kMostColumns = 64;
constexpr size_t kMostGates = 4;

// Some rows of the batch and the units of one panel, at one step.
struct Part {
  size_t step;    // its position in the operands
  size_t before;  // the position of the previous step
  bool first;     // there is no previous step
  bool last;      // the last running step; backward, no later step adds a gradient
  size_t begin;   // rows
  size_t end;
  size_t panel;
  const float* packed;
  float* sums;  // [kMostGates][kRows][columns]
};

}  // namespace
}  // namespace bowline::detail::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

using V = FloatVector;

// Tiles of a panel. With 16 registers 4 x 3 vectors: 12 sums hide the latency of multiply-adds, as
// 6 x 2 would, and batches are more often multiples of 4 than of 6.
#if HWY_TARGET == HWY_AVX2
constexpr size_t kHeight = 4;
constexpr size_t kVectors = 3;

TileFunction panel_tile(size_t rows) {
  static constexpr TileFunction kTiles[kHeight] = {
      tile_function<1, kVectors>, tile_function<2, kVectors>, tile_function<3, kVectors>,
      tile_function<4, kVectors>};
  return kTiles[rows - 1];
}
#else
constexpr size_t kHeight = kTileRows;
constexpr size_t kVectors = kTileVectors;

TileFunction panel_tile(size_t rows) { return tile_for(rows, kVectors); }
#endif

size_t columns_of_panel() { return kVectors * hn::Lanes(FloatTag()); }

// Units of a panel, from first() on.
struct Units {
  Units(const RecurrentShape& s, const Part& p)
      : first(p.panel * columns_of_panel()), count(HWY_MIN(columns_of_panel(), s.units - first)) {}
  size_t first;
  size_t count;
};

// Forward: [panel][gate][H][columns], so that sums over h have their units side by side.
void pack_forward(const RecurrentShape& s, const float* w, size_t panel, float* packed) {
  const size_t columns = columns_of_panel();
  const size_t first = panel * columns;
  float* out = packed + panel * s.gates * s.units * columns;
  for (size_t g = 0; g < s.gates; ++g, out += s.units * columns) {
    transpose(w + (g * s.units + first) * s.units, s.units, HWY_MIN(columns, s.units - first),
              s.units, out, columns, columns);
  }
}

// Backward: [panel][gates * H][columns].
void pack_backward(const RecurrentShape& s, const float* w, size_t panel, float* packed) {
  const size_t columns = columns_of_panel();
  const size_t first = panel * columns;
  const size_t width = HWY_MIN(columns, s.units - first);
  float* out = packed + panel * s.gates * s.units * columns;
  for (size_t row = 0; row < s.gates * s.units; ++row, out += columns) {
    const float* from = w + row * s.units + first;
    std::copy(from, from + width, out);
    std::fill(out + width, out + columns, 0.0f);
  }
}

// sums [rows][columns] = a [rows, depth] times packed rows [depth][columns] (+ sums), in the
// vectors of the first `width` columns.
void multiply_rows(const float* a, size_t a_row, size_t rows, size_t depth, const float* packed,
                   size_t width, bool accumulate, float* sums) {
  const size_t columns = columns_of_panel();
  const size_t lanes = hn::Lanes(FloatTag());
  const size_t vectors = (width + lanes - 1) / lanes;
  const bool whole = vectors == kVectors;
  const size_t height = whole ? kHeight : kTileRows;
  for (size_t k = 0; k < depth; k += kDepth) {
    const size_t here = HWY_MIN(kDepth, depth - k);
    for (size_t i = 0; i < rows; i += height) {
      const size_t some = HWY_MIN(height, rows - i);
      const TileFunction tile = whole ? panel_tile(some) : tile_for(some, vectors);
      tile(
          {a + i * a_row + k, a_row, 1, packed + k * columns, columns, sums + i * columns, columns},
          here, vectors * lanes, accumulate || k > 0, nullptr);
    }
  }
}

// The sums of gates [from, to) over `a` [rows, H].
void sum_gates(const RecurrentShape& s, const Part& p, const float* a, size_t from, size_t to) {
  const size_t columns = columns_of_panel();
  const float* packed = p.packed + p.panel * s.gates * s.units * columns;
  for (size_t g = from; g < to; ++g) {
    multiply_rows(a + p.begin * s.units, s.units, p.end - p.begin, s.units,
                  packed + g * s.units * columns, Units(s, p).count, false,
                  p.sums + g * kRows * columns);
  }
}

// The products of a [rows, a_row] of the step with rows [from, from + depth) of w.
void sum_back(const RecurrentShape& s, const Part& p, const float* a, size_t a_row, size_t from,
              size_t depth, bool accumulate) {
  const size_t columns = columns_of_panel();
  const float* packed = p.packed + (p.panel * s.gates * s.units + from) * columns;
  multiply_rows(a + p.begin * a_row, a_row, p.end - p.begin, depth, packed, Units(s, p).count,
                accumulate, p.sums);
}

// Calls f(row of the batch, its sums of gate 0, first unit, whole or partial vector). The sums of
// gate g follow after g * kRows * columns floats.
template <class F>
HWY_INLINE void for_cells(const RecurrentShape& s, const Part& p, F&& f) {
  const Units units(s, p);
  const size_t columns = columns_of_panel();
  for (size_t b = p.begin; b < p.end; ++b) {
    const float* sums = p.sums + (b - p.begin) * columns;
    for_vectors(units.count,
                [&](size_t i, auto part) HWY_ATTR { f(b, sums + i, units.first + i, part); });
  }
}

HWY_INLINE V logistic(V x) {
  V rest;
  return sigmoid(FloatTag(), x, rest);
}
// y (1 - y) and 1 - y^2
HWY_INLINE V logistic_slope(V y) { return hn::Mul(y, hn::Sub(hn::Set(FloatTag(), 1.0f), y)); }
HWY_INLINE V tanh_slope(V y) { return hn::NegMulAdd(y, y, hn::Set(FloatTag(), 1.0f)); }

void lstm_part(const RecurrentShape& s, const LstmForward& x, const Part& p) {
  const size_t n = s.units;
  const size_t apart = kRows * columns_of_panel();
  sum_gates(s, p, p.first ? x.h0 : x.y + p.before * s.batch * n, 0, 4);
  const float* old_c = p.first ? x.c0 : x.c + p.before * s.batch * n;
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    const size_t row = p.step * s.batch + b;
    const float* gates = x.gates + row * 4 * n + j;
    float* activations = x.activations + row * 4 * n + j;
    const auto gate = [&](size_t g) HWY_ATTR {
      return hn::Add(part.load(gates + g * n), hn::LoadU(FloatTag(), sums + g * apart));
    };
    const V i = logistic(gate(0));
    const V f = logistic(gate(1));
    const V g = tanh(FloatTag(), gate(2));
    const V o = logistic(gate(3));
    const V c = hn::MulAdd(f, part.load(old_c + b * n + j), hn::Mul(i, g));
    part.store(c, x.c + row * n + j);
    part.store(i, activations);
    part.store(f, activations + n);
    part.store(g, activations + 2 * n);
    part.store(o, activations + 3 * n);
  });
  // A separate pass: a shorter chain from sums to results lets the processor work on more cells at
  // a time.
  for_cells(s, p, [&](size_t b, const float*, size_t j, auto part) HWY_ATTR {
    const size_t row = p.step * s.batch + b;
    const V o = part.load(x.activations + (row * 4 + 3) * n + j);
    const V c = part.load(x.c + row * n + j);
    part.store(hn::Mul(o, tanh(FloatTag(), c)), x.y + row * n + j);
  });
}

void lstm_backward_part(const RecurrentShape& s, const LstmBackward& x, const Part& p) {
  const size_t n = s.units;
  if (!p.last) {
    const size_t behind = s.reverse ? p.step - 1 : p.step + 1;
    sum_back(s, p, x.dgates + behind * s.batch * 4 * n, 4 * n, 0, 4 * n, false);
  }
  const float* old_c = p.first ? x.c0 : x.c + p.before * s.batch * n;
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    const FloatTag d;
    const size_t row = p.step * s.batch + b;
    const size_t at = row * n + j;
    const float* activations = x.activations + row * 4 * n + j;
    const V i = part.load(activations);
    const V f = part.load(activations + n);
    const V g = part.load(activations + 2 * n);
    const V o = part.load(activations + 3 * n);
    V dh = part.load(x.dy + at);
    V dc = hn::Zero(d);
    if (!p.last) {
      dh = hn::Add(dh, hn::LoadU(d, sums));
      dc = part.load(x.dc0 + b * n + j);
    }
    if (x.dc != nullptr) {
      dc = hn::Add(dc, part.load(x.dc + at));
    }
    const V squashed = tanh(d, part.load(x.c + at));
    dc = hn::MulAdd(hn::Mul(dh, o), tanh_slope(squashed), dc);
    float* dgates = x.dgates + row * 4 * n + j;
    part.store(hn::Mul(hn::Mul(dc, g), logistic_slope(i)), dgates);
    part.store(hn::Mul(hn::Mul(dc, part.load(old_c + b * n + j)), logistic_slope(f)), dgates + n);
    part.store(hn::Mul(hn::Mul(dc, i), tanh_slope(g)), dgates + 2 * n);
    part.store(hn::Mul(hn::Mul(dh, squashed), logistic_slope(o)), dgates + 3 * n);
    part.store(hn::Mul(dc, f), x.dc0 + b * n + j);
  });
}

// dh0, from dgates of the first step.
void lstm_backward_end(const RecurrentShape& s, const LstmBackward& x, const Part& p) {
  const size_t n = s.units;
  sum_back(s, p, x.dgates + p.step * s.batch * 4 * n, 4 * n, 0, 4 * n, false);
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    part.store(hn::LoadU(FloatTag(), sums), x.dh0 + b * n + j);
  });
}

// h = (1 - z) n + z h
template <class P>
HWY_INLINE V mixed(P, V z, V fresh, V old) {
  return hn::MulAdd(z, old, hn::Mul(hn::Sub(hn::Set(FloatTag(), 1.0f), z), fresh));
}

// A complete step with reset_after, otherwise r and z.
void gru_part(const RecurrentShape& s, const GruForward& x, const Part& p) {
  const size_t n = s.units;
  const size_t apart = kRows * columns_of_panel();
  const float* old = p.first ? x.h0 : x.y + p.before * s.batch * n;
  sum_gates(s, p, old, 0, x.reset_after ? 3 : 2);
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    const FloatTag d;
    const size_t row = p.step * s.batch + b;
    const float* gates = x.gates + row * 3 * n + j;
    float* activations = x.activations + row * 3 * n + j;
    const V r = logistic(hn::Add(part.load(gates), hn::LoadU(d, sums)));
    const V z = logistic(hn::Add(part.load(gates + n), hn::LoadU(d, sums + apart)));
    const V h = part.load(old + b * n + j);
    if (x.reset_after) {
      V made = hn::LoadU(d, sums + 2 * apart);
      if (x.bias != nullptr) {
        made = hn::Add(made, part.load(x.bias + j));
      }
      const V fresh = tanh(d, hn::MulAdd(r, made, part.load(gates + 2 * n)));
      part.store(made, x.recurrent + row * n + j);
      part.store(fresh, activations + 2 * n);
      part.store(mixed(part, z, fresh, h), x.y + row * n + j);
    } else {
      part.store(hn::Mul(r, h), x.recurrent + row * n + j);
    }
    part.store(r, activations);
    part.store(z, activations + n);
  });
}

// n and h without reset_after.
void gru_new_part(const RecurrentShape& s, const GruForward& x, const Part& p) {
  const size_t n = s.units;
  const size_t apart = kRows * columns_of_panel();
  const float* old = p.first ? x.h0 : x.y + p.before * s.batch * n;
  sum_gates(s, p, x.recurrent + p.step * s.batch * n, 2, 3);
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    const FloatTag d;
    const size_t row = p.step * s.batch + b;
    float* activations = x.activations + row * 3 * n + j;
    V made = hn::LoadU(d, sums + 2 * apart);
    if (x.bias != nullptr) {
      made = hn::Add(made, part.load(x.bias + j));
    }
    const V fresh = tanh(d, hn::Add(part.load(x.gates + (row * 3 + 2) * n + j), made));
    part.store(fresh, activations + 2 * n);
    part.store(mixed(part, part.load(activations + n), fresh, part.load(old + b * n + j)),
               x.y + row * n + j);
  });
}

// The gradient that step `step` passes to the previous h.
void sum_gru_back(const RecurrentShape& s, const GruBackward& x, const Part& p, size_t step) {
  const size_t n = s.units;
  sum_back(s, p, x.dgates + step * s.batch * 3 * n, 3 * n, 0, 2 * n, false);
  if (x.reset_after) {
    sum_back(s, p, x.d_new + step * s.batch * n, n, 2 * n, n, true);
  }
}

// A complete step with reset_after, otherwise dz and dn. dh0 holds the gradient of h that does not
// pass through w.
void gru_backward_part(const RecurrentShape& s, const GruBackward& x, const Part& p) {
  const size_t n = s.units;
  if (!p.last) {
    sum_gru_back(s, x, p, s.reverse ? p.step - 1 : p.step + 1);
  }
  const float* old = p.first ? x.h0 : x.y + p.before * s.batch * n;
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    const FloatTag d;
    const size_t row = p.step * s.batch + b;
    const size_t at = row * n + j;
    const float* activations = x.activations + row * 3 * n + j;
    float* dgates = x.dgates + row * 3 * n + j;
    const V r = part.load(activations);
    const V z = part.load(activations + n);
    const V fresh = part.load(activations + 2 * n);
    V dh = part.load(x.dy + at);
    if (!p.last) {
      dh = hn::Add(dh, hn::Add(part.load(x.dh0 + b * n + j), hn::LoadU(d, sums)));
    }
    const V dz =
        hn::Mul(hn::Mul(dh, hn::Sub(part.load(old + b * n + j), fresh)), logistic_slope(z));
    const V dn = hn::Mul(hn::Mul(dh, hn::Sub(hn::Set(d, 1.0f), z)), tanh_slope(fresh));
    if (x.reset_after) {
      const V made = part.load(x.recurrent + at);
      part.store(hn::Mul(hn::Mul(dn, made), logistic_slope(r)), dgates);
    }
    part.store(dz, dgates + n);
    part.store(dn, dgates + 2 * n);
    part.store(x.reset_after ? hn::Mul(dn, r) : dn, x.d_new + at);
    part.store(hn::Mul(dh, z), x.dh0 + b * n + j);
  });
}

// dr without reset_after.
void gru_reset_part(const RecurrentShape& s, const GruBackward& x, const Part& p) {
  const size_t n = s.units;
  sum_back(s, p, x.d_new + p.step * s.batch * n, n, 2 * n, n, false);
  const float* old = p.first ? x.h0 : x.y + p.before * s.batch * n;
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    const size_t row = p.step * s.batch + b;
    const V r = part.load(x.activations + row * 3 * n + j);
    const V made = hn::LoadU(FloatTag(), sums);
    float* dh = x.dh0 + b * n + j;
    part.store(hn::MulAdd(made, r, part.load(dh)), dh);
    part.store(hn::Mul(hn::Mul(made, part.load(old + b * n + j)), logistic_slope(r)),
               x.dgates + row * 3 * n + j);
  });
}

void gru_backward_end(const RecurrentShape& s, const GruBackward& x, const Part& p) {
  sum_gru_back(s, x, p, p.step);
  for_cells(s, p, [&](size_t b, const float* sums, size_t j, auto part) HWY_ATTR {
    float* dh = x.dh0 + b * s.units + j;
    part.store(hn::Add(part.load(dh), hn::LoadU(FloatTag(), sums)), dh);
  });
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

// Below this number of multiply-adds, one thread is faster than two.
constexpr size_t kSerialWork = 100'000;

// The number of columns of a panel divides 64, or is 24. The size suffices for every instruction
// set.
size_t packed_floats(const RecurrentShape& s) {
  return s.gates * s.units * std::max(round_up(s.units, kMostColumns), round_up(s.units, 24)) + 16;
}
constexpr size_t kSumFloats = kMostGates * kRows * kMostColumns;

// Divides a layer among threads.
class Steps {
 public:
  Steps(Threads& threads, const RecurrentShape& shape, void* scratch)
      : threads_(threads),
        s_(shape),
        packed_(static_cast<float*>(scratch)),
        sums_(packed_ + packed_floats(shape) / 16 * 16),
        columns_(BOWLINE_BEST(columns_of_panel)()),
        panels_((shape.units + columns_ - 1) / columns_) {
    // The division whose busiest thread takes the least time. Larger parts are preferred, because
    // each part reads its panel.
    size_t least = 0;
    for (const size_t rows : {kRows, kRows / 2, kRows / 3, kRows / 4}) {
      const size_t tasks = panels_ * ((shape.batch + rows - 1) / rows);
      const size_t time =
          (tasks + threads.count() - 1) / threads.count() * std::min(rows, shape.batch);
      if (rows == kRows || time < least) {
        least = time;
        rows_ = rows;
      }
    }
  }

  template <class F>
  void pack(F&& f) {
    threads_.parallel_for(panels_, [&](size_t panel, size_t) { f(panel, packed_); });
  }

  // Calls f(part) for all rows and panels of the `i`-th running step.
  template <class F>
  void run(size_t i, F&& f) {
    Part p{};
    p.step = at(i);
    p.before = i > 0 ? at(i - 1) : 0;
    p.first = i == 0;
    p.last = i + 1 == s_.steps;
    p.packed = packed_;
    const auto part = [&](size_t task, size_t thread) {
      Part mine = p;
      mine.panel = task % panels_;
      mine.begin = task / panels_ * rows_;
      mine.end = std::min(s_.batch, mine.begin + rows_);
      mine.sums = sums_ + thread * kSumFloats;
      f(mine);
    };
    const size_t tasks = panels_ * row_blocks();
    if (s_.gates * s_.batch * s_.units * s_.units >= kSerialWork) {
      threads_.parallel_for(tasks, part);
      return;
    }
    for (size_t task = 0; task < tasks; ++task) {
      part(task, 0);
    }
  }

 private:
  size_t at(size_t i) const { return s_.reverse ? s_.steps - 1 - i : i; }
  size_t row_blocks() const { return (s_.batch + rows_ - 1) / rows_; }

  Threads& threads_;
  const RecurrentShape& s_;
  float* packed_;
  float* sums_;
  size_t columns_;
  size_t panels_;
  size_t rows_ = kRows;
};

}  // namespace

size_t recurrent_scratch_bytes(const RecurrentShape& shape, const Threads& threads) {
  return (packed_floats(shape) + kSumFloats * threads.count()) * sizeof(float);
}

void lstm(Threads& threads, const RecurrentShape& shape, const LstmForward& x, void* scratch) {
  Steps steps(threads, shape, scratch);
  steps.pack([&](size_t panel, float* packed) {
    BOWLINE_BEST(pack_forward)(shape, x.w, panel, packed);
  });
  for (size_t i = 0; i < shape.steps; ++i) {
    steps.run(i, [&](const Part& p) { BOWLINE_BEST(lstm_part)(shape, x, p); });
  }
}

void lstm_backward(Threads& threads, const RecurrentShape& shape, const LstmBackward& x,
                   void* scratch) {
  if (shape.steps == 0) {
    std::fill_n(x.dh0, shape.batch * shape.units, 0.0f);
    std::fill_n(x.dc0, shape.batch * shape.units, 0.0f);
    return;
  }
  Steps steps(threads, shape, scratch);
  steps.pack([&](size_t panel, float* packed) {
    BOWLINE_BEST(pack_backward)(shape, x.w, panel, packed);
  });
  for (size_t i = shape.steps; i-- > 0;) {
    steps.run(i, [&](const Part& p) { BOWLINE_BEST(lstm_backward_part)(shape, x, p); });
  }
  steps.run(0, [&](const Part& p) { BOWLINE_BEST(lstm_backward_end)(shape, x, p); });
}

void gru(Threads& threads, const RecurrentShape& shape, const GruForward& x, void* scratch) {
  Steps steps(threads, shape, scratch);
  steps.pack([&](size_t panel, float* packed) {
    BOWLINE_BEST(pack_forward)(shape, x.w, panel, packed);
  });
  for (size_t i = 0; i < shape.steps; ++i) {
    steps.run(i, [&](const Part& p) { BOWLINE_BEST(gru_part)(shape, x, p); });
    if (!x.reset_after) {
      steps.run(i, [&](const Part& p) { BOWLINE_BEST(gru_new_part)(shape, x, p); });
    }
  }
}

void gru_backward(Threads& threads, const RecurrentShape& shape, const GruBackward& x,
                  void* scratch) {
  if (shape.steps == 0) {
    std::fill_n(x.dh0, shape.batch * shape.units, 0.0f);
    return;
  }
  Steps steps(threads, shape, scratch);
  steps.pack([&](size_t panel, float* packed) {
    BOWLINE_BEST(pack_backward)(shape, x.w, panel, packed);
  });
  for (size_t i = shape.steps; i-- > 0;) {
    steps.run(i, [&](const Part& p) { BOWLINE_BEST(gru_backward_part)(shape, x, p); });
    if (!x.reset_after) {
      steps.run(i, [&](const Part& p) { BOWLINE_BEST(gru_reset_part)(shape, x, p); });
    }
  }
  steps.run(0, [&](const Part& p) { BOWLINE_BEST(gru_backward_end)(shape, x, p); });
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
