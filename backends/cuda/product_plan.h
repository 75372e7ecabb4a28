// How the f32 kernels of products divide their work: the tile, and the parts of k.
#pragma once

#include <algorithm>
#include <vector>

#include "blas.h"
#include "kernel.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

struct ProductPlan {
  int tile = 0;
  unsigned splits = 1;
  int split = 0;
};

constexpr int64_t kBlocksOfProduct = 128;  // they fill a GPU

inline int64_t tiles_along(int64_t rows, int tile) { return (rows + tile - 1) / tile; }

inline int64_t blocks_of(const BlasProduct& s, int tile) {
  return tiles_along(s.m, tile) * tiles_along(s.n, tile) * s.batch;
}

inline ProductPlan with_splits(const BlasProduct& s, int tile, int64_t splits) {
  ProductPlan plan;
  plan.tile = tile;
  plan.split = static_cast<int>(s.k);
  if (splits > 1) {
    plan.split = static_cast<int>((s.k + splits - 1) / splits + 3) / 4 * 4;
    plan.splits = static_cast<unsigned>((s.k + plan.split - 1) / plan.split);
  }
  return plan;
}

// The most parts of at least `smallest` steps of k.
inline int64_t most_splits(const BlasProduct& s, int64_t smallest) {
  constexpr int64_t kMaxSplits = 16;
  constexpr int64_t kMaxWorkspace = int64_t{8} << 20;
  const int64_t bytes = s.batch * s.m * s.n * 4;
  return std::min({s.k / smallest, kMaxSplits, kMaxWorkspace / std::max<int64_t>(bytes, 1)});
}
// The most parts of the smallest tile.
inline int64_t most_splits(const BlasProduct& s) {
  return blocks_of(s, 32) >= kBlocksOfProduct ? 1 : most_splits(s, 512);
}

// The candidates of a product: the tiles, and the smallest tile with parts of k.
inline std::vector<ProductPlan> product_plans(const BlasProduct& s) {
  std::vector<ProductPlan> plans;
  for (const int tile : {128, 64, 32}) {
    plans.push_back(with_splits(s, tile, 1));
  }
  for (int64_t splits = 2; splits <= most_splits(s); splits *= 2) {
    plans.push_back(with_splits(s, 32, splits));
  }
  return plans;
}

// The plan of a candidate, or the plan for a GPU of unknown size.
inline ProductPlan product_plan(const BlasProduct& s, const Traits& traits, uint32_t candidate) {
  if (candidate != device::kNoCandidate) {
    const std::vector<ProductPlan> plans = product_plans(s);
    if (candidate < plans.size()) {
      return plans[candidate];
    }
  }
  const auto pays = [&](int tile) {  // enough tiles, and at most a quarter of them empty
    const auto area = [&](int t) { return tiles_along(s.m, t) * tiles_along(s.n, t) * t * t; };
    return blocks_of(s, tile) >= kBlocksOfProduct &&
           area(tile) <= area(tile / 2) + area(tile / 2) / 4;
  };
  const int tile = traits.tile_columns != 0 ? std::min(traits.tile_columns, 128)
                   : pays(128)              ? 128
                   : pays(64)               ? 64
                                            : 32;
  if (traits.parts == Parts::many && blocks_of(s, tile) <= int64_t{kBlockCounters}) {
    return with_splits(s, tile, most_splits(s, 4));
  }
  const bool splits =
      traits.parts == Parts::by_shape && tile == 32 && blocks_of(s, 32) < kBlocksOfProduct;
  return with_splits(
      s, tile, splits ? std::min(2 * kBlocksOfProduct / blocks_of(s, 32), most_splits(s)) : 1);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
