// Products of f16 or bf16 matrices on tensor cores, with sums in f32 that are rounded once.
//
// A block computes a tile of y. It loads panels of a and b into shared memory, several steps ahead
// of the multiplication: with asynchronous copies where lines consist of whole 16-byte packs, else
// through registers. Quantized elements are decoded on the way, into sums of two elements of f16 or
// three of bf16, so they keep the bits that they have in f32.
//
// Every result is the sum over k in one order, whatever the tile. A product with too few tiles is
// split along k. The last block of a tile adds the parts in order.
#include <algorithm>

#include "device/elements.cuh"
#include "device/panels.cuh"
#include "device/splits.cuh"
#include "device/tensor_product.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tensor_product_kernels {
namespace {

template <class T>
struct Product {
  PanelSource<T> sources[2];
  SplitResults<T> results;
  int k;
  Loops<2> batches;
  unsigned tiles[2];
  int split;  // k per part
};

// A tile of kM x kN results; each warp computes kWarpM x kWarpN of them.
template <int kM_, int kN_, int kWarpM_, int kWarpN_, int kBlocks_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kBlocks = kBlocks_;  // that an SM should hold
  static constexpr int kAcross = kN / kWarpN;
  static constexpr int kThreads = 32 * kAcross * (kM / kWarpM);
  static constexpr int kStage = (kM + kN) * kPanelDepth / 8;  // packs
};

// How panels get to shared memory: by asynchronous copies, through registers, or through registers
// with an operand that is quantized.
enum class Way { copies, registers, codes };
constexpr int stages(Way way) { return way == Way::copies ? 4 : 2; }
template <class T>
constexpr int parts(Way way) {
  return way != Way::codes ? 1 : std::is_same_v<T, __half> ? 2 : 3;
}

// The place of the block. Blocks that run at the same time share rows of a and columns of b in the
// cache: kGroup rows of tiles form a group, which is computed column by column.
template <class T>
__device__ TilePlace place_of_block(const Product<T>& p) {
  constexpr unsigned kGroup = 8;
  const unsigned of_matrix = p.tiles[0] * p.tiles[1];
  const unsigned block = blockIdx.x % of_matrix;
  const unsigned rest = blockIdx.x / of_matrix;
  const unsigned first = block / (kGroup * p.tiles[1]) * kGroup;
  const unsigned rows = min(kGroup, p.tiles[0] - first);
  const unsigned in_group = block % (kGroup * p.tiles[1]);
  return {{static_cast<int>(first + in_group % rows), static_cast<int>(in_group / rows)},
          static_cast<int>(rest % p.results.splits),
          rest / p.results.splits,
          rest / p.results.splits * of_matrix + block};
}

// 16 rows of the sums of a warp, on their way through shared memory: a lane gets 8 results of a
// row.
template <int kColumns>
class Slab {
 public:
  static constexpr int kRow = kColumns / 4;  // packs
  static constexpr int kSize = 16 * kRow;    // packs
  static constexpr int kGroups = 16 * kColumns / 8;

  __device__ explicit Slab(const Packs& at) : at_(at) {}

  // Two lanes exchange their pairs, so that each stores four sums of a row.
  template <int kTiles>
  __device__ void store(const float (&sums)[kTiles][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool upper = lane % 2 != 0;
    const int row = lane / 4 + (upper ? 8 : 0);
    BOWLINE_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const float(&v)[4] = sums[j];
      const float first = __shfl_xor_sync(0xFFFFFFFF, upper ? v[0] : v[2], 1);
      const float second = __shfl_xor_sync(0xFFFFFFFF, upper ? v[1] : v[3], 1);
      at_.store(place(row, 2 * j + lane % 4 / 2),
                upper ? pack(first, second, v[2], v[3]) : pack(v[0], v[1], first, second));
    }
  }
  // Group `group` of 8 results, counted row by row.
  __device__ void load(int group, float (&v)[8]) const {
    const int row = group * 8 / kColumns;
    const int first = group * 8 % kColumns / 4;
    const int flip = group / 4 % 2;  // half of the lanes begin with the second pack
    const uint4 one = at_.load(place(row, first + flip));
    const uint4 other = at_.load(place(row, first + 1 - flip));
    unpack(flip == 0 ? one : other, v, 0);
    unpack(flip == 0 ? other : one, v, 4);
  }

 private:
  // 8 lanes that access packs at once use different banks.
  __device__ static int place(int row, int column) {
    return row * kRow + (column ^ (row % 2 * 2 + row / 8 * 4));
  }
  __device__ static uint4 pack(float a, float b, float c, float d) {
    return {__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)};
  }
  __device__ static void unpack(const uint4& pack, float (&v)[8], int at) {
    v[at] = __uint_as_float(pack.x);
    v[at + 1] = __uint_as_float(pack.y);
    v[at + 2] = __uint_as_float(pack.z);
    v[at + 3] = __uint_as_float(pack.w);
  }

  Packs at_;
};

// Writes the sums of a warp for results from (row, column) on. `shared` is memory of the warp.
template <class T, int kTilesM, int kTilesN>
__device__ void write_tile(const SplitResults<T>& results, const float (&sums)[kTilesM][kTilesN][4],
                           const TilePlace& place, const Packs& shared, int row, int column) {
  constexpr int kColumns = 8 * kTilesN;
  const Slab<kColumns> slab(shared);
  BOWLINE_KEEP_LOOP
  for (int i = 0; i < kTilesM; ++i) {
    BOWLINE_UNROLL
    for (int tile = 0; tile < kTilesM; ++tile) {
      if (tile == i) {
        slab.store(sums[tile]);
      }
    }
    __syncwarp();
    BOWLINE_KEEP_LOOP
    for (int group = static_cast<int>(threadIdx.x) % 32; group < slab.kGroups; group += 32) {
      const int at_row = row + 16 * i + group * 8 / kColumns;
      const int at_column = column + group * 8 % kColumns;
      if (at_row < results.sizes[0] && at_column < results.sizes[1]) {
        float v[8];
        slab.load(group, v);
        results.put(place, at_row, at_column, v);
      }
    }
    __syncwarp();
  }
}

// The sums of the lines of an operand, which matrix instructions multiply with ones. A warp has
// kTiles tiles of 16 lines. The warps with the same tiles, kWays, share them.
template <class T, bool kOfA, int kTiles, int kWays>
class Lines {
 public:
  static_assert(kTiles % kWays == 0);

  // `way`: the number of this warp among those that share. If the compiler knew that a warp has
  // neighbouring tiles, it would index them, in memory.
  __device__ explicit Lines(int way) : way_(way), own_(opaque(((1 << kEach) - 1) << way * kEach)) {}

  // The tiles of both operands.
  template <int kTilesA, int kTilesB>
  __device__ void add(const uint32_t (&a)[kTilesA][4], const uint32_t (&b)[kTilesB][4]) {
    if constexpr (kOfA) {
      add_tiles(a);
    } else {
      add_tiles(b);
    }
  }

  // Calls put(line, sum) for the lines of the warp. `first`: the first line of its tiles.
  template <class F>
  __device__ void for_each(int first, F&& put) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    BOWLINE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (lane % 4 == 0) {
        const int line = first + 16 * (way_ * kEach + i) + lane / 4;
        put(line, sums_[i][0]);
        put(line + 8, sums_[i][2]);
      }
    }
  }

 private:
  __device__ void add_tiles(const uint32_t (&tiles)[kTiles][4]) {
    const uint32_t ones = pair_of<T>(1, 1);
    BOWLINE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if ((own_ >> i & 1) != 0) {
        const auto& t = tiles[i];
        constexpr int kSecond = kOfA ? 1 : 2;  // tiles of b have their words in another order
        multiply_add<T>(sums_[i % kEach], {t[0], t[kSecond], t[3 - kSecond], t[3]}, {ones, ones});
      }
    }
  }

  static constexpr int kEach = kTiles / kWays;
  int way_;
  int own_;  // a bit per tile
  float sums_[kEach][4] = {};
};

// The operand whose lines are summed.
enum class Summed { none, a, b };

// kAlongA, kAlongB: the lines of a and b are along k.
template <class T, class Tile, bool kAlongA, bool kAlongB, Way kWay, Summed kSummed>
__device__ void multiply_tile(const Product<T>& p) {
  constexpr int kStages = stages(kWay);
  constexpr int kParts = parts<T>(kWay);
  constexpr int kStage = kParts * Tile::kStage;
  using PanelA = Panel<T, Tile::kM, kAlongA, Tile::kThreads, kParts>;
  using PanelB = Panel<T, Tile::kN, kAlongB, Tile::kThreads, kParts>;
  constexpr int kTilesM = Tile::kWarpM / 16;
  constexpr int kTilesN = Tile::kWarpN / 8;
  const Packs shared = dynamic_shared();
  const TilePlace place = place_of_block(p);
  int64_t offsets[2];
  p.batches.offsets(place.batch, offsets);
  const int begin = place.part * p.split;
  const int end = min(p.k, begin + p.split);
  const int row = place.tile[0] * Tile::kM;
  const int column = place.tile[1] * Tile::kN;
  PanelA a(p.sources[0], offsets[0], row, begin, end);
  PanelB b(p.sources[1], offsets[1], column, begin, end);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / Tile::kAcross * Tile::kWarpM;
  const int warp_column = warp % Tile::kAcross * Tile::kWarpN;
  const Fragments<PanelA, kAlongA, true, kTilesM> of_a(warp_row);
  const Fragments<PanelB, kAlongB, false, kTilesN / 2> of_b(warp_column);

  float sums[kTilesM][kTilesN][4] = {};
  // The tiles at the edges of y sum lines.
  constexpr bool kOfA = kSummed == Summed::a;
  constexpr int kAbove = Tile::kM / Tile::kWarpM;
  Lines<T, kOfA, kOfA ? kTilesM : kTilesN / 2, kOfA ? Tile::kAcross : kAbove> lines(
      kOfA ? warp % Tile::kAcross : warp / Tile::kAcross);
  const bool sums_lines = kSummed != Summed::none && p.results.sums_lines(place);
  const auto multiply_parts = [&](const Packs& panel_a, const Packs& panel_b) {
    BOWLINE_UNROLL
    for (int step = 0; step < kPanelDepth / 16; ++step) {
      uint32_t x[kTilesM][4];
      uint32_t w[kTilesN / 2][4];
      of_a.load(x, panel_a, step);
      of_b.load(w, panel_b, step);
      BOWLINE_UNROLL
      for (int i = 0; i < kTilesM; ++i) {
        BOWLINE_UNROLL
        for (int j = 0; j < kTilesN; ++j) {
          multiply_add<T>(sums[i][j], x[i], {w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]});
        }
      }
      if (sums_lines) {
        lines.add(x, w);
      }
    }
  };
  // Products of two parts that are both small are left out.
  const auto multiply = [&](const Packs& stage) {
    const Packs stage_b = stage.from(kParts * PanelA::kSize);
    BOWLINE_KEEP_LOOP
    for (int i = 0; i < (kParts == 1 ? 1 : a.parts()); ++i) {
      BOWLINE_KEEP_LOOP
      for (int j = 0; j < (kParts == 1 ? 1 : min(b.parts(), kParts - i)); ++j) {
        multiply_parts(stage.from(i * PanelA::kSize), stage_b.from(j * PanelB::kSize));
      }
    }
  };
  const int steps = (end - begin + kPanelDepth - 1) / kPanelDepth;
  if constexpr (kWay == Way::copies) {
    const auto copy = [&](int step) {
      if (step < steps) {
        const Packs to = shared.from(step % kStages * kStage);
        a.copy(to);
        b.copy(to.from(kParts * PanelA::kSize));
      }
      commit_copies();
    };
    for (int step = 0; step < kStages - 1; ++step) {
      copy(step);
    }
    for (int step = 0; step < steps; ++step) {
      wait_copies<kStages - 2>();
      __syncthreads();
      copy(step + kStages - 1);
      multiply(shared.from(step % kStages * kStage));
    }
    __syncthreads();
  } else {
    constexpr bool kCodes = kWay == Way::codes;
    const auto load = [&] {
      a.template load<kCodes>();
      b.template load<kCodes>();
    };
    const auto store = [&](int step) {
      const Packs to = shared.from(step % kStages * kStage);
      a.template store<kCodes>(to);
      b.template store<kCodes>(to.from(kParts * PanelA::kSize));
    };
    if (steps > 0) {
      load();
      store(0);
    }
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        load();
      }
      multiply(shared.from(step % kStages * kStage));
      if (step + 1 < steps) {
        store(step + 1);
      }
      __syncthreads();
    }
  }
  constexpr int kSlab = Slab<Tile::kWarpN>::kSize;
  static_assert(Tile::kThreads / 32 * kSlab <= kStages * kStage);
  write_tile(p.results, sums, place, shared.from(warp * kSlab), row + warp_row,
             column + warp_column);
  if (sums_lines) {
    lines.for_each(kOfA ? row + warp_row : column + warp_column,
                   [&](int line, float sum) { p.results.put_line(place, line, sum); });
  }
  p.results.template finish<Tile::kM, Tile::kN, Tile::kThreads, 8>(place);
}

template <class T, class Tile, bool kAlongA, bool kAlongB, Way kWay, Summed kSummed>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) tile_kernel(Product<T> p) {
  if constexpr (kMultiplies<T> && (kWay != Way::copies || kFor80)) {
    multiply_tile<T, Tile, kAlongA, kAlongB, kWay, kSummed>(p);
  }
}

// The tiles, largest first. A GPU multiplies `rate` percent as fast with a tile as with the largest
// one, if each SM has several. (Ratios of operations to bytes loaded into shared memory and
// registers, not measured.)
struct TileSize {
  int m;
  int n;
  int rate;
};
constexpr TileSize kTiles[] = {{128, 256, 100}, {128, 128, 90}, {64, 64, 60}, {32, 32, 35}};

// The tile, and the parts of k.
struct Plan {
  size_t tile = 0;
  int64_t wanted = 1;  // parts before their sizes are rounded
  unsigned splits = 1;
  int split = 0;
};

int64_t tiles_along(int64_t rows, int tile) { return (rows + tile - 1) / tile; }

int64_t tiles_of(const MatrixProduct& p, const TileSize& tile) {
  return tiles_along(p.m, tile.m) * tiles_along(p.n, tile.n) *
         static_cast<int64_t>(p.batch.elements());
}

// Clock cycles that a product takes, in a model: an SM multiplies 1,024 pairs per cycle, and its
// share of the memory bandwidth is 10 bytes per cycle. The block that adds the parts of a tile
// reads 32 bytes per cycle from the cache, and waits for 1,000 cycles.
int64_t cycles(const MatrixProduct& p, const Traits& traits, const TileSize& tile, int64_t splits) {
  const auto batch = static_cast<int64_t>(p.batch.elements());
  const int64_t blocks = tiles_of(p, tile) * splits;
  const int64_t waves = (blocks + traits.processors - 1) / traits.processors;
  const int64_t depth = (p.k + splits - 1) / splits + kPanelDepth;
  const int64_t one = tile.m * tile.n * depth / 1024 * 100 / tile.rate;
  const int64_t written = splits * p.m * p.n * batch * 4;
  const int64_t added = splits * tile.m * tile.n * 4;
  return waves * one + (splits == 1 ? 0 : 1000 + written / (10 * traits.processors) + added / 32);
}

// The plans from which one is chosen.
std::vector<Plan> plans_of(const MatrixProduct& p, const Traits& traits) {
  constexpr int64_t kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16};
  // k per part
  const int64_t smallest = traits.parts == Parts::many ? kPanelDepth : 256;
  constexpr int64_t kMaxWorkspace = int64_t{32} << 20;
  std::vector<Plan> plans;
  for (size_t i = 0; i < std::size(kTiles); ++i) {
    if (traits.tile_columns != 0 && traits.tile_columns != kTiles[i].n) {
      continue;
    }
    for (const int64_t splits : kSplits) {
      if (splits > 1 &&
          (traits.parts == Parts::one || p.k / splits < smallest ||
           splits * p.m * p.n * static_cast<int64_t>(p.batch.elements()) * 4 > kMaxWorkspace ||
           tiles_of(p, kTiles[i]) > kBlockCounters)) {
        break;
      }
      const int64_t part = (p.k + splits - 1) / splits;
      Plan& plan = plans.emplace_back();
      plan.tile = i;
      plan.wanted = splits;
      plan.split = static_cast<int>((part + kPanelDepth - 1) / kPanelDepth * kPanelDepth);
      plan.splits = static_cast<unsigned>(
          std::max<int64_t>(1, (p.k + plan.split - 1) / std::max(plan.split, 1)));
    }
  }
  return plans;
}

// The plan of a candidate, or the fastest plan of the model.
Plan plan_of(const MatrixProduct& p, const Traits& traits, uint32_t candidate) {
  const std::vector<Plan> plans = plans_of(p, traits);
  if (candidate < plans.size()) {
    return plans[candidate];
  }
  return *std::ranges::min_element(plans, {}, [&](const Plan& plan) {
    return traits.parts == Parts::many ? -plan.wanted
                                       : cycles(p, traits, kTiles[plan.tile], plan.wanted);
  });
}

template <class T, class Tile, bool kAlongA, bool kAlongB, Way kWay>
void launch_tile(Launch& l, Product<T> p) {
  p.tiles[0] = static_cast<unsigned>(tiles_along(p.sources[0].rows, Tile::kM));
  p.tiles[1] = static_cast<unsigned>(tiles_along(p.sources[1].rows, Tile::kN));
  const unsigned blocks =
      p.tiles[0] * p.tiles[1] * p.results.splits * static_cast<unsigned>(p.batches.elements());
  const auto launch = [&](auto* kernel) {
    l.launch_shared("tensor product", kernel, blocks, Tile::kThreads,
                    stages(kWay) * parts<T>(kWay) * Tile::kStage * sizeof(uint4), p);
  };
  // The gradient of a weight has lines across k.
  if constexpr (!kAlongA && !kAlongB && kWay != Way::codes) {
    if (p.results.lines.operand == 0) {
      return launch(tile_kernel<T, Tile, kAlongA, kAlongB, kWay, Summed::a>);
    }
    if (p.results.lines.operand == 1) {
      return launch(tile_kernel<T, Tile, kAlongA, kAlongB, kWay, Summed::b>);
    }
  }
  launch(tile_kernel<T, Tile, kAlongA, kAlongB, kWay, Summed::none>);
}

// Copies have all tiles. Panels that go through registers are slower and have only two.
template <class T, bool kAlongA, bool kAlongB, Way kWay>
void launch_layout(Launch& l, const Product<T>& p, size_t tile) {
  if constexpr (kWay == Way::copies) {
    if (tile == 0) {
      launch_tile<T, Tile<128, 256, 64, 64, 1>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
    if (tile == 1) {
      launch_tile<T, Tile<128, 128, 64, 64, 2>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
    if (tile == 2) {
      launch_tile<T, Tile<64, 64, 32, 64, 6>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
  } else if constexpr (kWay == Way::registers || kAlongA) {
    // A quantized operand is rarely transposed. Loading needs registers, so more threads share the
    // sums than with copies.
    if (tile <= 1) {
      launch_tile<T, Tile<128, 128, 64, 32, 1>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
  }
  launch_tile<T, Tile<32, 32, 32, 32, 8>, kAlongA, kAlongB, kWay>(l, p);
}

template <class T, Way kWay>
void launch_way(Launch& l, const Product<T>& p, size_t tile, bool along_a, bool along_b) {
  if (along_a) {
    along_b ? launch_layout<T, true, true, kWay>(l, p, tile)
            : launch_layout<T, true, false, kWay>(l, p, tile);
  } else if (!along_b) {
    launch_layout<T, false, false, kWay>(l, p, tile);
  } else {
    // No gradient needs both transposed.
    launch_layout<T, false, true, kWay == Way::copies ? Way::registers : kWay>(l, p, tile);
  }
}

template <class T>
void multiply(Launch& l, const MatrixProduct& m) {
  const Plan plan = plan_of(m, l.traits(), l.candidate());
  bool strides_of_packs = true;
  for (int axis = 0; axis < m.batch.rank; ++axis) {
    strides_of_packs =
        strides_of_packs && m.batch.strides[0][axis] % 8 == 0 && m.batch.strides[1][axis] % 8 == 0;
  }
  const bool along[2] = {!m.transpose_a, m.transpose_b};
  Product<T> p;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t rows = i == 0 ? m.m : m.n;
    const int64_t line = along[i] ? m.k : rows;
    const T* const data = l.is_encoded(i) ? nullptr : l.in_as<T>(i);
    p.sources[i] = {data, m.k > 0 ? codes_of(l, i) : Codes{}, line, static_cast<int>(rows),
                    line % 8 == 0 && strides_of_packs && aligned16(data)};
  }
  p.results = split_results_of<T>(l, m, plan.splits, 8);
  p.k = static_cast<int>(m.k);
  p.batches = m.batch;
  p.split = plan.split;
  const bool codes = p.sources[0].codes.codes != nullptr || p.sources[1].codes.codes != nullptr;
  const bool packs = p.sources[0].packs && p.sources[1].packs && l.traits().copies_async();
  if (codes) {
    launch_way<T, Way::codes>(l, p, plan.tile, along[0], along[1]);
  } else if (packs) {
    launch_way<T, Way::copies>(l, p, plan.tile, along[0], along[1]);
  } else {
    launch_way<T, Way::registers>(l, p, plan.tile, along[0], along[1]);
  }
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tensor_product_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

uint64_t tensor_product_workspace(const MatrixProduct& p, const Traits& traits,
                                  uint32_t candidate) {
  return parts_bytes(p, tensor_product_kernels::plan_of(p, traits, candidate).splits);
}

uint32_t tensor_product_candidates(const MatrixProduct& p, const Traits& traits) {
  return static_cast<uint32_t>(tensor_product_kernels::plans_of(p, traits).size());
}

void multiply_on_tensor_cores(Launch& l, const MatrixProduct& p) {
  if (l.type() == DType::f16) {
    tensor_product_kernels::multiply<__half>(l, p);
  } else {
    tensor_product_kernels::multiply<__nv_bfloat16>(l, p);
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
