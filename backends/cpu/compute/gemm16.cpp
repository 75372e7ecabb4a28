// See gemm16.h. Contains the loops over blocks, and the blocks for machines without 16-bit
// products, which convert B and A to f32 while packing.
#include "compute/gemm16.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/checked.h"
#include "compute/arm_extensions.h"
#include "compute/convert.h"
#include "compute/gemm16_blocks.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/gemm16.cpp"
#include "hwy/foreach_target.h"
#include "compute/gemm-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

template <class T>
using HighwayType = std::conditional_t<std::is_same_v<T, bf16>, hwy::bfloat16_t, hwy::float16_t>;

// If the instruction set has no f16 conversion, Highway 1.0 converts infinity and NaN of f16 to
// large values.
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
constexpr bool kConvertsF16 = true;
#else
constexpr bool kConvertsF16 = false;
#endif

template <class T>
HWY_INLINE hn::Vec<TileTag> load_wide(const uint16_t* x) {
  if constexpr (kConvertsF16 || std::is_same_v<T, bf16>) {
    const hn::Rebind<HighwayType<T>, TileTag> half;
    return hn::PromoteTo(TileTag(), hn::LoadU(half, reinterpret_cast<const HighwayType<T>*>(x)));
  } else {
    return load_half(reinterpret_cast<const T*>(x));
  }
}

template <class T>
float wide(uint16_t x) {
  return to_f32(T{x});
}

template <class T>
HWY_INLINE void widen_row(const uint16_t* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT y) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(load_wide<T>(x + i), d, y + i);
  }
  for (; i < n; ++i) {
    y[i] = wide<T>(x[i]);
  }
}

template <class T>
void pack_wide(const Job16& job, Range columns, Range k, uint32_t* panels) {
  const GemmShape& s = job.shape;
  const size_t panel = tile_columns();
  auto* out = reinterpret_cast<float*>(panels);
  for (size_t j = columns.begin; j < columns.end; j += panel, out += k.size() * panel) {
    const size_t width = HWY_MIN(columns.end - j, panel);
    if (!transposed_b(s.layout)) {
      for (size_t i = 0; i < k.size(); ++i) {
        float* row = out + i * panel;
        widen_row<T>(job.b + (k.begin + i) * s.ldb + j, width, row);
        std::fill(row + width, row + panel, 0.0f);
      }
      continue;
    }
    constexpr size_t kTogether = 4;
    alignas(64) float rows[kTogether * kWords16];
    for (size_t r = 0; r < panel; r += kTogether) {
      const size_t some = r < width ? HWY_MIN(width - r, kTogether) : 0;
      for (size_t i = 0; i < some; ++i) {
        widen_row<T>(job.b + (j + r + i) * s.ldb + k.begin, k.size(), rows + i * kWords16);
      }
      transpose(rows, kWords16, some, k.size(), out + r, panel, HWY_MIN(kTogether, panel - r));
    }
  }
}

template <class T>
void multiply_wide(const Job16& job, Range rows, Range columns, Range k, const uint32_t* panels,
                   uint32_t* packed, float* sums) {
  const GemmShape& s = job.shape;
  const bool turned = transposed_a(s.layout);
  auto* const a = reinterpret_cast<float*>(packed);
  const size_t panel = tile_columns();
  const size_t lanes = hn::Lanes(TileTag());
  for (size_t row = rows.begin; row < rows.end; row += kPacked16) {
    const size_t some = HWY_MIN(rows.end - row, kPacked16);
    float* const out = sums + (row - rows.begin) * job.sums_row;
    for (size_t i = 0; i < (turned ? k.size() : some); ++i) {
      if (turned) {
        widen_row<T>(job.a + (k.begin + i) * s.lda + row, some, a + i * job.packed_row);
      } else {
        widen_row<T>(job.a + (row + i) * s.lda + k.begin, k.size(), a + i * k.size());
      }
    }
    for (size_t j = 0; j < columns.size(); j += panel) {
      const size_t width = HWY_MIN(columns.size() - j, panel);
      for (size_t i = 0; i < some; i += kTileRows) {
        TileOperands tile;
        tile.a = turned ? a + i : a + i * k.size();
        tile.a_row = turned ? 1 : k.size();
        tile.a_k = turned ? job.packed_row : 1;
        tile.b = reinterpret_cast<const float*>(panels) + j * k.size();
        tile.b_k = panel;
        tile.c = out + i * job.sums_row + j;
        tile.c_row = job.sums_row;
        tile_for(HWY_MIN(some - i, kTileRows), (width + lanes - 1) / lanes)(tile, k.size(), width,
                                                                            k.begin > 0, nullptr);
      }
    }
    for (size_t i = 0; i < some && k.end == s.k; ++i) {
      float* const sum = out + i * job.sums_row;
      for (size_t j = 0; job.bias != nullptr && j < columns.size(); ++j) {
        sum[j] += wide<T>(job.bias[columns.begin + j]);
      }
      narrow(columns.size(), sum, reinterpret_cast<T*>(job.c + (row + i) * s.ldc + columns.begin));
    }
  }
}

template <class T, size_t kRows>
void dot_rows(const Job16& job, Range columns) {
  const TileTag d;
  const size_t lanes = hn::Lanes(d);
  const GemmShape& s = job.shape;
  const size_t whole = s.k / (2 * lanes) * (2 * lanes);
  for (size_t n = columns.begin; n < columns.end; ++n) {
    const uint16_t* HWY_RESTRICT b = job.b + n * s.ldb;
    hn::Vec<TileTag> sum[kRows][2];
    HWY_UNROLL(6)
    for (size_t r = 0; r < kRows; ++r) {
      sum[r][0] = hn::Zero(d);
      sum[r][1] = hn::Zero(d);
    }
    for (size_t k = 0; k < whole; k += 2 * lanes) {
      const auto b0 = load_wide<T>(b + k);
      const auto b1 = load_wide<T>(b + k + lanes);
      HWY_UNROLL(6)
      for (size_t r = 0; r < kRows; ++r) {
        const uint16_t* a = job.a + r * s.lda + k;
        sum[r][0] = hn::MulAdd(load_wide<T>(a), b0, sum[r][0]);
        sum[r][1] = hn::MulAdd(load_wide<T>(a + lanes), b1, sum[r][1]);
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      float out = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][0], sum[r][1])));
      for (size_t k = whole; k < s.k; ++k) {
        out += wide<T>(job.a[r * s.lda + k]) * wide<T>(b[k]);
      }
      out = job.bias != nullptr ? out + wide<T>(job.bias[n]) : out;
      job.c[r * s.ldc + n] = from_f32<T>(out).bits;
    }
  }
}

template <class T>
void dots_wide(const Job16& job, Range columns) {
  static constexpr void (*kDots[kFewRows])(const Job16&, Range) = {dot_rows<T, 1>, dot_rows<T, 2>,
                                                                   dot_rows<T, 3>, dot_rows<T, 4>,
                                                                   dot_rows<T, 5>, dot_rows<T, 6>};
  kDots[job.shape.m - 1](job, columns);
}

template <class T>
Blocks16 blocks_of() {
  return {kWords16, tile_columns(), pack_wide<T>, multiply_wide<T>, dots_wide<T>};
}
Blocks16 wide_blocks_f16() { return blocks_of<f16>(); }
Blocks16 wide_blocks_bf16() { return blocks_of<bf16>(); }

// The instruction belongs to this set.
bool may_have_bf16() { return HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64; }

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {
namespace {

std::atomic<bool> bf16_allowed{true};

// Words of k in a panel. BFMMLA of aarch64 takes four elements, in two words, even if k is 1.
#ifdef BOWLINE_ARM_EXTENSIONS
size_t panel_words(size_t k) { return std::clamp<size_t>(k, 2, kWords16); }
#else
size_t panel_words(const size_t& k) { return std::min(k, kWords16); }
#endif

// Scratch memory of a thread for any blocks, in words of 4 bytes. The widest panel of any
// instruction set has 64 columns; A is packed by 32 elements.
struct Scratch16 {
  size_t columns;
  size_t packed_row;
  size_t panels;
  size_t packed;
  size_t sums;

  explicit Scratch16(const GemmShape& s)
      : columns(std::min<size_t>(round_up(s.n, 64), kColumns16)),
        packed_row(std::min<size_t>(round_up(s.m, 32), kPacked16)),
        panels(panel_words(s.k) * columns),
        packed(round_up(std::min(s.k, kWords16) * packed_row, 16)),
        sums(std::min<size_t>(round_up(s.m, kTileRowsOfAll), kRows16) * columns) {}
  size_t words() const { return round_up(panels + packed + sums, 16); }
};

void multiply_nothing(const Job16& job) {
  for (size_t i = 0; i < job.shape.m; ++i) {
    uint16_t* const c = job.c + i * job.shape.ldc;
    for (size_t j = 0; j < job.shape.n; ++j) {
      c[j] = job.bias != nullptr ? job.bias[j] : uint16_t{0};
    }
  }
}

// Computes the part of C that a thread owns.
void multiply_part(const Blocks16& blocks, const Job16& job, Range rows, Range columns,
                   uint32_t* scratch) {
  const GemmShape& s = job.shape;
  const Scratch16 sizes(s);
  uint32_t* const packed = scratch + sizes.panels;
  auto* const sums = reinterpret_cast<float*>(packed + sizes.packed);
  const bool pack_once = s.k <= blocks.depth;
  for (size_t j = columns.begin; j < columns.end; j += kColumns16) {
    const Range some{j, std::min(columns.end, j + kColumns16)};
    for (size_t i = rows.begin; i < rows.end; i += kRows16) {
      for (size_t k = 0; k < s.k; k += blocks.depth) {
        const Range deep{k, std::min(s.k, k + blocks.depth)};
        if (!pack_once || i == rows.begin) {
          blocks.pack(job, some, deep, scratch);
        }
        blocks.multiply(job, {i, std::min(rows.end, i + kRows16)}, some, deep, scratch, packed,
                        sums);
      }
    }
  }
}

void gemm16(Threads& threads, const Blocks16& blocks, const Job16& job, void* scratch) {
  const GemmShape& s = job.shape;
  if (s.m == 0 || s.n == 0) {
    return;
  }
  if (s.k == 0) {
    multiply_nothing(job);
    return;
  }
  const bool few = s.m <= kFewRows && s.layout == GemmLayout::nt;
  const size_t panel = few ? kDotLine : blocks.panel;
  const Grid grid = choose_grid(s, threads.count(), panel);
  const size_t words = Scratch16(s).words();
  threads.parallel_for(grid.rows * grid.columns, [&](size_t task, size_t thread) {
    const Range rows = part(s.m, kTileRowsOfAll, grid.rows, task % grid.rows);
    const Range columns = part(s.n, panel, grid.columns, task / grid.rows);
    if (few) {
      blocks.dots(job, columns);
    } else {
      multiply_part(blocks, job, rows, columns, static_cast<uint32_t*>(scratch) + thread * words);
    }
  });
}

template <class T>
Job16 job_of(const GemmShape& shape, const T* a, const T* b, T* c, const T* bias) {
  const Scratch16 sizes(shape);
  Job16 job;
  job.shape = shape;
  job.a = reinterpret_cast<const uint16_t*>(a);
  job.b = reinterpret_cast<const uint16_t*>(b);
  job.c = reinterpret_cast<uint16_t*>(c);
  job.bias = reinterpret_cast<const uint16_t*>(bias);
  job.sums_row = sizes.columns;
  job.packed_row = sizes.packed_row;
  return job;
}

}  // namespace

bool bf16_products() {
  return bf16_blocks() != nullptr && bf16_allowed && BOWLINE_BEST(may_have_bf16)();
}

void allow_bf16_products(bool allow) { bf16_allowed = allow; }

size_t gemm16_scratch_bytes(const GemmShape& shape, const Threads& threads) {
  return Scratch16(shape).words() * sizeof(uint32_t) * threads.count();
}

void gemm(Threads& threads, const GemmShape& shape, const f16* a, const f16* b, f16* c,
          const f16* bias, void* scratch) {
  gemm16(threads, BOWLINE_BEST(wide_blocks_f16)(), job_of(shape, a, b, c, bias), scratch);
}

void gemm(Threads& threads, const GemmShape& shape, const bf16* a, const bf16* b, bf16* c,
          const bf16* bias, void* scratch) {
  Job16 job = job_of(shape, a, b, c, bias);
  // A single row is limited by memory bandwidth, so the instruction, whose sums need more steps at
  // the end, gains nothing.
  if (bf16_products() && shape.m > 1) {
    std::atomic<bool> nan{false};
    job.nan = &nan;
    gemm16(threads, *bf16_blocks(), job, scratch);
    if (!nan) {
      return;
    }
  }
  gemm16(threads, BOWLINE_BEST(wide_blocks_bf16)(), job, scratch);
}

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
