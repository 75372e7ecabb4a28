// Operators of the bits of integers.
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Multiplies or divides by a power of 2 from a table. A shift by all bits or more returns 0.
Term bit_shift(Context& c) {
  const Term x = c.in(0);
  const Term count = c.in(1);
  const std::string direction = c.choice("direction", "", "LEFT RIGHT", "Direction");
  require(!is_float(x.dtype) && x.dtype != DType::boolean && x.dtype == count.dtype,
          "It shifts {} by {}, but both must be integers of one dtype.", x.dtype, count.dtype);
  const auto bits = static_cast<int64_t>(8 * size_of(x.dtype));
  const Term powers =
      c.m.table(x.dtype, {bits}, [](int64_t i) { return static_cast<int64_t>(uint64_t{1} << i); });
  const Term most = scalar_like(count, static_cast<double>(bits - 1));
  const Term zero = scalar_like(x, 0);
  const Term over = (count > most) | (count < zero);
  const Term i = cast(where(over, zero, count), DType::i32);
  const Term power = c.m.gather(powers, i, 0);
  if (direction == "LEFT") {
    return where(over, zero, x * power);
  }
  // A division rounds towards zero, a shift rounds down. The power of the sign bit is itself
  // negative.
  const Term quotient = x / power;
  const Term below = x < zero;
  const Term inexact = quotient * power != x;
  const Term down = where(below & inexact, quotient - 1, quotient);
  const Term sign = where(below, -1, zero);
  const Term last = over | (count == most);
  return x.dtype == DType::u8 ? where(over, zero, quotient) : where(last, sign, down);
}

// Works in base 16: two digits select an entry of a table.
Term bitwise(Context& c) {
  const Term a = c.in(0), b = c.in(1);
  const bool whole = !is_float(a.dtype) && a.dtype != DType::boolean && a.dtype == b.dtype;
  require(whole, "The operands are {} and {}, not integers of one dtype.", a.dtype, b.dtype);
  const Term table = c.m.table(a.dtype, {256}, [&](int64_t i) {
    const int64_t x = i / 16, y = i % 16;
    return c.op() == "BitwiseAnd" ? x & y : c.op() == "BitwiseOr" ? x | y : x ^ y;
  });
  const Term base = scalar_like(a, 16), zero = scalar_like(a, 0);
  // Splits off the lowest digit of the two's complement value. `rest` is rounded down.
  const auto next = [&](Term& rest) {
    const Term quotient = rest / base;
    const Term digit = rest - quotient * base;
    const Term below = digit < zero;
    rest = where(below, quotient - 1, quotient);
    return cast(where(below, digit + 16, digit), DType::i32);
  };
  Term left = a, right = b, all, power = scalar_like(a, 1);
  for (size_t digit = 0; digit < 2 * size_of(a.dtype); ++digit) {
    const Term index = next(left) * 16 + next(right);
    const Term part = c.m.gather(table, index, 0) * power;
    all = digit == 0 ? part : all + part;
    power = power * base;
  }
  return all;
}

// In two's complement, ~x = -x - 1.
Term bitwise_not(Context& c) {
  const Term x = c.in(0);
  require(!is_float(x.dtype), "{} has no bits.", x.dtype);
  return -1 - x;
}

constexpr Lowering kBitsLowerings[] = {
    {"BitShift", bit_shift},
    {"BitwiseAnd BitwiseOr BitwiseXor", bitwise},
    {"BitwiseNot", bitwise_not},
};

}  // namespace

std::span<const Lowering> lowerings_of_bits() { return kBitsLowerings; }

}  // namespace bowline::onnx
