// Arithmetic, comparisons and logic, element by element.
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A Bowline operator with the same name and meaning.
Term same(Context& c) { return c.m.unary(c.op(), c.in(0)); }

struct Operands {
  Term a, b;
};

// Before operator set 7 the second operand broadcasts only if an attribute says so, and along a
// given axis.
Operands operands_of(Context& c) {
  const Term a = c.in(0), b = c.in(1);
  if (c.opset < 7) {
    const bool broadcasts = c.flag("broadcast", false);
    const int64_t axis = c.integer("axis", -1);
    if (broadcasts && axis >= 0) {
      Dims dims = b.dims;
      while (dims.size() + static_cast<size_t>(axis) < a.rank()) {
        dims.push_back(1);
      }
      return {a, c.m.reshape(b, dims)};
    }
  }
  return {a, b};
}

Term two(Context& c) {
  const auto [a, b] = operands_of(c);
  return c.m.binary(c.op(), a, b);
}

Term comparison(Context& c) {
  const auto [a, b] = operands_of(c);
  return c.m.compare(c.op(), a, b);
}

Term many(Context& c, std::string_view op) {
  Term all = c.in(0);
  for (size_t i = 1; i < c.inputs(); ++i) {
    all = c.m.binary(op, all, c.in(i));
  }
  return all;
}

Term extreme_of_inputs(Context& c) { return many(c, c.op()); }
Term sum(Context& c) { return many(c, "Add"); }
Term mean(Context& c) { return sum(c) * (1.0 / static_cast<double>(c.inputs())); }
Term ceil(const Term& x) { return -floor(-x); }
Term reciprocal(const Term& x) { return 1 / x; }
Term is_nan(const Term& x) { return x != x; }

Term exclusive_or(Context& c) {
  const auto [a, b] = operands_of(c);
  require(a.dtype == DType::boolean, "The operands are not bool.");
  return a != b;
}

Term is_inf(Context& c) {
  const Term x = c.in(0);
  const bool positive = c.flag("detect_positive", true), negative = c.flag("detect_negative", true);
  const Term above = x == INFINITY, below = x == -INFINITY;
  return positive && negative ? above | below
         : positive           ? above
         : negative           ? below
                              : above != above;
}

// a^n by repeated products, which wrap around as integers do.
Term power(const Term& a, int64_t n) {
  Term out, square = a;
  for (bool first = true; n > 0; n /= 2) {
    if (n % 2 == 1) {
      out = first ? square : out * square;
      first = false;
    }
    square = n > 1 ? square * square : square;
  }
  return out;
}

// Integers to the power of integers, as products too. For a negative exponent the result is 1 /
// a^|b|, truncated.
Term power_of_each(const Term& a, const Term& b) {
  const Term one = scalar_like(a, 1), zero = scalar_like(b, 0), two = scalar_like(b, 2);
  // From exponent 64 on, only the powers of 0, 1 and -1 fit in i64. They depend only on whether the
  // exponent is odd.
  const Term odd = b - b / two * two;
  const Term large = odd * odd + 62;
  Term left = where(b > 63, large, b);
  Term out = one, square = a;
  for (int bit = 0; bit < 6; ++bit) {
    const Term half = left / two;
    const Term set = left != half * two;
    out = where(set, out * square, out);
    square = bit < 5 ? square * square : square;
    left = half;
  }
  const Term minus_one = scalar_like(a, -1);
  const Term sign = where(odd == zero, one, minus_one);
  const Term small = where(a == one, one, where(a == minus_one, sign, scalar_like(a, 0)));
  return where(b < zero, small, out);
}

// An integer to an integer power uses products. Other powers use f32. The f32 result can be
// slightly below the exact power, so it is truncated from slightly above: exact up to 2^19.
Term pow(Context& c) {
  auto [a, b] = operands_of(c);
  const bool whole = !is_float(a.dtype);
  if (b.constant() && b.elements() == 1) {
    b = c.m.constant(*b.numbers());  // a constant exponent is not trained
    const double n = b.numbers()->reals()[0];
    const bool is_product = whole ? n >= 1 && n < 64 && n == std::trunc(n) : n == 2;
    if (is_product && a.rank() >= b.rank()) {
      return power(a, static_cast<int64_t>(n));
    }
  }
  if (whole && !is_float(b.dtype)) {
    return power_of_each(a, b);
  }
  const DType dtype = whole ? DType::f32 : a.dtype;
  const Term y = pow(cast(a, dtype), cast(b, dtype));
  return whole ? cast(y * (1 + std::ldexp(1.0, -20)), a.dtype) : y;
}

// fmod of floats, exact for quotients below 2^70.
//
// Subtracts multiples of the divisor, 7 bits of the quotient at a time. Each part of the quotient
// is rounded to nearest, so the remainder stays below half the divisor times 2^s. The divisor is
// split into parts of 8 and 16 bits. Products and differences are then exact, with or without fused
// multiply-add.
Term exact_rest(const Term& a, const Term& b) {
  constexpr int kBits = 7, kParts = 10;
  const Term size = abs(a), divisor = abs(b);
  const Term high = cast(cast(divisor, DType::bf16), DType::f32);
  const Term low = divisor - high;
  Term rest = size;
  for (int s = (kParts - 1) * kBits; s >= 0; s -= kBits) {
    const double unit = std::ldexp(1.0, s);
    const Term q = round(rest * (1 / unit) / divisor) * unit;
    rest = rest - q * high - q * low;
  }
  const Term zero = scalar_like(rest, 0);
  rest = where(rest < zero, rest + divisor, rest);
  rest = where(a < zero, -rest, rest);
  // If |a| < |b| the result is `a`. This covers an infinite divisor.
  return where(size < divisor, a, rest);
}

// The result has the sign of `a` if fmod is 1, else the sign of `b`.
Term mod(Context& c) {
  const Term a = c.in(0), b = c.in(1);
  const auto f32 = [](const Term& x) { return cast(x, DType::f32); };
  // Integer division truncates towards zero.
  Term rest = is_float(a.dtype) ? cast(exact_rest(f32(a), f32(b)), a.dtype) : a - a / b * b;
  if (!c.flag("fmod", false)) {
    const Term zero = scalar_like(a, 0);
    const Term below = rest < zero;
    const Term other = below != (b < zero);
    const Term some = rest != zero;
    rest = where(other & some, rest + b, rest);
  }
  return rest;
}

Term where(Context& c) { return where(c.in(0), c.in(1), c.in(2)); }

// Attributes that apply only to casts to 8-bit floats, a dtype that is rejected.
void ignore_rules_of_8_bits(Context& c) {
  c.ignore("saturate");
  c.ignore("round_mode");
}

Term cast(Context& c) {
  ignore_rules_of_8_bits(c);
  const int64_t number = c.integer("to", -1);
  require(number >= 0 && number <= INT32_MAX,
          "It casts to {}, which is not a dtype number of ONNX.", number);
  return cast(c.in(0), required(dtype_of(static_cast<int32_t>(number))));
}

Term cast_like(Context& c) {
  ignore_rules_of_8_bits(c);
  return cast(c.in(0), c.in(1).dtype);
}

constexpr Lowering kElementwiseLowerings[] = {
    {"Abs Neg Exp Log Sqrt Erf Sin Cos Tanh Sigmoid Relu Floor Round Sign Softplus HardSwish Not",
     same},
    {"Add Sub Mul Div And Or", two},
    {"Equal Less LessOrEqual Greater GreaterOrEqual", comparison},
    {"Max Min", extreme_of_inputs},
    {"Sum", sum},
    {"Mean", mean},
    {"Ceil", plain<ceil>},
    {"Reciprocal", plain<reciprocal>},
    {"Pow", pow},
    {"Mod", mod},
    {"Xor", exclusive_or},
    {"IsNaN", plain<is_nan>},
    {"IsInf", is_inf},
    {"Where", where},
    {"Cast", cast},
    {"CastLike", cast_like},
};

}  // namespace

std::span<const Lowering> lowerings_of_elementwise() { return kElementwiseLowerings; }

}  // namespace bowline::onnx
