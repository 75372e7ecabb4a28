// The results of a product whose sums are divided into parts of k. The last block of a tile adds
// the parts in order.
#pragma once

#include "device/last_block.cuh"
#include "device/results.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// What a block knows of its place.
struct TilePlace {
  int tile[2];  // along the rows, along the columns
  int part;
  unsigned batch;
  unsigned number;  // of the tile, in all matrices

  // Arrays with a variable index would be in memory.
  __device__ int along(int operand) const { return operand == 0 ? tile[0] : tile[1]; }
};

template <class T>
struct SplitResults {
  Results to;
  LineSums<T> lines;
  float* parts;  // [splits, batch, rows, columns], if there are several parts
  float* line_parts;
  uint32_t* counters;
  unsigned splits;
  int sizes[2];     // rows and columns of a matrix
  int64_t in_part;  // results of a part
  bool packs;       // Results::allow_packs for the groups of kCount results below

  __device__ int64_t at(const TilePlace& place, int row, int column) const {
    return (int64_t{place.batch} * sizes[0] + row) * sizes[1] + column;
  }
  // Takes sums in a row, from (row, column) on, of which at least the first is inside. `loaded`:
  // nothing, or Biases and Operands that are loaded ahead.
  template <int kCount, class... Loaded>
  __device__ void put(const TilePlace& place, int row, int column, float (&v)[kCount],
                      const Loaded&... loaded) const {
    const int count = sizes[1] - column;
    const bool all = packs && count >= kCount;
    const int64_t i = at(place, row, column);
    if (splits > 1) {
      write_first(parts + place.part * in_part + i, all, count, v);
    } else {
      to.put<T>(v, i, column, all, count, loaded...);
    }
  }
  template <int kCount>
  using Operands = Results::Operands<T, kCount>;
  template <int kCount>
  using Biases = uint4[Operands<kCount>::kPacks];
  // `column` is inside. Rows that are not stand for the last one.
  template <int kCount>
  __device__ void load(Operands<kCount>& into, const TilePlace& place, int row, int column) const {
    if (packs && splits == 1) {
      to.load(into, at(place, min(row, sizes[0] - 1), column));
    }
  }
  template <int kCount>
  __device__ void load_biases(uint4 (&into)[kCount], int column) const {
    if (packs && splits == 1) {
      to.load_bias<T>(into, column);
    }
  }
  __device__ int line_count() const { return lines.operand == 0 ? sizes[0] : sizes[1]; }
  // True if the blocks of this tile sum the lines of an operand that belong to it.
  __device__ bool sums_lines(const TilePlace& place) const {
    return lines.operand >= 0 && place.along(1 - lines.operand) == 0;
  }
  __device__ void put_line(const TilePlace& place, int line, float sum) const {
    if (line >= line_count()) {
      return;
    }
    if (splits > 1) {
      line_parts[place.part * line_count() + line] = sum;
    } else {
      lines.to.put(static_cast<uint64_t>(line), sum);
    }
  }

  // All threads of the block call it last, for a tile of kM x kN results.
  template <int kM, int kN, int kThreads, int kCount>
  __device__ void finish(const TilePlace& place) const {
    if (splits == 1 || !arrives_last(counters + place.number, splits)) {
      return;
    }
    const int thread = static_cast<int>(threadIdx.x);
    constexpr int kAcross = kN / kCount;
    BOWLINE_ROLL
    for (int group = thread; group < kM * kAcross; group += kThreads) {
      const int row = place.tile[0] * kM + group / kAcross;
      const int column = place.tile[1] * kN + group % kAcross * kCount;
      if (row < sizes[0] && column < sizes[1]) {
        add_parts<kCount>(at(place, row, column), column);
      }
    }
    if (sums_lines(place)) {
      const int size = lines.operand == 0 ? kM : kN;
      const int first = place.along(lines.operand) * size;
      for (int line = first + thread; line < min(first + size, line_count()); line += kThreads) {
        float sum = 0;
        for (unsigned part = 0; part < splits; ++part) {
          sum += line_parts[part * static_cast<unsigned>(line_count()) + line];
        }
        lines.to.put(static_cast<uint64_t>(line), sum);
      }
    }
  }

 private:
  template <int kCount>
  __device__ void add_parts(int64_t i, int column) const {
    const int count = sizes[1] - column;
    const bool all = packs && count >= kCount;
    float sum[kCount] = {};
    for (unsigned part = 0; part < splits; ++part) {
      float v[kCount];
      read_first(parts + part * in_part + i, all, count, v);
      BOWLINE_UNROLL
      for (int e = 0; e < kCount; ++e) {
        sum[e] += v[e];
      }
    }
    to.put<T>(sum, i, column, all, count);
  }
};

// Scratch memory of the parts.
inline uint64_t parts_bytes(const MatrixProduct& p, unsigned splits) {
  const uint64_t lines = static_cast<uint64_t>(std::max(p.m, p.n));
  const uint64_t results = p.batch.elements() * static_cast<uint64_t>(p.m * p.n);
  return splits == 1 ? 0 : splits * (results + lines) * sizeof(float);
}

// `many`: the kCount of put().
template <class T>
SplitResults<T> split_results_of(const Launch& l, const MatrixProduct& p, unsigned splits,
                                 unsigned many) {
  SplitResults<T> s;
  s.to = results_of(l);
  s.lines = line_sums_of<T>(l);
  s.in_part = static_cast<int64_t>(p.batch.elements()) * p.m * p.n;
  s.parts = splits == 1 ? nullptr : l.workspace();
  s.line_parts = splits == 1 ? nullptr : l.workspace() + splits * s.in_part;
  s.counters = l.block_counters();
  s.splits = splits;
  s.sizes[0] = static_cast<int>(p.m);
  s.sizes[1] = static_cast<int>(p.n);
  s.packs = s.to.allow_packs(p.n, many, sizeof(T));
  return s;
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
