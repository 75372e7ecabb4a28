// Attention on tensor cores, for f16 and bf16: tiles in shared memory, and products of a warp.
//
// A block has four warps. Each owns 16 rows of a head, and reads tiles of the other
// rows, which the block shares. Scores and weights stay in registers: the sums of the first product
// have the layout of an operand of the second (Dao, "FlashAttention-2", 2023).
//
// A weight is the sum of two elements, because one element of bf16 has only 8 bits. So results have
// the precision of f32 arithmetic and are rounded once.
#pragma once

#include "device/attention.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {

constexpr int kMmaThreads = 128;
constexpr int kMmaWarps = kMmaThreads / 32;
constexpr int kMmaBlocks = 2;  // of an SM, at least, so the compiler may use all registers
// Columns of the head that a block sums up. The sums of more would not fit in registers, so larger
// heads have two blocks per tile.
constexpr int kMostColumns = 128;

// Two tiles of 16 rows per warp read half as often from shared memory. The sums of larger heads
// leave no registers for them.
template <int kPadded>
constexpr int kPlainRowTiles = kPadded <= 64 ? 2 : 1;
// Plain problems have no mask, no soft-cap and no slow copies: most of training and of prompts.
// Their kernels have a loop without branches, over the tiles in which every query sees every key.
// Blocks of more rows must still fill the GPU.
template <int kRowTiles>
bool is_plain(const Problem& p, unsigned blocks, const Traits& traits) {
  return p.eight && !p.mask.any() && p.softcap == 0 && p.scale > 0 &&
         (kRowTiles == 1 || std::cmp_greater_equal(blocks, traits.processors));
}
// The head size of the kernels for other problems. They are the longest, so the smallest heads have
// none of their own.
template <int kPadded>
constexpr int kGeneralPadded = std::max(kPadded, 64);

// The same problem. What kPlain promises is constant; otherwise, the dtypes are.
template <class T, bool kPlain>
__device__ Problem promised(const Problem& given) {
  Problem p = kPlain ? given : typed<T>(given);
  if (kPlain) {
    p.four = true;
    p.eight = true;
    p.mask = {};
    p.softcap = 0;
  }
  return p;
}

// Rows from `begin` to `end`, in whole tiles.
struct Whole {
  int begin;
  int end;
};
// The keys before `end` that all queries [query, query + kQueries) see.
template <int kQueries, int kKeys>
__device__ Whole whole_keys(const Problem& p, int query, int end) {
  const int last = query + kQueries - 1;
  return {(p.first_key(last) + kKeys - 1) / kKeys * kKeys,
          last < p.live_queries ? min(p.seen(query), end) / kKeys * kKeys : 0};
}

// The stage of the tile of other rows from `first` on. M: the tiles of a kernel.
template <class M>
__device__ int stage_of(int first) {
  return static_cast<int>(static_cast<unsigned>(first) / M::kOthers % M::kStages);
}

// Calls add.operator()<kWhole>(first) for the tiles of kKeys keys from `begin` to `end`. A plain
// problem has a loop of its own for the tiles that are whole.
template <bool kPlain, int kKeys, class F>
__device__ void for_tiles(int begin, int end, const Whole& whole, F& add) {
  for (int first = begin; first < end; first += kKeys) {
    if (kPlain && first >= whole.begin) {
      BOWLINE_ROLL
      for (; first < whole.end; first += kKeys) {
        add.template operator()<true>(first);
      }
      if (first >= end) {
        break;
      }
    }
    add.template operator()<false>(first);
  }
}

// The index of the thread. What a part of a loop derives from it is computed there, and does not
// fill registers throughout the loop.
__device__ inline int fresh_thread() { return opaque(static_cast<int>(threadIdx.x)); }

// The first column that a block sums up, in steps of 16, from the index of the block.
template <int kPadded, int kColumns>
__device__ int first_step_of(unsigned block) {
  return kColumns == kPadded ? 0 : static_cast<int>(block) * kColumns / 16;
}

// Position of a thread in fragments.
struct Lane {
  __device__ explicit Lane(int thread)
      : lane(thread & 31),
        warp(static_cast<int>(static_cast<unsigned>(thread) / 32)),
        group(lane / 4),
        pair(lane % 4 * 2) {}
  int lane;
  int warp;
  int group;  // row of sums, and the row + 8
  int pair;   // first of two columns of sums
};

// Registers of a lane (device/tensor_core.cuh): operands a and b, and sums.
struct Left {
  uint32_t x[4];
};
struct Right {
  uint32_t x[2];
};
struct Sums {
  float x[4];
};

// Rows in shared memory, of a head size that is rounded up to kPadded.
template <class T, int kPadded>
struct Tile {
  static constexpr int kPacks = kPadded / 8;
  Packs packs;

  // Permuted, so that 8 neighbouring rows of a pack use different banks.
  __device__ static int permuted(int row, int pack) {
    return pack ^ (kPacks >= 8 ? row % 8 : row / 2 % 4);
  }
  __device__ static int index(int row, int pack) { return row * kPacks + permuted(row, pack); }
  // What a thread copies: a pack of every kStep-th row from `row` on.
  static constexpr int kStep = kMmaThreads / kPacks;
  struct Part {
    __device__ explicit Part(int thread)
        : pack(static_cast<int>(static_cast<unsigned>(thread) % kPacks)),
          row(static_cast<int>(static_cast<unsigned>(thread) / kPacks)) {}
    int pack;
    int row;
  };
  // Starts copies of rows [first, first + kRows). Rows that are hidden or outside become 0. kPlain:
  // the rows are those of a plain problem.
  template <int kRows, bool kPlain>
  __device__ void copy(const Rows& rows, int first) const {
    const Part part(kPlain ? static_cast<int>(threadIdx.x) : fresh_thread());
    const int pack = part.pack;
    const int mine = part.row;
    const bool inside = 8 * pack < rows.dim;
    const T* const data = static_cast<const T*>(rows.from.data);
    if (kPlain) {
      const T* from = data + 8 * pack + multiply_wide(rows.row_of(first + mine), rows.dim);
      const int count = inside ? rows.count - first - mine : 0;
      BOWLINE_UNROLL
      for (int row = 0; row < kRows; row += kStep) {
        // The permutation repeats after 8 rows.
        const int to = kStep % 8 == 0 ? index(mine, pack) + row * kPacks : index(mine + row, pack);
        copy_async(packs, to, from, row < count ? 16 : 0);
        from += multiply_wide(rows.step, kStep * rows.dim);
      }
      return;
    }
    if (rows.eight) {
      const T* from = data + rows.at(first + mine, 8 * pack);
      BOWLINE_ROLL
      for (int row = mine; row < kRows; row += kStep) {
        const bool present = inside && rows.visible(first + row);
        copy_async(packs, index(row, pack), present ? from : data, present ? 16 : 0);
        from += multiply_wide(rows.step, kStep * rows.dim);
      }
      return;
    }
    BOWLINE_ROLL
    for (int row = mine; row < kRows; row += kStep) {
      const bool present = rows.visible(first + row);
      packs.store(index(row, pack), present ? rows.pack<T>(first + row, pack) : uint4{});
    }
  }
  // The rows from `row` on, a multiple of 8.
  __device__ Tile from(int row) const { return {packs.from(row * kPacks)}; }
  // Rows [row, row + 16), columns [16 step, 16 step + 16). `row` is a multiple of 8.
  __device__ Left left(const Lane& l, int row, int step) const {
    Left out;
    load_matrices(out.x, packs.from(row * kPacks),
                  l.lane % 16 * kPacks + (2 * step ^ permuted(l.lane % 16, l.lane / 16)));
    return out;
  }
  // The same elements as two right operands: columns of the operand are rows of the tile.
  __device__ void right(const Lane& l, int row, int step, Right (&out)[2]) const {
    uint32_t x[4];
    const int mine = l.lane / 16 * 8 + l.lane % 8;
    load_matrices(x, packs.from(row * kPacks),
                  mine * kPacks + (2 * step ^ permuted(mine, l.lane / 8 % 2)));
    out[0] = {{x[0], x[1]}};
    out[1] = {{x[2], x[3]}};
  }
  // The same, with rows of the tile as rows of the operands.
  __device__ void right_rows(const Lane& l, int row, int step, Right (&out)[2]) const {
    uint32_t x[4];
    load_transposed(x, packs.from(row * kPacks),
                    l.lane % 16 * kPacks + (2 * step ^ permuted(l.lane % 16, l.lane / 16)));
    out[0] = {{x[0], x[1]}};
    out[1] = {{x[2], x[3]}};
  }
  // Sets the rows that have a NaN or an infinity to 0. Returns their bits, for add_odd. `flags` has
  // kRows words. Contains a barrier.
  template <int kRows>
  __device__ uint64_t take_odd(const Packs& flags) const {
    constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7C00 : 0x7F80;
    constexpr int kPerRow = kMmaThreads / kRows;
    const int thread = fresh_thread();
    const int row = thread / kPerRow;
    uint32_t odd = 0;
    for (int pack = thread % kPerRow; pack < kPacks; pack += kPerRow) {
      const uint4 v = packs.load(index(row, pack));
      for (const uint32_t word : {v.x, v.y, v.z, v.w}) {
        odd |= (word & kExponent) == kExponent || (word >> 16 & kExponent) == kExponent ? 1 : 0;
      }
    }
    for (int other = 1; other < kPerRow; other *= 2) {
      odd |= __shfl_xor_sync(0xFFFFFFFF, odd, other);
    }
    for (int pack = thread % kPerRow; odd != 0 && pack < kPacks; pack += kPerRow) {
      packs.store(index(row, pack), {0, 0, 0, 0});
    }
    if (thread % kPerRow == 0) {
      flags.store_word(row, odd);
    }
    __syncthreads();
    uint64_t bits = 0;
    BOWLINE_UNROLL
    for (int i = 0; i < (kRows + 31) / 32; ++i) {
      const int at = 32 * i + thread % 32;
      const int flag = at < kRows ? static_cast<int>(flags.load_word(at)) : 0;
      bits |= uint64_t{__ballot_sync(0xFFFFFFFF, flag)} << 32 * i;
    }
    return bits;
  }
};

// Sums of 16 own rows and 8 kColumns columns.
template <int kColumns>
struct Block {
  Sums sums[kColumns];

  __device__ Block() {
    BOWLINE_UNROLL
    for (Sums& s : sums) {
      s = {{0, 0, 0, 0}};
    }
  }
};

// A power of two per own row, which lifts weights into the range of f16. The weights of gradients
// may be small in all columns. A block has 16 own rows.
template <class T>
struct Scale {
  // Nothing to do: the range of bf16 is that of f32.
  template <int kOthers, int kColumns>
  __device__ void fit(Block<kOthers>&, Block<kColumns>&) {}
  // Removes the scale from weights or sums.
  template <int kColumns>
  __device__ void undo(Block<kColumns>&) const {}
};
template <>
struct Scale<__half> {
  static constexpr float kLargest = 0x1p100f;
  float factor[2] = {kLargest, kLargest};

  // Scales the weights, and the sums of earlier weights if these are larger than before.
  template <int kOthers, int kColumns>
  __device__ void fit(Block<kOthers>& weights, Block<kColumns>& sums) {
    BOWLINE_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = 0;
      BOWLINE_UNROLL
      for (int c = 0; c < kOthers; ++c) {
        most = fmaxf(most, fmaxf(fabsf(weights.sums[c].x[2 * half]),
                                 fabsf(weights.sums[c].x[2 * half + 1])));
      }
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
      // 2^14 divided by the power of two in `most`.
      const uint32_t exponent = __float_as_uint(most) & 0x7F800000;
      const float wanted = exponent == 0x7F800000 || most < 0x1p-86f
                               ? factor[half]
                               : __uint_as_float(((127u + 14 + 127) << 23) - exponent);
      if (wanted < factor[half]) {
        multiply_row(sums, half, wanted / factor[half]);
        factor[half] = wanted;
      }
      multiply_row(weights, half, factor[half]);
    }
  }
  template <int kColumns>
  __device__ void undo(Block<kColumns>& block) const {
    multiply_row(block, 0, 1 / factor[0]);
    multiply_row(block, 1, 1 / factor[1]);
  }

 private:
  template <int kColumns>
  __device__ static void multiply_row(Block<kColumns>& block, int half, float by) {
    BOWLINE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      block.sums[c].x[2 * half] *= by;
      block.sums[c].x[2 * half + 1] *= by;
    }
  }
};

template <class T, int kOthers, int kColumns, int kRowTiles>
__device__ void fit(Scale<T> (&scale)[kRowTiles], Block<kOthers> (&weights)[kRowTiles],
                    Block<kColumns> (&sums)[kRowTiles]) {
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    scale[t].fit(weights[t], sums[t]);
  }
}

// The place of a Block of scores: its first own row and first other row. kKeys: own rows are keys.
struct Corner {
  int64_t batch;
  int head;
  int own;
  int other;
};

// Calls f(element, query, key, other row of the block) for all elements of this lane.
template <bool kKeys, int kColumns, class F>
__device__ void for_scores(const Lane& l, const Corner& at, Block<kColumns>& s, F&& f) {
  BOWLINE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int own = at.own + 8 * (i / 2) + l.group;
      const int other = at.other + 8 * c + l.pair + i % 2;
      f(s.sums[c].x[i], kKeys ? other : own, kKeys ? own : other);
    }
  }
}

// Calls f(element of a, element of b) for all elements of this lane. B: a Block, or a const Block.
template <int kColumns, class B, class F>
__device__ void for_both(Block<kColumns>& a, B& b, F&& f) {
  BOWLINE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      f(a.sums[c].x[i], b.sums[c].x[i]);
    }
  }
}

// Hides scores in units of ln 2, to which masks are added.
template <bool kKeys, int kColumns>
__device__ void hide(const Problem& p, const Corner& at, Block<kColumns>& s) {
  const Lane l(fresh_thread());
  if (p.mask.added.data != nullptr) {
    for_scores<kKeys>(l, at, s, [&](float& x, int query, int key) {
      if (query < p.queries && key < p.keys) {
        const float added = p.added(at.batch, at.head, query, key);
        x = added == -INFINITY ? added : fmaf(added, kLog2E, x);
      }
    });
  }
  if (p.mask.shown != nullptr) {
    for_scores<kKeys>(l, at, s, [&](float& x, int, int key) {
      x = key < p.keys && p.mask.shown[at.batch * p.keys + key] == 0 ? -INFINITY : x;
    });
  }
  BOWLINE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int own = at.own + 8 * half + l.group;
    const int first = kKeys ? p.first_query(own) : p.first_key(own);
    const int end = !kKeys ? p.seen(own) : own < p.seen_keys ? p.end_of_queries(own) : 0;
    const int left = end - at.other - l.pair;
    const int hidden = first - at.other - l.pair;
    BOWLINE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      BOWLINE_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& x = s.sums[c].x[2 * half + i];
        x = 8 * c + i < left && 8 * c + i >= hidden ? x : -INFINITY;
      }
    }
  }
}

// out[t] += own rows [row + 16 t, row + 16 t + 16) times the other rows [0, 8 kColumns).
template <class T, int kPadded, int kColumns, int kRowTiles>
__device__ void multiply(const Lane& l, const Tile<T, kPadded>& own, int row,
                         const Tile<T, kPadded>& others, Block<kColumns> (&out)[kRowTiles]) {
  BOWLINE_UNROLL
  for (int step = 0; step < kPadded / 16; ++step) {
    Left a[kRowTiles];
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      a[t] = own.left(l, row + 16 * t, step);
    }
    BOWLINE_UNROLL
    for (int c = 0; c < kColumns; c += 2) {
      Right right[2];
      others.right(l, 8 * c, step, right);
      BOWLINE_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        multiply_add<T>(out[t].sums[c].x, a[t].x, right[0].x);
        multiply_add<T>(out[t].sums[c + 1].x, a[t].x, right[1].x);
      }
    }
  }
}

// Weights of 16 rows and 16 columns, as sums of two elements.
struct Weights {
  Left high;
  Left low;
};
template <class T>
__device__ Weights split(const Sums& left, const Sums& right) {
  Weights out;
  BOWLINE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const Sums& from = i < 2 ? left : right;
    const float x = from.x[i % 2 * 2];
    const float y = from.x[i % 2 * 2 + 1];
    out.high.x[i] = pair_of<T>(x, y);
    const float2 rounded = floats_of<T>(out.high.x[i]);
    out.low.x[i] = pair_of<T>(x - rounded.x, y - rounded.y);
  }
  return out;
}

// out[t] += weights[t] times columns [16 first_step, ...) of the other rows.
template <class T, int kPadded, int kOthers, int kColumns, int kRowTiles>
__device__ void add_rows(const Lane& l, const Block<kOthers> (&weights)[kRowTiles],
                         const Tile<T, kPadded>& others, int first_step,
                         Block<kColumns> (&out)[kRowTiles]) {
  BOWLINE_UNROLL
  for (int c = 0; c < kOthers; c += 2) {
    Weights w[kRowTiles];
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      w[t] = split<T>(weights[t].sums[c], weights[t].sums[c + 1]);
    }
    BOWLINE_UNROLL
    for (int step = 0; step < kColumns / 2; ++step) {
      Right right[2];
      others.right_rows(l, 8 * c, first_step + step, right);
      BOWLINE_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        multiply_add<T>(out[t].sums[2 * step].x, w[t].high.x, right[0].x);
        multiply_add<T>(out[t].sums[2 * step + 1].x, w[t].high.x, right[1].x);
        multiply_add<T>(out[t].sums[2 * step].x, w[t].low.x, right[0].x);
        multiply_add<T>(out[t].sums[2 * step + 1].x, w[t].low.x, right[1].x);
      }
    }
  }
}

// out += weights times the rows that take_odd has set to 0, from memory. A weight of 0 adds
// nothing. Row 0 of the tile is row `first`.
template <int kOthers, int kColumns>
__device__ void add_odd(uint64_t odd, const Block<kOthers>& weights, const Rows& rows, int first,
                        int first_step, Block<kColumns>& out) {
  const Lane l(fresh_thread());
  BOWLINE_ROLL
  for (int other = 0; odd != 0 && other < 8 * kOthers; ++other) {
    if ((odd >> other & 1) == 0) {
      continue;
    }
    BOWLINE_UNROLL
    for (int half = 0; half < 2; ++half) {
      float even = 0;
      float uneven = 0;
      BOWLINE_UNROLL
      for (int c = 0; c < kOthers; ++c) {
        const float x = weights.sums[c].x[2 * half];
        const float y = weights.sums[c].x[2 * half + 1];
        even = c == other / 8 ? x : even;
        uneven = c == other / 8 ? y : uneven;
      }
      const int from = l.lane / 4 * 4 + other % 8 / 2;
      const float weight = __shfl_sync(0xFFFFFFFF, other % 2 == 0 ? even : uneven, from);
      if (weight == 0) {
        continue;
      }
      BOWLINE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        BOWLINE_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int d = 16 * first_step + 8 * c + l.pair + i;
          if (d < rows.dim) {
            out.sums[c].x[2 * half + i] += weight * rows.from.one(rows.at(first + other, d));
          }
        }
      }
    }
  }
}

// Writes own rows [row, row + 16), from column 16 first_step on.
template <int kColumns>
__device__ void write_sums(const Lane& l, const Block<kColumns>& sums, const Rows& rows,
                           const Target& to, int row, int first_step) {
  BOWLINE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int mine = row + 8 * half + l.group;
    if (mine >= rows.count) {
      continue;
    }
    BOWLINE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const int d = 16 * first_step + 8 * c + l.pair;
      const float x = sums.sums[c].x[2 * half];
      const float y = sums.sums[c].x[2 * half + 1];
      if (d + 1 < rows.dim && rows.four) {
        to.put_two(rows.at(mine, d), x, y);
        continue;
      }
      if (d < rows.dim) {
        to.put(rows.at(mine, d), x);
      }
      if (d + 1 < rows.dim) {
        to.put(rows.at(mine, d + 1), y);
      }
    }
  }
}

// A block without tiles has not waited for its own rows yet.
__device__ inline void wait_own(bool has_tiles) {
  if (!has_tiles) {
    wait_copies<0>();
    __syncthreads();
  }
}

// The same for all own rows of the warp, as elements of T in packs of a row. `tile` has the rows of
// the warp from `at` on, which no warp reads any more.
template <class T, int kPadded, int kColumns, int kRowTiles>
__device__ void write_packs(const Lane& l, const Block<kColumns> (&sums)[kRowTiles],
                            const Tile<T, kPadded>& tile, int at, const Rows& rows, T* to, int row,
                            int first_step) {
  using Rounded = Tile<T, kPadded>;
  __syncwarp();
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    BOWLINE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      BOWLINE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int word = 4 * Rounded::index(at + 16 * t + 8 * half + l.group, c) + l.pair / 2;
        const float* const x = sums[t].sums[c].x + 2 * half;
        tile.packs.store_word(word, pair_of<T>(x[0], x[1]));
      }
    }
  }
  __syncwarp();
  const int c = l.lane % kColumns;
  const int d = 16 * first_step + 8 * c;
  BOWLINE_UNROLL
  for (int i = 0; i < 16 * kRowTiles; i += 32 / kColumns) {
    const int mine = i + l.lane / kColumns;
    if (row + mine < rows.count && d < rows.dim) {
      const uint4 pack = tile.packs.load(Rounded::index(at + mine, c));
      *reinterpret_cast<uint4*>(to + rows.at(row + mine, d)) = pack;
    }
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
