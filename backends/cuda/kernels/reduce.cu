//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo GlobalAveragePool
// Sums over axes, in a fixed order. Long sums are divided into parts, which a second launch adds.
#include <algorithm>

#include "core/loops.h"
#include "device/begin.cuh"
#include "device/rows.cuh"
#include "device/target.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::reduce_kernels {
namespace {

constexpr uint64_t kShortSum = 8;  // a single thread adds it
constexpr uint64_t kRowPart = 4096;
constexpr uint64_t kColumnPart = 128;
constexpr uint64_t kBlocksWanted = 1024;
constexpr unsigned kWidest = 32;  // threads of a block side by side
// Columns per block when parts are added: 32 bytes of each part, and more blocks than with kWidest.
constexpr uint64_t kNarrowed = 8;
// Packs of terms that a thread loads at once. Only terms at one distance form packs.
template <int kWidth>
constexpr unsigned kBatch = kWidth > 1 ? 4 : 1;

// Each sum is divided into `parts` parts of `per_part` terms.
struct Sums : ElementGroups {
  uint64_t parts = 1;
  uint64_t per_part = 1;

  // Calls add(pack) for packs i, i + step, ... before `end` of kWidth terms. Their loads are
  // issued together.
  template <int kWidth, class X, class F>
  __device__ void for_packs(const X* from, uint64_t i, uint64_t end, uint64_t step, F&& add) const {
    using Pack = Some<X, kWidth>;
    const auto pack = [&](uint64_t k) {
      const int64_t at = kWidth > 1 ? static_cast<int64_t>(k) * gone.strides[0][0] : element(k);
      return *reinterpret_cast<const Pack*>(from + at);
    };
    constexpr unsigned kLoads = kBatch<kWidth>;
    for (; i + (kLoads - 1) * step < end; i += kLoads * step) {
      Pack packs[kLoads];
      BOWLINE_UNROLL
      for (unsigned b = 0; b < kLoads; ++b) {
        packs[b] = pack(i + b * step);
      }
      BOWLINE_UNROLL
      for (unsigned b = 0; b < kLoads; ++b) {
        add(packs[b]);
      }
    }
    for (; i < end; i += step) {
      add(pack(i));
    }
  }
};

// One team per part of a sum with contiguous terms: y[output, part].
template <unsigned kTeam, int kWidth, class X, class Y>
__global__ void __launch_bounds__(kRowThreads, 4)
    sum_rows_kernel(const X* x, Target<Y> y, Sums s, float divisor) {
  begin_kernel();
  const uint64_t row = team_row<kTeam>();
  if (row >= s.outputs * s.parts) {
    return;
  }
  const uint64_t begin = row % s.parts * s.per_part;
  const uint64_t end = min(begin + s.per_part, s.length);
  const X* from = x + s.begin(row / s.parts);
  float sum = 0;
  s.for_packs<kWidth>(from, begin + team_lane<kTeam>() * kWidth, end, kTeam * kWidth,
                      [&](const Some<X, kWidth>& pack) {
                        for (int k = 0; k < kWidth; ++k) {
                          sum += read(&pack.x[k]);
                        }
                      });
  sum = team_sum<kTeam>(sum);
  if (team_lane<kTeam>() == 0) {
    y.put(row, sum / divisor);
  }
}

// Sums of neighbouring outputs: y[part, output], with the part in blockIdx.y. The threads of a
// block are arranged as rows of `width` threads, a power of two, with kEach outputs per thread.
template <int kEach, class X, class Y>
__global__ void __launch_bounds__(kRowThreads, 4)
    sum_columns_kernel(const X* x, Target<Y> y, Sums s, unsigned width, float divisor) {
  begin_kernel();
  const uint64_t output = (uint64_t{blockIdx.x} * width + threadIdx.x % width) * kEach;
  const bool mine = output < s.outputs;
  const X* const from = x + (mine ? s.begin(output) : 0);
  const uint64_t end = mine ? min((blockIdx.y + 1) * s.per_part, s.length) : 0;
  float sum[kEach] = {};
  s.for_packs<kEach>(from, blockIdx.y * s.per_part + threadIdx.x / width, end, kRowThreads / width,
                     [&](const Some<X, kEach>& pack) {
                       for (int k = 0; k < kEach; ++k) {
                         sum[k] += read(&pack.x[k]);
                       }
                     });
  add_rows_of_block(width, sum);
  if (mine && threadIdx.x < width) {
    for (int k = 0; k < kEach; ++k) {
      sum[k] /= divisor;
    }
    y.put_some(blockIdx.y * s.outputs + output, sum);
  }
}

struct Plan {
  Sums sums;
  bool rows = false;   // the last axis is summed
  unsigned width = 1;  // otherwise: threads per row of a block
};

// True if `each` neighbouring outputs have neighbouring terms. The strides of slower axes are
// multiples of the size of the last kept one.
bool has_packs(const ElementGroups& g, int64_t each) {
  const int last = g.kept.rank - 1;
  bool has = last >= 0 && g.kept.strides[0][last] == 1 && g.kept.sizes[last] % each == 0 &&
             g.gone.rank <= 1;
  for (int axis = 0; axis < g.gone.rank; ++axis) {
    has = has && g.gone.strides[0][axis] % each == 0;
  }
  return has;
}

Plan plan_of(const Shape& x, const Axes& summed, DType type) {
  Plan p{{groups_of(x, summed)}};
  Sums& s = p.sums;
  for (int axis = 0; axis < x.rank(); ++axis) {
    p.rows = x[axis] == 1 ? p.rows : summed[static_cast<size_t>(axis)];
  }
  p.rows = p.rows && s.length > kShortSum;
  const uint64_t each = 16 / size_of(type);
  const uint64_t columns = has_packs(s, static_cast<int64_t>(each)) ? s.outputs / each : s.outputs;
  p.width = s.length <= kShortSum ? kRowThreads : column_width(columns, kWidest);
  const uint64_t blocks = p.rows ? s.outputs : (columns + p.width - 1) / p.width;
  const uint64_t most = std::max<uint64_t>(kBlocksWanted / std::max<uint64_t>(blocks, 1), 1);
  const uint64_t parts =
      std::clamp<uint64_t>(s.length / (p.rows ? kRowPart : kColumnPart), 1, most);
  s.per_part = std::max<uint64_t>((s.length + parts - 1) / parts, 1);
  s.per_part = (s.per_part + 7) / 8 * 8;  // keeps the parts aligned
  s.parts = std::max<uint64_t>((s.length + s.per_part - 1) / s.per_part, 1);
  return p;
}

template <class X, class Y>
void sum_rows(Launch& l, const X* x, Target<Y> y, const Sums& s, float divisor) {
  constexpr uint64_t kWidth = kPack<X>;
  bool packs = aligned16(x) && s.gone.rank == 1 && s.gone.strides[0][0] == 1 &&
               s.length % kWidth == 0 && s.per_part % kWidth == 0;
  for (int axis = 0; axis < s.kept.rank; ++axis) {
    packs = packs && s.kept.strides[0][axis] % static_cast<int64_t>(kWidth) == 0;
  }
  launch_packed_rows<X>(
      l, "sum of rows", s.outputs * s.parts, s.per_part, packs,
      [](auto team, auto width) { return sum_rows_kernel<team(), width(), X, Y>; }, x, y, s,
      divisor);
}

template <class X, class Y>
void sum_columns(Launch& l, const X* x, Target<Y> y, const Sums& s, unsigned width, float divisor) {
  const bool packs = has_packs(s, kPack<X>) && aligned16(x, y.data, y.gradient);
  l.launch("sum of columns",
           packs ? sum_columns_kernel<kPack<X>, X, Y> : sum_columns_kernel<1, X, Y>,
           dim3(blocks_for(s.outputs, width, packs ? kPack<X> : 1), static_cast<unsigned>(s.parts)),
           kRowThreads, x, y, s, width, divisor);
}

template <class X, class Y>
void sum(Launch& l, const Plan& p, const X* x, Target<Y> y, float divisor) {
  if (p.rows) {
    sum_rows(l, x, y, p.sums, divisor);
  } else {
    sum_columns(l, x, y, p.sums, p.width, divisor);
  }
}

template <class T>
void reduce(Launch& l, const Axes& summed, bool mean) {
  const Plan p = plan_of(l.in_shape(0), summed, l.in_type(0));
  const Sums& s = p.sums;
  const float divisor = mean ? static_cast<float>(s.length) : 1.0f;
  const Target<T> y = target_of<T>(l, 0);
  if (s.parts == 1) {
    sum(l, p, l.in_as<T>(0), y, divisor);
    return;
  }
  float* const to = l.workspace();
  sum(l, p, l.in_as<T>(0), Target<float>{to}, 1.0f);
  const auto outputs = static_cast<int64_t>(s.outputs), parts = static_cast<int64_t>(s.parts);
  const Shape partial = p.rows ? Shape{outputs, parts} : Shape{parts, outputs};
  const Sums rest{groups_along(partial, p.rows ? 1 : 0), 1, s.parts};
  if (p.rows) {
    sum_rows<float>(l, to, y, rest, divisor);
  } else {
    const uint64_t each = s.outputs % kPack<float> == 0 ? kPack<float> : 1;
    sum_columns<float>(l, to, y, rest,
                       column_width(s.outputs / each, static_cast<unsigned>(kNarrowed / each)),
                       divisor);
  }
}

Axes reduced_axes(const Shape& x, const Shape&, const Attributes& attributes) {
  const auto* axes = attributes.as<ReduceAttributes>().axes();
  return named_axes({axes->data(), axes->size()}, x.rank());
}
Axes spatial_axes(const Shape& x, const Shape&, const Attributes&) {
  Axes axes{};
  std::fill(axes.begin() + 2, axes.begin() + x.rank(), true);
  return axes;
}
Axes axes_of_sum_to(const Shape& x, const Shape& y, const Attributes&) {
  return stretched_axes(x, y);
}

using Find = Axes (*)(const Shape& x, const Shape& y, const Attributes& attributes);

template <Find find, bool kMean, class T>
void reduce(Launch& l) {
  reduce<T>(l, find(l.in_shape(0), l.out_shape(0), l.attributes()), kMean);
}
template <Find find>
uint64_t workspace(const NodeView& node) {
  const Axes summed = find(node.in(0), node.out(0), node.query.attributes);
  const Sums s = plan_of(node.in(0), summed, node.query.inputs[0].dtype).sums;
  return s.parts > 1 ? s.parts * s.outputs * sizeof(float) : 0;
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(reduce_sum, .run = reduce<reduced_axes, false, T>,
                          .workspace = workspace<reduced_axes>);
BOWLINE_KERNELS_OF_FLOATS(reduce_mean, .run = reduce<reduced_axes, true, T>,
                          .workspace = workspace<reduced_axes>);
BOWLINE_KERNELS_OF_FLOATS(global_average_pool, .run = reduce<spatial_axes, true, T>,
                          .workspace = workspace<spatial_axes>);
BOWLINE_KERNELS_OF_FLOATS(sum_to, .run = reduce<axes_of_sum_to, false, T>,
                          .workspace = workspace<axes_of_sum_to>, .accumulates = outputs<0b1>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::reduce_kernels
