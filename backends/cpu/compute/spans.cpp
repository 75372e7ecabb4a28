#include "compute/spans.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "compute/targets.h"

// Highway wants this order.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/spans.cpp"
#include "hwy/foreach_target.h"
#include "compute/formats-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bowline::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads a span by the description of the format.
template <class Format>
struct Reader {
  static constexpr int kOffset = 128;
  static constexpr size_t kBytes = kSpan / Format::kBlock * Format::kBytes;

  static void unpack(const std::byte* span, UnpackedSpan& out) {
    unpack_groups(span, out, std::make_index_sequence<kSpanGroups>());
  }

 private:
  template <size_t... kGroups>
  HWY_INLINE static void unpack_groups(const std::byte* HWY_RESTRICT span,
                                       UnpackedSpan& HWY_RESTRICT out,
                                       std::index_sequence<kGroups...>) {
    (unpack_group<kGroups>(span, out), ...);
  }
  template <size_t kNumber>
  HWY_INLINE static void unpack_group(const std::byte* HWY_RESTRICT span,
                                      UnpackedSpan& HWY_RESTRICT out) {
    constexpr size_t kElement = kNumber * kSpanGroup;
    constexpr size_t kInside = kElement % Format::kBlock;
    constexpr int kGroup = kInside / Format::kGroup;
    constexpr int kFirst = kInside % Format::kGroup;
    const std::byte* const block = span + kElement / Format::kBlock * Format::kBytes;
    Format::scales(block, kGroup, out.scales[kNumber], out.least[kNumber]);
    for (int i = 0; i < static_cast<int>(kSpanGroup); ++i) {
      out.codes[kElement + static_cast<size_t>(i)] =
          static_cast<uint8_t>(Format::code(block, kGroup, kFirst + i) + kOffset);
    }
  }
};

// The formats that people use most, with vectors of at most 32 bytes.
using ByteTag = hn::CappedTag<uint8_t, 32>;
using Bytes = hn::Vec<ByteTag>;

HWY_INLINE const uint8_t* bytes_of(const std::byte* span) {
  return reinterpret_cast<const uint8_t*>(span);
}

// Bits [kShift, kShift + kBits) of each byte.
template <int kShift, int kBits>
HWY_INLINE Bytes bits_of(Bytes v) {
  return hn::And(hn::ShiftRight<kShift>(v), hn::Set(ByteTag(), (1 << kBits) - 1));
}

// Stores the bytes of all groups times a factor.
template <class Byte>
HWY_INLINE void store_scaled(const Byte* HWY_RESTRICT bytes, float factor,
                             float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<Byte, decltype(d)> narrow;
  for (size_t i = 0; i < kSpanGroups; i += hn::MaxLanes(d)) {
    const auto numbers = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(narrow, bytes + i)));
    hn::StoreU(hn::Mul(numbers, hn::Set(d, factor)), d, out + i);
  }
}

// See formats/q4_k.h.
template <>
struct Reader<formats::q4_k_format> {
  static constexpr int kOffset = 0;
  static constexpr size_t kBytes = formats::q4_k_format::kBytes;

  static void unpack(const std::byte* span, UnpackedSpan& out) {
    const ByteTag d;
    for (size_t pair = 0; pair < kSpan; pair += 64) {
      for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
        const Bytes v = hn::LoadU(d, bytes_of(span) + 16 + pair / 2 + i);
        hn::StoreU(bits_of<0, 4>(v), d, out.codes + pair + i);
        hn::StoreU(bits_of<4, 4>(v), d, out.codes + pair + 32 + i);
      }
    }
    unpack_scales(span, out);
  }

 private:
#if HWY_TARGET == HWY_SCALAR
  static void unpack_scales(const std::byte* span, UnpackedSpan& out) {
    for (size_t i = 0; i < kSpanGroups; ++i) {
      formats::q4_k_format::scales(span, static_cast<int>(i / 2), out.scales[i], out.least[i]);
    }
  }
#else
  // Eight scales and eight minimums, each for two groups.
  HWY_INLINE static void unpack_scales(const std::byte* span, UnpackedSpan& out) {
    const hn::FixedTag<uint8_t, 16> d;
    const hn::Repartition<uint32_t, decltype(d)> words;
    alignas(16) static constexpr uint8_t kLow[16] = {4, 5, 6,  7,  12, 13, 14, 15,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
    alignas(16) static constexpr uint32_t kLowShift[4] = {0, 0, 0, 4};
    alignas(16) static constexpr uint32_t kLowBits[4] = {0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F,
                                                         0x0F0F0F0F};
    alignas(16) static constexpr uint8_t kHigh[16] = {4, 5, 6,  7,  4, 5, 6,  7,
                                                      8, 9, 10, 11, 8, 9, 10, 11};
    alignas(16) static constexpr uint32_t kHighBits[4] = {0, 0x30303030, 0, 0x30303030};
    const auto bytes = hn::LoadU(d, bytes_of(span));
    const auto low =
        hn::And(hn::Shr(hn::BitCast(words, hn::TableLookupBytes(bytes, hn::Load(d, kLow))),
                        hn::Load(words, kLowShift)),
                hn::Load(words, kLowBits));
    const auto high = hn::And(
        hn::ShiftRight<2>(hn::BitCast(words, hn::TableLookupBytes(bytes, hn::Load(d, kHigh)))),
        hn::Load(words, kHighBits));
    const auto all = hn::BitCast(d, hn::Or(low, high));
    alignas(16) uint8_t each[kSpanGroups];
    hn::Store(hn::InterleaveLower(d, all, all), d, each);
    store_scaled(each, formats::half_at(span, 0), out.scales);
    alignas(16) uint8_t least[kSpanGroups];
    hn::Store(hn::InterleaveUpper(d, all, all), d, least);
    store_scaled(least, formats::half_at(span, 2), out.least);
  }
#endif
};

// See formats/q6_k.h.
template <>
struct Reader<formats::q6_k_format> {
  static constexpr int kOffset = 32;
  static constexpr size_t kBytes = formats::q6_k_format::kBytes;

  static void unpack(const std::byte* span, UnpackedSpan& out) {
    const ByteTag d;
    for (size_t half = 0; half < 2; ++half) {
      uint8_t* const codes = out.codes + half * 128;
      for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
        const Bytes low = hn::LoadU(d, bytes_of(span) + half * 64 + i);
        const Bytes second = hn::LoadU(d, bytes_of(span) + half * 64 + 32 + i);
        const Bytes high = hn::LoadU(d, bytes_of(span) + 128 + half * 32 + i);
        const auto store = [&](Bytes low_bits, Bytes high_bits, size_t at) HWY_ATTR {
          hn::StoreU(hn::Or(low_bits, hn::ShiftLeft<4>(high_bits)), d, codes + at + i);
        };
        store(bits_of<0, 4>(low), bits_of<0, 2>(high), 0);
        store(bits_of<0, 4>(second), bits_of<2, 2>(high), 32);
        store(bits_of<4, 4>(low), bits_of<4, 2>(high), 64);
        store(bits_of<4, 4>(second), bits_of<6, 2>(high), 96);
      }
    }
    const float factor = formats::half_at(span, 208);
    store_scaled(reinterpret_cast<const int8_t*>(span + 192), factor, out.scales);
    std::fill_n(out.least, kSpanGroups, 0.0f);
  }
};

SpanReader reader_of(const BlockFormat& format) {
  SpanReader reader;
  formats::with_format(format.number, [&]<class Format>(Format) {
    reader = {Reader<Format>::kBytes, Reader<Format>::kOffset, Reader<Format>::unpack};
  });
  return reader;
}

}  // namespace bowline::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bowline::detail::cpu {

SpanReader span_reader(const BlockFormat& format) { return BOWLINE_BEST(reader_of)(format); }

}  // namespace bowline::detail::cpu
#endif  // HWY_ONCE
