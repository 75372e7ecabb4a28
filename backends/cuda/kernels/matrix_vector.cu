// Products of a few rows with the rows of a weight: y = a b^T, with what follows. They are limited
// by reading the weight, so each of its elements is read once, 16 bytes at a time, in its own dtype
// or quantized. Sums are f32 and are rounded once.
//
// Every sum is in an order that depends only on the shapes and the alignment of the operands.
#include "device/elements.cuh"
#include "device/matrix_vector.cuh"
#include "device/packets.cuh"
#include "device/results.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kLeastBlocks = 5;  // per processor, so up to 96 registers

// The operands of a product of elements of the dtype T.
template <class T>
struct Operands {
  const T* a;  // [m, k]
  const T* b;  // [n, k]
  Results to;
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
    BOWLINE_UNROLL
    for (int j = 0; j < kLines; ++j) {
      BOWLINE_UNROLL
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
    p.to.template put<T>(sum, int64_t{row} * p.n + line, line);
  }
}

// Adds the sums of the warps of a block, which share their rows of b, and writes the results.
template <int kRows, int kLines, class T>
__device__ void write_team(const Operands<T>& p, const Sums<kRows, kLines>& sums, int line) {
  __shared__ Shared<float[kWarps][kLines][kRows]> parts;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  BOWLINE_UNROLL
  for (int j = 0; j < kLines; ++j) {
    BOWLINE_UNROLL
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
__global__ void __launch_bounds__(kThreads, kLeastBlocks) matrix_vector_kernel(Operands<T> p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(kTeam ? blockIdx.x : blockIdx.x * kWarps + warp) * kLines;
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
      read_some(p.a + int64_t{min(r, p.m - 1)} * p.k + i, x);
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
    BOWLINE_UNROLL
    for (int j = 0; j < kLines; ++j) {
      BOWLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (lane == 0) {
          write_result(p, r, line + j, sums.of[j][r]);
        }
      }
    }
  }
}

// The operands of a product with quantized rows of b. The others have the dtype `type`.
struct QuantizedOperands {
  const void* a;
  Codes b;
  Results to;
  DType type;
  int m;
  int n;
  int k;
  bool four;  // 16-byte accesses to a are legal
};

template <int kRows, int kLines>
__device__ void write_lines(const QuantizedOperands& p, const Sums<kRows, kLines>& sums, int line) {
  static_assert(kRows * kLines <= 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float mine = 0;  // all lanes have all sums, and each writes one
  BOWLINE_UNROLL
  for (int j = 0; j < kLines; ++j) {
    BOWLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      mine = lane == j * kRows + r ? sums.of[j][r] : mine;
    }
  }
  const int row = lane % kRows;
  const int column = line + lane / kRows;
  if (lane < kRows * kLines && row < p.m && column < p.n) {
    p.to.put(p.type, mine, int64_t{row} * p.n + column, column);
  }
}

// Where four elements of a lie in shared memory. Lanes that read elements of neighbouring packets
// at once find them in different banks.
template <int kQuads>
__device__ int staged_at(int packet, int quad) {
  return packet * kQuads + (quad ^ (packet * kQuads / 8 % kQuads));
}

// Four elements of a, from element `at` on.
template <class T>
__device__ void read_four(const QuantizedOperands& p, int64_t at, float (&v)[4]) {
  const T* const from = static_cast<const T*>(p.a) + at;
  if (p.four) {
    read_some(from, v);
  } else {
    for (int e = 0; e < 4; ++e) {
      v[e] = read(from + e);
    }
  }
}

// Copies elements [first, first + count) of each row of a to shared memory as f32. All threads of
// the block must call it.
template <class P, int kPackets, class Memory>
__device__ void stage(Memory& shared, const QuantizedOperands& p, int first, int count) {
  constexpr int kQuads = P::kValues / 4;
  __syncthreads();  // all warps have read the elements before
  for (int row = 0; row < p.m; ++row) {
    for (int quad = static_cast<int>(threadIdx.x); quad < count / 4; quad += kThreads) {
      const int64_t at = int64_t{row} * p.k + first + 4 * quad;
      float v[4];
      if (p.type == DType::f32) {
        read_four<float>(p, at, v);
      } else if (p.type == DType::f16) {
        read_four<__half>(p, at, v);
      } else {
        read_four<__nv_bfloat16>(p, at, v);
      }
      shared[row * kPackets * kQuads + staged_at<kQuads>(quad / kQuads, quad % kQuads)] =
          make_float4(v[0], v[1], v[2], v[3]);
    }
  }
  __syncthreads();
}

// A warp multiplies kLines rows of b with up to kRows rows of a, a packet per lane at once. The
// scale of a packet multiplies the sum of its products.
template <class P, int kRows, int kLines>
__global__ void __launch_bounds__(kThreads) quantized_kernel(QuantizedOperands p) {
  constexpr int kQuads = P::kValues / 4;
  constexpr int kPackets = kRows == 1 ? 128 : 32;  // of a row in shared memory
  __shared__ Shared<float4[kRows * kPackets * kQuads]> shared;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kLines;
  Sums<kRows, kLines> sums;
  for (int first = 0; first < p.k; first += 32 * P::kValues) {
    const int column = first + lane * P::kValues;
    P packets[kLines] = {};
    for (int j = 0; j < kLines; ++j) {
      if (column < p.k) {
        packets[j].load(p.b, min(line + j, p.n - 1), static_cast<uint32_t>(column));
      }
    }
    const int step = first / P::kValues % kPackets;
    if (step == 0) {
      stage<P, kPackets>(shared, p, first, min(p.k - first, kPackets * P::kValues));
    }
    if (column >= p.k) {
      continue;
    }
    float part[kLines][kRows] = {};
    float inputs[kRows] = {};  // sums of the elements of a
    BOWLINE_UNROLL
    for (int piece = 0; piece < P::kValues / kPiece; ++piece) {
      float w[kLines][kPiece];
      for (int j = 0; j < kLines; ++j) {
        packets[j].values(piece, w[j]);
      }
      BOWLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (kRows > 1 && r >= p.m) {
          continue;
        }
        for (int half = 0; half < 2; ++half) {
          const float4 x =
              shared[r * kPackets * kQuads + staged_at<kQuads>(step + lane, 2 * piece + half)];
          if constexpr (P::kHasMinimum) {
            inputs[r] += (x.x + x.y) + (x.z + x.w);
          }
          for (int j = 0; j < kLines; ++j) {
            const float* const v = w[j] + 4 * half;
            part[j][r] += x.x * v[0] + x.y * v[1] + x.z * v[2] + x.w * v[3];
          }
        }
      }
    }
    BOWLINE_UNROLL
    for (int j = 0; j < kLines; ++j) {
      BOWLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sums.of[j][r] += packets[j].scale * part[j][r];
        if constexpr (P::kHasMinimum) {
          sums.of[j][r] -= packets[j].least * inputs[r];
        }
      }
    }
  }
  sums.add_lanes();
  write_lines(p, sums, line);
}

// The same for rows that are not divided into packets: an element per lane at once.
__global__ void __launch_bounds__(kThreads) short_blocks_kernel(QuantizedOperands p) {
  constexpr int kRows = static_cast<int>(kFewRows);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int64_t row = min(line, p.n - 1);
  Sums<kRows, 1> sums;
  for (int i = lane; i < p.k; i += 32) {
    const float w = decode(p.b, row, static_cast<uint32_t>(i));
    for (int r = 0; r < kRows; ++r) {
      if (r < p.m) {
        sums.of[0][r] += w * read(p.a, p.type, int64_t{r} * p.k + i);
      }
    }
  }
  sums.add_lanes();
  write_lines(p, sums, line);
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

void launch_quantized(Launch& l, const QuantizedOperands& p) {
  const auto run = [&](auto kernel, int lines) {
    l.launch("few quantized rows", kernel,
             blocks_for(static_cast<uint64_t>(p.n), static_cast<uint64_t>(lines * kWarps)),
             kThreads, p);
  };
  constexpr int kMost = static_cast<int>(kFewRows);
  const bool packets = with_packets(p.b, [&]<class P>() {
    if (p.m > 1) {
      run(quantized_kernel<P, kMost, 2>, 2);
    } else if (p.n < kManyLines) {
      run(quantized_kernel<P, 1, 1>, 1);
    } else {
      run(quantized_kernel<P, 1, 4>, 4);
    }
  });
  if (!packets) {
    run(short_blocks_kernel, 1);
  }
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

void multiply_few_rows(Launch& l, const MatrixProduct& product) {
  using namespace matrix_vector_kernels;
  const int m = static_cast<int>(product.m);
  const int n = static_cast<int>(product.n);
  const int k = static_cast<int>(product.k);
  if (l.is_encoded(1)) {
    launch_quantized(l, {l.in(0), codes_of(l, 1), results_of(l), l.type(), m, n, k,
                         k % 4 == 0 && aligned16(l.in(0))});
    return;
  }
  with_float(l.type(), [&]<class T>() {
    const Operands<T> p = {l.in_as<T>(0), l.in_as<T>(1), results_of(l), m, n, k};
    if (k % kPack<T> == 0 && aligned16(p.a, p.b)) {
      launch_product<kPack<T>>(l, p);
    } else {
      launch_product<1>(l, p);
    }
  });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
