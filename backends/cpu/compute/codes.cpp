#include "compute/codes.h"

#include <cmath>
#include <concepts>

#include "compute/spans.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/codes.cpp"
#include "hwy/foreach_target.h"
#include "compute/codes-inl.h"
#include "compute/formats-inl.h"
#include "compute/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {

void decode_a_run(const Codes& codes, size_t row, size_t first, size_t count, float* out) {
  decode_run(codes, row, first, count, out);
}

// Dequantizes whole spans from element `first` on, which begins one; returns the number of
// elements. scale * code is exact, so there is one rounding.
size_t decode_spans(const BlockFormat& format, const std::byte* row, size_t first, size_t count,
                    float* HWY_RESTRICT out) {
  const CodeTag d;
  const hn::RebindToSigned<CodeTag> di;
  const hn::Rebind<uint8_t, CodeTag> d8;
  const SpanReader reader = span_reader(format);
  const auto offset = hn::Set(di, reader.offset);
  constexpr size_t kLanes = hn::MaxLanes(CodeTag());
  const size_t whole = count / kSpan * kSpan;
  UnpackedSpan span;
  for (size_t i = 0; i < whole; i += kSpan) {
    reader.unpack(row + (first + i) / kSpan * reader.bytes, span);
    for (size_t g = 0; g < kSpanGroups; ++g) {
      const auto scale = hn::Set(d, span.scales[g]);
      const auto least = hn::Set(d, span.least[g]);
      HWY_UNROLL(4)
      for (size_t part = 0; part < kSpanGroup / kLanes; ++part) {
        const size_t at = g * kSpanGroup + part * kLanes;
        const auto code = hn::PromoteTo(di, hn::LoadU(d8, span.codes + at));
        hn::StoreU(hn::MulSub(hn::ConvertTo(d, hn::Sub(code, offset)), scale, least), d,
                   out + i + at);
      }
    }
  }
  return whole;
}

void decode_a_format(const BlockFormat& format, const std::byte* blocks, size_t first, size_t count,
                     float* out) {
  const bool begins_span = has_spans(format, kSpan) && first % kSpan == 0;
  const size_t done = begins_span ? decode_spans(format, blocks, first, count, out) : 0;
  formats::with_format(format.number, [&](auto type) HWY_ATTR {
    decode_blocks_of<decltype(type)>(blocks, first + done, count - done, out + done);
  });
}

// max |x|, or a non-finite value if the row contains one.
template <class T>
float magnitude(const T* x, size_t n) {
  const FloatTag d;
  FloatVector most = hn::Zero(d);
  FloatVector odd = hn::Zero(d);  // NaN if a value is not finite
  for_vectors(n, [&](size_t i, auto part) HWY_ATTR {
    const FloatVector v = part.or_else(part.load(x + i), hn::Zero(d));
    most = hn::Max(most, hn::Abs(v));
    odd = hn::Add(odd, hn::Mul(v, hn::Zero(d)));
  });
  return hn::GetLane(hn::MaxOfLanes(d, most)) + hn::GetLane(hn::SumOfLanes(d, odd));
}

template <class T>
void encode_block(const T* x, size_t n, std::byte* codes, std::byte* stored_scale) {
  const float exact = magnitude(x, n) / 127;
  const float scale = std::isfinite(exact) ? exact : 0;
  std::memcpy(stored_scale, &scale, sizeof(scale));
  if (scale == 0) {
    std::fill_n(codes, n, std::byte{0});
    return;
  }
  const FloatTag d;
  for_vectors(n, [=](size_t i, auto part) HWY_ATTR {
    HWY_ALIGN int32_t lanes[hn::MaxLanes(FloatTag())];
    const FloatVector steps = hn::Div(part.load(x + i), hn::Set(d, scale));
    const FloatVector whole =
        hn::Min(hn::Max(hn::Round(steps), hn::Set(d, -128.0f)), hn::Set(d, 127.0f));
    hn::Store(hn::ConvertTo(hn::RebindToSigned<FloatTag>(), whole), hn::RebindToSigned<FloatTag>(),
              lanes);
    for (size_t k = 0; k < hn::Lanes(d) && i + k < n; ++k) {
      codes[i + k] = static_cast<std::byte>(lanes[k]);
    }
  });
}

template <class T>
void encode_row(const CodeLayout& l, const T* from, size_t row, std::byte* codes,
                std::byte* scales) {
  std::byte* to = codes + row * l.row_bytes;
  std::byte* scale = scales + row * l.scale_row;
  for (size_t i = 0; i < l.columns; i += l.block) {
    encode_block(from + i, std::min<size_t>(l.block, l.columns - i), to, scale);
    to += l.block_bytes;
    scale += l.scale_block;
  }
}

void encode_f32(const CodeLayout& l, const float* from, size_t row, std::byte* codes,
                std::byte* scales) {
  encode_row(l, from, row, codes, scales);
}
void encode_f16(const CodeLayout& l, const f16* from, size_t row, std::byte* codes,
                std::byte* scales) {
  encode_row(l, from, row, codes, scales);
}
void encode_bf16(const CodeLayout& l, const bf16* from, size_t row, std::byte* codes,
                 std::byte* scales) {
  encode_row(l, from, row, codes, scales);
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {

void decode(const Codes& codes, size_t row, size_t first, size_t count, float* out) {
  BOWLINE_BEST(decode_a_run)(codes, row, first, count, out);
}

void decode_blocks_of_format(const BlockFormat& format, const std::byte* blocks, size_t first,
                             size_t count, float* out) {
  BOWLINE_BEST(decode_a_format)(format, blocks, first, count, out);
}

template <class T>
void encode(const CodeLayout& layout, const T* from, size_t row, std::byte* codes,
            std::byte* scales) {
  BOWLINE_BEST_FOR(T, encode)(layout, from, row, codes, scales);
}
template void encode(const CodeLayout&, const float*, size_t, std::byte*, std::byte*);
template void encode(const CodeLayout&, const f16*, size_t, std::byte*, std::byte*);
template void encode(const CodeLayout&, const bf16*, size_t, std::byte*, std::byte*);

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
