// Per-step scalars ("step words"): values that an operator reads in every run, or writes for the
// host and for other operators.
//
// An op file declares them in its head, by name:
//   //! step learning_rate: f32, update: u32 = 1
//   //! step writes weights_non_finite: u32 = 0
//
// The first line declares scalars that the operator reads. A run must set a scalar without a
// default. The second line declares a scalar that the operator writes. It starts with its default,
// or 0.
//
// All declarations of a name mean the same scalar. A written scalar may also be read. The build
// generates generated/step_words.h from the declarations. plan/step_layout.h assigns the offsets,
// and a record has the offsets of the scalars of its operator.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace bowline {

enum class StepType : uint8_t { f32, u32, u64 };

constexpr uint32_t size_of(StepType t) { return t == StepType::u64 ? 8 : 4; }

constexpr std::string_view name_of(StepType t) {
  return t == StepType::f32 ? "f32" : t == StepType::u32 ? "u32" : "u64";
}
inline void append_text(std::string& out, StepType t) { out += name_of(t); }

template <class T>
constexpr StepType step_type() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, uint32_t> ||
                std::is_same_v<T, uint64_t>);
  return std::is_same_v<T, float>      ? StepType::f32
         : std::is_same_v<T, uint32_t> ? StepType::u32
                                       : StepType::u64;
}

// A scalar of one operator: its position in the declaration of the operator.
template <class T>
struct StepWord {
  uint32_t index;
};

// Converts a value to bits, and back.
template <class T>
constexpr uint64_t step_bits(std::type_identity_t<T> v) {
  if constexpr (step_type<T>() == StepType::f32) {
    return std::bit_cast<uint32_t>(v);
  } else {
    return v;
  }
}
template <class T>
constexpr T step_number(uint64_t bits) {
  if constexpr (step_type<T>() == StepType::f32) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else {
    return static_cast<T>(bits);
  }
}

// Write the bits to memory, and read them.
inline void store_step(StepType type, uint64_t bits, std::byte* to) {
  const auto low = static_cast<uint32_t>(bits);
  std::memcpy(to, type == StepType::u64 ? static_cast<const void*>(&bits) : &low, size_of(type));
}
inline uint64_t load_step(StepType type, const std::byte* from) {
  uint64_t bits = 0;
  uint32_t low = 0;
  std::memcpy(type == StepType::u64 ? static_cast<void*>(&bits) : &low, from, size_of(type));
  return type == StepType::u64 ? bits : low;
}

struct StepWordInfo {
  std::string_view name;
  StepType type = StepType::f32;
  std::optional<uint64_t> default_bits;
  bool written = false;
};

}  // namespace bowline
