// Dot products of a few rows with four other rows, for products whose B is stored as [n, k].
// Included once per instruction set.
//
//   sums[r, j] += sum over k of A[r, k] * B[j, k]      r < rows, j < 4, k < depth
//
// Numerics  lane i of a vector adds every k that is i modulo the number of lanes; a single row of A
//           alternates between four vectors. sums_of_lanes() defines the order in which lanes are
//           added. The order is the same for every r and j.
#if defined(BOWLINE_CPU_DOTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_DOTS_INL_H
#undef BOWLINE_CPU_DOTS_INL_H
#else
#define BOWLINE_CPU_DOTS_INL_H
#endif

#include <cstddef>

#include "compute/gemm-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

// Number of rows of A and of B at a time. Their sums fill the registers.
constexpr size_t kDotRows = kTileVectors == 4 ? 6 : 3;
constexpr size_t kDotColumns = 4;

struct DotOperands {
  const float* a;
  size_t a_row;  // elements from A[r, k] to A[r + 1, k]
  const float* b[kDotColumns];
  // (optional) Memory to prefetch: vector v and row j prefetch the line at next + next_row * j +
  // next_vector * v.
  const float* next;
  size_t next_row;
  size_t next_vector;
  float* sums;
  size_t sums_row;
};

// Adds the lanes of four vectors: first lanes i and i + 2 of every four, then these sums, then the
// groups of four.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void sums_of_lanes(const hn::Vec<TileTag>* v, float* sums) {
  for (size_t j = 0; j < kDotColumns; ++j) {
    sums[j] += hn::GetLane(v[j]);
  }
}
#else
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, kDotColumns>> sum_of_fours(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == kDotColumns) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_fours(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

HWY_INLINE void sums_of_lanes(const hn::Vec<TileTag>* v, float* sums) {
  const TileTag d;
  const hn::Repartition<double, TileTag> dd;
  const hn::FixedTag<float, kDotColumns> four;
  const auto of_two = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto low = of_two(v[0], v[1]), high = of_two(v[2], v[3]);
  const auto fours = hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, low, high)),
                             hn::BitCast(d, hn::InterleaveUpper(dd, low, high)));
  hn::StoreU(hn::Add(hn::LoadU(four, sums), sum_of_fours(d, fours)), four, sums);
}
#endif

template <size_t kRows>
HWY_NOINLINE void add_dots_of(const DotOperands& o, size_t depth) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<TileTag> sum[kRows][kDotColumns];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (size_t j = 0; j < kDotColumns; ++j) {
      sum[r][j] = hn::Zero(d);
    }
  }
  const auto add = [&](auto load, size_t k) HWY_ATTR {
    hn::Vec<TileTag> b[kDotColumns];
    HWY_UNROLL(4)
    for (size_t j = 0; j < kDotColumns; ++j) {
      b[j] = load(o.b[j] + k);
    }
    HWY_UNROLL(6)
    for (size_t r = 0; r < kRows; ++r) {
      const hn::Vec<TileTag> a = load(o.a + r * o.a_row + k);
      HWY_UNROLL(4)
      for (size_t j = 0; j < kDotColumns; ++j) {
        sum[r][j] = hn::MulAdd(a, b[j], sum[r][j]);
      }
    }
  };
  const float* next = o.next;
  size_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    if (next != nullptr) {
      for (size_t j = 0; j < kDotColumns; ++j) {
        hwy::Prefetch(next + j * o.next_row);
      }
      next += o.next_vector;
    }
    add([&](const float* p) HWY_ATTR { return hn::LoadU(d, p); }, k);
  }
  if (k < depth) {
    const PartialVector part(depth - k);
    add([&](const float* p) HWY_ATTR { return part.load(p); }, k);
  }
  for (size_t r = 0; r < kRows; ++r) {
    sums_of_lanes(sum[r], o.sums + r * o.sums_row);
  }
}

// A single row of A is limited by memory bandwidth: the rows of B are read one after the other,
// without prefetching.
template <>
HWY_NOINLINE inline void add_dots_of<1>(const DotOperands& o, size_t depth) {
  constexpr size_t kChains = 4;
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<TileTag> sum[kDotColumns];
  for (size_t j = 0; j < kDotColumns; ++j) {
    const float* const b = o.b[j];
    hn::Vec<TileTag> chain[kChains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    size_t k = 0;
    for (; k + kChains * lanes <= depth; k += kChains * lanes) {
      HWY_UNROLL(4)
      for (size_t i = 0; i < kChains; ++i) {
        const size_t at = k + i * lanes;
        chain[i] = hn::MulAdd(hn::LoadU(d, o.a + at), hn::LoadU(d, b + at), chain[i]);
      }
    }
    for (; k + lanes <= depth; k += lanes) {
      chain[0] = hn::MulAdd(hn::LoadU(d, o.a + k), hn::LoadU(d, b + k), chain[0]);
    }
    if (k < depth) {
      const PartialVector part(depth - k);
      chain[1] = hn::MulAdd(part.load(o.a + k), part.load(b + k), chain[1]);
    }
    sum[j] = hn::Add(hn::Add(chain[0], chain[1]), hn::Add(chain[2], chain[3]));
  }
  sums_of_lanes(sum, o.sums);
}

// 1 to kDotRows rows.
inline void add_dots(size_t rows, const DotOperands& o, size_t depth) {
  static constexpr void (*kDots[])(const DotOperands&, size_t) = {
      add_dots_of<1>,
      add_dots_of<2>,
      add_dots_of<3>,
      add_dots_of<HWY_MIN(4, kDotRows)>,
      add_dots_of<HWY_MIN(5, kDotRows)>,
      add_dots_of<HWY_MIN(6, kDotRows)>,
  };
  kDots[rows - 1](o, depth);
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
