//! ops(f32, f16, bf16) FusedNormMatMul
// Products of a few rows with weights: y = a b^T or y = a b, with what follows. They are limited by
// reading the weight, so each of its elements is read once, 16 bytes at a time, in its own dtype or
// quantized. Sums are f32 and are rounded once.
//
// If a norm precedes, every block normalizes the few rows of a by itself, which takes less time
// than another launch. Up to three weights are multiplied at once.
//
// Every sum is in an order that depends only on the shapes, the alignment of the operands and the
// GPU.
#include <algorithm>

#include "device/begin.cuh"
#include "device/few_columns.cuh"
#include "device/few_rows.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels {
namespace {

[[maybe_unused]] constexpr int kLeastBlocks = 5;  // per processor, so up to 96 registers

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

// Adds the sums of the warps of a block, which share their lines, and writes the results.
template <bool kNormed, class T, int kRows, int kLines>
__device__ void write_team(const Operands& p, const Sums<kRows, kLines>& sums, int line) {
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
  const auto total = [&](int of) {
    float sum = parts[0][of][r];
    for (int other = 1; other < kWarps; ++other) {
      sum += parts[other][of][r];
    }
    return sum;
  };
  if (j < kLines && has_result(p, r, line + j)) {
    put_sum<kNormed, T>(p, r, line_of(p, line + j), total(j), p.gated ? total(j + 1) : 0.0f);
  }
}

// A warp multiplies kLines rows of b with up to kRows rows of a.
template <int kRows, int kLines, bool kTeam, bool kNormed, int kWidth, class T>
__global__ void __launch_bounds__(kThreads, kNormed&& kRows > 4 ? 4 : kLeastBlocks)
    matrix_vector_kernel(Operands p) {
  using Own = Lines<kLines, kTeam, kNormed, kWidth, T>;
  begin_kernel([&] { Own(p).prefetch_all(p.k); });
  const auto [line, first, b] = Own(p);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __shared__ Shared<float[kRows][2]> norms;
  if constexpr (kNormed) {
    take_statistics<kRows>(norms, p, 0);
  }
  const T* const a = static_cast<const T*>(p.a);
  Sums<kRows, kLines> sums;
  for (int i = first; i < p.k; i += Own::kStep) {
    float w[kLines][kWidth];
    for (int j = 0; j < kLines; ++j) {
      read_some(b[j] + i, w[j]);
    }
    float gamma[kWidth], beta[kWidth] = {};
    if constexpr (kNormed) {
      read_some(static_cast<const T*>(p.gamma) + i, gamma);
      if (p.beta != nullptr) {
        read_some(static_cast<const T*>(p.beta) + i, beta);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (kWidth == 1 && r >= p.m) {
        continue;
      }
      const int row = min(r, p.m - 1);
      float x[kWidth];
      read_some(a + int64_t{row} * p.k + i, x);
      if constexpr (kNormed) {
        const float mean = norms[row][0];
        const float scale = norms[row][1];
        for (int e = 0; e < kWidth; ++e) {
          x[e] = (x[e] - mean) * scale * gamma[e] + beta[e];
        }
      }
      for (int j = 0; j < kLines; ++j) {
        for (int e = 0; e < kWidth; ++e) {
          sums.of[j][r] += w[j][e] * x[e];
        }
      }
    }
  }
  sums.add_lanes();
  if constexpr (kTeam) {
    write_team<kNormed, T>(p, sums, line);
  } else {
    BOWLINE_UNROLL
    for (int j = 0; j < kLines; ++j) {
      BOWLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (lane == 0 && has_result(p, r, line + j)) {
          put_sum<kNormed, T>(p, r, line_of(p, line + j), sums.of[j][r],
                              j + 1 < kLines ? sums.of[j + 1][r] : 0.0f);
        }
      }
    }
  }
}

template <int kRows, int kLines>
__device__ void write_lines(const Operands& p, const Sums<kRows, kLines>& sums, int line) {
  static_assert(kRows * kLines <= 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float mine = 0;  // all lanes have all sums, and each writes one
  float next = 0;
  BOWLINE_UNROLL
  for (int j = 0; j < kLines; ++j) {
    BOWLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      mine = lane == j * kRows + r ? sums.of[j][r] : mine;
      next = lane == j * kRows + r && j + 1 < kLines ? sums.of[j + 1][r] : next;
    }
  }
  const int row = lane % kRows;
  const int column = line + lane / kRows;
  if (lane < kRows * kLines && has_result(p, row, column)) {
    put_sum(p, row, line_of(p, column), mine, next);
  }
}

// Where four elements of a lie in shared memory. Lanes that read elements of neighbouring packets
// at once find them in different banks.
template <int kQuads>
__device__ int staged_at(int packet, int quad) {
  return packet * kQuads + (quad ^ (packet * kQuads / 8 % kQuads));
}

// Copies elements [first, first + count) of each row of a to shared memory as f32, after the norm.
// All threads of the block must call it.
template <class P, int kPackets, class Memory, class Norms>
__device__ void stage(Memory& shared, const Operands& p, Norms& norms, int first, int count) {
  constexpr int kQuads = P::kValues / 4;
  __syncthreads();  // all warps have read the elements before
  BOWLINE_ROLL
  for (int quad = static_cast<int>(threadIdx.x); quad < count / 4; quad += kThreads) {
    float gamma[4], beta[4] = {};
    if (p.gamma != nullptr) {
      read_four(p, p.gamma, first + 4 * quad, gamma);
    }
    if (p.beta != nullptr) {
      read_four(p, p.beta, first + 4 * quad, beta);
    }
    for (int row = 0; row < p.m; ++row) {
      float v[4];
      read_four(p, p.a, int64_t{row} * p.k + first + 4 * quad, v);
      if (p.gamma != nullptr) {
        const float mean = norms[row][0];
        const float scale = norms[row][1];
        for (int e = 0; e < 4; ++e) {
          v[e] = (v[e] - mean) * scale * gamma[e] + beta[e];
        }
      }
      shared[row * kPackets * kQuads + staged_at<kQuads>(quad / kQuads, quad % kQuads)] =
          make_float4(v[0], v[1], v[2], v[3]);
    }
  }
  __syncthreads();
}

// A warp multiplies kLines rows of b with up to kRows rows of a, a packet per lane at once. The
// scale of a packet multiplies the sum of its products. Operands::four must hold.
template <class P, int kRows, int kLines>
__global__ void __launch_bounds__(kThreads) quantized_kernel(Operands p) {
  begin_kernel([&] { prefetch_codes<kRows, kLines>(p); });
  constexpr int kQuads = P::kValues / 4;
  constexpr int kPackets = kRows == 1 ? 128 : 32;  // of a row in shared memory
  __shared__ Shared<float4[kRows * kPackets * kQuads]> shared;
  __shared__ Shared<float[kRows][2]> norms;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kLines;
  if (p.gamma != nullptr) {
    take_statistics<kRows>(norms, p, 0);
  }
  Sums<kRows, kLines> sums;
  for (int first = 0; first < p.k; first += 32 * P::kValues) {
    const int column = first + lane * P::kValues;
    P packets[kLines] = {};
    for (int j = 0; j < kLines; ++j) {
      if (column < p.k) {
        const Line at = line_of(p, line + j);
        packets[j].load(p.codes(at.part), at.row + p.of(at.part, &Part::first),
                        static_cast<uint32_t>(column));
      }
    }
    const int step = first / P::kValues % kPackets;
    if (step == 0) {
      stage<P, kPackets>(shared, p, norms, first, min(p.k - first, kPackets * P::kValues));
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

// The same for rows that are not divided into packets, or not aligned: an element per lane at once.
__global__ void __launch_bounds__(kThreads) short_blocks_kernel(Operands p) {
  begin_kernel();
  constexpr int kRows = static_cast<int>(kFewRows);
  constexpr int kLines = 2;
  __shared__ Shared<float[kRows][2]> norms;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kLines;
  if (p.gamma != nullptr) {
    take_statistics<kRows>(norms, p, 0);
  }
  Sums<kRows, kLines> sums;
  for (int i = lane; i < p.k; i += 32) {
    float w[kLines];
    for (int j = 0; j < kLines; ++j) {
      const Line at = line_of(p, line + j);
      w[j] =
          decode(p.codes(at.part), at.row + p.of(at.part, &Part::first), static_cast<uint32_t>(i));
    }
    for (int r = 0; r < kRows; ++r) {
      if (r < p.m) {
        const float x = element_of(p, norms[r], r, i);
        for (int j = 0; j < kLines; ++j) {
          sums.of[j][r] += w[j] * x;
        }
      }
    }
  }
  sums.add_lanes();
  write_lines(p, sums, line);
}

// Rows of b from which there are enough warps if each has four rows.
constexpr int kManyLines = 8192;
// Whether a warp has four rows of b, for a single row of a.
bool takes_four(const Operands& p, uint32_t candidate) {
  return candidate < kWaysOfARow ? candidate == 1 : p.n >= kManyLines;
}

template <bool kNormed, int kWidth, class T>
void launch_elements(Launch& l, const Operands& p) {
  const auto run = [&](auto kernel, uint64_t lines_per_block) {
    l.launch("few rows", kernel, blocks_for(static_cast<uint64_t>(p.n), lines_per_block), kThreads,
             p);
  };
  static_assert(kFewRows == 8);
  if constexpr (kWidth == 1) {
    // Rows whose packs are not aligned are rare, and have one kernel.
    run(matrix_vector_kernel<8, 2, true, kNormed, kWidth, T>, 2);
  } else if (p.m > 4) {
    run(matrix_vector_kernel<8, 2, true, kNormed, kWidth, T>, 2);
  } else if (p.m > 2) {
    run(matrix_vector_kernel<4, 2, true, kNormed, kWidth, T>, 2);
  } else if (p.m > 1) {
    run(matrix_vector_kernel<2, 2, true, kNormed, kWidth, T>, 2);
  } else if (!takes_four(p, l.candidate())) {
    run(matrix_vector_kernel<1, 2, true, kNormed, kWidth, T>, 2);
  } else {
    run(matrix_vector_kernel<1, 4, false, kNormed, kWidth, T>, 4 * kWarps);
  }
}

void launch_quantized(Launch& l, const Operands& p, const Codes& address) {
  const auto run = [&](auto kernel, int lines) {
    l.launch("few quantized rows", kernel,
             blocks_for(static_cast<uint64_t>(p.n), static_cast<uint64_t>(lines * kWarps)),
             kThreads, p);
  };
  constexpr int kMost = static_cast<int>(kFewRows);
  const bool packets = p.four && with_packets(address, [&]<class P>() {
                         if (p.m > 1) {
                           run(quantized_kernel<P, kMost, 2>, 2);
                         } else if (!takes_four(p, l.candidate()) && !p.gated) {
                           run(quantized_kernel<P, 1, 1>, 1);
                         } else {
                           run(quantized_kernel<P, 1, 4>, 4);
                         }
                       });
  if (!packets) {
    run(short_blocks_kernel, 2);
  }
}

template <class P>
void launch_tiles(Launch& l, const Operands& p, bool quantized) {
  using T = ColumnTiling<P>;
  static_assert(T::kColumns <= kMostColumns);
  ColumnParts s = {};
  unsigned tiles = 0;
  for (int i = 0; i < p.count; ++i) {
    s.tiles[i] = static_cast<int>(
        blocks_for(static_cast<uint64_t>(p.parts[i].n), static_cast<uint64_t>(T::kColumns)));
    tiles += static_cast<unsigned>(s.tiles[i]);
  }
  const int rows = p.m == 1 ? T::kLeastRows : T::kMostRows;
  const unsigned groups = blocks_for(static_cast<uint64_t>(p.m), static_cast<uint64_t>(rows));
  s.splits =
      tiles * groups > kBlockCounters
          ? 1
          : static_cast<unsigned>(splits_of(p.n, p.k, T::kColumns, l.traits(), l.candidate()));
  s.k = (p.k + static_cast<int>(s.splits) - 1) / static_cast<int>(s.splits);
  s.splits =
      std::max(1u, blocks_for(static_cast<uint64_t>(p.k), static_cast<uint64_t>(std::max(s.k, 1))));
  s.sums = s.splits == 1 ? nullptr : l.workspace();
  s.counters = l.block_counters();
  l.launch(quantized ? "few quantized columns" : "few columns",
           p.m == 1 ? columns_kernel<P, T::kLeastRows> : columns_kernel<P, T::kMostRows>,
           dim3(tiles, groups, s.splits), kThreads, p, s);
}

// True if all parts start and end between groups of `many` columns.
bool allow_groups(const Operands& p, int many) {
  bool all = true;
  for (int i = 0; i < p.count; ++i) {
    all = all && p.parts[i].first % many == 0 && p.parts[i].n % many == 0;
  }
  return all;
}

void launch_columns(Launch& l, const Operands& p, bool quantized, const Codes& address) {
  if (quantized) {
    const bool packets = with_packets(address, [&]<class P>() {
      allow_groups(p, P::kValues) ? launch_tiles<P>(l, p, true)
                                  : launch_tiles<OneValue>(l, p, true);
    });
    if (!packets) {
      launch_tiles<OneValue>(l, p, true);
    }
    return;
  }
  with_float(p.type, [&]<class T>() {
    static_assert(ColumnTiling<Elements<T, kPack<T>>>::kColumns == kElementColumns);
    static_assert(ColumnTiling<Elements<T, 1>>::kColumns == kElementColumns);
    const bool packs =
        allow_groups(p, kPack<T>) && p.b.row_bytes % 16 == 0 && aligned16(address.codes);
    packs ? launch_tiles<Elements<T, kPack<T>>>(l, p, false)
          : launch_tiles<Elements<T, 1>>(l, p, false);
  });
}

// Launches the product of the parts of `p`, of which m, k, a, type, the parts and the norm are set.
// Input `weight` of the launch has the layout of all parts.
void launch_parts(Launch& l, Operands p, size_t weight, bool transpose_b) {
  const bool quantized = l.is_encoded(weight);
  p.b = codes_of(l, weight);
  Codes address = p.b;  // with the lowest bits of the addresses of all parts
  uintptr_t bits[2] = {};
  p.n = 0;
  for (int i = 0; i < p.count; ++i) {
    p.n += p.parts[i].n;
    bits[0] |= reinterpret_cast<uintptr_t>(p.parts[i].b);
    bits[1] |= reinterpret_cast<uintptr_t>(p.parts[i].scales);
  }
  address.codes = reinterpret_cast<const uint8_t*>(bits[0]);
  address.scales = reinterpret_cast<const uint8_t*>(bits[1]);
  p.four = p.k % 4 == 0 && aligned16(p.a, p.gamma, p.beta);
  if (!transpose_b) {
    p.b.row_bytes = quantized ? p.b.row_bytes
                              : l.in_shape(weight).back() * static_cast<int64_t>(size_of(p.type));
    launch_columns(l, p, quantized, address);
    return;
  }
  if (quantized) {
    launch_quantized(l, p, address);
    return;
  }
  with_float(p.type, [&]<class T>() {
    const bool packs = p.k % kPack<T> == 0 && aligned16(p.a, p.gamma, p.beta, address.codes);
    if (p.gamma == nullptr) {
      packs ? launch_elements<false, kPack<T>, T>(l, p) : launch_elements<false, 1, T>(l, p);
    } else {
      packs ? launch_elements<true, kPack<T>, T>(l, p) : launch_elements<true, 1, T>(l, p);
    }
  });
}

Part part_of(const Launch& l, size_t weight, int first, int n) {
  Part part = {};
  const Codes codes = codes_of(l, weight);
  part.b = l.is_encoded(weight) ? codes.codes : static_cast<const void*>(l.in(weight));
  part.scales = codes.scales;
  part.zeros = codes.zeros;
  part.first = first;
  part.n = n;
  return part;
}

// Element `first` of a vector.
const void* element_at(const void* vector, DType type, int first) {
  return static_cast<const std::byte*>(vector) + static_cast<uint64_t>(first) * size_of(type);
}

// The product of an output, or the two of a gate.
Part part_of_output(const Launch& l, const NormProductInputs& inputs, size_t weight, size_t output,
                    int first, int n) {
  Part part = part_of(l, weight, first, n);
  part.to.y = l.out(output);
  if (inputs.bias >= 0) {
    part.to.bias = element_at(l.in(static_cast<size_t>(inputs.bias) + weight - 1), l.type(), first);
  }
  return part;
}

void norm_products(Launch& l) {
  const auto& t = l.attributes<file::FusedNormMatMulAttributes>();
  const NormProductInputs inputs(t);
  Operands p = {};
  p.a = l.in(0);
  p.gamma = l.in(static_cast<size_t>(inputs.gamma));
  p.beta = inputs.beta < 0 ? nullptr : l.in(static_cast<size_t>(inputs.beta));
  p.eps = t.eps();
  p.type = l.type();
  p.m = static_cast<int>(l.in_shape(0).rows());
  p.k = static_cast<int>(l.in_shape(0).back());
  p.inverse_k = 1 / static_cast<float>(std::max(p.k, 1));
  p.gated = t.gate();
  p.activation = t.activation();
  if (p.m == 0) {
    return;
  }
  const auto columns = [&](size_t weight) {
    return static_cast<int>(l.in_shape(weight)[t.transpose_b() ? 0 : 1]);
  };
  if (t.sizes()->size() > 0) {
    int first = 0;
    for (const int64_t size : *t.sizes()) {
      const auto output = static_cast<size_t>(p.count);
      p.parts[p.count++] = part_of_output(l, inputs, 1, output, first, static_cast<int>(size));
      first += static_cast<int>(size);
    }
    launch_parts(l, p, 1, t.transpose_b());
    return;
  }
  size_t start = 1;  // the first weight of the launch
  for (size_t weight = 1; std::cmp_less_equal(weight, inputs.weights); ++weight) {
    p.parts[p.count++] =
        part_of_output(l, inputs, weight, p.gated ? 0 : weight - 1, 0, columns(weight));
    // The next weight may be stored in another way.
    const bool ends = std::cmp_equal(weight, inputs.weights) ||
                      l.encoding(weight + 1) != l.encoding(start) ||
                      (!t.transpose_b() && columns(weight + 1) != columns(start));
    if (ends) {
      launch_parts(l, p, start, t.transpose_b());
      p.count = 0;
      start = weight + 1;
    }
  }
}

uint64_t norm_products_workspace(const NodeView& v) {
  const auto& t = v.attributes<file::FusedNormMatMulAttributes>();
  uint64_t most = 0;
  for (size_t weight = 1; std::cmp_less_equal(weight, t.weights()); ++weight) {
    most = std::max(most, few_rows_workspace({.m = v.in(0).rows(),
                                              .n = t.weights() * v.in(weight)[1],
                                              .k = v.in(0).back(),
                                              .transpose_b = t.transpose_b()},
                                             !v.query.inputs[weight].encoding.is_plain(), v.traits,
                                             v.query.candidate));
  }
  return most;
}

uint32_t norm_products_candidates(const NodeView& v) {
  const bool transpose_b = v.attributes<file::FusedNormMatMulAttributes>().transpose_b();
  return few_rows_candidates({.m = v.in(0).rows(), .transpose_b = transpose_b});
}

const char* norm_products_refusal(const NodeView& v) {
  const auto& t = v.attributes<file::FusedNormMatMulAttributes>();
  if (v.in(0).rows() > kFewRows) {
    return "Products behind a norm take at most 8 rows.";
  }
  if (t.gate() && !t.transpose_b()) {
    return "A gate takes only weights whose rows are multiplied.";
  }
  constexpr int64_t kMost = INT32_MAX / 4;
  for (size_t weight = 1; std::cmp_less_equal(weight, t.weights()); ++weight) {
    if (std::max(v.in(weight)[0], v.in(weight)[1]) > kMost) {
      return "A weight has more than 2^29 rows or columns.";
    }
  }
  return nullptr;
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(fused_norm_mat_mul, .run = norm_products,
                          .workspace = norm_products_workspace,
                          .candidates = norm_products_candidates, .refusal = norm_products_refusal,
                          .encoded = 0b1110);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matrix_vector_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

uint64_t few_rows_workspace(const MatrixProduct& p, bool quantized, const Traits& traits,
                            uint32_t candidate) {
  using namespace matrix_vector_kernels;
  if (p.transpose_b) {
    return 0;
  }
  // Wider tiles have more parts of k.
  const int columns = quantized ? kMostColumns : kElementColumns;
  const auto splits = static_cast<uint64_t>(splits_of(p.n, p.k, columns, traits, candidate));
  return splits == 1 ? 0 : splits * static_cast<uint64_t>(p.m * p.n) * sizeof(float);
}

void multiply_few_rows(Launch& l, const MatrixProduct& product) {
  using namespace matrix_vector_kernels;
  Operands p = {};
  p.a = l.in(0);
  p.type = l.type();
  p.m = static_cast<int>(product.m);
  p.k = static_cast<int>(product.k);
  p.count = 1;
  p.parts[0] = part_of(l, 1, 0, static_cast<int>(product.n));
  p.parts[0].to = results_of(l);
  launch_parts(l, p, 1, product.transpose_b);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
