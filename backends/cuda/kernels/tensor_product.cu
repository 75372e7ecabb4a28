// Products of f16 or bf16 matrices on tensor cores, with sums in f32 that are rounded once. Also
// products of f32 matrices, if the device may round their elements to TF32.
//
// A block computes a tile of y. It loads panels of a and b into shared memory, several steps ahead
// of the multiplication: with asynchronous copies where lines consist of whole 16-byte packs, else
// through registers. Quantized elements are decoded on the way, into sums of two elements of f16 or
// three of bf16, so they keep the bits that they have in f32.
//
// Every result is the sum over k in one order, whatever the tile. A product with too few tiles is
// split along k. The last block of a tile adds the parts in order.
#include <algorithm>

#include "device/begin.cuh"
#include "device/elements.cuh"
#include "device/splits.cuh"
#include "device/tensor_product.cuh"
#include "device/warp_product.cuh"
#include "tensor_product_plan.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tensor_product_kernels {
namespace {

template <class T>
struct Product {
  PanelSource<T> sources[2];
  SplitResults<T> results;
  int k;
  Loops<2> batches;
  unsigned tiles[2];
  int split;   // k per part
  int stages;  // panels in shared memory at once, with Way::copies
};

// A tile of kM x kN results; each warp computes kWarpM x kWarpN of them. A panel has kPacks packs
// along k.
template <int kM_, int kN_, int kPacks_, int kWarpM_, int kWarpN_, int kBlocks_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kPacks = kPacks_, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kBlocks = kBlocks_;  // that an SM should hold
  static constexpr int kAcross = kN / kWarpN;
  static constexpr int kThreads = 32 * kAcross * (kM / kWarpM);
  static constexpr int kStage = (kM + kN) * kPacks;  // packs
};

// How panels get to shared memory: by asynchronous copies, through registers, or through registers
// with an operand that is quantized.
enum class Way { copies, registers, codes };
constexpr int kStages = 2;      // panels in shared memory at once, except with Way::copies
constexpr int kMostStages = 4;  // with Way::copies, which uses at least 2
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
  __device__ void store(int lane, const float (&sums)[kTiles][4]) const {
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
  constexpr int kRows = 32 * 8 / kColumns;  // that the warp takes at once
  constexpr bool kIs16 = sizeof(T) == 2;
  // Computed here, and so in no register during the loop over panels.
  const int lane = opaque(static_cast<int>(threadIdx.x)) % 32;
  const int at_column = column + lane * 8 % kColumns;
  const bool is_inside = at_column < results.sizes[1];
  int at_row = row + lane * 8 / kColumns;
  using Operands = typename SplitResults<T>::template Operands<8>;
  const auto load = [&](Operands& to, int ahead) {
    if (is_inside) {
      results.template load<8>(to, place, at_row + ahead * kRows, at_column);
    }
  };
  typename SplitResults<T>::template Biases<8> biases;
  if (is_inside) {
    results.load_biases(biases, at_column);
  }
  // Groups whose operands are in registers. Those of f32 are twice as large.
  constexpr int kAhead = kIs16 ? 3 : 1;
  Operands operands[kAhead];
  BOWLINE_UNROLL
  for (int i = 0; i < kAhead - 1; ++i) {
    load(operands[i], i);
  }
  BOWLINE_ROLL
  for (int i = 0; i < kTilesM; ++i) {
    // With f32, addresses that are computed here change the order of the loop over panels for the
    // worse, on sm_80.
    BOWLINE_UNROLL
    for (int tile = 0; tile < kTilesM; ++tile) {
      if (tile == i) {
        slab.store(kIs16 ? opaque(lane) : lane, sums[tile]);
      }
    }
    __syncwarp();
    BOWLINE_ROLL
    for (int group = lane; group < slab.kGroups; group += 32) {
      load(operands[kAhead - 1], kAhead - 1);
      if (is_inside && at_row < results.sizes[0]) {
        float v[8];
        slab.load(group, v);
        results.put(place, at_row, at_column, v, biases, operands[0]);
      }
      BOWLINE_UNROLL
      for (int j = 1; j < kAhead; ++j) {
        operands[j - 1] = operands[j];
      }
      at_row += kRows;
    }
    __syncwarp();
  }
}

// Waits for the oldest of the panels that are on their way to shared memory: `stages` - 1.
template <int kMost>
__device__ void wait_panel(int stages) {
  if (stages == 2) {
    wait_copies<0>();
  } else if (stages == 3) {
    wait_copies<1>();
  } else {
    wait_copies<kMost - 2>();
  }
}

// Multiplies panels of a and b that asynchronous copies bring to shared memory, `stages` at once. A
// stage has kStage packs.
template <int kStage, class W, class A, class B>
__device__ void multiply_copied(W& product, A& a, B& b, const Packs& shared, int stages,
                                int panels) {
  constexpr int kSteps = W::kSteps;
  const auto next = [&](int stage) {
    return stage + kStage == stages * kStage ? 0 : stage + kStage;
  };
  // Copies part `part` of kOf of the next panels. Panels after the last one become 0.
  const auto copy = [&]<int kOf>(const Packs& to, int part) {
    a.template copy<kOf>(to, part);
    b.template copy<kOf>(to.from(A::kSize), part);
  };
  const auto end_copies = [&] {
    a.advance();
    b.advance();
    commit_copies();
  };
  int writing = 0;
  for (int i = 0; i < stages - 1; ++i) {
    copy.template operator()<1>(shared.from(writing), 0);
    end_copies();
    writing = next(writing);
  }
  wait_panel<kMostStages>(stages);
  __syncthreads();
  int reading = 0;
  product.load_first(shared, shared.from(A::kSize));
  BOWLINE_ROLL
  for (int panel = 0; panel < panels; ++panel) {
    BOWLINE_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      // All warps have loaded the last operands of the panel: its memory may be written.
      if (step == kSteps - 1) {
        end_copies();
        wait_panel<kMostStages>(stages);
        __syncthreads();
        writing = next(writing);
        reading = next(reading);
      }
      product.multiply(step, [&](int part) {
        const Packs from = shared.from(reading);
        product.load(from, from.from(A::kSize), (step + 1) % kSteps, part);
        // The compiler orders copies after loads with three more loads, so a step has its copies
        // in a row.
        if (step < kSteps - 1 && part == 0) {
          copy.template operator()<kSteps - 1>(shared.from(writing), step);
        }
      });
    }
  }
  wait_copies<0>();
  __syncthreads();
}

// The same with panels that go through registers, and have kParts parts.
template <bool kCodes, int kParts, int kStage, class W, class A, class B>
__device__ void multiply_loaded(W& product, A& a, B& b, const Packs& shared, int panels) {
  const auto multiply_panels = [&](const Packs& panel_a, const Packs& panel_b) {
    product.load_first(panel_a, panel_b);
    BOWLINE_UNROLL
    for (int step = 0; step < W::kSteps; ++step) {
      product.multiply(step, [&](int part) {
        if (step + 1 < W::kSteps) {
          product.load(panel_a, panel_b, step + 1, part);
        }
      });
    }
  };
  // Products of two parts that are both small are left out.
  const auto multiply_parts = [&](const Packs& stage) {
    const Packs stage_b = stage.from(kParts * A::kSize);
    BOWLINE_ROLL
    for (int i = 0; i < (kParts == 1 ? 1 : a.parts()); ++i) {
      BOWLINE_ROLL
      for (int j = 0; j < (kParts == 1 ? 1 : min(b.parts(), kParts - i)); ++j) {
        multiply_panels(stage.from(i * A::kSize), stage_b.from(j * B::kSize));
      }
    }
  };
  const auto load = [&] {
    a.template load<kCodes>();
    b.template load<kCodes>();
  };
  const auto store = [&](int panel) {
    const Packs to = shared.from(panel % kStages * kStage);
    a.template store<kCodes>(to);
    b.template store<kCodes>(to.from(kParts * A::kSize));
  };
  // Loading is much code, so the first panel has no code of its own.
  BOWLINE_ROLL
  for (int panel = -1; panel < panels; ++panel) {
    if (panel + 1 < panels) {
      load();
    }
    if (panel >= 0) {
      multiply_parts(shared.from(panel % kStages * kStage));
    }
    if (panel + 1 < panels) {
      store(panel + 1);
    }
    __syncthreads();
  }
}

// kAlongA, kAlongB: the lines of a and b are along k.
template <class T, class Tile, bool kAlongA, bool kAlongB, Way kWay, Summed kSummed>
__device__ void multiply_tile(const Product<T>& p) {
  constexpr int kParts = parts<T>(kWay);
  constexpr int kStage = kParts * Tile::kStage;
  using PanelA = Panel<T, Tile::kM, Tile::kPacks, kAlongA, Tile::kThreads, kParts>;
  using PanelB = Panel<T, Tile::kN, Tile::kPacks, kAlongB, Tile::kThreads, kParts>;
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
  WarpProduct<T, Tile, PanelA, PanelB, kAlongA, kAlongB, kSummed> product(
      warp, p.results.sums_lines(place));
  const int panels = (end - begin + PanelA::kDepth - 1) / PanelA::kDepth;
  if constexpr (kWay == Way::copies) {
    multiply_copied<kStage>(product, a, b, shared, p.stages, panels);
  } else {
    multiply_loaded<kWay == Way::codes, kParts, kStage>(product, a, b, shared, panels);
  }
  constexpr int kSlab = Slab<Tile::kWarpN>::kSize;
  static_assert(Tile::kThreads / 32 * kSlab <= 2 * kStage);
  write_tile(p.results, product.sums(), place, shared.from(warp * kSlab), row + product.row(),
             column + product.column());
  product.for_each_line(kSummed == Summed::a ? row : column,
                        [&](int line, float sum) { p.results.put_line(place, line, sum); });
  p.results.template finish<Tile::kM, Tile::kN, Tile::kThreads, 4>(place);
}

template <class T, class Tile, bool kAlongA, bool kAlongB, Way kWay, Summed kSummed>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) tile_kernel(Product<T> p) {
  begin_kernel();
  constexpr bool kIsUsed = kWay == Way::copies      ? kFor80
                           : kWay == Way::registers ? kFor75 || Tile::kM > 32
                                                    : true;
  if constexpr (kMultiplies<T> && kIsUsed) {
    multiply_tile<T, Tile, kAlongA, kAlongB, kWay, kSummed>(p);
  }
}

// The stages of kernels that copy. As many as leave room for the blocks that an SM should hold, but
// not below 3 if they fit.
inline int stages_of(const Traits& traits, unsigned bytes, unsigned blocks) {
  constexpr unsigned kOfSystem = 1024;  // per block
  constexpr unsigned kStatic = 16;      // the shared memory of SplitResults
  const unsigned most = traits.most_shared_bytes();
  const unsigned fit = (most - kStatic) / bytes;
  const unsigned of_block = (most + kOfSystem) / blocks - kOfSystem - kStatic;
  return static_cast<int>(std::clamp(of_block / bytes, std::min(fit, 3U), unsigned{kMostStages}));
}

template <class T, class Tile, bool kAlongA, bool kAlongB, Way kWay>
void launch_tile(Launch& l, Product<T> p) {
  p.tiles[0] = static_cast<unsigned>(tiles_along(p.sources[0].rows, Tile::kM));
  p.tiles[1] = static_cast<unsigned>(tiles_along(p.sources[1].rows, Tile::kN));
  const unsigned blocks =
      p.tiles[0] * p.tiles[1] * p.results.splits * static_cast<unsigned>(p.batches.elements());
  constexpr unsigned kStage = parts<T>(kWay) * Tile::kStage * sizeof(uint4);
  p.stages = kWay == Way::copies ? stages_of(l.traits(), kStage, Tile::kBlocks) : kStages;
  const auto has_packs = [](const PanelSource<T>& s) {
    return s.packs || s.codes.codes != nullptr;
  };
  const bool packs = has_packs(p.sources[0]) && has_packs(p.sources[1]);
  const auto launch = [&](auto* kernel) {
    l.launch_shared(packs ? "tensor product" : "tensor product, unaligned rows", kernel, blocks,
                    Tile::kThreads, static_cast<unsigned>(p.stages) * kStage, p);
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

// Copies have all tiles. Panels that go through registers are slower and have only two. Where most
// products copy, plain ones have only the larger one.
template <class T, bool kAlongA, bool kAlongB, Way kWay>
void launch_layout(Launch& l, const Product<T>& p, size_t tile) {
  if constexpr (kWay == Way::copies) {
    if constexpr (!std::is_same_v<T, float>) {
      if (tile == 0) {
        launch_tile<T, Tile<128, 256, 8, 64, 64, 1>, kAlongA, kAlongB, kWay>(l, p);
        return;
      }
    }
    if (tile == 1) {
      launch_tile<T, Tile<128, 128, 4, 64, 64, 2>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
    if (tile == 2) {
      launch_tile<T, Tile<64, 64, 4, 32, 64, 6>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
  } else if constexpr (kWay == Way::registers || kAlongA) {
    // A quantized operand is rarely transposed. Loading needs registers, so more threads share the
    // sums than with copies.
    if (tile <= 1 || (kWay == Way::registers && l.traits().code >= 80)) {
      launch_tile<T, Tile<128, 128, 4, 64, 32, 1>, kAlongA, kAlongB, kWay>(l, p);
      return;
    }
  }
  launch_tile<T, Tile<32, 32, 4, 32, 32, 8>, kAlongA, kAlongB, kWay>(l, p);
}

template <class T, Way kWay>
void launch_way(Launch& l, const Product<T>& p, size_t tile, bool along_a, bool along_b) {
  if (along_a) {
    along_b ? launch_layout<T, true, true, kWay>(l, p, tile)
            : launch_layout<T, true, false, kWay>(l, p, tile);
  } else if (!along_b) {
    launch_layout<T, false, false, kWay>(l, p, tile);
  } else if constexpr (!std::is_same_v<T, float>) {
    // No gradient needs both transposed.
    launch_layout<T, false, true, kWay == Way::copies ? Way::registers : kWay>(l, p, tile);
  }
}

// True if a matrix is quantized.
bool has_codes(std::span<const device::Operand> inputs) {
  return !inputs[0].encoding.is_plain() || !inputs[1].encoding.is_plain();
}

// Whether the matrices of a batch begin at multiples of 16 bytes, if the first ones do.
template <class T>
bool strides_of_packs(const MatrixProduct& m) {
  bool all = true;
  for (int axis = 0; axis < m.batch.rank; ++axis) {
    all =
        all && m.batch.strides[0][axis] % kPack<T> == 0 && m.batch.strides[1][axis] % kPack<T> == 0;
  }
  return all;
}

template <class T>
bool multiply(Launch& l, const MatrixProduct& m) {
  const bool codes = has_codes(l.record().inputs) && m.k > 0;
  const Plan plan = plan_of(m, {l.type(), codes}, l.traits(), l.candidate());
  const bool strides = strides_of_packs<T>(m);
  const bool along[2] = {!m.transpose_a, m.transpose_b};
  Product<T> p;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t rows = i == 0 ? m.m : m.n;
    const int64_t line = along[i] ? m.k : rows;
    const T* const data = l.is_encoded(i) ? nullptr : l.in_as<T>(i);
    p.sources[i] = {data, m.k > 0 ? codes_of(l, i) : Codes{}, line, static_cast<int>(rows),
                    line % kPack<T> == 0 && strides && aligned16(data)};
  }
  p.results = split_results_of<T>(l, m, plan.splits, 8);
  p.k = static_cast<int>(m.k);
  p.batches = m.batch;
  p.split = plan.split;
  const bool packs = p.sources[0].packs && p.sources[1].packs && l.traits().copies_async();
  if (packs && !codes) {
    launch_way<T, Way::copies>(l, p, plan.tile, along[0], along[1]);
    return true;
  }
  if constexpr (!std::is_same_v<T, float>) {
    if (codes) {
      launch_way<T, Way::codes>(l, p, plan.tile, along[0], along[1]);
    } else {
      launch_way<T, Way::registers>(l, p, plan.tile, along[0], along[1]);
    }
    return true;
  }
  return false;
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tensor_product_kernels

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

bool may_use_tf32(const Traits& traits, std::span<const device::Operand> inputs,
                  const MatrixProduct& p) {
  const int64_t line_a = p.transpose_a ? p.m : p.k;
  const int64_t line_b = p.transpose_b ? p.k : p.n;
  return traits.tf32 && traits.copies_async() && !tensor_product_kernels::has_codes(inputs) &&
         !(p.transpose_a && p.transpose_b) && line_a % kPack<float> == 0 &&
         line_b % kPack<float> == 0 && tensor_product_kernels::strides_of_packs<float>(p);
}

uint64_t tensor_product_workspace(const MatrixProduct& p, DType type,
                                  std::span<const device::Operand> inputs, const Traits& traits,
                                  uint32_t candidate) {
  using namespace tensor_product_kernels;
  return parts_bytes(p, plan_of(p, {type, has_codes(inputs)}, traits, candidate).splits);
}

uint32_t tensor_product_candidates(const MatrixProduct& p, DType type,
                                   std::span<const device::Operand> inputs, const Traits& traits) {
  using namespace tensor_product_kernels;
  return static_cast<uint32_t>(plans_of(p, {type, has_codes(inputs)}, traits).size());
}

bool multiply_on_tensor_cores(Launch& l, const MatrixProduct& p) {
  return l.type() == DType::f32   ? tensor_product_kernels::multiply<float>(l, p)
         : l.type() == DType::f16 ? tensor_product_kernels::multiply<__half>(l, p)
                                  : tensor_product_kernels::multiply<__nv_bfloat16>(l, p);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
