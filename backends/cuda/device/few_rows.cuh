// Shared by the kernels of products of a few rows: the operands, the norm before the products, and
// what happens to the sums.
#pragma once

#include "device/elements.cuh"
#include "device/matrix_vector.cuh"
#include "device/packets.cuh"
#include "device/results.cuh"
#include "device/rows.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kParts = kMostNormProducts;

// A weight, or some rows of b^T of a weight, and where the results go.
struct Part {
  const void* b;  // the elements, or the quantized values
  const uint8_t* scales;
  const uint8_t* zeros;
  int first;  // row of b^T
  int n;      // rows of b^T
  Results to;
};

// The operands of a launch. The parts have one layout.
struct Operands {
  const void* a;      // [m, k]
  const void* gamma;  // [k], of the norm of the rows of a; null: there is none
  const void* beta;   // [k], of LayerNorm; null: RmsNorm
  float eps;
  float inverse_k;  // 1 / k
  DType type;       // of all elements except quantized ones
  int m;
  int n;  // lines: the rows of b^T of all parts
  int k;
  int count;   // of parts
  bool gated;  // lines are taken from two parts in turn; the first part is activated
  bool four;   // accesses to four elements of a, gamma and beta are legal
  ProductActivation activation;
  Codes b;  // the layout of the parts; of plain elements, only row_bytes is set
  Part parts[kParts];

  // A member of a part. An array with a variable index would be in memory.
  template <class X>
  __device__ X of(int part, X Part::*member) const {
    return part == 0 ? parts[0].*member : part == 1 ? parts[1].*member : parts[2].*member;
  }
  __device__ Codes codes(int part) const {
    Codes c = b;
    c.codes = static_cast<const uint8_t*>(of(part, &Part::b));
    c.scales = of(part, &Part::scales);
    c.zeros = of(part, &Part::zeros);
    return c;
  }
};

// A row of b^T.
struct Line {
  int part;
  int row;  // of the part
};
__device__ inline Line line_of(const Operands& p, int line) {
  line = min(line, p.n - 1);
  if (p.gated) {
    return {line % 2, line / 2};
  }
  Line out = {0, line};
  BOWLINE_UNROLL
  for (int part = 1; part < kParts; ++part) {
    if (part < p.count && out.part == part - 1 && out.row >= p.parts[part - 1].n) {
      out = {part, out.row - p.parts[part - 1].n};
    }
  }
  return out;
}

// The elements of kLines rows of b that a thread multiplies, `kWidth` at once. With kTeam, all
// warps of a block have the same rows of b and share the elements of a row.
template <int kLines, bool kTeam, bool kNormed, int kWidth, class T>
struct Lines {
  static_assert(kLines % 2 == 0);  // a gate and its factor
  static constexpr int kStep = (kTeam ? kThreads : 32) * kWidth;
  int line;
  int first;
  const T* b[kLines];

  __device__ explicit Lines(const Operands& p) {
    const int thread = static_cast<int>(threadIdx.x);
    const int block = static_cast<int>(blockIdx.x);
    line = (kTeam ? block : block * kWarps + thread / 32) * kLines;
    first = (kTeam ? thread : thread % 32) * kWidth;
    for (int j = 0; j < kLines; ++j) {
      const Line at = kNormed ? line_of(p, line + j) : Line{0, min(line + j, p.n - 1)};
      const void* const part = kNormed ? p.of(at.part, &Part::b) : p.parts[0].b;
      const int row = kNormed ? at.row + p.of(at.part, &Part::first) : at.row;
      b[j] = static_cast<const T*>(part) + int64_t{row} * p.k;
    }
  }
  __device__ void prefetch_all(int k) const {
    for (int i = first; i < k; i += kStep) {
      for (int j = 0; j < kLines; ++j) {
        prefetch(b[j] + i);
      }
    }
  }
};

// Prefetches the quantized values of the kLines rows of b of a warp, for one row of a. With more,
// the addresses would not fit in registers.
template <int kRows, int kLines>
__device__ void prefetch_codes(const Operands& p) {
  constexpr int kCacheLine = 128;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kLines;
  for (int j = 0; j < kLines && kRows == 1; ++j) {
    const Line at = line_of(p, line + j);
    const int64_t row = at.row + p.of(at.part, &Part::first);
    const auto* const codes = static_cast<const uint8_t*>(p.of(at.part, &Part::b));
    for (int64_t i = lane * kCacheLine; i < p.b.row_bytes; i += 32 * kCacheLine) {
      prefetch(codes + row * p.b.row_bytes + i);
    }
  }
}

__device__ inline float activated(ProductActivation activation, float v) {
  switch (activation) {
    case ProductActivation::gelu:
      return formulas::gelu_erf_forward(v, 0, 0);
    case ProductActivation::gelu_tanh:
      return formulas::gelu_tanh_forward(v, 0, 0);
    case ProductActivation::silu:
      return formulas::silu_forward(v, 0, 0);
    case ProductActivation::relu:
      return formulas::relu_forward(v, 0, 0);
    case ProductActivation::none:
      break;
  }
  return v;
}

// Takes a sum as put_sum does, of a product behind a norm. `type`: the dtype of the elements; if it
// is a constant, so is the code for it.
__device__ inline void put_normed(const Operands& p, DType type, int row, const Line& at, float sum,
                                  float other) {
  const Results& first = p.parts[0].to;
  const Results& second = p.parts[1].to;
  const Results& third = p.parts[2].to;
  const void* const bias = at.part == 0 ? first.bias : at.part == 1 ? second.bias : third.bias;
  void* const y = at.part == 0 ? first.y : at.part == 1 ? second.y : third.y;
  float v = activated(p.activation, bias == nullptr ? sum : sum + read(bias, type, at.row));
  if (p.gated) {
    v *= second.bias == nullptr ? other : other + read(second.bias, type, at.row);
  }
  write(y, type, int64_t{row} * p.of(at.part, &Part::n) + at.row, v);
}
// Takes the sum of row `row` of a with a line. `other` is the sum with the next line, for a gate.
template <bool kNormed, class T>
__device__ void put_sum(const Operands& p, int row, const Line& at, float sum, float other) {
  if constexpr (kNormed) {
    put_normed(p, kTypeOf<T>, row, at, sum, other);
  } else {
    p.parts[0].to.template put<T>(sum, int64_t{row} * p.n + at.row, at.row);
  }
}
__device__ inline void put_sum(const Operands& p, int row, const Line& at, float sum, float other) {
  if (p.gamma == nullptr) {
    p.parts[0].to.put(p.type, sum, int64_t{row} * p.n + at.row, at.row);
  } else {
    put_normed(p, p.type, row, at, sum, other);
  }
}
// A gate has no results of its own for every second line.
__device__ inline bool has_result(const Operands& p, int row, int line) {
  return row < p.m && line < p.n && (!p.gated || line % 2 == 0);
}

// Four neighbours of a, gamma or beta, from a multiple of four on, if Operands::four holds.
__device__ inline void read_four(const Operands& p, const void* from, int64_t at, float (&v)[4]) {
  if (p.type == DType::f32) {
    read_some(static_cast<const float*>(from) + at, v);
  } else if (p.type == DType::f16) {
    read_some(static_cast<const __half*>(from) + at, v);
  } else {
    read_some(static_cast<const __nv_bfloat16*>(from) + at, v);
  }
}

// The sum of f(x) over a row of a. Only those of this thread.
template <class F>
__device__ float sum_of_row(const Operands& p, int row, F&& f) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t at = int64_t{row} * p.k;
  float sum = 0;
  if (!p.four) {
    BOWLINE_ROLL
    for (int i = thread; i < p.k; i += kThreads) {
      sum += f(read(p.a, p.type, at + i));
    }
    return sum;
  }
  BOWLINE_ROLL
  for (int i = 4 * thread; i < p.k; i += 4 * kThreads) {
    float v[4];
    read_four(p, p.a, at + i, v);
    sum += (f(v[0]) + f(v[1])) + (f(v[2]) + f(v[3]));
  }
  return sum;
}

// The mean of a row, from the sums of the warps.
template <class Sums>
__device__ float mean_of(const Operands& p, const Sums& sums) {
  float sum = sums[0];
  for (int warp = 1; warp < kWarps; ++warp) {
    sum += sums[warp];
  }
  return sum * p.inverse_k;
}

// Writes the mean, and 1 / the root of the variance, of kRows rows of a from `first` on to `norms`,
// which is float[kRows][2] in shared memory. All threads of the block must call it.
template <int kRows, class Memory>
__device__ void take_statistics(Memory& norms, const Operands& p, int first) {
  __shared__ Shared<float[kRows][kWarps]> sums;
  __shared__ Shared<float[kRows][kWarps]> squares;
  const int rows = min(kRows, p.m - first);
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_layer = p.beta != nullptr;
  for (int r = 0; r < rows && is_layer; ++r) {
    const float sum = team_sum<kLanes>(sum_of_row(p, first + r, [](float x) { return x; }));
    if (thread % 32 == 0) {
      sums[r][thread / 32] = sum;
    }
  }
  __syncthreads();
  for (int r = 0; r < rows; ++r) {
    const float mean = is_layer ? mean_of(p, sums[r]) : 0.0f;
    const float sum = team_sum<kLanes>(
        sum_of_row(p, first + r, [mean](float x) { return (x - mean) * (x - mean); }));
    if (thread % 32 == 0) {
      squares[r][thread / 32] = sum;
    }
  }
  __syncthreads();
  if (thread < rows) {
    norms[thread][0] = is_layer ? mean_of(p, sums[thread]) : 0.0f;
    norms[thread][1] = 1 / sqrtf(mean_of(p, squares[thread]) + p.eps);
  }
  __syncthreads();
}

// An element of row `row` of a, whose statistics are `norm`, after the norm.
template <class Norm>
__device__ float element_of(const Operands& p, const Norm& norm, int row, int i) {
  const float x = read(p.a, p.type, int64_t{row} * p.k + i);
  if (p.gamma == nullptr) {
    return x;
  }
  const float scaled = (x - norm[0]) * norm[1] * read(p.gamma, p.type, i);
  return p.beta == nullptr ? scaled : scaled + read(p.beta, p.type, i);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels
