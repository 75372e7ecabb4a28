//! ops(f32, f16, bf16) LayerNorm RmsNorm LayerNormGrad RmsNormGrad FusedNormGrad
// Norms along the last axis. Statistics are f32; the variance is computed from the differences to
// the mean.
#include <algorithm>
#include <cmath>

#include "device/begin.cuh"
#include "device/last_block.cuh"
#include "device/rows.cuh"
#include "device/storage.cuh"
#include "device/target.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::norm_kernels {
namespace {

constexpr unsigned kGroup = kRowThreads / kLanes;  // rows that a block processes at once
constexpr uint64_t kMostParts = 512;               // of the sums over rows
constexpr uint64_t kFewParts = 32;                 // that one block adds
constexpr unsigned kBatch = 8;                     // rows of parts that a thread loads at once

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
__global__ void norm_kernel(const T* x, const T* gamma, const T* beta, T* y, uint64_t rows,
                            uint64_t n, float eps) {
  begin_kernel();
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

// A row in the registers of its team, so that memory is read once, with all loads in flight
// together. Elements after the end are 0.
template <unsigned kTeam, int kPacks, class T>
struct HeldRow {
  static constexpr int kWidth = kPack<T>;
  uint4 packs[kPacks];

  __device__ static uint64_t column(int pack) {
    return (static_cast<unsigned>(pack) * kTeam + team_lane<kTeam>()) * kWidth;
  }
  __device__ static uint4 pack_of(const T* row, uint64_t n, int pack) {
    return column(pack) < n ? *reinterpret_cast<const uint4*>(row + column(pack)) : uint4{};
  }
  __device__ void load(const T* row, uint64_t n) {
    BOWLINE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      packs[p] = pack_of(row, n, p);
    }
  }
  // The compiler unpacks the pack at each call; its elements would fill the registers.
  __device__ void values(int pack, float (&v)[kWidth]) {
    unpack<T>(packs[pack], v);
    make_opaque(packs[pack]);
  }
};

// Rows of this many bytes are held by a warp, 4 packs per lane; longer ones by a block.
constexpr uint64_t kHeldByWarp = 4 * kLanes * 16;
constexpr uint64_t kHeldByBlock = 4 * kRowThreads * 16;

// Selects kernel(team, packs) for rows of n elements, `packs` times 16 bytes per thread of the
// team. Returns null if rows do not fit in registers. Short rows leave packs empty, because kernels
// for fewer packs would add much code.
template <class T, class K>
auto kernel_of_held_rows(uint64_t n, K kernel) {
  constexpr std::integral_constant<unsigned, kLanes> warp;
  constexpr std::integral_constant<unsigned, kRowThreads> block;
  constexpr std::integral_constant<int, 2> two;
  constexpr std::integral_constant<int, 3> three;
  constexpr std::integral_constant<int, 4> four;
  const uint64_t bytes = n * sizeof(T);
  return bytes <= kHeldByWarp / 4 * 3 ? kernel(warp, three)
         : bytes <= kHeldByWarp       ? kernel(warp, four)
         : bytes <= kHeldByBlock / 2  ? kernel(block, two)
         : bytes <= kHeldByBlock      ? kernel(block, four)
                                      : nullptr;
}

// The same for rows that fit in registers.
template <bool kLayer, unsigned kTeam, int kPacks, class T>
__global__ void __launch_bounds__(kRowThreads, kPacks <= 3 ? 3 : 2)
    held_norm_kernel(const T* x, const T* gamma, const T* beta, T* y, uint64_t rows, uint64_t n,
                     float eps) {
  begin_kernel();
  using Row = HeldRow<kTeam, kPacks, T>;
  const uint64_t row = team_row<kTeam>();
  if (row >= rows) {
    return;
  }
  Row in, g, b;
  in.load(x + row * n, n);
  g.load(gamma, n);
  b.load(beta, kLayer ? n : 0);
  float v[kPacks][Row::kWidth];
  float mean = 0;
  BOWLINE_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    in.values(p, v[p]);
    for (int k = 0; k < Row::kWidth; ++k) {
      mean += v[p][k];
    }
  }
  mean = kLayer ? team_sum<kTeam>(mean) / static_cast<float>(n) : 0.0f;
  float squares = 0;
  BOWLINE_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    for (int k = 0; k < Row::kWidth; ++k) {
      v[p][k] -= mean;
      squares += Row::column(p) < n ? v[p][k] * v[p][k] : 0.0f;
    }
  }
  const float scale = 1 / sqrtf(team_sum<kTeam>(squares) / static_cast<float>(n) + eps);
  BOWLINE_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    float gv[Row::kWidth], bv[Row::kWidth];
    g.values(p, gv);
    b.values(p, bv);
    for (int k = 0; k < Row::kWidth; ++k) {
      v[p][k] = v[p][k] * scale * gv[k] + bv[k];
    }
    if (Row::column(p) < n) {
      write_some(y + row * n + Row::column(p), v[p]);
    }
  }
}

// The sums over rows. Each block adds its rows, the last block of a group adds those of the group,
// and the last group adds those of all groups.
template <class T>
struct RowSums {
  float* parts;  // [parts, columns]: by block, n columns of dgamma, then n columns of dbeta
  uint64_t rows_per_block;
  unsigned count;  // of parts
  unsigned group;  // parts per group
  uint32_t* counters;
  Target<T> dgamma;
  Target<T> dbeta;

  __device__ float* part(uint64_t i, uint64_t columns) const { return parts + i * columns; }
  __host__ __device__ unsigned groups() const { return (count + group - 1) / group; }
};

// Calls put(column, sums) with the sums of `count` rows of `columns` columns, kWidth columns at
// once. All threads of a block share the columns.
template <int kWidth, class F>
__device__ void add_rows(const float* rows, unsigned count, uint64_t columns, F&& put) {
  for (uint64_t i = threadIdx.x * kWidth; i < columns; i += kRowThreads * kWidth) {
    float sum[kWidth] = {};
    for (unsigned first = 0; first < count; first += kBatch) {
      float v[kBatch][kWidth] = {};
      BOWLINE_UNROLL
      for (unsigned r = 0; r < kBatch; ++r) {
        if (first + r < count) {
          read_some(rows + (first + r) * columns + i, v[r]);
        }
      }
      BOWLINE_UNROLL
      for (unsigned r = 0; r < kBatch; ++r) {
        for (int k = 0; k < kWidth; ++k) {
          sum[k] += v[r][k];
        }
      }
    }
    put(i, sum);
  }
}

// Adds the parts of all blocks in order. A row of parts is a multiple of kWidth columns.
template <int kWidth, class T>
__device__ void add_parts(const RowSums<T>& s, uint64_t n, uint64_t columns) {
  const unsigned group = blockIdx.x / s.group;
  const unsigned first = group * s.group;
  const unsigned here = min(s.group, s.count - first);
  if (!arrives_last(s.counters + 1 + group, here)) {
    return;
  }
  float* const of_groups = s.part(s.count, columns);
  const float* rows = s.part(first, columns);
  unsigned count = here;
  bool ends = s.groups() == 1;
  BOWLINE_ROLL
  while (true) {
    add_rows<kWidth>(rows, count, columns, [&](uint64_t column, float(&sum)[kWidth]) {
      if (!ends) {
        write_some(of_groups + group * columns + column, sum);
      } else if (column < n) {
        s.dgamma.put_some(column, sum);
      } else {
        s.dbeta.put_some(column - n, sum);
      }
    });
    if (ends || !arrives_last(s.counters, s.groups())) {
      return;
    }
    rows = of_groups;
    count = s.groups();
    ends = true;
  }
}

// With h = (x - mean) * s and g = dy * gamma: dx = s * (g - mean g - h * mean(g h)) + addend,
// without "mean g" for RmsNorm. The addend may be null.
//
// A block owns some rows and adds dy * h and dy over them. It processes them in groups: first one
// warp per row computes the means of the row; then the threads become columns, and each adds its
// column over the rows of the group.
template <bool kLayer, int kWidth, class T>
__global__ void norm_grad_kernel(const T* x, const T* gamma, const T* dy, const T* addend, T* dx,
                                 uint64_t rows, uint64_t n, float eps, RowSums<T> sums) {
  begin_kernel();
  __shared__ Shared<float[kGroup][4]> means;  // of x, s, of g, of g h
  const uint64_t first = blockIdx.x * sums.rows_per_block;
  const uint64_t end = min(first + sums.rows_per_block, rows);
  float* const dgamma = sums.part(blockIdx.x, kLayer ? 2 * n : n);
  float* const dbeta = dgamma + n;
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
        if (addend != nullptr) {
          read_some(addend + (group + r) * n + i, v);
          for (int k = 0; k < kWidth; ++k) {
            d[k] += v[k];
          }
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
  add_parts<std::min(kWidth, kPack<float>)>(sums, n, kLayer ? 2 * n : n);
}

// The same gradient for rows that fit in registers: a team, a warp or the block, processes the rows
// of a block in turn, and each thread adds its columns over the rows.
template <bool kLayer, unsigned kTeam, int kPacks, class T>
__global__ void __launch_bounds__(kRowThreads, kPacks <= 3 ? 2 : 1)
    held_grad_kernel(const T* x, const T* gamma, const T* dy, const T* addend, T* dx, uint64_t rows,
                     uint64_t n, float eps, RowSums<T> sums) {
  begin_kernel();
  using Row = HeldRow<kTeam, kPacks, T>;
  constexpr int kWidth = Row::kWidth;
  constexpr unsigned kTeams = kRowThreads / kTeam;
  const uint64_t end = min((blockIdx.x + 1) * sums.rows_per_block, rows);
  float add_gamma[kPacks][kWidth] = {}, add_beta[kPacks][kWidth] = {};
  for (uint64_t row = blockIdx.x * sums.rows_per_block + threadIdx.x / kTeam; row < end;
       row += kTeams) {
    Row in, d, add = {};
    in.load(x + row * n, n);
    d.load(dy + row * n, n);
    if (addend != nullptr) {
      add.load(addend + row * n, n);
    }
    const auto values = [&](int p, float(&v)[kWidth], float(&dv)[kWidth], float(&gv)[kWidth]) {
      in.values(p, v);
      d.values(p, dv);
      unpack<T>(Row::pack_of(gamma, n, p), gv);
    };
    float mean = 0;
    float mean_g = 0;
    if constexpr (kLayer) {
      BOWLINE_UNROLL
      for (int p = 0; p < kPacks; ++p) {
        float v[kWidth], dv[kWidth], gv[kWidth];
        values(p, v, dv, gv);
        for (int k = 0; k < kWidth; ++k) {
          mean += v[k];
          mean_g += dv[k] * gv[k];
        }
      }
      mean = team_sum<kTeam>(mean) / static_cast<float>(n);
      mean_g = team_sum<kTeam>(mean_g) / static_cast<float>(n);
    }
    make_opaque(gamma);
    float squares = 0;
    float mean_gh = 0;
    BOWLINE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      float v[kWidth], dv[kWidth], gv[kWidth];
      values(p, v, dv, gv);
      if (Row::column(p) < n) {
        for (int k = 0; k < kWidth; ++k) {
          squares += (v[k] - mean) * (v[k] - mean);
          mean_gh += dv[k] * gv[k] * (v[k] - mean);
        }
      }
    }
    squares = team_sum<kTeam>(squares);
    mean_gh = team_sum<kTeam>(mean_gh);
    const float scale = 1 / sqrtf(squares / static_cast<float>(n) + eps);
    mean_gh = mean_gh * scale / static_cast<float>(n);
    make_opaque(gamma);
    BOWLINE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      float v[kWidth], dv[kWidth], gv[kWidth], more[kWidth];
      values(p, v, dv, gv);
      add.values(p, more);
      for (int k = 0; k < kWidth; ++k) {
        const float h = (v[k] - mean) * scale;
        add_gamma[p][k] += dv[k] * h;
        add_beta[p][k] += dv[k];
        more[k] += scale * (dv[k] * gv[k] - mean_g - h * mean_gh);
      }
      if (Row::column(p) < n) {
        write_some(dx + row * n + Row::column(p), more);
      }
    }
  }
  constexpr uint64_t kColumns = kTeam * kWidth;  // per pack
  float* const dgamma = sums.part(blockIdx.x, kLayer ? 2 * n : n);
  float* const dbeta = dgamma + n;
  if constexpr (kTeams == 1) {
    BOWLINE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      if (Row::column(p) < n) {
        write_some(dgamma + Row::column(p), add_gamma[p]);
        if constexpr (kLayer) {
          write_some(dbeta + Row::column(p), add_beta[p]);
        }
      }
    }
  } else {
    __shared__ Shared<float[2][kTeams][kColumns]> of_teams;
    BOWLINE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      __syncthreads();  // the columns of the pack before are added
      for (int k = 0; k < kWidth; ++k) {
        const unsigned column = team_lane<kTeam>() * kWidth + k;
        of_teams[0][threadIdx.x / kTeam][column] = add_gamma[p][k];
        of_teams[1][threadIdx.x / kTeam][column] = add_beta[p][k];
      }
      __syncthreads();
      for (unsigned i = threadIdx.x; i < (kLayer ? 2 : 1) * kColumns; i += kRowThreads) {
        const uint64_t column = p * kColumns + i % kColumns;
        float sum = 0;
        for (unsigned team = 0; team < kTeams; ++team) {
          sum += of_teams[i / kColumns][team][i % kColumns];
        }
        if (column < n) {
          (i < kColumns ? dgamma : dbeta)[column] = sum;
        }
      }
    }
  }
  add_parts<std::min(kWidth, kPack<float>)>(sums, n, kLayer ? 2 * n : n);
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
  const char* const name = kLayer ? "layer norm" : "rms norm";
  const bool packs = n % kPack<T> == 0 && aligned16(in, gamma, beta, l.out_as<T>(0));
  auto* const held = kernel_of_held_rows<T>(
      n, [](auto team, auto count) { return held_norm_kernel<kLayer, team(), count(), T>; });
  if (packs && held != nullptr) {
    const unsigned rows_per_block = n * sizeof(T) <= kHeldByWarp ? kGroup : 1;
    l.launch(name, held, blocks_for(rows_of(x), rows_per_block), kRowThreads, in, gamma, beta,
             l.out_as<T>(0), rows_of(x), n, eps_of(l, kLayer));
    return;
  }
  launch_packed_rows<T>(
      l, name, rows_of(x), n, packs,
      [](auto team, auto width) {
        constexpr int kWidth = team() == kLanes ? 1 : width();  // a warp holds rows of packs
        return norm_kernel<kLayer, team(), kWidth, T>;
      },
      in, gamma, beta, l.out_as<T>(0), rows_of(x), n, eps_of(l, kLayer));
}

// The distribution of rows to blocks. Each block computes a part of the sums over rows.
struct Parts {
  uint64_t rows_per_block;
  uint64_t count;
};
// A block that holds a row processes rows one after the other, so it gets fewer.
Parts parts_of(const Shape& x, DType type) {
  const uint64_t rows = rows_of(x);
  const uint64_t row_bytes = static_cast<uint64_t>(x.back()) * size_of(type);
  const uint64_t least = row_bytes <= kHeldByWarp ? kGroup : 2;
  const uint64_t groups = std::max<uint64_t>((rows + least - 1) / least, 1);
  const uint64_t groups_per_block = (groups + kMostParts - 1) / kMostParts;
  return {groups_per_block * least, (groups + groups_per_block - 1) / groups_per_block};
}

unsigned group_of(const Parts& parts) {
  const auto root = static_cast<unsigned>(std::ceil(std::sqrt(static_cast<double>(parts.count))));
  return parts.count <= kFewParts ? static_cast<unsigned>(parts.count) : root;
}

template <bool kLayer>
uint64_t norm_grad_workspace(const NodeView& node) {
  const Parts parts = parts_of(node.in(0), node.query.type);
  const auto n = static_cast<uint64_t>(node.in(0).back());
  const uint64_t groups = blocks_for(parts.count, group_of(parts));
  return (parts.count + groups) * n * (kLayer ? 2 : 1) * sizeof(float);
}
uint64_t fused_workspace(const NodeView& node) {
  return node.attributes<file::FusedNormGradAttributes>().rms() ? norm_grad_workspace<false>(node)
                                                                : norm_grad_workspace<true>(node);
}

// `addend`: input 3, or null.
template <bool kLayer, class T>
void norm_grad(Launch& l, float eps, const T* addend) {
  const Shape& x = l.in_shape(0);
  const auto n = static_cast<uint64_t>(x.back());
  if (n == 0) {
    return;
  }
  const Parts parts = parts_of(x, l.type());
  const RowSums<T> sums = {
      l.workspace(),      parts.rows_per_block, static_cast<unsigned>(parts.count), group_of(parts),
      l.block_counters(), target_of<T>(l, 1),   target_of<T>(l, kLayer ? 2 : 1)};
  constexpr int kWidth = kPack<T>;
  const bool packs = n % kWidth == 0 && aligned16(l.in(0), l.in(1), l.in(2), l.out(0), addend,
                                                  l.out(1), l.out(kLayer ? 2 : 1));
  auto* const held = kernel_of_held_rows<T>(
      n, [](auto team, auto count) { return held_grad_kernel<kLayer, team(), count(), T>; });
  auto* const kernel = !packs            ? norm_grad_kernel<kLayer, 1, T>
                       : held == nullptr ? norm_grad_kernel<kLayer, kWidth, T>
                                         : held;
  l.launch("norm gradient", kernel, static_cast<unsigned>(parts.count), kRowThreads, l.in_as<T>(0),
           l.in_as<T>(1), l.in_as<T>(2), addend, l.out_as<T>(0), rows_of(x), n, eps, sums);
}

template <bool kLayer, class T>
void plain_grad(Launch& l) {
  norm_grad<kLayer, T>(l, eps_of(l, kLayer), nullptr);
}
template <class T>
void fused_grad(Launch& l) {
  const auto& t = l.attributes<file::FusedNormGradAttributes>();
  t.rms() ? norm_grad<false, T>(l, t.eps(), l.in_as<T>(3))
          : norm_grad<true, T>(l, t.eps(), l.in_as<T>(3));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(layer_norm, .run = norm<true, T>);
BOWLINE_KERNELS_OF_FLOATS(rms_norm, .run = norm<false, T>);
BOWLINE_KERNELS_OF_FLOATS(layer_norm_grad, .run = plain_grad<true, T>,
                          .workspace = norm_grad_workspace<true>, .accumulates = outputs<0b110>);
BOWLINE_KERNELS_OF_FLOATS(rms_norm_grad, .run = plain_grad<false, T>,
                          .workspace = norm_grad_workspace<false>, .accumulates = outputs<0b10>);
BOWLINE_KERNELS_OF_FLOATS(fused_norm_grad, .run = fused_grad<T>, .workspace = fused_workspace,
                          .accumulates = outputs<0b110>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::norm_kernels
