// Arithmetic of Python.
#include <cmath>

#include "text/chat_render.h"

namespace bowline::text::chat {
namespace {

// a to the power of b >= 0.
Result<Value> power_of(int64_t a, int64_t b) {
  int64_t out = 1;
  for (; b > 0; b >>= 1) {
    bool is_large = (b & 1) != 0 && __builtin_mul_overflow(out, a, &out);
    is_large = is_large || (b > 1 && __builtin_mul_overflow(a, a, &a));
    BOWLINE_REQUIRE_FILE(!is_large, "A number is too large.");
  }
  return Value::of(out);
}

// Floor of the quotient, or the remainder, as in Python's float_floor_div() and float_rem().
Value floor_of(double a, double b, bool wants_rest) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (wants_rest) {
    return Value::of(rest);
  }
  if (quotient == 0) {
    return Value::of(std::copysign(0.0, a / b));
  }
  const double floor = std::floor(quotient);
  return Value::of(quotient - floor > 0.5 ? floor + 1 : floor);
}

// An operation with a float operand or a float result.
Result<Value> real_of(std::string_view op, const Value& left, const Value& right) {
  constexpr int64_t kExact = int64_t{1} << 53;
  for (const Value* v : {&left, &right}) {
    BOWLINE_REQUIRE_FILE(!v->is_number() || (v->number() <= kExact && v->number() >= -kExact),
                         "The integer {} cannot be converted to a float exactly.", v->number());
  }
  const double a = left.as_real(), b = right.as_real();
  if (op == "+" || op == "-" || op == "*") {
    return Value::of(op == "+" ? a + b : op == "-" ? a - b : a * b);
  }
  BOWLINE_REQUIRE_FILE(b != 0 || op == "**", "Division by 0.");
  if (op == "/") {
    return Value::of(a / b);
  }
  if (op == "//" || op == "%") {
    return floor_of(a, b, op == "%");
  }
  BOWLINE_REQUIRE_FILE(!(a == 0 && b < 0) && !(a < 0 && std::isfinite(b) && b != std::floor(b)),
                       "The result of a power is not a number.");
  const double power = std::pow(a, b);
  return std::isinf(power) && std::isfinite(a) && std::isfinite(b)
             ? Result<Value>(failure("A number is too large."))
             : Result<Value>(Value::of(power));
}

Result<Value> whole_number(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  const bool too_large = op == "+"   ? __builtin_add_overflow(a, b, &out)
                         : op == "-" ? __builtin_sub_overflow(a, b, &out)
                         : op == "*" ? __builtin_mul_overflow(a, b, &out)
                                     : (op != "**" && b == -1 && a == INT64_MIN);
  BOWLINE_REQUIRE_FILE(!too_large, "A number is too large.");
  if (op == "+" || op == "-" || op == "*") {
    return Value::of(out);
  }
  if (op == "**") {
    return power_of(a, b);
  }
  BOWLINE_REQUIRE_FILE(b != 0, "Division by 0.");
  // Rounds down, as in Python.
  const int64_t rest = a % b, floor = a / b;
  const bool is_between = rest != 0 && (rest < 0) != (b < 0);
  return Value::of(op == "%" ? (is_between ? rest + b : rest) : (is_between ? floor - 1 : floor));
}

}  // namespace

Result<Value> arithmetic(std::string_view op, const Value& a, const Value& b) {
  const bool is_real =
      a.kind == Kind::real || b.kind == Kind::real || op == "/" || (op == "**" && b.number() < 0);
  return is_real ? real_of(op, a, b) : whole_number(op, a.number(), b.number());
}

}  // namespace bowline::text::chat
