#include "source/numbers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/require.h"

namespace bowline::import {
namespace {

// A subnormal f16 is m * 2^-24; all others only get another bias.
float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign == 0 ? value : -value;
  }
  const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

uint16_t to_f16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) {
    return sign | 0x7e00u | static_cast<uint16_t>(size >> 13 & 0x3ffu);
  }
  if (size >= 0x47800000u) {  // 65536 and infinity
    return sign | 0x7c00u;
  }
  if (size < 0x38800000u) {  // below 2^-14: adding 0.5 puts the rounded mantissa into the last bits
    const float sum = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t rounded = size + 0xfffu + (size >> 13 & 1u) - (112u << 23);
  return static_cast<uint16_t>(sign | std::min(rounded >> 13, 0x7c00u));
}

uint16_t to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>(bits >> 16 | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float number_at(const std::byte* from, DType dtype) {
  if (dtype == DType::f32) {
    float f = 0;
    std::memcpy(&f, from, sizeof f);
    return f;
  }
  uint16_t h = 0;
  std::memcpy(&h, from, sizeof h);
  return dtype == DType::f16 ? from_f16(h) : std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

void put_number(float f, std::byte* to, DType dtype) {
  if (dtype == DType::f32) {
    std::memcpy(to, &f, sizeof f);
    return;
  }
  const uint16_t h = dtype == DType::f16 ? to_f16(f) : to_bf16(f);
  std::memcpy(to, &h, sizeof h);
}

}  // namespace

void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to,
             DType to_dtype) {
  const size_t in = size_of(from_dtype), out = size_of(to_dtype);
  for (size_t i = 0; i < to.size() / out; ++i) {
    put_number(number_at(from.data() + i * in, from_dtype), to.data() + i * out, to_dtype);
  }
}

ValueSource converted(ValueSource source, DType from, DType to, uint64_t elements) {
  if (from == to) {
    return source;
  }
  return [source = std::move(source), from, to, elements](uint64_t first,
                                                          std::span<std::byte> out) -> Status {
    constexpr uint64_t kPiece = 16384;  // elements
    const uint64_t in_size = size_of(from), size = size_of(to);
    BOWLINE_REQUIRE(first <= elements * size && out.size() <= elements * size - first,
                    "{} bytes from byte {} on are read of a tensor of {}.", out.size(), first,
                    elements * size);
    std::vector<std::byte> raw(kPiece * in_size), made(kPiece * size);
    for (uint64_t done = 0; done < out.size();) {
      // A run may begin and end inside an element.
      const uint64_t element = (first + done) / size, skip = (first + done) % size;
      const uint64_t n = std::min(kPiece, elements - element);
      BOWLINE_TRY(source(element * in_size, std::span(raw).first(n * in_size)));
      convert(std::span(raw).first(n * in_size), from, std::span(made).first(n * size), to);
      const uint64_t bytes = std::min<uint64_t>(n * size - skip, out.size() - done);
      std::memcpy(out.data() + done, made.data() + skip, bytes);
      done += bytes;
    }
    return {};
  };
}

}  // namespace bowline::import
