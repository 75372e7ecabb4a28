//! ops(f32, f16, bf16) EmbeddingGrad
// The gradient of an embedding table: row r of it is the sum of the rows of dy whose id is r.
//
// The ids are sorted with their positions. A warp then adds a window of the sorted rows, 256
// columns wide, so that its work does not depend on how often an id occurs. If the rows of an id
// are in several windows, the sums of the windows are added last. All sums are in the order of the
// positions, in parts that depend only on the ids.
#include <algorithm>

#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/target.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::embedding_grad_kernels {
namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = kLanes * kWarps;
[[maybe_unused]] constexpr unsigned kLeastBlocks = 3;  // per processor, so up to 80 registers
constexpr unsigned kChunkIds = 512;                    // that a block sorts
constexpr unsigned kWindow = kLanes;                   // sorted rows that a warp adds
// The same for few ids, whose windows would be too few for a GPU.
constexpr uint64_t kFewIds = 2048;
constexpr unsigned kShortWindow = 8;
constexpr unsigned kColumns = 8;  // of a lane
constexpr uint64_t kTile = kLanes * kColumns;
constexpr unsigned kBatch = 4;  // rows that a lane loads at once

// An id in the upper half, its position in the lower half. Ids outside the table come last.
using Entry = uint64_t;
__device__ inline Entry entry_of(int32_t id, int64_t rows, uint64_t position) {
  const uint64_t row = id >= 0 && id < rows ? static_cast<uint64_t>(id) : UINT32_MAX;
  return row << 32 | position;
}
__device__ inline uint64_t id_of(Entry e) { return e >> 32; }
__device__ inline uint64_t position_of(Entry e) { return e & UINT32_MAX; }

// The number of sorted entries before the first one that is not less than `e`.
__device__ inline uint64_t entries_below(const Entry* sorted, uint64_t count, Entry e) {
  uint64_t low = 0;
  while (low < count) {
    const uint64_t middle = (low + count) / 2;
    if (sorted[middle] < e) {
      low = middle + 1;
    } else {
      count = middle;
    }
  }
  return low;
}

// Sorts each chunk of ids: the place of an entry is the number of smaller ones.
__global__ void sort_chunks_kernel(const int32_t* ids, Entry* sorted, uint64_t count,
                                   int64_t rows) {
  begin_kernel();
  __shared__ Shared<Entry[kChunkIds]> chunk;
  const uint64_t begin = uint64_t{blockIdx.x} * kChunkIds;
  const unsigned here = static_cast<unsigned>(min(count - begin, uint64_t{kChunkIds}));
  const uint64_t at = begin + threadIdx.x;
  const Entry mine = threadIdx.x < here ? entry_of(ids[at], rows, at) : 0;
  chunk[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x < here) {
    unsigned place = 0;
    for (unsigned i = 0; i < here; ++i) {
      place += chunk[i] < mine ? 1 : 0;
    }
    sorted[begin + place] = mine;
  }
}

// Merges the sorted chunks: a warp finds the place of an entry, and each of its lanes searches some
// of the chunks.
__global__ void merge_chunks_kernel(const Entry* chunks, Entry* sorted, uint64_t count) {
  begin_kernel();
  const uint64_t i = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= count) {
    return;
  }
  const Entry mine = chunks[i];
  uint32_t place = 0;
  for (uint64_t begin = threadIdx.x % kLanes * kChunkIds; begin < count;
       begin += kLanes * kChunkIds) {
    place += static_cast<uint32_t>(
        entries_below(chunks + begin, min(count - begin, uint64_t{kChunkIds}), mine));
  }
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    place += __shfl_xor_sync(0xFFFFFFFF, place, distance);
  }
  if (threadIdx.x % kLanes == 0) {
    sorted[place] = mine;
  }
}

// The operands. A window has two rows of `parts`: the sum of the rows of an id that also has rows
// in the window before, and of an id that begins here and goes on in the next window.
template <class T>
struct Operands {
  const Entry* sorted;
  const T* dy;
  Target<T> dtable;
  float* parts;
  uint64_t count;
  uint64_t width;
  uint64_t tiles;
  int64_t rows;
  unsigned window;  // sorted rows per window

  __device__ float* part(uint64_t of, unsigned which) const {
    return parts + (2 * of + which) * width;
  }
  __device__ uint64_t end_of(uint64_t i) const { return min((i + 1) * window, count); }
  // True if the rows at sorted places `at` - 1 and `at` have the same id.
  __device__ bool goes_on(uint64_t at) const {
    return at > 0 && at < count && id_of(sorted[at - 1]) == id_of(sorted[at]);
  }
};

// The columns of a lane in its tile: groups of kWidth neighbours.
template <int kWidth>
struct Columns {
  static constexpr unsigned kGroups = kColumns / kWidth;
  float x[kGroups][kWidth] = {};

  __device__ static uint64_t at(uint64_t tile, unsigned group) {
    return tile * kTile + (group * kLanes + threadIdx.x % kLanes) * kWidth;
  }
  template <class T>
  __device__ void load(const T* row, uint64_t tile, uint64_t width) {
    BOWLINE_UNROLL
    for (unsigned g = 0; g < kGroups; ++g) {
      if (at(tile, g) < width) {
        read_some(row + at(tile, g), x[g]);
      }
    }
  }
  template <class Y>
  __device__ void store(const Target<Y>& to, uint64_t row, uint64_t tile, uint64_t width) {
    BOWLINE_UNROLL
    for (unsigned g = 0; g < kGroups; ++g) {
      if (at(tile, g) < width) {
        to.put_some(row * width + at(tile, g), x[g]);
      }
    }
  }
  __device__ void add(const Columns& other) {
    BOWLINE_UNROLL
    for (unsigned g = 0; g < kGroups; ++g) {
      for (int k = 0; k < kWidth; ++k) {
        x[g][k] += other.x[g][k];
      }
    }
  }
};

// The columns of a lane in a row of dy, as they are stored.
template <int kWidth, class T>
struct Row {
  Some<T, kWidth> x[Columns<kWidth>::kGroups] = {};

  __device__ void load(const T* row, uint64_t tile, uint64_t width) {
    BOWLINE_UNROLL
    for (unsigned g = 0; g < Columns<kWidth>::kGroups; ++g) {
      const uint64_t at = Columns<kWidth>::at(tile, g);
      if (at < width) {
        x[g] = *reinterpret_cast<const Some<T, kWidth>*>(row + at);
      }
    }
  }
  __device__ void add_to(Columns<kWidth>& sum) const {
    BOWLINE_UNROLL
    for (unsigned g = 0; g < Columns<kWidth>::kGroups; ++g) {
      for (int k = 0; k < kWidth; ++k) {
        sum.x[g][k] += read(&x[g].x[k]);
      }
    }
  }
};

// A lane holds an entry of the window, so that no load of a row waits for the load of its entry.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads, kLeastBlocks) add_windows_kernel(Operands<T> p) {
  begin_kernel();
  constexpr unsigned kAll = 0xFFFFFFFF;
  const uint64_t warp = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  const uint64_t window = warp / p.tiles;
  const uint64_t tile = warp % p.tiles;
  const uint64_t begin = window * p.window;
  if (begin >= p.count) {
    return;
  }
  const auto here = static_cast<unsigned>(p.end_of(window) - begin);
  const unsigned lane = threadIdx.x % kLanes;
  const Entry mine = lane < here ? p.sorted[begin + lane] : entry_of(-1, p.rows, 0);
  const auto id = static_cast<uint32_t>(id_of(mine));
  const auto position = static_cast<uint32_t>(position_of(mine));
  bool from_before = p.goes_on(begin);
  const unsigned go_on = __ballot_sync(kAll, lane < here && p.goes_on(begin + lane + 1) ? 1 : 0);
  const unsigned valid = __ballot_sync(kAll, id != UINT32_MAX ? 1 : 0);
  Columns<kWidth> sum;
  for (unsigned first = 0; first < here; first += kBatch) {
    Row<kWidth, T> loaded[kBatch];
    BOWLINE_UNROLL
    for (unsigned b = 0; b < kBatch; ++b) {
      const uint64_t at = __shfl_sync(kAll, position, static_cast<int>(min(first + b, here - 1)));
      loaded[b].load(p.dy + at * p.width, tile, p.width);
    }
    BOWLINE_UNROLL
    for (unsigned b = 0; b < kBatch; ++b) {
      const unsigned at = first + b;
      if (at >= here || (valid >> at & 1) == 0) {
        return;
      }
      loaded[b].add_to(sum);
      const bool goes_on = (go_on >> at & 1) != 0;
      if (goes_on && at + 1 < here) {
        continue;
      }
      if (from_before || goes_on) {
        sum.store(Target<float>{p.part(window, from_before ? 0 : 1)}, 0, tile, p.width);
      } else {
        sum.store(p.dtable, __shfl_sync(kAll, id, static_cast<int>(at)), tile, p.width);
      }
      from_before = false;
      sum = {};
    }
  }
}

// Adds the parts of an id whose first row is in a window and whose last row is in a later one. The
// warps of the block share the windows.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) add_parts_kernel(Operands<T> p) {
  begin_kernel();
  __shared__ Shared<float[kWarps][kTile]> sums;
  const uint64_t window = blockIdx.x / p.tiles;
  const uint64_t tile = blockIdx.x % p.tiles;
  const uint64_t begin = window * p.window;
  const uint64_t end = p.end_of(window);
  const uint64_t id = id_of(p.sorted[end - 1]);
  const bool from_before = p.goes_on(begin) && id_of(p.sorted[begin]) == id;
  if (!p.goes_on(end) || from_before || id == UINT32_MAX) {
    return;  // the whole block
  }
  const uint64_t after = end + entries_below(p.sorted + end, p.count - end, (id + 1) << 32);
  const uint64_t last = (after - 1) / p.window;
  const uint64_t each = (last - window + kWarps - 1) / kWarps;
  const unsigned warp = threadIdx.x / kLanes;
  const uint64_t first = window + 1 + warp * each;
  Columns<kWidth> sum;
  if (warp == 0) {
    sum.load(p.part(window, 1), tile, p.width);
  }
  for (uint64_t w = first; w < first + each && w <= last; ++w) {
    Columns<kWidth> more;
    more.load(p.part(w, 0), tile, p.width);
    sum.add(more);
  }
  for (unsigned g = 0; g < Columns<kWidth>::kGroups; ++g) {
    for (unsigned k = 0; k < kWidth; ++k) {
      sums[warp][(g * kLanes + threadIdx.x % kLanes) * kWidth + k] = sum.x[g][k];
    }
  }
  __syncthreads();
  const uint64_t column = tile * kTile + threadIdx.x;
  float all = 0;
  for (unsigned w = 0; w < kWarps; ++w) {
    all += sums[w][threadIdx.x];
  }
  if (column < p.width) {
    p.dtable.put(id * p.width + column, all);
  }
}
static_assert(kThreads == kTile);

struct Sizes {
  uint64_t count;
  uint64_t width;
  unsigned window;
  uint64_t windows;

  Sizes(const Shape& ids, const Shape& table)
      : count(static_cast<uint64_t>(ids.elements())),
        width(static_cast<uint64_t>(table[1])),
        window(count <= kFewIds ? kShortWindow : kWindow),
        windows((count + window - 1) / window) {}
  uint64_t entries_bytes() const { return (count * sizeof(Entry) + 15) / 16 * 16; }
  uint64_t parts_bytes() const { return 2 * windows * width * sizeof(float); }
};

uint64_t workspace(const NodeView& node) {
  const Sizes s(node.in(0), node.out(0));
  return 2 * s.entries_bytes() + s.parts_bytes();
}

const char* refusal(const NodeView& node) {
  return node.in(0).elements() <= INT32_MAX ? nullptr : "There are more than 2^31 ids.";
}

template <class T>
void add_rows(Launch& l, const Sizes& s, const Target<T>& dtable) {
  const int64_t rows = l.out_shape(0)[0];
  Entry* const chunks = reinterpret_cast<Entry*>(l.workspace());
  Entry* const merged = chunks + s.entries_bytes() / sizeof(Entry);
  const unsigned chunk_count = blocks_for(s.count, kChunkIds);
  l.launch("embedding gradient, sort", sort_chunks_kernel, chunk_count, kChunkIds, l.in_i32(0),
           chunks, s.count, rows);
  if (chunk_count > 1) {
    l.launch("embedding gradient, merge", merge_chunks_kernel, blocks_for(s.count, kWarps),
             kThreads, chunks, merged, s.count);
  }
  const Operands<T> p = {chunk_count > 1 ? merged : chunks,
                         l.in_as<T>(1),
                         dtable,
                         reinterpret_cast<float*>(merged) + s.entries_bytes() / 4,
                         s.count,
                         s.width,
                         (s.width + kTile - 1) / kTile,
                         rows,
                         s.window};
  constexpr int kWidth = std::min<int>(kPack<T>, kColumns);
  const bool packs = s.width % kWidth == 0 && aligned16(p.dy, l.out(0), p.parts);
  l.launch("embedding gradient", packs ? add_windows_kernel<kWidth, T> : add_windows_kernel<1, T>,
           blocks_for(s.windows * p.tiles, kWarps), kThreads, p);
  if (s.windows > 1) {
    l.launch("embedding gradient, parts",
             packs ? add_parts_kernel<kWidth, T> : add_parts_kernel<1, T>,
             blocks_for(s.windows * p.tiles, 1), kThreads, p);
  }
}

template <class T>
void embedding_grad(Launch& l) {
  const auto elements = static_cast<uint64_t>(l.out_shape(0).elements());
  const Sizes s(l.in_shape(0), l.out_shape(0));
  const Target<T> dtable = target_of<T>(l, 0);
  if (elements == 0 || dtable.is_frozen()) {
    return;
  }
  if (!dtable.adds) {
    l.zero(l.out(0), elements * size_of(l.out_type(0)));
  }
  if (s.count > 0) {
    add_rows<T>(l, s, dtable);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(embedding_grad, .run = embedding_grad<T>, .workspace = workspace,
                          .refusal = refusal, .accumulates = outputs<0b1>);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::embedding_grad_kernels
