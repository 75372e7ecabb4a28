//! ops(f32, f16, bf16) Conv ConvTranspose ConvInputGrad ConvWeightGrad
// Convolutions in groups of channels. With i = o * stride + k * dilation - pad:
//   forward  y[n, m, o] = bias[m] + sum over c, k of x[n, c, i] * w[m, c, k]
//   back     x[n, c, i] = bias[c] + sum over m, o, k of y[n, m, o] * w[m, c, k]
//   weights  w[m, c, k] = sum over n, o of y[n, m, o] * x[n, c, i]
//
// They are matrix products whose operands are gathered (device/window_product.cuh). Groups of few
// channels, such as those of a depthwise convolution, would leave tiles empty: there, a thread
// computes an output or an element of x, and a warp computes a weight.
#include <algorithm>

#include "core/convolutions.h"
#include "device/begin.cuh"
#include "device/f32_tiles.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"
#include "device/target.cuh"
#include "device/window_product.cuh"

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
__device__ float channel_sum(const DeviceWindows& w, const T* x, const T* weight,
                             const Place<uint64_t>& o) {
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
__global__ void forward_kernel(const T* x, const T* weight, const T* bias, T* y, uint64_t n,
                               Groups g) {
  begin_kernel();
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

// Element `element` of x, from only the terms that it has.
template <class T>
__device__ float back_element(const T* dy, const T* weight, const T* bias, uint64_t element,
                              const Groups& g) {
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
  return sum;
}

template <class T>
__global__ void back_kernel(const T* dy, const T* weight, const T* bias, T* dx, uint64_t n,
                            Groups g) {
  begin_kernel();
  const uint64_t element = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element < n) {
    write(dx + element, back_element(dy, weight, bias, element, g));
  }
}

template <class T>
__global__ void weights_kernel(const T* x, const T* dy, Target<T> dweight, uint64_t n, Groups g) {
  begin_kernel();
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
    dweight.put(i, sum);
  }
}

// A product on tiles.
template <class T>
struct Product {
  WindowProduct form;
  const T* a;
  const T* b;
  const T* bias;  // (optional) of the rows
  Target<T> y;
  Groups convolution;
  float* parts;  // [splits, tile, row, column], if there are several parts
  uint32_t* counters;
  unsigned tiles[2];  // along rows and columns, in each group and phase
  unsigned splits;
  int split;  // steps per part
};

// The results of a tile.
template <WindowKind kKind, int kTile, class T, class Tables>
struct TileResults {
  const Product<T>& p;
  const Tables& tables;
  unsigned group;
  int sizes[2];

  __device__ float* part(unsigned part, const TilePlace& place, int row, int column) const {
    const unsigned tiles = p.form.groups * p.form.phases() * p.tiles[0] * p.tiles[1];
    const uint64_t tile = uint64_t{part} * tiles + place.number;
    return p.parts + (tile * kTile + static_cast<unsigned>(row % kTile)) * kTile + column % kTile;
  }
  __device__ void put(const TilePlace& place, int row, int column, float (&v)[4]) const {
    if (p.splits > 1) {
      write_some(part(static_cast<unsigned>(place.part), place, row, column), v);
    } else {
      finish(row, column, v);
    }
  }
  // Writes final sums.
  __device__ void finish(int row, int column, float (&v)[4]) const {
    const uint32_t at = place_of_row(row);
    const float bias = p.bias != nullptr ? read(p.bias + group * p.form.rows + row) : 0.0f;
    BOWLINE_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (column + j < sizes[1]) {
        const uint32_t i = at + tables.result((column + j) % kTile);
        v[j] += bias;
        if constexpr (kKind == WindowKind::weights) {
          p.y.put(i, v[j]);
        } else {
          write(p.y.data + i, v[j]);
        }
      }
    }
  }
  // All threads of the block call it after put().
  template <int kThreads>
  __device__ void finish_tile(const TilePlace& place) const {
    if (p.splits > 1) {
      if (!arrives_last(p.counters + place.number, p.splits)) {
        return;
      }
      add_parts<kThreads>(place);
    }
    if constexpr (kKind == WindowKind::back) {
      __syncthreads();
      mend_tile<kThreads>(place);
    }
  }

 private:
  template <int kThreads>
  __device__ void add_parts(const TilePlace& place) const {
    BOWLINE_ROLL
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile / 4; i += kThreads) {
      const int row = place.tile[0] * kTile + i / (kTile / 4);
      const int column = place.tile[1] * kTile + i % (kTile / 4) * 4;
      if (row < sizes[0] && column < sizes[1]) {
        float sum[4] = {};
        for (unsigned one = 0; one < p.splits; ++one) {
          float v[4];
          read_some(part(one, place, row, column), v);
          BOWLINE_UNROLL
          for (int j = 0; j < 4; ++j) {
            sum[j] += v[j];
          }
        }
        finish(row, column, sum);
      }
    }
  }
  // Computes results that are NaN again: a term that does not exist may have been multiplied as 0.
  template <int kThreads>
  __device__ void mend_tile(const TilePlace& place) const {
    BOWLINE_ROLL
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
      const int row = place.tile[0] * kTile + i / kTile;
      if (row >= sizes[0] || place.tile[1] * kTile + i % kTile >= sizes[1]) {
        continue;
      }
      const uint32_t at = place_of_row(row) + tables.result(i % kTile);
      const float v = read(p.y.data + at);
      if (v != v) {
        write(p.y.data + at, back_element(p.b, p.a, p.bias, at, p.convolution));
      }
    }
  }
  __device__ uint32_t place_of_row(int row) const {
    return group * p.form.y_group + static_cast<uint32_t>(row) * p.form.y_row;
  }
};

template <WindowKind kKind, class S, int kTile, int kEach, int kTeams>
__global__ void __launch_bounds__(F32Tiling<kTile, kEach, kTeams>::kThreads, kTile == 128 ? 1 : 2)
    product_kernel(Product<S> p) {
  begin_kernel();
  using T = F32Tiling<kTile, kEach, kTeams>;
  constexpr int kSteps = kTeams * T::kStep;
  using Tables = SharedTables<kTile, kSteps>;
  __shared__ Shared<float4[2 * T::kBuffer]> shared;
  __shared__ SharedTables<kTile, kSteps> tables;
  const WindowProduct& form = p.form;
  const int thread = static_cast<int>(threadIdx.x) % T::kTeam;
  const int team = static_cast<int>(threadIdx.x) / T::kTeam;

  // The batch counts the groups of a phase, then the phases.
  const TilePlace place = place_of_block(p.tiles, p.splits, blockIdx.x);
  const unsigned group = place.batch % form.groups;

  tables.start(form, place.batch / form.groups);
  __syncthreads();
  const TileResults<kKind, kTile, S, Tables> results = {
      p, tables, group, {static_cast<int>(form.rows), static_cast<int>(tables.columns(form))}};
  const int first[2] = {place.tile[0] * kTile, place.tile[1] * kTile};
  if (first[1] >= results.sizes[1]) {  // the first phase has more columns
    return;
  }
  const auto all_steps = static_cast<int>(tables.steps(form));
  const int begin = place.part * p.split;
  const int count = max(0, min(p.split, all_steps - begin));
  const int rounds = (count + kSteps - 1) / kSteps;
  tables.set_columns(form, static_cast<uint32_t>(first[1]),
                     static_cast<uint32_t>(results.sizes[1] - first[1]));
  const auto set_steps = [&](int round) {
    tables.set_steps(form, round % 2, static_cast<uint32_t>(begin + round * kSteps),
                     count - round * kSteps);
  };
  if (rounds > 0) {
    set_steps(0);
  }
  __syncthreads();

  // The first half of a team loads a, the second half loads b.
  const bool is_b = thread >= T::kTeam / 2;
  const PatchPlace<T> patch(!is_b || kKind == WindowKind::weights, thread % (T::kTeam / 2));
  const S* const a = p.a + group * form.a_group;
  const S* const b = p.b + group * form.b_group;
  float moving[4][4];  // [step][row or column]
  const auto load = [&](int round) {
    const int entry = team * T::kStep + patch.step;
    if (is_b) {
      BOWLINE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const uint4 column = tables.column(4 * patch.quad + j);
        BOWLINE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const uint4 step = tables.step(round % 2, entry + i);
          moving[i][j] = is_inside(form, column, step) ? read(b + (column.x + step.x)) : 0.0f;
        }
      }
      return;
    }
    const auto row = static_cast<uint32_t>(first[0] + 4 * patch.quad);
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t step = tables.a_step(round % 2, entry + i);
      BOWLINE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        const bool inside = step != kOutside && row + j < form.rows;
        moving[i][j] = inside ? read(a + ((row + j) * form.a_row + step)) : 0.0f;
      }
    }
  };
  const auto store = [&](int round) {
    const int to = round % 2 * T::kBuffer + team * T::kTeamSize + (is_b ? T::kSideSize : 0) +
                   patch.step * T::kQuads + (patch.quad ^ patch.step / 4);
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      shared[to + i * T::kQuads] =
          make_float4(moving[i][0], moving[i][1], moving[i][2], moving[i][3]);
    }
  };

  const int mine[2] = {T::first_row(thread), T::first_column(thread)};
  float sum[kEach][kEach];
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      sum[i][j] = 0;
    }
  }
  // Loading is much code, so the first round has no code of its own.
  BOWLINE_ROLL
  for (int round = -1; round < rounds; ++round) {
    if (round + 1 < rounds) {
      load(round + 1);
    }
    if (round >= 0) {
      multiply_step<T>(shared, round % 2 * T::kBuffer + team * T::kTeamSize, mine, sum);
    }
    if (round + 1 < rounds) {
      store(round + 1);
    }
    if (round + 2 < rounds) {
      set_steps(round + 2);
    }
    __syncthreads();
  }
  if (kTeams > 1) {
    add_teams<T>(shared, sum, team, thread);
  }
  if (team == 0) {
    write_tile<T>(results, sum, place, mine);
  }
  results.template finish_tile<T::kThreads>(place);
}

// The division of a product: one of the kernels, and the parts of its steps.
struct Plan {
  int tile = 0;  // 0: the product is not computed on tiles
  unsigned tiles[2] = {};
  unsigned splits = 1;
  int split = 0;
  uint64_t parts_bytes = 0;
};

// Compares the multiplications of each tile, with those that are outside of the product, in units
// of the speed of the largest tile. Few blocks leave a part of the GPU idle. Without tiles, a block
// computes `each` results.
Plan plan_of(const WindowProduct& p, const Traits& traits, uint64_t each) {
  struct Candidate {
    int tile, steps;
    double speed;
  };
  constexpr Candidate kCandidates[] = {{128, 16, 1.0}, {64, 32, 0.75}, {32, 64, 0.4}};
  constexpr double kSpeedWithoutTiles = 0.04;
  const auto fill = static_cast<uint64_t>(traits.processors);
  constexpr uint64_t kFewestSteps = 256;  // of a part
  constexpr uint64_t kMostSplits = 64;
  constexpr uint64_t kMostBytes = uint64_t{32} << 20;
  const auto up = [](uint64_t n, uint64_t to) { return (n + to - 1) / to; };
  const uint64_t steps = p.steps();
  const uint64_t matrices = uint64_t{p.groups} * p.phases();
  const auto time = [&](uint64_t products, double speed, uint64_t blocks) {
    const double used = std::min(1.0, static_cast<double>(blocks) / static_cast<double>(fill));
    return static_cast<double>(products) / (speed * used);
  };
  Plan best;
  const uint64_t results = p.rows * p.columns() * matrices;
  double least = time(results * steps, kSpeedWithoutTiles, up(results, each));
  for (const Candidate& c : kCandidates) {
    const auto tile = static_cast<uint64_t>(c.tile);
    const uint64_t tiles[2] = {up(p.rows, tile), up(p.columns(), tile)};
    const uint64_t blocks = tiles[0] * tiles[1] * matrices;
    const uint64_t bytes = blocks * tile * tile * sizeof(float);
    uint64_t splits = std::max<uint64_t>(
        1, std::min({up(2 * fill, blocks), steps / kFewestSteps, kMostSplits, kMostBytes / bytes}));
    if (blocks > kBlockCounters) {
      splits = 1;
    }
    const uint64_t split = up(up(steps, splits), c.steps) * c.steps;
    splits = up(steps, split);
    const double here =
        time(blocks * tile * tile * up(steps, c.steps) * c.steps, c.speed, blocks * splits);
    if (here < least && blocks * splits <= INT32_MAX) {
      least = here;
      best = {c.tile,
              {static_cast<unsigned>(tiles[0]), static_cast<unsigned>(tiles[1])},
              static_cast<unsigned>(splits),
              static_cast<int>(split),
              splits == 1 ? 0 : splits * bytes};
    }
  }
  return best;
}

// A convolution without results or steps, or whose offsets do not fit into 32 bits, has no tiles.
bool fits(const Convolution& c) {
  constexpr int64_t kLongestAxis = int64_t{1} << 28;
  constexpr int64_t kMostElements = int64_t{UINT32_MAX};
  constexpr int64_t kMostOfSide = int64_t{1} << 30;
  const int64_t in = c.windows.inputs(), out = c.windows.outputs(), window = c.windows.window();
  const int64_t maps = c.groups * c.outputs;
  const int64_t x = c.batch * c.groups * c.inputs * in;
  const int64_t y = c.batch * maps * out;
  const int64_t weight = maps * c.inputs * window;
  for (const WindowAxis& w : c.windows.axis) {
    if (std::max({w.in, w.out * w.stride, w.window * w.dilation, w.pad}) >= kLongestAxis) {
      return false;
    }
  }
  return std::min({x, y, weight}) > 0 && std::max({x, y, weight}) < kMostElements &&
         std::max({c.batch * in, c.batch * out, c.inputs * window, c.outputs * window}) <
             kMostOfSide;
}
Plan plan_of(WindowKind kind, const Convolution& c, const Traits& traits) {
  constexpr uint64_t kWarpsOfBlock = kRowThreads / kLanes;
  return fits(c) ? plan_of(window_product(kind, c), traits,
                           kind == WindowKind::weights ? kWarpsOfBlock : uint64_t{kThreads})
                 : Plan();
}

template <WindowKind kKind, int kTile, int kEach, int kTeams, class T>
void launch_tiles(Launch& l, const Product<T>& p) {
  const unsigned blocks = p.tiles[0] * p.tiles[1] * p.splits * p.form.groups * p.form.phases();
  l.launch("convolution product", product_kernel<kKind, T, kTile, kEach, kTeams>, blocks,
           F32Tiling<kTile, kEach, kTeams>::kThreads, p);
}

Groups groups_of(const Convolution& c) {
  return {device_windows(c.windows), static_cast<uint32_t>(c.batch),
          static_cast<uint32_t>(c.groups), static_cast<uint32_t>(c.inputs),
          static_cast<uint32_t>(c.outputs)};
}

// Returns false, without doing anything, if the convolution is not computed on tiles.
template <WindowKind kKind, class T>
bool multiply(Launch& l, const Convolution& c, const T* a, const T* b, const T* bias,
              const Target<T>& y) {
  const Plan plan = plan_of(kKind, c, l.traits());
  if (plan.tile == 0) {
    return false;
  }
  const Product<T> p = {.form = window_product(kKind, c),
                        .a = a,
                        .b = b,
                        .bias = bias,
                        .y = y,
                        .convolution = groups_of(c),
                        .parts = plan.splits > 1 ? l.workspace() : nullptr,
                        .counters = l.block_counters(),
                        .tiles = {plan.tiles[0], plan.tiles[1]},
                        .splits = plan.splits,
                        .split = plan.split};
  if (plan.tile == 128) {
    launch_tiles<kKind, 128, 8, 1>(l, p);
  } else if (plan.tile == 64) {
    launch_tiles<kKind, 64, 4, 1>(l, p);
  } else {
    launch_tiles<kKind, 32, 4, 4>(l, p);
  }
  return true;
}

uint64_t made(const Launch& l) { return static_cast<uint64_t>(l.out_shape(0).elements()); }

// Of a Launch or a NodeView.
template <convolutions::Find kFind>
Convolution convolution(const Launch& l) {
  return kFind(l.attributes(), l.in_shape(0), l.in_shape(1), l.out_shape(0));
}
template <WindowKind kKind, convolutions::Find kFind>
uint64_t workspace(const NodeView& v) {
  return plan_of(kKind, kFind(v.query.attributes, v.in(0), v.in(1), v.out(0)), v.traits)
      .parts_bytes;
}

template <class T>
const T* bias_of(const Launch& l) {
  return l.has_input(2) ? l.in_as<T>(2) : nullptr;
}

template <class T>
void convolve(Launch& l) {
  const Convolution c = convolution<convolutions::conv>(l);
  const T* const x = l.in_as<T>(0);
  const T* const weight = l.in_as<T>(1);
  if (!multiply<WindowKind::forward>(l, c, weight, x, bias_of<T>(l), target_of<T>(l, 0))) {
    l.launch("convolution", forward_kernel<T>, blocks_for(made(l), kThreads), kThreads, x, weight,
             bias_of<T>(l), l.out_as<T>(0), made(l), groups_of(c));
  }
}

template <class T>
void convolve_back(Launch& l, const Convolution& c, const T* dy, const T* weight) {
  if (!multiply<WindowKind::back>(l, c, weight, dy, bias_of<T>(l), target_of<T>(l, 0))) {
    l.launch("convolution back", back_kernel<T>, blocks_for(made(l), kThreads), kThreads, dy,
             weight, bias_of<T>(l), l.out_as<T>(0), made(l), groups_of(c));
  }
}
template <class T>
void transposed(Launch& l) {
  convolve_back(l, convolution<convolutions::transposed>(l), l.in_as<T>(0), l.in_as<T>(1));
}
template <class T>
void input_grad(Launch& l) {
  convolve_back(l, convolution<convolutions::input_grad>(l), l.in_as<T>(1), l.in_as<T>(0));
}

template <class T>
void weight_grad(Launch& l) {
  const Convolution c = convolution<convolutions::weight_grad>(l);
  const Target<T> to = target_of<T>(l, 0);
  const T* const x = l.in_as<T>(0);
  const T* const dy = l.in_as<T>(1);
  if (to.is_frozen() || multiply<WindowKind::weights, T>(l, c, dy, x, nullptr, to)) {
    return;
  }
  l.launch("convolution weights", weights_kernel<T>, blocks_for(made(l), kRowThreads / kLanes),
           kRowThreads, x, dy, to, made(l), groups_of(c));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(conv, .run = convolve<T>,
                          .workspace = workspace<WindowKind::forward, convolutions::conv>);
BOWLINE_KERNELS_OF_FLOATS(conv_transpose, .run = transposed<T>,
                          .workspace = workspace<WindowKind::back, convolutions::transposed>);
BOWLINE_KERNELS_OF_FLOATS(conv_input_grad, .run = input_grad<T>,
                          .workspace = workspace<WindowKind::back, convolutions::input_grad>);
BOWLINE_KERNELS_OF_FLOATS(conv_weight_grad, .run = weight_grad<T>,
                          .workspace = workspace<WindowKind::weights, convolutions::weight_grad>,
                          .accumulates = outputs<0b1>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::convolution_kernels
