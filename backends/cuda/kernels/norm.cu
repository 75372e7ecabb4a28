//! ops(f32, f16, bf16) LayerNorm RmsNorm LayerNormGrad RmsNormGrad
// Norms along the last axis. Statistics are f32; the variance is computed from the differences to
// the mean.
#include <algorithm>

#include "device/rows.cuh"
#include "device/storage.cuh"
#include "device/target.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::norm_kernels {
namespace {

constexpr unsigned kGroup = kRowThreads / kLanes;  // rows that a block processes at once
constexpr uint64_t kMostParts = 512;               // of the sums over rows
constexpr unsigned kColumnWidth = 8;  // columns per block that adds parts: 32 bytes of each

// 1 / sqrt(mean of (x - mean)^2 + eps) of a row, and its mean, which is 0 for RmsNorm.
template <bool kLayer, unsigned kTeam, int kWidth, class T>
__device__ void statistics(const T* x, uint64_t n, float eps, float* mean, float* scale) {
  *mean = 0;
  if constexpr (kLayer) {
    float sum = 0;
    for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
      float v[kWidth];
      read_some(x + i, v);
      for (int k = 0; k < kWidth; ++k) {
        sum += v[k];
      }
    }
    *mean = team_sum<kTeam>(sum) / static_cast<float>(n);
  }
  float squares = 0;
  for (uint64_t i = team_lane<kTeam>() * kWidth; i < n; i += kTeam * kWidth) {
    float v[kWidth];
    read_some(x + i, v);
    for (int k = 0; k < kWidth; ++k) {
      squares += (v[k] - *mean) * (v[k] - *mean);
    }
  }
  *scale = 1 / sqrtf(team_sum<kTeam>(squares) / static_cast<float>(n) + eps);
}

template <bool kLayer, unsigned kTeam, int kWidth, class T>
__global__ void norm_kernel(const T* __restrict__ x, const T* __restrict__ gamma,
                            const T* __restrict__ beta, T* __restrict__ y, uint64_t rows,
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
    read_some(x + i, v);
    read_some(gamma + i, g);
    if constexpr (kLayer) {
      read_some(beta + i, b);
    }
    for (int k = 0; k < kWidth; ++k) {
      v[k] = (v[k] - mean) * scale * g[k] + b[k];
    }
    write_some(y + i, v);
  }
}

// Where each block writes its sums over rows.
struct BlockSums {
  float* dgamma;   // of the first block
  float* dbeta;    // the same; unused for RmsNorm
  uint64_t apart;  // elements between the sums of two blocks
  uint64_t rows_per_block;
};

// With h = (x - mean) * s and g = dy * gamma: dx = s * (g - mean g - h * mean(g h)), without "mean
// g" for RmsNorm.
//
// A block owns some rows and adds dy * h and dy over them. It processes them in groups: first one
// warp per row computes the means of the row; then the threads become columns, and each adds its
// column over the rows of the group.
template <bool kLayer, int kWidth, class T>
__global__ void norm_grad_kernel(const T* __restrict__ x, const T* __restrict__ gamma,
                                 const T* __restrict__ dy, T* __restrict__ dx, uint64_t rows,
                                 uint64_t n, float eps, BlockSums sums) {
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
        read_some(x + row * n + i, v);
        read_some(dy + row * n + i, d);
        read_some(gamma + i, g);
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
      read_some(gamma + i, g);
      for (unsigned r = 0; r < here; ++r) {
        const float mean = means[r][0];
        const float scale = means[r][1];
        const float mean_g = means[r][2];
        const float mean_gh = means[r][3];
        float v[kWidth], d[kWidth];
        read_some(x + (group + r) * n + i, v);
        read_some(dy + (group + r) * n + i, d);
        for (int k = 0; k < kWidth; ++k) {
          const float h = (v[k] - mean) * scale;
          add_gamma[k] += d[k] * h;
          add_beta[k] += d[k];
          d[k] = scale * (d[k] * g[k] - mean_g - h * mean_gh);
        }
        write_some(dx + (group + r) * n + i, d);
      }
      float before[kWidth] = {};
      if (group > first) {
        read_some(dgamma + i, before);
      }
      for (int k = 0; k < kWidth; ++k) {
        add_gamma[k] += before[k];
      }
      write_some(dgamma + i, add_gamma);
      if constexpr (kLayer) {
        if (group > first) {
          read_some(dbeta + i, before);
        }
        for (int k = 0; k < kWidth; ++k) {
          add_beta[k] += before[k];
        }
        write_some(dbeta + i, add_beta);
      }
    }
    __syncthreads();  // all threads have read the means
    group += kGroup;
  } while (group < end);
}

// Adds `parts` rows of partial sums. Each row has n columns of dgamma, then n columns of dbeta.
template <class T>
__global__ void add_parts_kernel(const float* from, Target<T> dgamma, Target<T> dbeta,
                                 uint64_t parts, uint64_t columns, uint64_t n, unsigned width) {
  const uint64_t column = uint64_t{blockIdx.x} * width + threadIdx.x % width;
  const bool mine = column < columns;
  const float sum = column_sum(width, 0, mine ? parts : 0,
                               [&](uint64_t i) { return from[i * columns + column]; });
  if (mine && threadIdx.x < width) {
    if (column < n) {
      dgamma.put(column, sum);
    } else {
      dbeta.put(column - n, sum);
    }
  }
}

float eps_of(const Launch& l, bool layer) {
  return layer ? l.attributes<LayerNormAttributes>().eps()
               : l.attributes<RmsNormAttributes>().eps();
}

template <bool kLayer, class T>
void norm(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  const T* const in = l.in_as<T>(0);
  const T* const gamma = l.in_as<T>(1);
  const T* const beta = l.in_as<T>(kLayer ? 2 : 1);
  launch_packed_rows<T>(
      l, kLayer ? "layer norm" : "rms norm", rows_of(x), n,
      n % kPack<T> == 0 && aligned16(in, gamma, beta, l.out_as<T>(0)),
      [](auto team, auto width) { return norm_kernel<kLayer, team(), width(), T>; }, in, gamma,
      beta, l.out_as<T>(0), rows_of(x), n, eps_of(l, kLayer));
}

// The distribution of rows to blocks. Each block computes a part of the sums over rows.
struct Parts {
  uint64_t rows_per_block;
  uint64_t count;
};
Parts parts_of(uint64_t rows) {
  const uint64_t groups = std::max<uint64_t>((rows + kGroup - 1) / kGroup, 1);
  const uint64_t groups_per_block = (groups + kMostParts - 1) / kMostParts;
  return {groups_per_block * kGroup, (groups + groups_per_block - 1) / groups_per_block};
}

// 16-bit dtypes and gradients need separate sums even for a single part.
template <bool kLayer, class T>
uint64_t norm_grad_workspace(const NodeView& node) {
  const uint64_t parts = parts_of(rows_of(node.in(0))).count;
  const auto n = static_cast<uint64_t>(node.in(0).back());
  return parts * n * (kLayer ? 2 : 1) * sizeof(float);
}

template <bool kLayer, class T>
void norm_grad(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  if (n == 0) {
    return;
  }
  const Parts parts = parts_of(rows_of(x));
  const uint64_t columns = kLayer ? 2 * n : n;
  const bool adds =
      parts.count > 1 || sizeof(T) < 4 || l.is_gradient(1) || l.is_gradient(kLayer ? 2 : 1);
  BlockSums sums{l.out(1), kLayer ? l.out(2) : l.out(1), 0, parts.rows_per_block};
  if (adds) {
    sums.dgamma = l.workspace();
    sums.dbeta = kLayer ? sums.dgamma + n : sums.dgamma;
    sums.apart = columns;
  }
  constexpr int kWidth = kPack<T>;
  const bool packs =
      n % kWidth == 0 && aligned16(l.in(0), l.in(1), l.in(2), l.out(0), sums.dgamma, sums.dbeta);
  l.launch("norm gradient",
           packs ? norm_grad_kernel<kLayer, kWidth, T> : norm_grad_kernel<kLayer, 1, T>,
           static_cast<unsigned>(parts.count), kRowThreads, l.in_as<T>(0), l.in_as<T>(1),
           l.in_as<T>(2), l.out_as<T>(0), rows_of(x), n, eps_of(l, kLayer), sums);
  if (adds) {
    const unsigned width = column_width(columns, kColumnWidth);
    l.launch("norm gradient, sums", add_parts_kernel<T>, blocks_for(columns, width), kRowThreads,
             l.workspace(), target_of<T>(l, 1), target_of<T>(l, kLayer ? 2 : 1), parts.count,
             columns, n, width);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(layer_norm, .run = norm<true, T>);
BOWLINE_KERNELS_OF_FLOATS(rms_norm, .run = norm<false, T>);
BOWLINE_KERNELS_OF_FLOATS(layer_norm_grad, .run = norm_grad<true, T>,
                          .workspace = norm_grad_workspace<true, T>, .accumulates = 0b110);
BOWLINE_KERNELS_OF_FLOATS(rms_norm_grad, .run = norm_grad<false, T>,
                          .workspace = norm_grad_workspace<false, T>, .accumulates = 0b10);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::norm_kernels
