// The softmax of attention on tensor cores, over tiles of scores in the registers of a warp.
#pragma once

#include "device/attention_mma.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {
namespace {

// A warp owns kRowTiles times 16 queries.
template <int kPadded, int kRowTiles>
struct MmaTiling {
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kOwn = kRows * kMmaWarps;
  static constexpr int kOthers = kPadded <= 128 ? 64 : 32;
  static constexpr int kStages = kRowTiles == 2 ? 2 : 1;  // tiles of keys and values in flight
  static constexpr int kColumns = std::min(kPadded, kMostColumns);
  static constexpr int kPacks = kPadded / 8;
  static constexpr unsigned kShared = 16 * (kOwn + 2 * kStages * kOthers) * kPacks + 4 * kOthers;
};

// Hides scores. Returns the factor that turns them into units of ln 2.
template <bool kPlain, int kColumns>
__device__ float score(const Problem& p, const Lane& l, const Corner& at, Block<kColumns>& s) {
  float factor = p.scale * kLog2E;
  if (!kPlain && (!(p.scale > 0) || p.softcap != 0 || p.mask.added.data != nullptr)) {
    if (p.softcap == 0) {
      for_scores<false>(l, at, s, [&](float& x, int, int) { x *= factor; });
    } else {
      for_scores<false>(l, at, s, [&](float& x, int, int) { x = kLog2E * p.capped(p.scale * x); });
    }
    factor = 1;
  }
  if (!p.sees_all(at.own, at.own + 15, at.other, at.other + 8 * kColumns - 1)) {
    hide<false>(p, at, s);
  }
  return factor;
}

// Replaces the scores by weights, and scales the sums of a warp to the new maximum of each query.
template <int kColumns, int kOut, int kRowTiles>
__device__ void weigh(float factor, Block<kColumns> (&s)[kRowTiles],
                      Softmax (&softmax)[kRowTiles][2], Block<kOut> (&out)[kRowTiles]) {
  float rescale[kRowTiles][2];
  bool raised = false;
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    BOWLINE_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
      BOWLINE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        most = fmaxf(most, fmaxf(s[t].sums[c].x[2 * half], s[t].sums[c].x[2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
      rescale[t][half] = softmax[t][half].raise(fmaxf(softmax[t][half].top, most * factor));
      raised = raised || rescale[t][half] != 1;
    }
  }
  if (__ballot_sync(0xFFFFFFFF, raised ? 1 : 0) != 0) [[unlikely]] {
    BOWLINE_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      BOWLINE_UNROLL
      for (int c = 0; c < kOut; ++c) {
        BOWLINE_UNROLL
        for (int i = 0; i < 4; ++i) {
          out[t].sums[c].x[i] *= rescale[t][i / 2];
        }
      }
    }
  }
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    BOWLINE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      BOWLINE_UNROLL
      for (int i = 0; i < 4; ++i) {
        Softmax& mine = softmax[t][i / 2];
        const float top = mine.top == -INFINITY ? 0.0f : mine.top;
        const float weight = power_of_two(fmaf(s[t].sums[c].x[i], factor, -top));
        s[t].sums[c].x[i] = weight;
        mine.sum += weight;  // of the columns of this lane
      }
    }
  }
}

// Divides the sums by those of the weights, and writes the log-sum-exp.
template <int kOut>
__device__ void normalize(const Problem& p, const Place& place, const Lane& l, int query,
                          Softmax (&softmax)[2], Block<kOut>& out) {
  BOWLINE_UNROLL
  for (int half = 0; half < 2; ++half) {
    Softmax& mine = softmax[half];
    mine.sum += __shfl_xor_sync(0xFFFFFFFF, mine.sum, 1);
    mine.sum += __shfl_xor_sync(0xFFFFFFFF, mine.sum, 2);
    const float inverse = mine.inverse();
    BOWLINE_UNROLL
    for (int c = 0; c < kOut; ++c) {
      out.sums[c].x[2 * half] *= inverse;
      out.sums[c].x[2 * half + 1] *= inverse;
    }
    const int row = query + 8 * half + l.group;
    if (blockIdx.z == 0 && l.pair == 0 && row < p.queries) {
      p.put_lse(place.batch, place.head, row, mine.lse());
    }
  }
}

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
