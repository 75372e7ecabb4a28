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
constexpr unsigned kWidest = 32;  // columns of a block
// Columns per block when parts are added: 32 bytes of each part, and more blocks than with kWidest.
constexpr unsigned kNarrowed = 8;

// Each sum is divided into `parts` parts of `per_part` terms.
struct Sums : ElementGroups {
  uint64_t parts = 1;
  uint64_t per_part = 1;
};

// One team per part of a sum with contiguous terms: y[output, part].
template <unsigned kTeam, int kWidth, class X, class Y>
__global__ void sum_rows_kernel(const X* x, Target<Y> y, Sums s, float divisor) {
  begin_kernel();
  const uint64_t row = team_row<kTeam>();
  if (row >= s.outputs * s.parts) {
    return;
  }
  const uint64_t begin = row % s.parts * s.per_part;
  const uint64_t end = min(begin + s.per_part, s.length);
  const X* from = x + s.begin(row / s.parts);
  float sum = 0;
  for (uint64_t i = begin + team_lane<kTeam>() * kWidth; i < end; i += kTeam * kWidth) {
    float v[kWidth];
    read_some(from + s.element(i), v);
    for (int k = 0; k < kWidth; ++k) {
      sum += v[k];
    }
  }
  sum = team_sum<kTeam>(sum);
  if (team_lane<kTeam>() == 0) {
    y.put(row, sum / divisor);
  }
}

// Sums of neighbouring outputs: y[part, output], with the part in blockIdx.y.
template <class X, class Y>
__global__ void sum_columns_kernel(const X* x, Target<Y> y, Sums s, unsigned width, float divisor) {
  begin_kernel();
  const uint64_t output = uint64_t{blockIdx.x} * width + threadIdx.x % width;
  const bool mine = output < s.outputs;
  const X* from = x + (mine ? s.begin(output) : 0);
  const uint64_t begin = blockIdx.y * s.per_part;
  const uint64_t end = mine ? min(begin + s.per_part, s.length) : begin;
  const float sum =
      column_sum(width, begin, end, [&](uint64_t i) { return read(from + s.element(i)); });
  if (mine && threadIdx.x < width) {
    y.put(blockIdx.y * s.outputs + output, sum / divisor);
  }
}

struct Plan {
  Sums sums;
  bool rows = false;   // the last axis is summed
  unsigned width = 1;  // otherwise
};

Plan plan_of(const Shape& x, const Axes& summed) {
  Plan p{{groups_of(x, summed)}};
  Sums& s = p.sums;
  for (int axis = 0; axis < x.rank(); ++axis) {
    p.rows = x[axis] == 1 ? p.rows : summed[static_cast<size_t>(axis)];
  }
  p.rows = p.rows && s.length > kShortSum;
  p.width = s.length <= kShortSum ? kRowThreads : column_width(s.outputs, kWidest);
  const uint64_t blocks = p.rows ? s.outputs : (s.outputs + p.width - 1) / p.width;
  const uint64_t most = std::max<uint64_t>(kBlocksWanted / std::max<uint64_t>(blocks, 1), 1);
  const uint64_t parts =
      std::clamp<uint64_t>(s.length / (p.rows ? kRowPart : kColumnPart), 1, most);
  s.per_part = std::max<uint64_t>((s.length + parts - 1) / parts, 1);
  s.per_part = (s.per_part + 3) / 4 * 4;  // keeps the parts aligned
  s.parts = std::max<uint64_t>((s.length + s.per_part - 1) / s.per_part, 1);
  return p;
}

template <class X, class Y>
void sum_rows(Launch& l, const X* x, Target<Y> y, const Sums& s, float divisor) {
  constexpr bool kWide = std::is_same_v<X, float>;
  bool four =
      kWide && aligned16(x) && s.gone.rank == 1 && s.gone.strides[0][0] == 1 && s.length % 4 == 0;
  for (int axis = 0; axis < s.kept.rank; ++axis) {
    four = four && s.kept.strides[0][axis] % 4 == 0;
  }
  launch_rows(
      l, "sum of rows", s.outputs * s.parts, s.per_part, four,
      [](auto team, auto width) { return sum_rows_kernel < team(), kWide ? width() : 1, X, Y > ; },
      x, y, s, divisor);
}

template <class X, class Y>
void sum_columns(Launch& l, const X* x, Target<Y> y, const Sums& s, unsigned width, float divisor) {
  l.launch("sum of columns", sum_columns_kernel<X, Y>,
           dim3(blocks_for(s.outputs, width), static_cast<unsigned>(s.parts)), kRowThreads, x, y, s,
           width, divisor);
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
  const Plan p = plan_of(l.in_shape(0), summed);
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
    sum_columns<float>(l, to, y, rest, column_width(s.outputs, kNarrowed), divisor);
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
  const Sums s = plan_of(node.in(0), find(node.in(0), node.out(0), node.query.attributes)).sums;
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
