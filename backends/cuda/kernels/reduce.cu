//! ops(f32, f16, bf16) ReduceSum ReduceMean SumTo GlobalAveragePool
// Sums over axes, in a fixed order. Long sums are divided into parts, which a second launch adds.
#include <algorithm>

#include "device/loops.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::reduce_kernels {
namespace {

constexpr uint64_t kShortSum = 8;  // a single thread adds it
constexpr uint64_t kRowPart = 4096;
constexpr uint64_t kColumnPart = 128;
constexpr uint64_t kBlocksWanted = 1024;
constexpr unsigned kWidest = 32;  // columns of a block
constexpr unsigned kNarrowed =
    8;  // of a block that adds parts: 32 bytes, and more blocks side by side

// `outputs` sums of `length` terms, each divided into `parts` parts of `per_part` terms.
struct Sums {
  uint64_t outputs = 0;
  uint64_t length = 1;
  uint64_t parts = 1;
  uint64_t per_part = 1;
  Loops<1> kept;
  Loops<1> summed;
};

__device__ int64_t offset_of(const Loops<1>& loops, uint64_t i) {
  if (loops.rank <= 1) {
    return static_cast<int64_t>(i) * loops.strides[0][0];
  }
  int64_t at[1];
  loops.offsets(i, at);
  return at[0];
}

// One team per part of a sum with contiguous terms: y[output, part].
template <unsigned kTeam, int kWidth, class X, class Y>
__global__ void sum_rows_kernel(const X* x, Y* y, Sums s, float divisor) {
  const uint64_t row = team_row<kTeam>();
  if (row >= s.outputs * s.parts) {
    return;
  }
  const uint64_t begin = row % s.parts * s.per_part;
  const uint64_t end = min(begin + s.per_part, s.length);
  const X* from = x + offset_of(s.kept, row / s.parts);
  float sum = 0;
  for (uint64_t i = begin + team_lane<kTeam>() * kWidth; i < end; i += kTeam * kWidth) {
    if constexpr (kWidth == 1) {
      sum += read(from + offset_of(s.summed, i));
    } else {
      float v[kWidth];
      load(from + offset_of(s.summed, i), v);
      for (int k = 0; k < kWidth; ++k) {
        sum += v[k];
      }
    }
  }
  sum = team_sum<kTeam>(sum);
  if (team_lane<kTeam>() == 0) {
    write(y + row, sum / divisor);
  }
}

// Sums of neighbouring outputs: y[part, output], with the part in blockIdx.y.
template <class X, class Y>
__global__ void sum_columns_kernel(const X* x, Y* y, Sums s, unsigned width, float divisor) {
  const uint64_t output = uint64_t{blockIdx.x} * width + threadIdx.x % width;
  const bool mine = output < s.outputs;
  const X* from = x + (mine ? offset_of(s.kept, output) : 0);
  const uint64_t begin = blockIdx.y * s.per_part;
  const uint64_t end = mine ? min(begin + s.per_part, s.length) : begin;
  const float sum = column_sum(width, begin, end,
                               [&](uint64_t i) { return read(from + offset_of(s.summed, i)); });
  if (mine && threadIdx.x < width) {
    write(y + blockIdx.y * s.outputs + output, sum / divisor);
  }
}

Axes axes_of(const ReduceAttributes& attributes, const Shape& x) {
  return named_axes({attributes.axes()->data(), attributes.axes()->size()}, x.rank());
}

struct Plan {
  Sums sums;
  bool rows = false;   // the last axis is summed
  unsigned width = 1;  // otherwise
};

Plan plan_of(const Shape& x, const Axes& summed) {
  const auto strides = strides_of(x);
  Plan p;
  Sums& s = p.sums;
  s.outputs = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    (summed[a] ? s.summed : s.kept).add(x[axis], {strides[a]});
    (summed[a] ? s.length : s.outputs) *= static_cast<uint64_t>(x[axis]);
    p.rows = x[axis] == 1 ? p.rows : summed[a];
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

uint64_t workspace_of(const Plan& p) {
  return p.sums.parts > 1 ? p.sums.parts * p.sums.outputs * sizeof(float) : 0;
}

template <class X, class Y>
void sum_rows(Launch& l, const X* x, Y* y, const Sums& s, float divisor) {
  constexpr bool kWide = std::is_same_v<X, float>;
  bool four = kWide && aligned16(x) && s.summed.rank == 1 && s.summed.strides[0][0] == 1 &&
              s.length % 4 == 0;
  for (int axis = 0; axis < s.kept.rank; ++axis) {
    four = four && s.kept.strides[0][axis] % 4 == 0;
  }
  launch_rows(
      l, "sum of rows", s.outputs * s.parts, s.per_part, four,
      [](auto team, auto width) { return sum_rows_kernel < team(), kWide ? width() : 1, X, Y > ; },
      x, y, s, divisor);
}

template <class X, class Y>
void sum_columns(Launch& l, const X* x, Y* y, const Sums& s, unsigned width, float divisor) {
  l.launch("sum of columns", sum_columns_kernel<X, Y>,
           dim3(blocks_for(s.outputs, width), static_cast<unsigned>(s.parts)), kRowThreads, x, y, s,
           width, divisor);
}

template <class X, class Y>
void sum(Launch& l, const Plan& p, const X* x, Y* y, float divisor) {
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
  if (s.parts == 1) {
    sum(l, p, l.in_as<T>(0), l.out_as<T>(0), divisor);
    return;
  }
  float* const to = l.workspace();
  sum(l, p, l.in_as<T>(0), to, 1.0f);
  Sums rest;
  rest.outputs = s.outputs;
  rest.length = s.parts;
  rest.per_part = s.parts;
  if (p.rows) {
    rest.kept.add(static_cast<int64_t>(s.outputs), {static_cast<int64_t>(s.parts)});
    rest.summed.add(static_cast<int64_t>(s.parts), {1});
    sum_rows<float>(l, to, l.out_as<T>(0), rest, divisor);
  } else {
    rest.kept.add(static_cast<int64_t>(s.outputs), {1});
    rest.summed.add(static_cast<int64_t>(s.parts), {static_cast<int64_t>(s.outputs)});
    sum_columns<float>(l, to, l.out_as<T>(0), rest, column_width(s.outputs, kNarrowed), divisor);
  }
}

template <bool kMean, class T>
void reduce_axes(Launch& l) {
  reduce<T>(l, axes_of(l.attributes<ReduceAttributes>(), l.in_shape(0)), kMean);
}
uint64_t reduce_workspace(const NodeView& node) {
  return workspace_of(
      plan_of(node.in(0), axes_of(node.attributes<ReduceAttributes>(), node.in(0))));
}

Axes spatial_axes(const Shape& x) {
  Axes axes{};
  std::fill(axes.begin() + 2, axes.begin() + x.rank(), true);
  return axes;
}

template <class T>
void global_average_pool(Launch& l) {
  reduce<T>(l, spatial_axes(l.in_shape(0)), true);
}
uint64_t global_average_pool_workspace(const NodeView& node) {
  return workspace_of(plan_of(node.in(0), spatial_axes(node.in(0))));
}

template <class T>
void sum_to(Launch& l) {
  reduce<T>(l, stretched_axes(l.in_shape(0), l.out_shape(0)), false);
}
uint64_t sum_to_workspace(const NodeView& node) {
  return workspace_of(plan_of(node.in(0), stretched_axes(node.in(0), node.out(0))));
}

}  // namespace

BOWLINE_CUDA_KERNEL(reduce_sum, .run = reduce_axes<false, float>, .workspace = reduce_workspace);
BOWLINE_CUDA_KERNEL(reduce_sum_f16, .run = reduce_axes<false, __half>,
                    .workspace = reduce_workspace);
BOWLINE_CUDA_KERNEL(reduce_sum_bf16, .run = reduce_axes<false, __nv_bfloat16>,
                    .workspace = reduce_workspace);
BOWLINE_CUDA_KERNEL(reduce_mean, .run = reduce_axes<true, float>, .workspace = reduce_workspace);
BOWLINE_CUDA_KERNEL(reduce_mean_f16, .run = reduce_axes<true, __half>,
                    .workspace = reduce_workspace);
BOWLINE_CUDA_KERNEL(reduce_mean_bf16, .run = reduce_axes<true, __nv_bfloat16>,
                    .workspace = reduce_workspace);
BOWLINE_CUDA_KERNEL(global_average_pool, .run = global_average_pool<float>,
                    .workspace = global_average_pool_workspace);
BOWLINE_CUDA_KERNEL(global_average_pool_f16, .run = global_average_pool<__half>,
                    .workspace = global_average_pool_workspace);
BOWLINE_CUDA_KERNEL(global_average_pool_bf16, .run = global_average_pool<__nv_bfloat16>,
                    .workspace = global_average_pool_workspace);
BOWLINE_CUDA_KERNEL(sum_to, .run = sum_to<float>, .workspace = sum_to_workspace);
BOWLINE_CUDA_KERNEL(sum_to_f16, .run = sum_to<__half>, .workspace = sum_to_workspace);
BOWLINE_CUDA_KERNEL(sum_to_bf16, .run = sum_to<__nv_bfloat16>, .workspace = sum_to_workspace);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::reduce_kernels
