// How the kernels of products on tensor cores divide their work: the tile, and the parts of k.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/products.h"
#include "kernel.h"
#include "product_plan.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tensor_product_kernels {

constexpr int kDepth = 32;  // parts of k are multiples of it

// The tiles, largest first. A GPU multiplies `rate` percent as fast with a tile as with the largest
// one, if each SM has several. (Ratios of operations to bytes loaded into shared memory and
// registers, not measured.)
struct TileSize {
  int m;
  int n;
  int rate;
  int threads;
  int blocks;  // that an SM holds
};
constexpr TileSize kTiles[] = {
    {128, 256, 100, 256, 1}, {128, 128, 90, 128, 2}, {64, 64, 60, 64, 4}, {32, 32, 35, 32, 8}};

// Whether a matrix of the product is quantized, or the dtype of the plain matrices.
struct ProductOperands {
  DType type;
  bool quantized;
};

// The tile, and the parts of k.
struct Plan {
  size_t tile = 0;
  int64_t wanted = 1;  // parts before their sizes are rounded
  unsigned splits = 1;
  int split = 0;
};

inline int64_t tiles_of(const MatrixProduct& p, const TileSize& tile) {
  return tiles_along(p.m, tile.m) * tiles_along(p.n, tile.n) *
         static_cast<int64_t>(p.batch.elements());
}

// Clock cycles that a product takes, in a model: an SM multiplies 1,024 pairs of 16-bit elements or
// 512 of TF32 per cycle. Its share of the cache's bandwidth is 28 bytes per cycle, and of the
// memory's 10. The first panels of a block arrive after 3,000 cycles, and a warp takes 250 for 256
// results, on Hopper. Blocks of the same SM overlap with both. The block that adds the parts of a
// tile reads 32 bytes per cycle from the cache, and waits for 1,000 cycles.
//
// A block decodes a panel of a quantized matrix before it multiplies it. Only other blocks of the
// SM overlap with that. On an H200, a panel of q8_0 takes 8,500 cycles with each of the tiles.
inline int64_t cycles(const MatrixProduct& p, const ProductOperands& operands, const Traits& traits,
                      const TileSize& tile, int64_t splits) {
  const auto batch = static_cast<int64_t>(p.batch.elements());
  const int64_t blocks = tiles_of(p, tile) * splits;
  const int64_t of_processor = (blocks + traits.processors - 1) / traits.processors;
  const int64_t depth = (p.k + splits - 1) / splits + kDepth;
  const int64_t rate = operands.type == DType::f32 ? 512 : 1024;
  const int64_t size = operands.type == DType::f32 ? 4 : 2;
  const int64_t multiplied = of_processor * tile.m * tile.n * depth / rate * 100 / tile.rate;
  const int64_t loaded = blocks * (tile.m + tile.n) * depth * size / (28 * traits.processors);
  const int64_t ends = 3000 + tile.m * tile.n / (8 * tile.threads) * 250;
  const int64_t written = splits * p.m * p.n * batch * 4;
  const int64_t added = splits * tile.m * tile.n * 4;
  const int64_t rounds = (of_processor + tile.blocks - 1) / tile.blocks;
  const int64_t decoded = operands.quantized ? rounds * (depth / kDepth) * 8500 : 0;
  return std::max({multiplied, loaded, decoded}) + (tile.blocks == 1 ? of_processor : 1) * ends +
         (splits == 1 ? 0 : 1000 + written / (10 * traits.processors) + added / 32);
}

// The tiles of f32 matrices begin with the second one: panels of the largest do not fit.
constexpr size_t kFirstOfF32 = 1;

// The plans from which one is chosen.
inline std::vector<Plan> plans_of(const MatrixProduct& p, const ProductOperands& operands,
                                  const Traits& traits) {
  constexpr int64_t kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16};
  // k per part. Fewer panels of a quantized matrix per block save more than the sums cost.
  const int64_t smallest = traits.parts == Parts::many ? kDepth : operands.quantized ? 64 : 256;
  constexpr int64_t kMaxWorkspace = int64_t{32} << 20;
  const size_t first = operands.type == DType::f32 ? kFirstOfF32 : 0;
  const int columns = std::min(traits.tile_columns, kTiles[first].n);
  std::vector<Plan> plans;
  for (size_t i = first; i < std::size(kTiles); ++i) {
    if (columns != 0 && columns != kTiles[i].n) {
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
      plan.split = static_cast<int>((part + kDepth - 1) / kDepth * kDepth);
      plan.splits = static_cast<unsigned>(
          std::max<int64_t>(1, (p.k + plan.split - 1) / std::max(plan.split, 1)));
    }
  }
  return plans;
}

// The plan of a candidate, or the fastest plan of the model.
inline Plan plan_of(const MatrixProduct& p, const ProductOperands& operands, const Traits& traits,
                    uint32_t candidate) {
  const std::vector<Plan> plans = plans_of(p, operands, traits);
  if (candidate < plans.size()) {
    return plans[candidate];
  }
  return *std::ranges::min_element(plans, {}, [&](const Plan& plan) {
    return traits.parts == Parts::many
               ? -plan.wanted
               : cycles(p, operands, traits, kTiles[plan.tile], plan.wanted);
  });
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::tensor_product_kernels
