#include "gguf/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "base/bytes.h"
#include "base/float16.h"

namespace bowline::gguf {
namespace {

// This file is compiled without fused multiply-add: products are rounded before sums, as in ggml.

float scale(const std::byte* from) { return to_f32(f16{load<uint16_t>(from)}); }
int byte_at(const std::byte* from, int i) { return static_cast<int>(from[i]); }

// Bit i as the fifth bit of a quantized value.
int high_bit(uint32_t bits, int i) { return static_cast<int>(bits >> i & 1) << 4; }

void decode_f32(const std::byte* from, float* to) { *to = load<float>(from); }
void decode_f16(const std::byte* from, float* to) { *to = scale(from); }
void decode_bf16(const std::byte* from, float* to) { *to = to_f32(bf16{load<uint16_t>(from)}); }

// d (f16), 32 values q (i8): x = d * q
void decode_q8_0(const std::byte* from, float* to) {
  const float d = scale(from);
  for (int i = 0; i < 32; ++i) {
    to[i] = d * static_cast<float>(load<int8_t>(from + 2 + i));
  }
}

// 32 values of 4 or 5 bits: d (f16), m (f16) if `has_least`, 32 high bits if `has_high`, 16 bytes
// with the low bits of values i (low) and i + 16 (high): x = d * q + m, or x = d * (q - middle).
template <bool has_high, bool has_least>
void decode_short(const std::byte* from, float* to) {
  constexpr int kHigh = has_least ? 4 : 2, kLow = kHigh + (has_high ? 4 : 0);
  constexpr int kMiddle = has_least ? 0 : has_high ? 16 : 8;
  const float d = scale(from), m = has_least ? scale(from + 2) : 0;
  const uint32_t high = has_high ? load<uint32_t>(from + kHigh) : 0;
  for (int i = 0; i < 32; ++i) {
    const int low = byte_at(from, kLow + i % 16) >> (i / 16 * 4) & 15;
    const float x = d * static_cast<float>((low | high_bit(high, i)) - kMiddle);
    to[i] = has_least ? x + m : x;
  }
}

// Eight scales and eight minima of 6 bits in 12 bytes.
struct Pair {
  int scale;
  int least;
};
Pair pair_of_k(const std::byte* from, int i) {
  if (i < 4) {
    return {byte_at(from, i) & 63, byte_at(from, i + 4) & 63};
  }
  return {(byte_at(from, i + 4) & 15) | byte_at(from, i - 4) >> 6 << 4,
          byte_at(from, i + 4) >> 4 | byte_at(from, i) >> 6 << 4};
}

// x = d * scale * q - dmin * least for 256 elements. code(part, i) returns q of element i of a part
// of 32.
template <class Code>
void decode_pairs(const std::byte* from, const Code& code, float* to) {
  const float d = scale(from);
  const float dmin = scale(from + 2);
  for (int part = 0; part < 8; ++part) {
    const Pair pair = pair_of_k(from + 4, part);
    const float step = d * static_cast<float>(pair.scale);
    const float least = dmin * static_cast<float>(pair.least);
    for (int i = 0; i < 32; ++i) {
      to[part * 32 + i] = step * static_cast<float>(code(part, i)) - least;
    }
  }
}

// 32 bytes hold the values of 32 elements (low) and of the next 32 (high).
int nibble(const std::byte* from, int part, int i) {
  return byte_at(from, part / 2 * 32 + i) >> (part % 2 * 4) & 15;
}

// d and dmin (f16), the scales, 128 bytes of 4-bit values
void decode_q4_k(const std::byte* from, float* to) {
  decode_pairs(
      from, [from](int part, int i) { return nibble(from + 16, part, i); }, to);
}

// As Q4_K, with 32 bytes before the 4-bit values: bit `part` of byte i is the fifth bit.
void decode_q5_k(const std::byte* from, float* to) {
  const auto code = [from](int part, int i) {
    return nibble(from + 48, part, i) | (byte_at(from, 16 + i) >> part & 1) << 4;
  };
  decode_pairs(from, code, to);
}

// 128 bytes with the low 4 bits, 64 bytes with the high 2 bits, 16 scales (i8), d (f16). Two halves
// of 128 elements.
//   x = d * scale * (q - 32)
void decode_q6_k(const std::byte* from, float* to) {
  const float d = scale(from + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int part = i % 128 / 32;
    const int at = i % 32;
    const int low = byte_at(from, half * 64 + part % 2 * 32 + at) >> (part / 2 * 4) & 15;
    const int high = byte_at(from, 128 + half * 32 + at) >> (part * 2) & 3;
    const float step = d * static_cast<float>(load<int8_t>(from + 192 + i / 16));
    to[i] = step * static_cast<float>((low | high << 4) - 32);
  }
}

constexpr TensorType kTypes[] = {
    {0, "F32", 1, 4, DType::f32, "plain", decode_f32},
    {1, "F16", 1, 2, DType::f16, "plain", decode_f16},
    {30, "BF16", 1, 2, DType::bf16, "plain", decode_bf16},
    {8, "Q8_0", 32, 34, DType::f32, "q8_0", decode_q8_0},
    {2, "Q4_0", 32, 18, DType::f32, "q4_0", decode_short<false, false>},
    {3, "Q4_1", 32, 20, DType::f32, "", decode_short<false, true>},
    {6, "Q5_0", 32, 22, DType::f32, "", decode_short<true, false>},
    {7, "Q5_1", 32, 24, DType::f32, "", decode_short<true, true>},
    {12, "Q4_K", 256, 144, DType::f32, "", decode_q4_k},
    {13, "Q5_K", 256, 176, DType::f32, "", decode_q5_k},
    {14, "Q6_K", 256, 210, DType::f32, "", decode_q6_k},
};

// Names of all types, for messages. Empty: removed from the format.
constexpr std::array<std::string_view, 40> kNames = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

}  // namespace

const TensorType* find_tensor_type(uint32_t number) {
  const auto* const found = std::ranges::find(kTypes, number, &TensorType::number);
  return found == std::end(kTypes) ? nullptr : found;
}

const TensorType* find_tensor_type(std::string_view name) {
  const auto* const found = std::ranges::find(kTypes, name, &TensorType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string tensor_type_name(uint32_t number) {
  return number < kNames.size() && !kNames[number].empty() ? std::string(kNames[number])
                                                           : fmt::format("type {}", number);
}

std::string known_tensor_types() {
  return fmt::format("{}", fmt::join(kTypes | std::views::transform(&TensorType::name), ", "));
}

}  // namespace bowline::gguf
