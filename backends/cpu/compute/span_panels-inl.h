// Packs rows of block formats into panels of a matrix product. Included once per instruction set.
//
//   panel[k, j] = element k of row j
//
// Bytes are transposed before they become floats, because they need a quarter of the vectors.
#if defined(BOWLINE_CPU_SPAN_PANELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BOWLINE_CPU_SPAN_PANELS_INL_H
#undef BOWLINE_CPU_SPAN_PANELS_INL_H
#else
#define BOWLINE_CPU_SPAN_PANELS_INL_H
#endif

#include "compute/codes-inl.h"
#include "compute/gemm-inl.h"
#include "compute/spans.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

using SpanBytes = hn::ScalableTag<uint8_t>;
// Rows that are packed together: the lanes of a vector of the panel.
constexpr size_t kSpanRows = hn::MaxLanes(TileTag());
constexpr size_t kSpanBytes = hn::MaxLanes(SpanBytes());

// kSpanRows rows of a span, unpacked, with their scales and minimums as [group][row].
struct SpansOfRows {
  UnpackedSpan rows[kSpanRows];
  alignas(64) float scales[kSpanGroups * kSpanRows];
  alignas(64) float least[kSpanGroups * kSpanRows];
};

// Unpacks the span at element k of rows first .. end - 1. Past the end, the last row is repeated.
// The spans of the next rows are prefetched, because they are too short for hardware prefetching.
HWY_INLINE void unpack_rows(const Codes& codes, const SpanReader& reader, size_t first, size_t end,
                            size_t k, SpansOfRows& out) {
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < kSpanRows; ++i) {
    const std::byte* const span =
        codes.row(HWY_MIN(first + i, end - 1)).scales + k / kSpan * reader.bytes;
    const std::byte* const ahead = span + kSpanRows * codes.layout.scale_row;
    for (size_t byte = 0; byte < reader.bytes; byte += kLine) {
      hwy::Prefetch(ahead + byte);
    }
    reader.unpack(span, out.rows[i]);
  }
  constexpr size_t kStride = sizeof(UnpackedSpan) / sizeof(float);
  transpose(out.rows[0].scales, kStride, kSpanRows, kSpanGroups, out.scales, kSpanRows, kSpanRows);
  transpose(out.rows[0].least, kStride, kSpanRows, kSpanGroups, out.least, kSpanRows, kSpanRows);
}

// Transposes the bytes [first, first + kSpanBytes) of the rows. Vectors consist of blocks of 16
// bytes, a group each; bytes kSpanRows * i ... of a group are those of element i of the rows. Each
// step of the loop rotates the bits of the number of a byte, (row, element), by one place.
HWY_INLINE void transpose_groups(const UnpackedSpan* HWY_RESTRICT rows, size_t first,
                                 uint8_t* HWY_RESTRICT out) {
  static_assert(kSpanGroup == 16);
  const SpanBytes d;
  hn::Vec<SpanBytes> v[kSpanRows];
  HWY_UNROLL(16)
  for (size_t i = 0; i < kSpanRows; ++i) {
    v[i] = hn::Load(d, rows[i].codes + first);
  }
  HWY_UNROLL(4)
  for (size_t step = 1; step < kSpanRows; step *= 2) {
    hn::Vec<SpanBytes> turned[kSpanRows];
    HWY_UNROLL(8)
    for (size_t i = 0; i < kSpanRows / 2; ++i) {
      turned[2 * i] = hn::InterleaveLower(d, v[i], v[i + kSpanRows / 2]);
      turned[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kSpanRows / 2]);
    }
    HWY_UNROLL(16)
    for (size_t i = 0; i < kSpanRows; ++i) {
      v[i] = turned[i];
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kSpanRows; ++i) {
    hn::Store(v[i], d, out + i * kSpanBytes);
  }
}

// Rows first .. first + width - 1, from element k on, into a panel [kSpan][columns]. The last
// vector of a line of the panel may have elements past the width.
inline void pack_spans(const Codes& codes, size_t first, size_t k, size_t width, size_t columns,
                       float* HWY_RESTRICT panel) {
  const TileTag d;
  const hn::RebindToSigned<TileTag> di;
  const hn::Rebind<uint8_t, TileTag> d8;
  const SpanReader reader = span_reader(*codes.layout.format);
  const auto offset = hn::Set(di, reader.offset);
  SpansOfRows spans;
  alignas(64) uint8_t bytes[kSpanRows * kSpanBytes];
  for (size_t j = 0; j < width; j += kSpanRows) {
    unpack_rows(codes, reader, first + j, first + width, k, spans);
    for (size_t group = 0; group < kSpanGroups; ++group) {
      const size_t block = group * kSpanGroup % kSpanBytes;
      if (block == 0) {
        transpose_groups(spans.rows, group * kSpanGroup, bytes);
      }
      const auto scale = hn::Load(d, spans.scales + group * kSpanRows);
      const auto least = hn::Load(d, spans.least + group * kSpanRows);
      float* HWY_RESTRICT out = panel + group * kSpanGroup * columns + j;
      for (size_t i = 0; i < kSpanGroup; ++i, out += columns) {
        const size_t at = i * kSpanRows;
        const auto code = hn::PromoteTo(
            di, hn::LoadU(d8, bytes + at / kSpanGroup * kSpanBytes + block + at % kSpanGroup));
        hn::Store(hn::MulSub(hn::ConvertTo(d, hn::Sub(code, offset)), scale, least), d, out);
      }
    }
  }
}

#endif
}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
