#include "gguf/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/bytes.h"
#include "base/float16.h"
#include "base/formats.h"
#include "base/projected.h"

namespace bowline::gguf {
namespace {

void decode_f32(const std::byte* from, float* to) { *to = load<float>(from); }
void decode_f16(const std::byte* from, float* to) { *to = to_f32(f16{load<uint16_t>(from)}); }
void decode_bf16(const std::byte* from, float* to) { *to = to_f32(bf16{load<uint16_t>(from)}); }

// The plain types, and those of the block formats.
const std::vector<TensorType>& types() {
  static const std::vector<TensorType> all = [] {
    std::vector<TensorType> out = {
        {0, "F32", 1, 4, DType::f32, "plain", decode_f32, 0},
        {1, "F16", 1, 2, DType::f16, "plain", decode_f16, 1},
        {30, "BF16", 1, 2, DType::bf16, "plain", decode_bf16, 32},
    };
    for (const BlockFormat& f : block_formats()) {
      out.push_back(
          {f.gguf_type, f.gguf, f.block, f.bytes, DType::f32, f.name, f.decode, f.gguf_file});
    }
    return out;
  }();
  return all;
}

// Names of all types, for messages. Empty: removed from the format.
constexpr std::array<std::string_view, 40> kNames = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

template <class Field, class Value>
const TensorType* found(Field field, const Value& value) {
  const auto at = std::ranges::find(types(), value, field);
  return at == types().end() ? nullptr : &*at;
}

}  // namespace

const TensorType* find_tensor_type(uint32_t number) { return found(&TensorType::number, number); }

const TensorType* find_tensor_type(std::string_view name) { return found(&TensorType::name, name); }

const TensorType* find_type_of_encoding(std::string_view encoding) {
  return encoding == "plain" ? nullptr : found(&TensorType::encoding, encoding);
}

std::string tensor_type_name(uint32_t number) {
  return number < kNames.size() && !kNames[number].empty() ? std::string(kNames[number])
                                                           : fmt::format("type {}", number);
}

std::string known_tensor_types() {
  return fmt::format("{}", fmt::join(projected(types(), &TensorType::name), ", "));
}

}  // namespace bowline::gguf
