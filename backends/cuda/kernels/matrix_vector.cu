// Products of a few rows with the rows of a weight: y = a b^T + bias. They are limited by reading
// the weight, so each of its elements is read once, 16 bytes at a time, in its own dtype. Sums are
// f32 and are rounded once.
//
// Every sum is in an order that depends only on the shapes and the alignment of the operands.
#include "device/codes.cuh"
#include "device/elements.cuh"
#include "device/matrix_vector.cuh"
#include "device/storage.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// The operands. Elements have the dtype T, except for quantized rows of b.
template <class T>
struct Operands {
  const T* a;     // [m, k]
  const T* b;     // [n, k]
  Codes codes;    // instead of b
  const T* bias;  // [n]; null: no bias
  T* y;           // [m, n]
  int m;
  int n;
  int k;
};

// The sums of a warp: of every row of a with kLines rows of b, from `first` on.
template <int kRows, int kLines>
struct Sums {
  float of[kLines][kRows] = {};

  // Adds the sums of the lanes. Every lane gets the same bits.
  __device__ void add_lanes() {
    for (int j = 0; j < kLines; ++j) {
      for (int r = 0; r < kRows; ++r) {
        for (int other = 16; other > 0; other /= 2) {
          of[j][r] += __shfl_xor_sync(0xFFFFFFFF, of[j][r], other);
        }
      }
    }
  }
};

template <class T>
__device__ void write_result(const Operands<T>& p, int row, int line, float sum) {
  if (row < p.m && line < p.n) {
    write(p.y + int64_t{row} * p.n + line, sum + (p.bias == nullptr ? 0.0f : read(p.bias + line)));
  }
}

// Adds the sums of the warps of a block, which share their rows of b, and writes the results.
template <int kRows, int kLines, class T>
__device__ void write_team(const Operands<T>& p, const Sums<kRows, kLines>& sums, int line) {
  __shared__ Shared<float[kWarps][kLines][kRows]> parts;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int j = 0; j < kLines; ++j) {
    for (int r = 0; r < kRows; ++r) {
      if (lane == 0) {
        parts[warp][j][r] = sums.of[j][r];
      }
    }
  }
  __syncthreads();
  const int j = static_cast<int>(threadIdx.x) / kRows;
  const int r = static_cast<int>(threadIdx.x) % kRows;
  if (j < kLines && r < p.m) {
    float sum = parts[0][j][r];
    for (int other = 1; other < kWarps; ++other) {
      sum += parts[other][j][r];
    }
    write_result(p, r, line + j, sum);
  }
}

// A warp multiplies kLines rows of b with up to kRows rows of a, `kWidth` elements per lane at
// once. With kTeam, all warps of a block have the same rows of b and share the elements of a row.
template <int kRows, int kLines, bool kTeam, int kWidth, class T>
__global__ void __launch_bounds__(kThreads) matrix_vector_kernel(Operands<T> p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(kTeam ? blockIdx.x : blockIdx.x * kWarps + warp) * kLines;
  const T* a[kRows];
  for (int r = 0; r < kRows; ++r) {
    a[r] = p.a + int64_t{min(r, p.m - 1)} * p.k;
  }
  const T* b[kLines];
  for (int j = 0; j < kLines; ++j) {
    b[j] = p.b + int64_t{min(line + j, p.n - 1)} * p.k;
  }
  Sums<kRows, kLines> sums;
  const int step = (kTeam ? kThreads : 32) * kWidth;
  for (int i = (kTeam ? static_cast<int>(threadIdx.x) : lane) * kWidth; i < p.k; i += step) {
    float w[kLines][kWidth];
    for (int j = 0; j < kLines; ++j) {
      read_some(b[j] + i, w[j]);
    }
    for (int r = 0; r < kRows; ++r) {
      float x[kWidth];
      read_some(a[r] + i, x);
      for (int j = 0; j < kLines; ++j) {
        for (int e = 0; e < kWidth; ++e) {
          sums.of[j][r] += w[j][e] * x[e];
        }
      }
    }
  }
  sums.add_lanes();
  if constexpr (kTeam) {
    write_team(p, sums, line);
  } else {
    for (int j = 0; j < kLines && lane == 0; ++j) {
      for (int r = 0; r < kRows; ++r) {
        write_result(p, r, line + j, sums.of[j][r]);
      }
    }
  }
}

// The same for quantized rows of b: one warp per row, four elements at a time if `four` is set.
template <class T>
__global__ void __launch_bounds__(kThreads) quantized_kernel(Operands<T> p, bool four) {
  constexpr int kRows = static_cast<int>(kFewRows);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int64_t row = min(line, p.n - 1);
  Sums<kRows, 1> sums;
  const int width = four ? 4 : 1;
  for (int i = width * lane; i < p.k; i += width * 32) {
    float w[4] = {};
    if (four) {
      decode4(p.codes, row, static_cast<uint32_t>(i), static_cast<uint32_t>(p.k), w);
    } else {
      w[0] = decode(p.codes, row, static_cast<uint32_t>(i));
    }
    for (int r = 0; r < kRows; ++r) {
      for (int e = 0; e < width && r < p.m; ++e) {
        sums.of[0][r] += w[e] * read(p.a + int64_t{r} * p.k + i + e);
      }
    }
  }
  sums.add_lanes();
  for (int r = 0; r < kRows && lane == 0; ++r) {
    write_result(p, r, line, sums.of[0][r]);
  }
}

// Rows of b from which there are enough warps if each has several rows.
constexpr int kManyLines = 8192;

template <int kWidth, class T>
void launch_product(Launch& l, const Operands<T>& p) {
  const auto run = [&](auto kernel, uint64_t lines_per_block) {
    l.launch("few rows", kernel, blocks_for(static_cast<uint64_t>(p.n), lines_per_block), kThreads,
             p);
  };
  static_assert(kFewRows == 8);
  if (p.m > 4) {
    run(matrix_vector_kernel<8, 2, true, kWidth, T>, 2);
  } else if (p.m > 2) {
    run(matrix_vector_kernel<4, 2, true, kWidth, T>, 2);
  } else if (p.m > 1) {
    run(matrix_vector_kernel<2, 2, true, kWidth, T>, 2);
  } else if (p.n < kManyLines) {
    run(matrix_vector_kernel<1, 2, true, kWidth, T>, 2);
  } else {
    run(matrix_vector_kernel<1, 4, false, kWidth, T>, 4 * kWarps);
  }
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

void multiply_few_rows(Launch& l, const MatrixProduct& product) {
  using namespace matrix_vector_kernels;
  with_float(l.type(), [&]<class T>() {
    constexpr int kWidth = kPack<T>;
    const Operands<T> p = {l.in_as<T>(0),
                           l.is_encoded(1) ? nullptr : l.in_as<T>(1),
                           codes_of(l, 1),
                           l.has_input(2) ? l.in_as<T>(2) : nullptr,
                           l.out_as<T>(0),
                           static_cast<int>(product.m),
                           static_cast<int>(product.n),
                           static_cast<int>(product.k)};
    if (l.is_encoded(1)) {
      l.launch("few rows", quantized_kernel<T>, blocks_for(static_cast<uint64_t>(p.n), kWarps),
               kThreads, p, p.k % 4 == 0);
    } else if (p.k % kWidth == 0 && aligned16(p.a, p.b)) {
      launch_product<kWidth>(l, p);
    } else {
      launch_product<1>(l, p);
    }
  });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
