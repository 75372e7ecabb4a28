// The gradient of attention on tensor cores, for f16 and bf16: a pass over queries for dq, and a
// pass over keys for dk and dv.
#pragma once

#include "device/attention_mma.cuh"
#include "device/begin.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels {
namespace {

using namespace attention_kernels;

// Tiles of the passes on tensor cores. A warp owns kRowTiles times 16 rows. A block sums up
// kColumns columns of the head: blockIdx.y tells which. The pass over keys sums up both dk and dv.
template <int kPadded, bool kKeys, int kRowTiles>
struct GradTiling {
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kOwn = kRows * kMmaWarps;
  static constexpr int kOthers = kRowTiles == 2           ? 32
                                 : kPadded <= 64          ? 64
                                 : kKeys || kPadded > 128 ? 32
                                                          : 64;
  static constexpr int kStages = kPadded <= 64 ? 2 : 1;  // tiles of other rows in flight
  static constexpr int kColumns = std::min(kPadded, kMostColumns / (kKeys ? 2 : 1));
  static constexpr int kPacks = kPadded / 8;
  static constexpr int kQueries = kKeys ? kStages * kOthers : kOwn;  // with statistics
  static constexpr unsigned kShared =
      16 * 2 * (kOwn + kStages * kOthers) * kPacks + 4 * (2 * kQueries + 2 * kOthers);
};

// Values of queries in shared memory, as Problem::statistics has them.
struct Statistics {
  Packs lse;
  Packs delta;

  __device__ Statistics from(int query) const {
    return {lse.from(query / 4), delta.from(query / 4)};
  }
};

// The same problem. Gradients have no dynamic dimensions.
__device__ inline Problem static_sizes(Problem p) {
  p.query_count = nullptr;
  p.key_count = nullptr;
  p.live_queries = p.queries;
  p.live_keys = p.keys;
  return p;
}

// Starts copies of the statistics of the queries [first, first + kQueries), which another launch
// has computed.
template <int kQueries>
__device__ void copy_statistics(const Problem& p, int64_t batch, int head, int first,
                                const Statistics& to) {
  constexpr int kEach = kQueries / 4;  // packs of lse, and of delta
  const int thread = fresh_thread();
  if (thread < 2 * kEach) {
    const int query = first + thread % kEach * 4;
    const float* const from =
        thread < kEach ? p.lse_of(batch, head, query) : p.delta_of(batch, head, query);
    copy_async(to.lse, thread, from, max(0, min(16, 4 * (p.queries - query))));
  }
}

// Computes the statistics of the queries of the block, for this pass and the one over keys. `own_d`
// has their rows of dout, which the group of copies before the last fills. A thread waits only for
// its own copies.
template <class T, int kPadded, int kOwn>
__device__ void load_statistics(const Problem& p, const Place& place, const Tile<T, kPadded>& own_d,
                                const Statistics& to) {
  using Own = Tile<T, kPadded>;
  constexpr int kRows = kOwn / Own::kStep;  // of a thread
  const typename Own::Part part(static_cast<int>(threadIdx.x));
  const Rows out = p.of_queries(p.o, place.batch, place.head);
  const int first = place.first + part.row;
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < kOwn) {
    const int query = place.first + mine;
    const float lse = query < p.queries ? p.copy_lse(place.batch, place.head, query) : 0.0f;
    to.lse.store_word(mine, __float_as_uint(lse));
  }
  uint4 packs[kRows];
  BOWLINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    packs[i] = out.pack<T>(first + Own::kStep * i, part.pack);
  }
  wait_copies<1>();
  BOWLINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int row = part.row + Own::kStep * i;
    float o[8];
    float d[8];
    unpack<T>(packs[i], o);
    unpack<T>(own_d.packs.load(Own::index(row, part.pack)), d);
    float sum = 0;
    BOWLINE_UNROLL
    for (int j = 0; j < 8; ++j) {
      sum += o[j] * d[j];
    }
    for (int other = 1; other < Own::kPacks; other *= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, other);
    }
    if (part.pack == 0) {
      to.delta.store_word(row, __float_as_uint(sum));
      if (place.first + row < p.queries) {
        *p.delta_of(place.batch, place.head, place.first + row) = sum;
      }
    }
  }
}

// Replaces products q k by weights p, and products dout v by ds / scale. `statistics` are those of
// the queries: of the warp, or of the tile.
template <bool kKeys, int kColumns>
__device__ void weigh(const Problem& p, const Lane& l, const Corner& at,
                      const Statistics& statistics, Block<kColumns>& s, Block<kColumns>& ds) {
  const int last_own = at.own + 15;
  const int last_other = at.other + 8 * kColumns - 1;
  const bool whole = kKeys ? p.sees_all(at.other, last_other, at.own, last_own)
                           : p.sees_all(at.own, last_own, at.other, last_other);
  const auto row = [&](int query) { return query - (kKeys ? at.other : at.own); };
  for_scores<kKeys>(l, at, ds, [&](float& x, int query, int) {
    x -= __uint_as_float(statistics.delta.load_word(row(query)));
  });
  float factor = p.scale * kLog2E;
  if (!whole) {
    if (p.softcap != 0) {
      for_both(s, ds, [&](float& x, float& dx) {
        x = p.capped(p.scale * x);
        dx *= p.cap_slope(x);
      });
      factor = kLog2E;
    }
    for_both(s, s, [&](float& x, float&) { x *= factor; });
    hide<kKeys>(p, at, s);
    for_both(s, ds, [](float& x, float& dx) { dx = x == -INFINITY ? 0.0f : dx; });
    factor = 1;
  }
  const auto weight = [&](float x, int query) {
    return power_of_two(fmaf(x, factor, -__uint_as_float(statistics.lse.load_word(row(query)))));
  };
  if (whole) {
    for_scores<kKeys>(l, at, s, [&](float& x, int query, int) { x = weight(x, query); });
  } else {
    for_scores<kKeys>(
        l, at, s, [&](float& x, int query, int) { x = x == -INFINITY ? 0.0f : weight(x, query); });
  }
  for_both(s, ds, [](float& x, float& dx) { dx *= x; });
}

// The same for a plain problem, in two steps. kWhole: all queries see all keys.
template <bool kKeys, bool kWhole, int kColumns>
__device__ void weigh_scores(const Problem& p, const Lane& l, const Corner& at,
                             const Statistics& statistics, Block<kColumns>& s) {
  if (!kWhole) {
    hide<kKeys>(p, at, s);
  }
  for_scores<kKeys>(l, at, s, [&](float& x, int query, int) {
    const int row = query - (kKeys ? at.other : at.own);
    const float shift = __uint_as_float(statistics.lse.load_word(row));
    const float weight = power_of_two(fmaf(x, p.scale * kLog2E, -shift));
    x = kWhole || x != -INFINITY ? weight : 0.0f;
  });
}
template <bool kKeys, bool kWhole, int kColumns>
__device__ void weigh_slopes(const Lane& l, const Corner& at, const Statistics& statistics,
                             const Block<kColumns>& weights, Block<kColumns>& ds) {
  for_scores<kKeys>(l, at, ds, [&](float& x, int query, int) {
    const int row = query - (kKeys ? at.other : at.own);
    x -= __uint_as_float(statistics.delta.load_word(row));
  });
  for_both(ds, weights,
           [](float& x, float weight) { x = kWhole || weight != 0 ? x * weight : 0.0f; });
}

// Turns sums over ds / scale into those over ds.
template <class T, int kColumns>
__device__ void finish(const Scale<T>& scale, float factor, Block<kColumns>& sums) {
  scale.undo(sums);
  for_both(sums, sums, [&](float& x, float&) { x *= factor; });
}

// Writes the sums of the own rows of a warp, from `row` on. `tile` has them from `at` on.
template <class T, int kPadded, bool kPlain, int kColumns, int kRowTiles>
__device__ void write(const Lane& l, const Block<kColumns> (&sums)[kRowTiles],
                      const Tile<T, kPadded>& tile, int at, const Rows& rows, const Target& to,
                      int row, int first_step) {
  if constexpr (kPlain) {
    write_packs(l, sums, tile, at, rows, static_cast<T*>(to.data), row, first_step);
  } else {
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      write_sums(l, sums[t], rows, to, row + 16 * t, first_step);
    }
  }
}

// The gradient with respect to kOwn queries of a head, on tensor cores. kPrepared: an earlier
// launch has computed the statistics. `before`: blocks of the launch with other work.
template <class T, int kPadded, int kRowTiles, bool kPlain, bool kPrepared>
__device__ void multiply_queries(const Problem& given, unsigned before) {
  using M = GradTiling<kPadded, false, kRowTiles>;
  Problem p = static_sizes(promised<T, kPlain>(given));
  const Lane l(static_cast<int>(threadIdx.x));
  const Tile<T, kPadded> own{dynamic_shared()};
  const Tile<T, kPadded> own_d{own.packs.from(M::kOwn * M::kPacks)};
  const Packs others = own_d.packs.from(M::kOwn * M::kPacks);
  const Packs lse = others.from(2 * M::kStages * M::kOthers * M::kPacks);
  const Statistics statistics{lse, lse.from(M::kOwn / 4)};
  const Packs flags = lse.from(M::kOwn / 2);
  const auto tile = [&](int first, bool d) {
    const int stage = 2 * stage_of<M>(first) + (d ? 1 : 0);
    return Tile<T, kPadded>{others.from(stage * M::kOthers * M::kPacks)};
  };
  const Place place(p.tiles, M::kOwn, p.heads, before);
  p.read_counts(place.batch);
  const Rows queries = p.queries_of(place.batch, place.head);
  const int kv_head = place.head / (p.heads / p.kv_heads);
  const Rows keys = p.keys_of(place.batch, kv_head);
  const Rows values = p.values_of(place.batch, kv_head);
  const int row = M::kRows * l.warp;
  const int query = place.first + row;
  const int last_query = min(query + M::kRows, p.queries) - 1;
  const int warp_begin = p.first_key(query);
  const int warp_end = last_query < query ? 0 : p.seen(last_query);
  const int begin = p.first_key(place.first) / M::kOthers * M::kOthers;
  const int end = p.seen(min(place.first + M::kOwn, p.queries) - 1);
  const auto copy = [&](int first) {
    if (first < end) {
      tile(first, false).template copy<M::kOthers, kPlain>(keys, first);
      tile(first, true).template copy<M::kOthers, kPlain>(values, first);
    }
    commit_copies();
  };
  own.template copy<M::kOwn, kPlain>(queries, place.first);
  own_d.template copy<M::kOwn, kPlain>(p.of_queries(p.d_o, place.batch, place.head), place.first);
  if constexpr (kPrepared) {
    copy_statistics<M::kOwn>(p, place.batch, place.head, place.first, statistics);
  }
  commit_copies();
  copy(begin);
  if constexpr (!kPrepared) {
    load_statistics<T, kPadded, M::kOwn>(p, place, own_d, statistics);
  }

  const int first_step = first_step_of<kPadded, M::kColumns>(blockIdx.y);
  Block<M::kColumns / 8> sums[kRowTiles];
  Scale<T> scale[kRowTiles];
  // Adds a tile of keys. kWhole: all queries of the block see all of its keys.
  const auto add = [&]<bool kWhole>(int first) {
    wait_copies<0>();
    __syncthreads();
    if (M::kStages == 2) {
      copy(first + M::kOthers);
    }
    const bool sees = kWhole || (first < warp_end && first + M::kOthers > warp_begin);
    Block<M::kOthers / 8> s[kRowTiles];
    Block<M::kOthers / 8> ds[kRowTiles];
    const auto corner = [&](int t) {
      return Corner{place.batch, place.head, query + 16 * t, first};
    };
    if (sees) {
      multiply(l, own, row, tile(first, false), s);
      multiply(l, own_d, row, tile(first, true), ds);
      BOWLINE_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        const Statistics mine = statistics.from(row + 16 * t);
        if (kPlain) {
          weigh_scores<false, kWhole>(p, l, corner(t), mine, s[t]);
          weigh_slopes<false, kWhole>(l, corner(t), mine, s[t], ds[t]);
        } else {
          weigh<false>(p, l, corner(t), mine, s[t], ds[t]);
        }
      }
    }
    uint64_t odd = 0;
    if (p.mask.any()) {
      __syncthreads();
      odd = tile(first, false).template take_odd<M::kOthers>(flags);
    }
    if (sees) {
      fit(scale, ds, sums);
      add_rows(l, ds, tile(first, false), first_step, sums);
      BOWLINE_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        add_odd(odd, ds[t], keys, first, first_step, sums[t]);
      }
    }
    if (M::kStages == 1) {
      __syncthreads();
      copy(first + M::kOthers);
    }
  };
  for_tiles<kPlain, M::kOthers>(begin, end, whole_keys<M::kOwn, M::kOthers>(p, place.first, end),
                                add);
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    finish(scale[t], p.scale, sums[t]);
  }
  wait_own(begin < end);
  write<T, kPadded, kPlain>(l, sums, own, row, queries, p.out, query, first_step);
}

template <class T, int kPadded, int kRowTiles, bool kPlain>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks) mma_queries_kernel(Problem p) {
  begin_kernel();
  if constexpr (kMultiplies<T>) {
    multiply_queries<T, kPadded, kRowTiles, kPlain, false>(p, 0);
  }
}

// A tile of queries, in all heads that read a key head.
struct QueryTile {
  unsigned number;  // counts tiles
  int head;
  int first;

  // The next tile of [begin, end), or the first of the next head.
  template <int kQueries>
  __device__ QueryTile next(int begin, int end) const {
    const bool same = first + kQueries < end;
    return {number + 1, same ? head : head + 1, same ? first + kQueries : begin};
  }
};

// dk and dv of the keys of a warp.
template <class T, int kPadded, int kColumns, int kRowTiles>
struct KeySums {
  Tile<T, kPadded> own;    // keys
  Tile<T, kPadded> own_d;  // values
  int first_step;
  Block<kColumns / 8> sums[kRowTiles] = {};
  Block<kColumns / 8> sums_v[kRowTiles] = {};
  Scale<T> scale[kRowTiles] = {};
  Scale<T> scale_v[kRowTiles] = {};

  // Adds a tile of kOthers queries and of dout, for a plain problem. `row`: the first key of the
  // warp in the tile of keys.
  template <int kOthers, bool kWhole>
  __device__ void add_plain(const Problem& p, const Lane& l, int row, const Corner& at,
                            const Tile<T, kPadded>& queries, const Tile<T, kPadded>& d_out,
                            const Statistics& statistics) {
    // Few scores at a time leave registers for the sums.
    constexpr int kStep = kRowTiles == 2 ? 16 : kOthers;
    const auto add = [&](int i) {
      const Corner corner{at.batch, at.head, at.own, at.other + i};
      add_scores<kStep, kWhole>(p, l, row, corner, queries.from(i), d_out.from(i),
                                statistics.from(i));
    };
    // One body per tile overlaps the products of two steps. For Blackwell it would spill registers.
    if constexpr (kWhole && !kFor100) {
      BOWLINE_UNROLL
      for (int i = 0; i < kOthers; i += kStep) {
        add(i);
      }
    } else {
      BOWLINE_ROLL
      for (int i = 0; i < kOthers; i += kStep) {
        add(i);
      }
    }
  }
  template <int kOthers, bool kWhole>
  __device__ void add_scores(const Problem& p, const Lane& l, int row, const Corner& at,
                             const Tile<T, kPadded>& queries, const Tile<T, kPadded>& d_out,
                             const Statistics& statistics) {
    const auto corner = [&](int t) { return Corner{at.batch, at.head, at.own + 16 * t, at.other}; };
    Block<kOthers / 8> s[kRowTiles];
    multiply(l, own, row, queries, s);
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      weigh_scores<true, kWhole>(p, l, corner(t), statistics, s[t]);
    }
    fit(scale_v, s, sums_v);
    add_rows(l, s, d_out, first_step, sums_v);
    Block<kOthers / 8> ds[kRowTiles];
    multiply(l, own_d, row, d_out, ds);
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      scale_v[t].undo(s[t]);
      weigh_slopes<true, kWhole>(l, corner(t), statistics, s[t], ds[t]);
    }
    fit(scale, ds, sums);
    add_rows(l, ds, queries, first_step, sums);
  }

  // The same for any problem. All warps of the block must call it; `sees`: this one has work.
  template <int kOthers>
  __device__ void add_any(const Problem& p, const Lane& l, int row, const Corner& at,
                          const Tile<T, kPadded>& queries, const Tile<T, kPadded>& d_out,
                          const Statistics& statistics, const Packs& flags, bool sees) {
    Block<kOthers / 8> s[kRowTiles];
    Block<kOthers / 8> ds[kRowTiles];
    if (sees) {
      multiply(l, own, row, queries, s);
      multiply(l, own_d, row, d_out, ds);
      BOWLINE_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        weigh<true>(p, l, {at.batch, at.head, at.own + 16 * t, at.other}, statistics, s[t], ds[t]);
      }
    }
    uint64_t odd = 0;
    uint64_t odd_d = 0;
    if (p.mask.any()) {
      __syncthreads();
      odd = queries.template take_odd<kOthers>(flags);
      odd_d = d_out.template take_odd<kOthers>(flags.from(kOthers / 4));
    }
    if (!sees) {
      return;
    }
    fit(scale_v, s, sums_v);
    fit(scale, ds, sums);
    add_rows(l, s, d_out, first_step, sums_v);
    add_rows(l, ds, queries, first_step, sums);
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      add_odd(odd_d, s[t], p.of_queries(p.d_o, at.batch, at.head), at.other, first_step, sums_v[t]);
      add_odd(odd, ds[t], p.queries_of(at.batch, at.head), at.other, first_step, sums[t]);
    }
  }
};

// The gradient with respect to kOwn keys and values of a head, on tensor cores, over all query
// heads that read the key head. `before`: blocks of the launch with other work.
template <class T, int kPadded, int kRowTiles, bool kPlain>
__device__ void multiply_keys(const Problem& given, unsigned before) {
  using M = GradTiling<kPadded, true, kRowTiles>;
  Problem p = static_sizes(promised<T, kPlain>(given));
  const Tile<T, kPadded> own{dynamic_shared()};
  const Tile<T, kPadded> own_d{own.packs.from(M::kOwn * M::kPacks)};
  const Packs others = own_d.packs.from(M::kOwn * M::kPacks);
  const Packs all_statistics = others.from(2 * M::kStages * M::kOthers * M::kPacks);
  const Packs flags = all_statistics.from(M::kStages * M::kOthers / 2);
  const auto tile = [&](const QueryTile& at, bool d) {
    const int stage = 2 * static_cast<int>(at.number % M::kStages) + (d ? 1 : 0);
    return Tile<T, kPadded>{others.from(stage * M::kOthers * M::kPacks)};
  };
  const auto statistics = [&](const QueryTile& at) {
    const Packs lse =
        all_statistics.from(static_cast<int>(at.number % M::kStages) * M::kOthers / 2);
    return Statistics{lse, lse.from(M::kOthers / 4)};
  };
  const Place place(p.tiles, M::kOwn, p.kv_heads, before);
  p.read_counts(place.batch);
  const int group = p.heads / p.kv_heads;
  const int first_step = first_step_of<kPadded, M::kColumns>(blockIdx.y);
  // The queries that see a key of the block. They are computed where they are used, because
  // registers are rare in the loop.
  const auto begin = [&] {
    const int first = opaque(place.first);
    return p.first_query(first) / M::kOthers * M::kOthers;
  };
  const auto end = [&] { return p.end_of_queries(min(opaque(place.first) + M::kOwn, p.keys) - 1); };
  const int end_head = end() <= begin() ? 0 : (place.head + 1) * group;
  const auto copy = [&](const QueryTile& at) {
    if (at.head < end_head) {
      tile(at, false).template copy<M::kOthers, kPlain>(p.queries_of(place.batch, at.head),
                                                        at.first);
      tile(at, true).template copy<M::kOthers, kPlain>(p.of_queries(p.d_o, place.batch, at.head),
                                                       at.first);
      copy_statistics<M::kOthers>(p, place.batch, at.head, at.first, statistics(at));
    }
    commit_copies();
  };
  own.template copy<M::kOwn, kPlain>(p.keys_of(place.batch, place.head), place.first);
  own_d.template copy<M::kOwn, kPlain>(p.values_of(place.batch, place.head), place.first);
  QueryTile at{0, place.head * group, begin()};
  copy(at);

  KeySums<T, kPadded, M::kColumns, kRowTiles> keys_sums{own, own_d, first_step};
  // Adds a tile. kWhole: all of its queries see all keys of the block.
  const auto add = [&]<bool kWhole>() {
    wait_copies<0>();
    __syncthreads();
    const Lane l(fresh_thread());
    const int row = M::kRows * l.warp;
    const int key = place.first + row;
    // Computed where it is used, because registers are rare.
    const auto next = [&] {
      const QueryTile same{at.number, at.head, opaque(at.first)};
      return same.template next<M::kOthers>(begin(), end());
    };
    if (M::kStages == 2) {
      copy(next());
    }
    const int last = min(at.first + M::kOthers, p.queries) - 1;
    const bool sees = kWhole || (key < p.seen(last) && key + M::kRows > p.first_key(at.first));
    const Corner corner{place.batch, at.head, key, at.first};
    if (kPlain && sees) {
      keys_sums.template add_plain<M::kOthers, kWhole>(p, l, row, corner, tile(at, false),
                                                       tile(at, true), statistics(at));
    }
    if (!kPlain) {
      keys_sums.template add_any<M::kOthers>(p, l, row, corner, tile(at, false), tile(at, true),
                                             statistics(at), flags, sees);
    }
    if (M::kStages == 1) {
      __syncthreads();
      copy(next());
    }
    at = next();
  };
  const auto is_whole = [&] {
    const int first = opaque(place.first);
    const int last = first + M::kOwn - 1;
    return last < p.seen_keys && at.first >= p.first_query(last) &&
           at.first + M::kOthers <= p.end_of_queries(first);
  };
  while (at.head < end_head) {
    if (kPlain && is_whole()) {
      BOWLINE_ROLL
      do {
        add.template operator()<true>();
      } while (is_whole() && at.head < end_head);
    } else {
      add.template operator()<false>();
    }
  }
  // Computed again, and so in no registers throughout the loop.
  const Place same(static_cast<unsigned>(opaque(static_cast<int>(p.tiles))), M::kOwn, p.kv_heads,
                   before);
  Rows to = p.keys_of(same.batch, same.head);
  to.count = p.keys;
  const Lane l(fresh_thread());
  const int first_own = same.first + M::kRows * l.warp;
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    finish(keys_sums.scale[t], p.scale, keys_sums.sums[t]);
    keys_sums.scale_v[t].undo(keys_sums.sums_v[t]);
  }
  wait_own(end_head > 0);
  const int row = M::kRows * l.warp;
  write<T, kPadded, kPlain>(l, keys_sums.sums, own, row, to, p.out, first_own, first_step);
  write<T, kPadded, kPlain>(l, keys_sums.sums_v, own_d, row, to, p.out_v, first_own, first_step);
}

template <class T, int kPadded, int kRowTiles, bool kPlain>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks) mma_keys_kernel(Problem p) {
  begin_kernel();
  if constexpr (kMultiplies<T>) {
    multiply_keys<T, kPadded, kRowTiles, kPlain>(p, 0);
  }
}

// Computes the statistics of all queries.
template <class T, int kPadded>
__global__ void __launch_bounds__(kMmaThreads) statistics_kernel(Problem p) {
  begin_kernel();
  constexpr int kPacks = kPadded / 8;  // threads per query of a head
  const unsigned thread = blockIdx.x * kMmaThreads + threadIdx.x;
  const int pack = static_cast<int>(thread % kPacks);
  const auto row = static_cast<int>(min(thread / kPacks, static_cast<unsigned>(p.rows() - 1)));
  const int head = row % p.heads;
  const int query = row / p.heads % p.queries;
  const int batch = row / p.heads / p.queries;
  float o[8];
  float d[8];
  unpack<T>(p.of_queries(p.o, batch, head).pack<T>(query, pack), o);
  unpack<T>(p.of_queries(p.d_o, batch, head).pack<T>(query, pack), d);
  float sum = 0;
  BOWLINE_UNROLL
  for (int i = 0; i < 8; ++i) {
    sum += o[i] * d[i];
  }
  for (int other = 1; other < kPacks; other *= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, other);
  }
  if (pack == 0 && thread / kPacks < p.rows()) {
    *p.delta_of(batch, head, query) = sum;
    p.copy_lse(batch, head, query);
  }
}

// Both passes in one launch, after statistics_kernel: the first `key_blocks` blocks compute dk and
// dv. One tile of rows per warp. Only for plain problems.
template <class T, int kPadded>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks)
    mma_both_kernel(Problem queries, Problem keys, unsigned key_blocks) {
  begin_kernel();
  if constexpr (kMultiplies<T>) {
    if (blockIdx.x < key_blocks) {
      multiply_keys<T, kPadded, 1, true>(keys, 0);
    } else {
      multiply_queries<T, kPadded, 1, true, true>(queries, key_blocks);
    }
  }
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_grad_kernels
