// Attention of a few queries, as in decoding: every key and value is read once from memory.
//
// The rows of a key head are the queries of all heads that read it. A block owns kRows of them,
// over one part of the keys. Eight elements of a key belong to a lane, so a few lanes form a slot,
// and each slot of the block takes every n-th key. A slot keeps its own maximum and sums; the block
// joins the slots at the end, in a fixed order.
#pragma once

#include "device/attention.cuh"
#include "device/begin.cuh"
#include "device/last_block.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {

constexpr int kFewThreads = 128;
constexpr int kFewSums = 8 * kFewThreads;  // of a row, in all slots
constexpr int kMostSlots = 32;
constexpr int kFewKeys = 32;  // a part has a multiple of it

// Eight neighbours of a row as stored, from a multiple of eight on. K is the type of an element.
template <class K>
struct Eight {
  static constexpr int kPack = 16 / sizeof(K);
  Some<K, kPack> packs[8 / kPack];

  __device__ void load(const Rows& rows, int row, int column) {
    const bool inside = rows.visible(row) && column < rows.dim;
    const K* const at = static_cast<const K*>(rows.from.data) + (inside ? rows.at(row, column) : 0);
    if (inside && rows.eight) {
      BOWLINE_UNROLL
      for (int i = 0; i < 8 / kPack; ++i) {
        packs[i] = reinterpret_cast<const Some<K, kPack>*>(at)[i];
      }
      return;
    }
    BOWLINE_UNROLL
    for (int j = 0; j < 8; ++j) {
      packs[j / kPack].x[j % kPack] = inside && column + j < rows.dim ? at[j] : K{};
    }
  }
  // Returns the factor of the elements.
  __device__ float unpack(float (&x)[8]) const {
    BOWLINE_UNROLL
    for (int j = 0; j < 8; ++j) {
      x[j] = read(&packs[j / kPack].x[j % kPack]);
    }
    return 1;
  }
};

// Quantized values. The form of a KV cache, int8 with one scale per row, stays packed until use.
template <>
struct Eight<Codes> {
  float x_[8];
  uint32_t words[2];
  float scale;
  bool packed;

  __device__ static bool is_cache(const Codes& c, int dim) {
    return c.bits == 8 && !c.zero_points && c.zero == 0 && dim % 8 == 0 &&
           c.block == static_cast<uint32_t>(dim) && c.row_bytes % 8 == 0 &&
           reinterpret_cast<uintptr_t>(c.codes) % 8 == 0;
  }
  __device__ void load(const Rows& rows, int row, int column) {
    scale = 1;
    packed = false;
    const bool inside = rows.visible(row) && column < rows.dim;
    if (inside && rows.codes.codes != nullptr && is_cache(rows.codes, rows.dim)) {
      const Codes& c = rows.codes;
      const auto pair = *reinterpret_cast<const Some<uint32_t, 2>*>(
          c.codes + rows.row_of(row) * c.row_bytes + column);
      words[0] = pair.x[0];
      words[1] = pair.x[1];
      scale = scale_of(c, rows.row_of(row), 0);
      packed = true;
      return;
    }
    BOWLINE_ROLL
    for (int quad = 1; quad >= 0; --quad) {
      const float4 four = rows.quad(row, column / 4 + quad);
      x_[4] = x_[0], x_[5] = x_[1], x_[6] = x_[2], x_[7] = x_[3];
      x_[0] = four.x, x_[1] = four.y, x_[2] = four.z, x_[3] = four.w;
    }
  }
  __device__ float unpack(float (&x)[8]) const {
    BOWLINE_UNROLL
    for (int j = 0; j < 8; ++j) {
      // 2^23 + 128 + value as a float has the value in its low bits.
      const uint32_t byte = (words[j / 4] >> 8 * (j % 4) & 255) ^ 128;
      x[j] = packed ? __uint_as_float(0x4B000000 | byte) - 8388736.0f : x_[j];
    }
    return scale;
  }
};

// The division of a block into slots. A kernel for each head size would be four times the code, and
// all wait for memory.
struct Slots {
  int lanes;  // of a slot: 4, 8, 16 or 32
  int count;
  int slot;    // of the thread
  int column;  // of the thread

  __device__ explicit Slots(const Problem& p) {
    const int shift = p.dim <= 32 ? 2 : p.dim <= 64 ? 3 : p.dim <= 128 ? 4 : 5;
    const int thread = static_cast<int>(threadIdx.x);
    lanes = 1 << shift;
    count = kFewThreads >> shift;
    slot = thread >> shift;
    column = (thread & (lanes - 1)) * 8;
  }
  __device__ int columns() const { return 8 * lanes; }
  // The sum of the lanes of a slot.
  __device__ float sum(float x) const {
    BOWLINE_UNROLL
    for (int other = 1; other < 32; other *= 2) {
      if (other < lanes) {
        x += __shfl_xor_sync(0xFFFFFFFF, x, other);
      }
    }
    return x;
  }
};

// Joins the slots of a block, in order, and writes the results of its rows.
template <int kRows>
__device__ void join_slots(const Problem& p, const Place& place, const Slots& slots, int rows,
                           const float (&sums)[kRows][8], const Softmax (&softmax)[kRows]) {
  __shared__ Shared<float[kRows][kFewSums]> all_sums;  // by slot and column
  __shared__ Shared<float[kRows][kMostSlots]> tops;
  __shared__ Shared<float[kRows][kMostSlots]> all_sum;
  __shared__ Shared<float[kRows][kMostSlots]> factors;
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = slots.columns();
  const int group = p.heads / p.kv_heads;
  BOWLINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) {
      continue;
    }
    BOWLINE_UNROLL
    for (int j = 0; j < 8; ++j) {
      all_sums[r][slots.slot * columns + slots.column + j] = sums[r][j];
    }
    if (slots.column == 0) {
      tops[r][slots.slot] = softmax[r].top;
      all_sum[r][slots.slot] = softmax[r].sum;
    }
  }
  __syncthreads();
  for (int i = thread; i < rows * slots.count; i += kFewThreads) {
    const int r = i / slots.count;
    const int slot = i % slots.count;
    Softmax all;
    for (int other = 0; other < slots.count; ++other) {
      all.top = fmaxf(all.top, tops[r][other]);
    }
    factors[r][slot] = all.weight(tops[r][slot]);
  }
  __syncthreads();
  for (int i = thread; i < rows * columns; i += kFewThreads) {
    const int r = i / columns;
    const int d = i % columns;
    const int row = place.first + r;
    if (d >= p.dim) {
      continue;
    }
    Softmax all;
    float sum = 0;
    for (int other = 0; other < slots.count; ++other) {
      const float factor = factors[r][other];
      all.top = fmaxf(all.top, tops[r][other]);
      all.sum += factor * all_sum[r][other];
      sum += factor * all_sums[r][other * columns + d];
    }
    const int of_head = place.head * group + row % group;
    p.put(place.batch, of_head, row / group, d, sum * all.inverse());
    if (d == 0) {
      p.put_lse(place.batch, of_head, row / group, all.lse());
    }
  }
}

// The results of the parts of the keys, and where they are joined.
constexpr int kJoinThreads = 128;
constexpr int kJoinAtOnce = 8;  // parts that a thread loads at once
constexpr int kMaxParts = 64;
struct KeyParts {
  float* outs = nullptr;  // [count, row, dim]
  float* lses = nullptr;  // [count, batch, head, query]
  int count = 1;
  Target out = {};
  float* row_out = nullptr;
  uint32_t* counters = nullptr;
  bool last_block_joins = false;  // otherwise another launch does
};

// Adds the results of the parts of a row of one head, weighted by exp(lse). `row` counts the rows
// of [batch, query, head]. All threads of the block must call it.
__device__ inline void join_row(const Problem& p, const KeyParts& parts, int64_t row) {
  __shared__ Shared<float[kMaxParts]> weights;
  __shared__ Shared<float[1]> inverse;
  const int64_t rows = p.rows();
  const int64_t query = row / p.heads;
  const int64_t at = (query / p.queries * p.heads + row % p.heads) * p.queries + query % p.queries;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // the weights of another row are already used
  if (thread < 32) {
    float top = -INFINITY;
    for (int part = thread; part < parts.count; part += 32) {
      top = fmaxf(top, parts.lses[part * rows + at]);
    }
    for (int other = 1; other < 32; other *= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, other));
    }
    float sum = 0;
    for (int part = thread; part < parts.count; part += 32) {
      const float l = parts.lses[part * rows + at];
      const float weight = l == -INFINITY ? 0.0f : expf(l - top);
      weights[part] = weight;
      sum += weight;
    }
    for (int other = 1; other < 32; other *= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, other);
    }
    if (thread == 0) {
      inverse[0] = sum == 0 ? 0.0f : 1.0f / sum;
      parts.row_out[at] = sum == 0 ? -INFINITY : top + logf(sum);
    }
  }
  __syncthreads();
  const float factor = inverse[0];
  for (int d = thread; d < p.dim; d += kJoinThreads) {
    float sum = 0;
    for (int first = 0; first < parts.count; first += kJoinAtOnce) {
      float weight[kJoinAtOnce], out[kJoinAtOnce];
      BOWLINE_UNROLL
      for (int i = 0; i < kJoinAtOnce; ++i) {
        const int part = first + i;
        weight[i] = part < parts.count ? static_cast<float>(weights[part]) : 0.0f;
        out[i] = weight[i] == 0 ? 0.0f : parts.outs[(part * rows + row) * p.dim + d];
      }
      BOWLINE_UNROLL
      for (int i = 0; i < kJoinAtOnce; ++i) {
        sum += weight[i] * out[i];
      }
    }
    parts.out.put(row * p.dim + d, factor * sum);
  }
}

// The last block of some rows also joins their parts.
template <class K, int kRows>
__global__ void __launch_bounds__(kFewThreads, 2) few_rows_kernel(Problem given, KeyParts parts) {
  begin_kernel();
  Problem p = given;
  if constexpr (!std::is_same_v<K, Codes>) {
    p = typed<K>(given);
  }
  constexpr int kEach = kRows == 1 ? 4 : 2;  // keys of a slot at a time
  const Slots slots(p);
  const int column = slots.column;
  const int group = p.heads / p.kv_heads;
  const int all_rows = p.queries * group;
  const Place place(p.tiles, kRows, p.kv_heads);
  const int rows = min(kRows, all_rows - place.first);
  p.read_counts(place.batch);

  int query[kRows];
  int head[kRows];
  float q[kRows][8];
  float sums[kRows][8] = {};
  Softmax softmax[kRows];
  BOWLINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int row = min(place.first + r, all_rows - 1);
    query[r] = row / group;
    head[r] = place.head * group + row % group;
    const Rows queries = p.queries_of(place.batch, head[r]);
    const float4 low = queries.quad(query[r], column / 4);
    const float4 high = queries.quad(query[r], column / 4 + 1);
    q[r][0] = low.x, q[r][1] = low.y, q[r][2] = low.z, q[r][3] = low.w;
    q[r][4] = high.x, q[r][5] = high.y, q[r][6] = high.z, q[r][7] = high.w;
  }

  const int part_begin = static_cast<int>(blockIdx.y) * p.part;
  const int begin = max(part_begin, p.first_key(query[0]));
  const int last = min(query[kRows - 1], p.live_queries - 1);
  const int end = last < query[0] ? 0 : min(p.seen(last), part_begin + p.part);
  const Rows keys = p.keys_of(place.batch, place.head).before(end);
  const Rows values = p.values_of(place.batch, place.head).before(end);
  for (int first = begin; first < end; first += slots.count * kEach) {
    Eight<K> k[kEach];
    Eight<K> v[kEach];
    BOWLINE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      k[i].load(keys, first + slots.slot + slots.count * i, column);
    }
    BOWLINE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      v[i].load(values, first + slots.slot + slots.count * i, column);
    }
    float s[kRows][kEach];
    BOWLINE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      float x[8];
      const float factor = k[i].unpack(x);
      BOWLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows) {
          continue;
        }
        float dot = 0;
        BOWLINE_UNROLL
        for (int j = 0; j < 8; ++j) {
          dot += q[r][j] * x[j];
        }
        dot = slots.sum(dot);
        const int key = first + slots.slot + slots.count * i;
        s[r][i] =
            key < end ? p.score_of(factor * dot, place.batch, head[r], query[r], key) : -INFINITY;
      }
    }
    BOWLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) {
        continue;
      }
      float top = softmax[r].top;
      BOWLINE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        top = fmaxf(top, s[r][i]);
      }
      const float factor = softmax[r].raise(top);
      BOWLINE_UNROLL
      for (float& x : sums[r]) {
        x *= factor;
      }
    }
    BOWLINE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      float x[8];
      const float factor = v[i].unpack(x);
      BOWLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows || s[r][i] == -INFINITY) {
          continue;  // NaN of a hidden key stays there
        }
        const float weight = softmax[r].weight(s[r][i]);
        softmax[r].sum += weight;
        BOWLINE_UNROLL
        for (int j = 0; j < 8; ++j) {
          sums[r][j] += factor * weight * x[j];
        }
      }
    }
  }

  join_slots(p, place, slots, rows, sums, softmax);
  static_assert(kFewThreads == kJoinThreads);
  if (!parts.last_block_joins ||
      !arrives_last(parts.counters + blockIdx.x, static_cast<unsigned>(parts.count))) {
    return;
  }
  for (int r = 0; r < rows; ++r) {
    const int row = place.first + r;
    const int64_t position = place.batch * p.queries + row / group;
    join_row(p, parts, position * p.heads + place.head * group + row % group);
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
