//! ops LayerNorm RmsNorm LayerNormGrad RmsNormGrad
// Along the last axis. Statistics are f32; the variance is that of the differences to the mean.
#include <algorithm>

#include "device/rows.cuh"

namespace bowline::BOWLINE_CUDA_NAMESPACE {
namespace {

constexpr unsigned kGroup = kRowThreads / kLanes;  // rows that a block takes at once
constexpr uint64_t kMostParts = 512;               // of the sums over rows
constexpr unsigned kColumnWidth = 8;  // columns of a block that adds parts: 32 bytes of each

// 1 / sqrt(mean of (x - mean)^2 + eps) of a row, and its mean, 0 for RmsNorm.
template <bool kLayer, unsigned kTeam, int kWidth>
__device__ void statistics(const float* x, uint64_t n, float eps, float* mean, float* scale) {
  *mean = 0;
  if constexpr (kLayer) {
    float sum = 0;
    for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
      float v[kWidth];
      load(x + i, v);
      for (int k = 0; k < kWidth; ++k) {
        sum += v[k];
      }
    }
    *mean = team_sum<kTeam>(sum) / static_cast<float>(n);
  }
  float squares = 0;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float v[kWidth];
    load(x + i, v);
    for (int k = 0; k < kWidth; ++k) {
      squares += (v[k] - *mean) * (v[k] - *mean);
    }
  }
  *scale = 1 / sqrtf(team_sum<kTeam>(squares) / static_cast<float>(n) + eps);
}

template <bool kLayer, unsigned kTeam, int kWidth>
__global__ void norm_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                            const float* __restrict__ beta, float* __restrict__ y, uint64_t rows,
                            uint64_t n, float eps) {
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  x += row * n;
  y += row * n;
  float mean, scale;
  statistics<kLayer, kTeam, kWidth>(x, n, eps, &mean, &scale);
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float v[kWidth], g[kWidth], b[kWidth] = {};
    load(x + i, v);
    load(gamma + i, g);
    if constexpr (kLayer) {
      load(beta + i, b);
    }
    for (int k = 0; k < kWidth; ++k) {
      v[k] = (v[k] - mean) * scale * g[k] + b[k];
    }
    store(y + i, v);
  }
}

// The sums over the rows of each block.
struct BlockSums {
  float* dgamma;   // of the first block
  float* dbeta;    // the same; of no use for RmsNorm
  uint64_t apart;  // elements between the sums of two blocks
  uint64_t rows_per_block;
};

// With h = (x - mean) * s and g = dy * gamma: dx = s * (g - mean g - h * mean(g h)), without "mean g" for RmsNorm.
//
// A block has some rows and adds dy * h and dy over them. It takes them in groups: first a warp per row finds the means
// of the row, then the threads are columns, so that each adds up its own over the rows of the group.
template <bool kLayer, int kWidth>
__global__ void norm_grad_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                 const float* __restrict__ dy, float* __restrict__ dx,
                                 uint64_t rows, uint64_t n, float eps, BlockSums sums) {
  __shared__ Shared<float[kGroup][4]> means;  // of x, s, of g, of g h
  const uint64_t first = blockIdx.x * sums.rows_per_block;
  const uint64_t end = min(first + sums.rows_per_block, rows);
  float* dgamma = sums.dgamma + blockIdx.x * sums.apart;
  float* dbeta = sums.dbeta + blockIdx.x * sums.apart;
  uint64_t group = first;
  do {  // once even without rows: the sums are then 0
    const unsigned warp = threadIdx.x / kLanes;
    const unsigned lane = threadIdx.x % kLanes;
    const uint64_t row = group + warp;
    if (row < end) {
      float mean, scale;
      statistics<kLayer, kLanes, kWidth>(x + row * n, n, eps, &mean, &scale);
      float sum_g = 0;
      float sum_gh = 0;
      for (uint64_t i = lane * kWidth; i < n; i += kLanes * kWidth) {
        float v[kWidth], d[kWidth], g[kWidth];
        load(x + row * n + i, v);
        load(dy + row * n + i, d);
        load(gamma + i, g);
        for (int k = 0; k < kWidth; ++k) {
          sum_g += d[k] * g[k];
          sum_gh += d[k] * g[k] * ((v[k] - mean) * scale);
        }
      }
      if constexpr (kLayer) {
        sum_g = team_sum<kLanes>(sum_g);
      }
      sum_gh = team_sum<kLanes>(sum_gh);
      if (lane == 0) {
        means[warp][0] = mean;
        means[warp][1] = scale;
        means[warp][2] = kLayer ? sum_g / static_cast<float>(n) : 0.0f;
        means[warp][3] = sum_gh / static_cast<float>(n);
      }
    }
    __syncthreads();
    const unsigned here =
        group < end ? static_cast<unsigned>(min(end - group, uint64_t{kGroup})) : 0;
    for (uint64_t i = threadIdx.x * kWidth; i < n; i += kRowThreads * kWidth) {
      float g[kWidth], add_gamma[kWidth] = {}, add_beta[kWidth] = {};
      load(gamma + i, g);
      for (unsigned r = 0; r < here; ++r) {
        const float mean = means[r][0];
        const float scale = means[r][1];
        const float mean_g = means[r][2];
        const float mean_gh = means[r][3];
        float v[kWidth], d[kWidth];
        load(x + (group + r) * n + i, v);
        load(dy + (group + r) * n + i, d);
        for (int k = 0; k < kWidth; ++k) {
          const float h = (v[k] - mean) * scale;
          add_gamma[k] += d[k] * h;
          add_beta[k] += d[k];
          d[k] = scale * (d[k] * g[k] - mean_g - h * mean_gh);
        }
        store(dx + (group + r) * n + i, d);
      }
      float before[kWidth] = {};
      if (group > first) {
        load(dgamma + i, before);
      }
      for (int k = 0; k < kWidth; ++k) {
        add_gamma[k] += before[k];
      }
      store(dgamma + i, add_gamma);
      if constexpr (kLayer) {
        if (group > first) {
          load(dbeta + i, before);
        }
        for (int k = 0; k < kWidth; ++k) {
          add_beta[k] += before[k];
        }
        store(dbeta + i, add_beta);
      }
    }
    __syncthreads();  // the means have been read
    group += kGroup;
  } while (group < end);
}

// The sums of `parts` rows of n columns of dgamma, then as many of dbeta.
__global__ void add_parts_kernel(const float* from, float* dgamma, float* dbeta, uint64_t parts,
                                 uint64_t columns, uint64_t n, unsigned width) {
  const uint64_t column = uint64_t{blockIdx.x} * width + threadIdx.x % width;
  const bool mine = column < columns;
  const float sum = column_sum(width, 0, mine ? parts : 0,
                               [&](uint64_t i) { return from[i * columns + column]; });
  if (mine && threadIdx.x < width) {
    (column < n ? dgamma[column] : dbeta[column - n]) = sum;
  }
}

float eps_of(const Launch& l, bool layer) {
  return layer ? l.attributes<LayerNormAttributes>().eps()
               : l.attributes<RmsNormAttributes>().eps();
}

template <bool kLayer>
void norm(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  const float* beta = kLayer ? l.in(2) : l.in(1);
  launch_rows(
      l, kLayer ? "layer norm" : "rms norm", rows_of(x), n,
      n % 4 == 0 && aligned16(l.in(0), l.in(1), beta, l.out(0)),
      [](auto team, auto width) { return norm_kernel<kLayer, team(), width()>; }, l.in(0), l.in(1),
      beta, l.out(0), rows_of(x), n, eps_of(l, kLayer));
}

// How the rows are shared among blocks, each of which has a part of the sums over rows.
struct Parts {
  uint64_t rows_per_block;
  uint64_t count;
};
Parts parts_of(uint64_t rows) {
  const uint64_t groups = std::max<uint64_t>((rows + kGroup - 1) / kGroup, 1);
  const uint64_t groups_per_block = (groups + kMostParts - 1) / kMostParts;
  return {groups_per_block * kGroup, (groups + groups_per_block - 1) / groups_per_block};
}

template <bool kLayer>
uint64_t norm_grad_workspace(const NodeView& node) {
  const uint64_t parts = parts_of(rows_of(node.in(0))).count;
  const auto n = static_cast<uint64_t>(node.in(0).back());
  return parts > 1 ? parts * n * (kLayer ? 2 : 1) * sizeof(float) : 0;
}

template <bool kLayer>
void norm_grad(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  if (n == 0) {
    return;
  }
  const Parts parts = parts_of(rows_of(x));
  const uint64_t columns = kLayer ? 2 * n : n;
  float* dgamma = l.out(1);
  float* dbeta = kLayer ? l.out(2) : dgamma;
  BlockSums sums{dgamma, dbeta, 0, parts.rows_per_block};
  if (parts.count > 1) {
    sums.dgamma = l.workspace();
    sums.dbeta = kLayer ? sums.dgamma + n : sums.dgamma;
    sums.apart = columns;
  }
  const bool four =
      n % 4 == 0 && aligned16(l.in(0), l.in(1), l.in(2), l.out(0), sums.dgamma, sums.dbeta);
  l.launch("norm gradient", four ? norm_grad_kernel<kLayer, 4> : norm_grad_kernel<kLayer, 1>,
           static_cast<unsigned>(parts.count), kRowThreads, l.in(0), l.in(1), l.in(2), l.out(0),
           rows_of(x), n, eps_of(l, kLayer), sums);
  if (parts.count > 1) {
    const unsigned width = column_width(columns, kColumnWidth);
    l.launch("norm gradient, sums", add_parts_kernel, blocks_for(columns, width), kRowThreads,
             l.workspace(), dgamma, dbeta, parts.count, columns, n, width);
  }
}

}  // namespace

BOWLINE_CUDA_KERNEL(layer_norm, .run = norm<true>);
BOWLINE_CUDA_KERNEL(rms_norm, .run = norm<false>);
BOWLINE_CUDA_KERNEL(layer_norm_grad, .run = norm_grad<true>,
                    .workspace = norm_grad_workspace<true>);
BOWLINE_CUDA_KERNEL(rms_norm_grad, .run = norm_grad<false>,
                    .workspace = norm_grad_workspace<false>);

}  // namespace bowline::BOWLINE_CUDA_NAMESPACE
