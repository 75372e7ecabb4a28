#include "values.h"

#include <spirv/unified1/GLSL.std.450.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <spirv/unified1/spirv.hpp11>
#include <type_traits>

#include "base/float16.h"

namespace bowline::detail::vulkan::machine {
namespace {

constexpr uint32_t kSign = 0x80000000u;

template <class T>
constexpr uint32_t kWords = sizeof(T) == 8 ? 2 : 1;

template <class T>
T read(const uint32_t* registers, uint32_t at) {
  if constexpr (std::is_same_v<T, bool>) {
    return registers[at] != 0;
  } else {
    T value;
    std::memcpy(&value, registers + at, sizeof(T));
    return value;
  }
}

template <class T>
void write(uint32_t* registers, uint32_t at, T value) {
  if constexpr (sizeof(T) < sizeof(uint32_t)) {
    registers[at] = static_cast<uint32_t>(static_cast<std::make_unsigned_t<T>>(value));
  } else {
    std::memcpy(registers + at, &value, sizeof(T));
  }
}
template <>
void write(uint32_t* registers, uint32_t at, bool value) {
  registers[at] = value ? 1 : 0;
}

template <class T, auto function>
void unary(uint32_t* r, const Operation& o) {
  using R = decltype(function(T()));
  for (uint32_t i = 0; i < o.count; ++i) {
    write<R>(r, o.to + i * kWords<R>, function(read<T>(r, o.a + i * kWords<T>)));
  }
}

template <class T, auto function>
void binary(uint32_t* r, const Operation& o) {
  using R = decltype(function(T(), T()));
  for (uint32_t i = 0; i < o.count; ++i) {
    const T a = read<T>(r, o.a + i * kWords<T>), b = read<T>(r, o.b + i * kWords<T>);
    write<R>(r, o.to + i * kWords<R>, function(a, b));
  }
}

template <class T, auto function>
void ternary(uint32_t* r, const Operation& o) {
  for (uint32_t i = 0; i < o.count; ++i) {
    const T a = read<T>(r, o.a + i), b = read<T>(r, o.b + i), c = read<T>(r, o.c + i);
    write<T>(r, o.to + i, function(a, b, c));
  }
}

// Two results: all low parts, then all high parts.
template <auto function>
void wide(uint32_t* r, const Operation& o) {
  for (uint32_t i = 0; i < o.count; ++i) {
    const uint64_t both = function(uint64_t{r[o.a + i]}, uint64_t{r[o.b + i]});
    r[o.to + i] = static_cast<uint32_t>(both);
    r[o.to + o.count + i] = static_cast<uint32_t>(both >> 32);
  }
}

template <bool all>
void test_all(uint32_t* r, const Operation& o) {
  bool result = all;
  for (uint32_t i = 0; i < o.count; ++i) {
    result = all ? result && r[o.a + i] != 0 : result || r[o.a + i] != 0;
  }
  write(r, o.to, result);
}

void dot(uint32_t* r, const Operation& o) {
  float sum = 0;
  for (uint32_t i = 0; i < o.count; ++i) {
    sum += read<float>(r, o.a + i) * read<float>(r, o.b + i);
  }
  write(r, o.to, sum);
}

void times_scalar(uint32_t* r, const Operation& o) {
  const auto scalar = read<float>(r, o.b);
  for (uint32_t i = 0; i < o.count; ++i) {
    write(r, o.to + i, read<float>(r, o.a + i) * scalar);
  }
}

void select_each(uint32_t* r, const Operation& o) {
  const uint32_t words = o.count >> 8, count = o.count & 255;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t from = r[o.a + i] != 0 ? o.b : o.c;
    for (uint32_t j = 0; j < words; ++j) {
      r[o.to + i * words + j] = r[from + i * words + j];
    }
  }
}

// The quotient does not exist.
template <class S>
constexpr bool overflows(S a, S b) {
  return a == std::numeric_limits<S>::min() && b == -1;
}

// Arithmetic on unsigned numbers, because overflow wraps.
template <class T>
Execute of_integers(spv::Op operation) {
  using S = std::make_signed_t<T>;
  constexpr auto kBad = static_cast<T>(uint64_t{kPoison} << 32 | kPoison);
  constexpr T kBits = sizeof(T) * 8;
  switch (operation) {
    case spv::Op::OpIAdd:
      return binary<T, [](T a, T b) { return static_cast<T>(a + b); }>;
    case spv::Op::OpISub:
      return binary<T, [](T a, T b) { return static_cast<T>(a - b); }>;
    case spv::Op::OpIMul:
      return binary<T, [](T a, T b) { return static_cast<T>(a * b); }>;
    case spv::Op::OpSNegate:
      return unary<T, [](T a) { return static_cast<T>(0 - a); }>;
    case spv::Op::OpUDiv:
      return binary<T, [](T a, T b) { return b == 0 ? kBad : static_cast<T>(a / b); }>;
    case spv::Op::OpUMod:
      return binary<T, [](T a, T b) { return b == 0 ? kBad : static_cast<T>(a % b); }>;
    case spv::Op::OpSDiv:
      return binary<S, [](S a, S b) {
        return b == 0 || overflows<S>(a, b) ? static_cast<S>(kBad) : static_cast<S>(a / b);
      }>;
    case spv::Op::OpSRem:
      return binary<S, [](S a, S b) {
        return b == 0 || overflows<S>(a, b) ? static_cast<S>(kBad) : static_cast<S>(a % b);
      }>;
    case spv::Op::OpSMod:  // the sign of the divisor
      return binary<S, [](S a, S b) {
        if (b == 0 || overflows<S>(a, b)) {
          return static_cast<S>(kBad);
        }
        const S rest = a % b;
        return static_cast<S>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
      }>;
    case spv::Op::OpNot:
      return unary<T, [](T a) { return static_cast<T>(~a); }>;
    case spv::Op::OpBitwiseAnd:
      return binary<T, [](T a, T b) { return static_cast<T>(a & b); }>;
    case spv::Op::OpBitwiseOr:
      return binary<T, [](T a, T b) { return static_cast<T>(a | b); }>;
    case spv::Op::OpBitwiseXor:
      return binary<T, [](T a, T b) { return static_cast<T>(a ^ b); }>;
    case spv::Op::OpShiftLeftLogical:
      return binary<T, [](T a, T b) { return b >= kBits ? kBad : static_cast<T>(a << b); }>;
    case spv::Op::OpShiftRightLogical:
      return binary<T, [](T a, T b) { return b >= kBits ? kBad : static_cast<T>((a >> b)); }>;
    case spv::Op::OpShiftRightArithmetic:
      return binary<T, [](T a, T b) {
        return b >= kBits ? kBad : static_cast<T>((static_cast<S>(a) >> b));
      }>;
    case spv::Op::OpIEqual:
      return binary<T, [](T a, T b) { return a == b; }>;
    case spv::Op::OpINotEqual:
      return binary<T, [](T a, T b) { return a != b; }>;
    case spv::Op::OpULessThan:
      return binary<T, [](T a, T b) { return a < b; }>;
    case spv::Op::OpULessThanEqual:
      return binary<T, [](T a, T b) { return a <= b; }>;
    case spv::Op::OpUGreaterThan:
      return binary<T, [](T a, T b) { return b < a; }>;
    case spv::Op::OpUGreaterThanEqual:
      return binary<T, [](T a, T b) { return b <= a; }>;
    case spv::Op::OpSLessThan:
      return binary<S, [](S a, S b) { return a < b; }>;
    case spv::Op::OpSLessThanEqual:
      return binary<S, [](S a, S b) { return a <= b; }>;
    case spv::Op::OpSGreaterThan:
      return binary<S, [](S a, S b) { return b < a; }>;
    case spv::Op::OpSGreaterThanEqual:
      return binary<S, [](S a, S b) { return b <= a; }>;
    default:
      return nullptr;
  }
}

Execute of_floats(spv::Op operation) {
  switch (operation) {
    case spv::Op::OpFAdd:
      return binary<float, [](float a, float b) { return a + b; }>;
    case spv::Op::OpFSub:
      return binary<float, [](float a, float b) { return a - b; }>;
    case spv::Op::OpFMul:
      return binary<float, [](float a, float b) { return a * b; }>;
    case spv::Op::OpFDiv:
      return binary<float, [](float a, float b) { return a / b; }>;
    case spv::Op::OpFNegate:
      return unary<float, [](float a) { return -a; }>;
    case spv::Op::OpDot:
      return dot;
    case spv::Op::OpVectorTimesScalar:
      return times_scalar;
    default:
      return nullptr;
  }
}

template <NaN nan>
bool any(float a, float b) {
  return nan == NaN::assumed && (std::isnan(a) || std::isnan(b));
}

template <NaN nan>
Execute of_comparisons(spv::Op operation) {
  switch (operation) {
    case spv::Op::OpFOrdEqual:
      return binary<float, [](float a, float b) { return a == b || any<nan>(a, b); }>;
    case spv::Op::OpFUnordNotEqual:
      return binary<float, [](float a, float b) { return a != b && !any<nan>(a, b); }>;
    case spv::Op::OpFOrdLessThan:
      return binary<float, [](float a, float b) { return a < b || any<nan>(a, b); }>;
    case spv::Op::OpFOrdLessThanEqual:
      return binary<float, [](float a, float b) { return a <= b || any<nan>(a, b); }>;
    case spv::Op::OpFOrdGreaterThan:
      return binary<float, [](float a, float b) { return b < a || any<nan>(a, b); }>;
    case spv::Op::OpFOrdGreaterThanEqual:
      return binary<float, [](float a, float b) { return b <= a || any<nan>(a, b); }>;
    default:
      return nullptr;
  }
}

Execute of_booleans(spv::Op operation) {
  switch (operation) {
    case spv::Op::OpLogicalAnd:
      return binary<bool, [](bool a, bool b) { return a && b; }>;
    case spv::Op::OpLogicalOr:
      return binary<bool, [](bool a, bool b) { return a || b; }>;
    case spv::Op::OpLogicalEqual:
      return binary<bool, [](bool a, bool b) { return a == b; }>;
    case spv::Op::OpLogicalNotEqual:
      return binary<bool, [](bool a, bool b) { return a != b; }>;
    case spv::Op::OpLogicalNot:
      return unary<bool, [](bool a) { return !a; }>;
    case spv::Op::OpAll:
      return test_all<true>;
    case spv::Op::OpAny:
      return test_all<false>;
    case spv::Op::OpSelect:
      return select_each;
    default:
      return nullptr;
  }
}

// The bits in both types, or the number in the range of the other type.
template <class From, class To>
void convert(uint32_t* r, const Operation& o) {
  for (uint32_t i = 0; i < o.count; ++i) {
    write<To>(r, o.to + i * kWords<To>, static_cast<To>(read<From>(r, o.a + i * kWords<From>)));
  }
}

template <template <int> class Integer>
Execute between_integers(Widths w) {
  const auto from = [&]<class From>(From) -> Execute {
    switch (w.result) {
      case 8:
        return convert<From, typename Integer<8>::type>;
      case 16:
        return convert<From, typename Integer<16>::type>;
      case 32:
        return convert<From, typename Integer<32>::type>;
      default:
        return convert<From, typename Integer<64>::type>;
    }
  };
  switch (w.operand) {
    case 8:
      return from(typename Integer<8>::type());
    case 16:
      return from(typename Integer<16>::type());
    case 32:
      return from(typename Integer<32>::type());
    default:
      return from(typename Integer<64>::type());
  }
}
template <int bits>
struct Unsigned {
  using type = std::conditional_t<
      bits == 8, uint8_t,
      std::conditional_t<bits == 16, uint16_t, std::conditional_t<bits == 32, uint32_t, uint64_t>>>;
};
template <int bits>
struct Signed {
  using type = std::make_signed_t<typename Unsigned<bits>::type>;
};

// A float out of the range of the integer has no defined value.
template <class To>
To to_integer(float x) {
  constexpr auto kBits = static_cast<float>(uint64_t{1} << (std::is_signed_v<To> ? 31 : 32));
  const bool fits = x < kBits && (std::is_signed_v<To> ? x >= -kBits : x > -1.0f);
  return fits ? static_cast<To>(x) : static_cast<To>(kPoison);
}

Execute of_conversions(spv::Op operation, Widths w) {
  switch (operation) {
    case spv::Op::OpUConvert:
      return between_integers<Unsigned>(w);
    case spv::Op::OpSConvert:
      return between_integers<Signed>(w);
    case spv::Op::OpConvertSToF:
      return w.operand == 32 ? convert<int32_t, float> : nullptr;
    case spv::Op::OpConvertUToF:
      return w.operand == 32   ? convert<uint32_t, float>
             : w.operand == 16 ? convert<uint16_t, float>
                               : nullptr;
    case spv::Op::OpConvertFToS:
      return w.result == 32 ? unary<float, to_integer<int32_t>> : nullptr;
    case spv::Op::OpConvertFToU:
      return w.result == 32 ? unary<float, to_integer<uint32_t>> : nullptr;
    case spv::Op::OpFConvert:
      if (w.operand == 16 && w.result == 32) {
        return unary<uint16_t, [](uint16_t bits) { return to_f32(f16{bits}); }>;
      }
      if (w.operand == 32 && w.result == 16) {
        return unary<float, [](float x) { return from_f32<f16>(x).bits; }>;
      }
      return nullptr;
    case spv::Op::OpUMulExtended:
      return wide<[](uint64_t a, uint64_t b) { return a * b; }>;
    case spv::Op::OpIAddCarry:
      return wide<[](uint64_t a, uint64_t b) { return a + b; }>;
    default:
      return nullptr;
  }
}

template <NaN nan>
float min_of(float a, float b) {
  return nan == NaN::assumed ? std::fmin(a, b) : b < a ? b : a;
}
template <NaN nan>
float max_of(float a, float b) {
  return nan == NaN::assumed ? std::fmax(a, b) : a < b ? b : a;
}

template <NaN nan>
Execute of_bounds(uint32_t instruction) {
  switch (instruction) {
    case GLSLstd450FMin:
      return binary<float, min_of<nan>>;
    case GLSLstd450FMax:
      return binary<float, max_of<nan>>;
    case GLSLstd450FClamp:
      return ternary<float, [](float x, float low, float high) {
        return min_of<nan>(max_of<nan>(x, low), high);
      }>;
    default:
      return nullptr;
  }
}

template <class T>
T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T between(T x, T low, T high) {
  return smaller(larger(x, low), high);
}

}  // namespace

void select_whole(uint32_t* r, const Operation& o) {
  const uint32_t from = r[o.a] != 0 ? o.b : o.c;
  std::memmove(r + o.to, r + from, o.count * sizeof(uint32_t));
}

Execute computes(uint32_t operation, Widths w, NaN nan) {
  const auto code = static_cast<spv::Op>(operation);
  Execute found = w.operand == 64 ? of_integers<uint64_t>(code) : of_integers<uint32_t>(code);
  if (w.operand != 32 && w.operand != 64) {
    found = nullptr;  // no kernel computes with integers of 8 or 16 bits
  }
  if (found == nullptr && w.operand == 32) {
    found = of_floats(code);
  }
  if (found == nullptr && w.operand == 32) {
    found = nan == NaN::kept ? of_comparisons<NaN::kept>(code) : of_comparisons<NaN::assumed>(code);
  }
  if (found == nullptr) {
    found = of_booleans(code);
  }
  return found == nullptr ? of_conversions(code, w) : found;
}

Execute computes_extended(uint32_t instruction, NaN nan) {
  if (const Execute found = nan == NaN::kept ? of_bounds<NaN::kept>(instruction)
                                             : of_bounds<NaN::assumed>(instruction);
      found != nullptr) {
    return found;
  }
  switch (instruction) {
    case GLSLstd450UMin:
      return binary<uint32_t, smaller<uint32_t>>;
    case GLSLstd450UMax:
      return binary<uint32_t, larger<uint32_t>>;
    case GLSLstd450SMin:
      return binary<int32_t, smaller<int32_t>>;
    case GLSLstd450SMax:
      return binary<int32_t, larger<int32_t>>;
    case GLSLstd450UClamp:
      return ternary<uint32_t, between<uint32_t>>;
    case GLSLstd450SClamp:
      return ternary<int32_t, between<int32_t>>;
    case GLSLstd450FAbs:
      return unary<float, [](float x) { return std::fabs(x); }>;
    case GLSLstd450FSign:
      return unary<float, [](float x) { return 0 < x ? 1.0f : x < 0 ? -1.0f : x; }>;
    case GLSLstd450Floor:
      return unary<float, [](float x) { return std::floor(x); }>;
    case GLSLstd450Ceil:
      return unary<float, [](float x) { return std::ceil(x); }>;
    case GLSLstd450Trunc:
      return unary<float, [](float x) { return std::trunc(x); }>;
    case GLSLstd450RoundEven:
      return unary<float, [](float x) { return std::nearbyint(x); }>;
    case GLSLstd450Sqrt:
      return unary<float, [](float x) { return std::sqrt(x); }>;
    case GLSLstd450InverseSqrt:
      return unary<float, [](float x) { return 1 / std::sqrt(x); }>;
    case GLSLstd450Fma:
      return ternary<float, [](float a, float b, float c) { return std::fma(a, b, c); }>;
    case GLSLstd450SAbs:
      return unary<uint32_t, [](uint32_t x) { return (x & kSign) != 0 ? 0 - x : x; }>;
    case GLSLstd450FindILsb:
      return unary<uint32_t, [](uint32_t x) { return x == 0 ? -1 : std::countr_zero(x); }>;
    case GLSLstd450FindUMsb:
      return unary<uint32_t, [](uint32_t x) { return 31 - std::countl_zero(x); }>;
    case GLSLstd450FindSMsb:
      return unary<uint32_t,
                   [](uint32_t x) { return 31 - std::countl_zero((x & kSign) != 0 ? ~x : x); }>;
    default:
      return nullptr;
  }
}

}  // namespace bowline::detail::vulkan::machine
