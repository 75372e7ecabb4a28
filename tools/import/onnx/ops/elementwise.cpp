// Elementwise operators.
#include <cmath>
#include <numbers>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A Bowline operator with the same name and meaning.
template <const char* op>
Status same(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.unary(op, x));
  return {};
}

// Before operator set 7 the second operand broadcasts only if an attribute says so, and along a
// given axis.
Result<Term> second(Context& c, const Term& a) {
  BOWLINE_TRY_ASSIGN(Term b, c.in(1));
  if (c.opset < 7) {
    BOWLINE_TRY_ASSIGN(const int64_t broadcasts, c.integer("broadcast", 0));
    BOWLINE_TRY_ASSIGN(const int64_t axis, c.integer("axis", -1));
    if (broadcasts != 0 && axis >= 0) {
      Dims dims = b.dims;
      while (dims.size() + static_cast<size_t>(axis) < a.rank()) {
        dims.push_back(1);
      }
      return c.m.reshape(b, dims);
    }
  }
  return b;
}

template <const char* op>
Status two(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, second(c, a));
  c.out(0, c.m.binary(op, a, b));
  return {};
}

template <const char* op>
Status comparison(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, second(c, a));
  c.out(0, c.m.compare(op, a, b));
  return {};
}

template <const char* op>
Status many(Context& c) {
  BOWLINE_TRY_ASSIGN(Term sum, c.in(0));
  for (size_t i = 1; i < c.inputs(); ++i) {
    BOWLINE_TRY_ASSIGN(const Term next, c.in(i));
    sum = c.m.binary(op, sum, next);
  }
  c.out(0, sum);
  return {};
}

constexpr char kAbs[] = "Abs", kNeg[] = "Neg", kExp[] = "Exp", kLog[] = "Log", kSqrt[] = "Sqrt",
               kErf[] = "Erf", kSin[] = "Sin", kCos[] = "Cos", kTanh[] = "Tanh",
               kSigmoid[] = "Sigmoid", kRelu[] = "Relu", kFloor[] = "Floor", kRound[] = "Round",
               kSign[] = "Sign", kSoftplus[] = "Softplus", kHardSwish[] = "HardSwish",
               kNot[] = "Not";
constexpr char kAdd[] = "Add", kSub[] = "Sub", kMul[] = "Mul", kDiv[] = "Div", kAnd[] = "And",
               kOr[] = "Or", kMax[] = "Max", kMin[] = "Min";
constexpr char kEqual[] = "Equal", kLess[] = "Less", kLessOrEqual[] = "LessOrEqual",
               kGreater[] = "Greater", kGreaterOrEqual[] = "GreaterOrEqual";

Status mean(Context& c) {
  BOWLINE_TRY(many<kAdd>(c));
  c.out(0, c.m.mul(c.results()[0], 1.0 / static_cast<double>(c.inputs())));
  return {};
}

Status ceil(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.unary("Neg", c.m.unary("Floor", c.m.unary("Neg", x))));
  return {};
}

Status reciprocal(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.div(c.m.scalar(x.dtype, 1), x));
  return {};
}

// Returns x + factor * x^3 for |x| < 2^-8, where the next terms are below the f32 precision.
// Otherwise returns `y`.
Term near_zero(Context& c, const Term& x, double factor, const Term& y) {
  const Term cube = c.m.mul(c.m.unary("Square", x), x);
  const Term is_near = c.m.compare("Less", c.m.unary("Abs", x), c.m.scalar(x.dtype, 0x1p-8));
  return c.m.where(is_near, c.m.add(x, c.m.mul(cube, factor)), y);
}

// sinh(x) = (e^x - e^-x) / 2, computed from expm1 so that small values keep their digits.
// With a = e^x - 1 it is (a + a / (a + 1)) / 2. There is no operator for expm1, but Elu computes it
// below 0. So a = -expm1(-|x|) and sinh|x| = (a + a / (1 - a)) / 2.
Status sinh(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given, c.in(0));
  const Term x = in_f32(c, given);
  const Term down = c.m.unary("Neg", c.m.unary("Abs", x));
  const Term a = c.m.unary("Neg", c.m.unary("Elu", down, {{"alpha", 1.0}}));
  const Term near = c.m.mul(c.m.add(a, c.m.div(a, c.m.unary("Exp", down))), 0.5);
  // Far from 0 the result is e^|x| / 2. Computed from e^(|x| / 2), because e^|x| overflows earlier.
  const Term h = c.m.unary("Exp", c.m.mul(c.m.unary("Abs", x), 0.5));
  const Term is_far = c.m.compare("Greater", c.m.unary("Abs", x), c.m.scalar(x.dtype, 16));
  const Term size = c.m.where(is_far, c.m.mul(c.m.mul(h, 0.5), h), near);
  c.out(0, c.m.cast(c.m.mul(c.m.unary("Sign", x), size), given.dtype));
  return {};
}

// (e^x + e^-x) / 2 from h = e^(|x| / 2), because e^x overflows before its half.
Status cosh(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given, c.in(0));
  const Term x = in_f32(c, given);
  const Term h = c.m.unary("Exp", c.m.mul(c.m.unary("Abs", x), 0.5));
  const Term half = c.m.mul(h, 0.5);
  c.out(0, c.m.cast(c.m.add(c.m.mul(half, h), c.m.div(c.m.div(c.m.scalar(x.dtype, 0.5), h), h)),
                    given.dtype));
  return {};
}

Status tan(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.div(c.m.unary("Sin", x), c.m.unary("Cos", x)));
  return {};
}

// sign(x) log(|x| + sqrt(x^2 + 1)); sign(x) log(2 |x|) where x^2 would overflow
Status asinh(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given, c.in(0));
  const Term x = in_f32(c, given);
  const Term size = c.m.unary("Abs", x);
  const Term root = c.m.unary("Sqrt", c.m.add(c.m.unary("Square", x), 1));
  const Term is_far = c.m.compare("Greater", size, c.m.scalar(x.dtype, 0x1p30));
  const Term far = c.m.add(c.m.unary("Log", size), std::numbers::ln2);
  const Term y = c.m.where(is_far, far, c.m.unary("Log", c.m.add(size, root)));
  c.out(0, c.m.cast(near_zero(c, x, -1.0 / 6, c.m.mul(c.m.unary("Sign", x), y)), given.dtype));
  return {};
}

// log(x + sqrt(x - 1) sqrt(x + 1)); NaN below 1
Status acosh(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given, c.in(0));
  const Term x = in_f32(c, given);
  const Term root = c.m.mul(c.m.unary("Sqrt", c.m.add(x, -1)), c.m.unary("Sqrt", c.m.add(x, 1)));
  c.out(0, c.m.cast(c.m.unary("Log", c.m.add(x, root)), given.dtype));
  return {};
}

// (log(1 + x) - log(1 - x)) / 2
Status atanh(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term given, c.in(0));
  const Term x = in_f32(c, given);
  const Term quotient = c.m.div(c.m.add(x, 1), c.m.sub(c.m.scalar(x.dtype, 1), x));
  const Term y = c.m.mul(c.m.unary("Log", quotient), 0.5);
  c.out(0, c.m.cast(near_zero(c, x, 1.0 / 3, y), given.dtype));
  return {};
}

// Range reduction: |x| > tan(3 pi / 8) uses pi / 2 + atan(-1 / |x|), and |x| > tan(pi / 8) uses
// pi / 4 + atan((|x| - 1) / (|x| + 1)). The rest is a polynomial.
//
// Source  Moshier, "Methods and Programs for Mathematical Functions", 1989 (atanf of Cephes).
Term arc_tangent(Context& c, const Term& x) {
  constexpr double kQuarter = 1.5707963267948966;
  const Term size = c.m.unary("Abs", x);
  const Term one = c.m.scalar(x.dtype, 1);
  const Term zero = c.m.scalar(x.dtype, 0);
  const Term large = c.m.compare("Greater", size, c.m.scalar(x.dtype, 2.414213562373095));
  const Term middle = c.m.compare("Greater", size, c.m.scalar(x.dtype, 0.4142135623730950));
  const Term inverse = c.m.unary("Neg", c.m.div(one, c.m.where(large, size, one)));
  // A large value does not use this quotient, which could be non-finite.
  const Term bounded = c.m.where(large, one, size);
  const Term quotient = c.m.div(c.m.add(bounded, -1), c.m.add(bounded, 1));
  const Term t = c.m.where(large, inverse, c.m.where(middle, quotient, bounded));
  const Term offset = c.m.where(large, c.m.scalar(x.dtype, kQuarter),
                                c.m.where(middle, c.m.scalar(x.dtype, kQuarter / 2), zero));
  const Term z = c.m.unary("Square", t);
  Term sum = c.m.add(c.m.mul(z, 8.05374449538e-2), -1.38776856032e-1);
  sum = c.m.add(c.m.mul(sum, z), 1.99777106478e-1);
  sum = c.m.add(c.m.mul(sum, z), -3.33329491539e-1);
  const Term part = c.m.add(c.m.mul(c.m.mul(sum, z), t), t);
  return c.m.mul(c.m.unary("Sign", x), c.m.add(part, offset));
}

Status atan(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, arc_tangent(c, x));
  return {};
}

// sqrt((1 - x) (1 + x)): NaN outside of [-1, 1].
Term other_leg(Context& c, const Term& x) {
  const Term one = c.m.scalar(x.dtype, 1);
  return c.m.unary("Sqrt", c.m.mul(c.m.sub(one, x), c.m.add(x, 1)));
}

// 2 atan(x / (1 + sqrt(1 - x^2)))
Status asin(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.mul(arc_tangent(c, c.m.div(x, c.m.add(other_leg(c, x), 1))), 2));
  return {};
}

// 2 atan(sqrt((1 - x) / (1 + x))); at -1 the argument is infinite
Status acos(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.mul(arc_tangent(c, c.m.unary("Sqrt", c.m.div(c.m.sub(c.m.scalar(x.dtype, 1), x),
                                                            c.m.add(x, 1)))),
                   2));
  return {};
}

Status gelu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::string kind, c.text("approximate", "none"));
  BOWLINE_REQUIRE_CODE(kind == "none" || kind == "tanh", Code::bad_file,
                       "Approximation \"{}\" is not supported.", escaped(kind));
  c.out(0, c.m.unary("Gelu", x, {{"form", kind == "tanh" ? "tanh" : "erf"}}));
  return {};
}

// x sigmoid(alpha x)
Term swished(Context& c, const Term& x, double alpha) {
  return alpha == 1 ? c.m.unary("Silu", x) : c.m.mul(x, c.m.unary("Sigmoid", c.m.mul(x, alpha)));
}

Status swish(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1));
  c.out(0, swished(c, x, alpha));
  return {};
}

Status swiglu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term gate, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term value, c.in(1));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1));
  c.out(0, c.m.mul(swished(c, gate, alpha), value));
  return {};
}

Status mish(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.mul(x, c.m.unary("Tanh", c.m.unary("Softplus", x))));
  return {};
}

// Multiplies or divides by a power of 2 from a table. A shift by all bits or more returns 0.
Status bit_shift(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term count, c.in(1));
  BOWLINE_TRY_ASSIGN(const std::string direction, c.text("direction", ""));
  BOWLINE_REQUIRE_CODE(direction == "LEFT" || direction == "RIGHT", Code::bad_file,
                       "Direction \"{}\" is not supported.", escaped(direction));
  BOWLINE_REQUIRE_CODE(!is_float(x.dtype) && x.dtype != DType::boolean && x.dtype == count.dtype,
                       Code::bad_file,
                       "It shifts {} by {}, but both must be integers of one dtype.",
                       bowline::name_of(x.dtype), bowline::name_of(count.dtype));
  const auto bits = static_cast<int64_t>(8 * size_of(x.dtype));
  const bool left = direction == "LEFT";
  std::vector<int64_t> powers;
  for (int64_t i = 0; i < bits; ++i) {
    powers.push_back(static_cast<int64_t>(uint64_t{1} << i));
  }
  const Term most = c.m.scalar(count.dtype, static_cast<double>(bits - 1));
  const Term zero = c.m.scalar(x.dtype, 0);
  const Term over =
      c.m.binary("Or", c.m.compare("Greater", count, most), c.m.compare("Less", count, zero));
  const Term i = c.m.cast(c.m.where(over, zero, count), DType::i32);
  const Term power = c.m.gather(c.m.integers(x.dtype, {bits}, powers), i, 0);
  if (left) {
    c.out(0, c.m.where(over, zero, c.m.mul(x, power)));
    return {};
  }
  // A division rounds towards zero, a shift rounds down. The power of the sign bit is itself
  // negative.
  const Term quotient = c.m.div(x, power);
  const Term below = c.m.compare("Less", x, zero);
  const Term inexact = c.m.compare("NotEqual", c.m.mul(quotient, power), x);
  const Term down = c.m.where(c.m.binary("And", below, inexact), c.m.add(quotient, -1), quotient);
  const Term sign = c.m.where(below, c.m.scalar(x.dtype, -1), zero);
  const Term last = c.m.binary("Or", over, c.m.compare("Equal", count, most));
  c.out(0, x.dtype == DType::u8 ? c.m.where(over, zero, quotient) : c.m.where(last, sign, down));
  return {};
}

// Works in base 16: two digits select an entry of a table.
template <class Bits>
Status bitwise(Context& c, const Bits& of) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(1));
  const bool whole = !is_float(a.dtype) && a.dtype != DType::boolean && a.dtype == b.dtype;
  BOWLINE_REQUIRE_CODE(whole, Code::bad_file,
                       "The operands are {} and {}, not integers of one dtype.",
                       bowline::name_of(a.dtype), bowline::name_of(b.dtype));
  std::vector<int64_t> entries;
  for (int64_t i = 0; i < 256; ++i) {
    entries.push_back(of(i / 16, i % 16));
  }
  const Term table = c.m.integers(a.dtype, {256}, entries);
  const Term base = c.m.scalar(a.dtype, 16);
  const Term zero = c.m.scalar(a.dtype, 0);
  // Splits off the lowest digit of the two's complement value. `rest` is rounded down.
  const auto next = [&](Term& rest) {
    const Term quotient = c.m.div(rest, base);
    const Term digit = c.m.sub(rest, c.m.mul(quotient, base));
    const Term below = c.m.compare("Less", digit, zero);
    rest = c.m.where(below, c.m.add(quotient, -1), quotient);
    return c.m.cast(c.m.where(below, c.m.add(digit, 16), digit), DType::i32);
  };
  Term left = a, right = b, sum, power = c.m.scalar(a.dtype, 1);
  for (size_t digit = 0; digit < 2 * size_of(a.dtype); ++digit) {
    const Term index = c.m.add(c.m.mul(next(left), 16), next(right));
    const Term part = c.m.mul(c.m.gather(table, index, 0), power);
    sum = digit == 0 ? part : c.m.add(sum, part);
    power = c.m.mul(power, base);
  }
  c.out(0, sum);
  return {};
}

Status bitwise_and(Context& c) {
  return bitwise(c, [](int64_t a, int64_t b) { return a & b; });
}

Status bitwise_or(Context& c) {
  return bitwise(c, [](int64_t a, int64_t b) { return a | b; });
}

Status bitwise_xor(Context& c) {
  return bitwise(c, [](int64_t a, int64_t b) { return a ^ b; });
}

// In two's complement, ~x = -x - 1.
Status bitwise_not(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_REQUIRE_CODE(!is_float(x.dtype), Code::bad_file, "{} has no bits.",
                       bowline::name_of(x.dtype));
  c.out(0, c.m.sub(c.m.scalar(x.dtype, -1), x));
  return {};
}

Status leaky_relu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 0.01));
  c.out(0, c.m.unary("LeakyRelu", x, {{"alpha", alpha}}));
  return {};
}

Status elu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1));
  c.out(0, c.m.unary("Elu", x, {{"alpha", alpha}}));
  return {};
}

// gamma * (x > 0 ? x : alpha (e^x - 1))
Status selu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1.67326319217681884765625));
  BOWLINE_TRY_ASSIGN(const double gamma, c.real("gamma", 1.05070102214813232421875));
  c.out(0, c.m.mul(c.m.unary("Elu", x, {{"alpha", alpha}}), gamma));
  return {};
}

// max(0, x) + min(0, alpha (e^(x / alpha) - 1)) = alpha elu(x / alpha)
Status celu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1));
  BOWLINE_REQUIRE_CODE(alpha > 0, Code::unsupported, "Alpha is {}.", alpha);
  const Term scaled = c.m.div(x, c.m.scalar(x.dtype, alpha));
  c.out(0, c.m.mul(c.m.unary("Elu", scaled, {{"alpha", 1.0}}), alpha));
  return {};
}

Status hard_sigmoid(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 0.2));
  BOWLINE_TRY_ASSIGN(const double beta, c.real("beta", 0.5));
  c.out(0, c.m.unary("Clip", c.m.add(c.m.mul(x, alpha), beta), {{"min", 0.0}, {"max", 1.0}}));
  return {};
}

Status softsign(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.div(x, c.m.add(c.m.unary("Abs", x), 1)));
  return {};
}

Status thresholded_relu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1));
  const Term above = c.m.compare("Greater", x, c.m.scalar(x.dtype, alpha));
  c.out(0, c.m.where(above, x, c.m.scalar(x.dtype, 0)));
  return {};
}

Status shrink(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double lambd, c.real("lambd", 0.5));
  BOWLINE_TRY_ASSIGN(const double bias, c.real("bias", 0));
  const Term below = c.m.compare("Less", x, c.m.scalar(x.dtype, -lambd));
  const Term above = c.m.compare("Greater", x, c.m.scalar(x.dtype, lambd));
  // For integers the sum is truncated, not the bias.
  const bool is_cut = !is_float(x.dtype) && bias != std::trunc(bias);
  const auto plus = [&](double by) {
    return is_cut ? c.m.cast(c.m.add(c.m.cast(x, DType::f32), by), x.dtype) : c.m.add(x, by);
  };
  const Term rest = c.m.where(above, plus(-bias), c.m.scalar(x.dtype, 0));
  c.out(0, c.m.where(below, plus(bias), rest));
  return {};
}

Status prelu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term slope, c.in(1));
  const Term below = c.m.compare("Less", x, c.m.scalar(x.dtype, 0));
  c.out(0, c.m.where(below, c.m.mul(x, slope), x));
  return {};
}

// Returns the bound if it is a known scalar of a float tensor, `otherwise` if the input is missing,
// and nothing in all other cases.
Result<std::optional<double>> known_bound(Context& c, size_t i, double otherwise) {
  if (!c.has(i)) {
    return std::optional(otherwise);
  }
  BOWLINE_TRY_ASSIGN(const Term bound, c.in(i));
  return bound.constant() && bound.elements() == 1 && bound.numbers()->of_batch.empty()
             ? std::optional(bound.numbers()->reals()[0])
             : std::nullopt;
}

// Clip takes only known float bounds. Integers and tensor bounds become Max and Min.
Status clip(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  if (c.opset < 11) {
    BOWLINE_TRY_ASSIGN(const double least, c.real("min", -INFINITY));
    BOWLINE_TRY_ASSIGN(const double most, c.real("max", INFINITY));
    c.out(0, c.m.unary("Clip", x, {{"min", least}, {"max", most}}));
    return {};
  }
  BOWLINE_TRY_ASSIGN(const std::optional<double> low, known_bound(c, 1, -INFINITY));
  BOWLINE_TRY_ASSIGN(const std::optional<double> high, known_bound(c, 2, INFINITY));
  if (is_float(x.dtype) && low && high && *low <= *high) {
    c.out(0, c.m.unary("Clip", x, {{"min", *low}, {"max", *high}}));
    return {};
  }
  if (c.has(1)) {
    BOWLINE_TRY_ASSIGN(const Term least, c.in(1));
    x = c.m.binary("Max", x, least);
  }
  if (c.has(2)) {
    BOWLINE_TRY_ASSIGN(const Term most, c.in(2));
    x = c.m.binary("Min", x, most);
  }
  c.out(0, x);
  return {};
}

Status exclusive_or(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, second(c, a));
  BOWLINE_REQUIRE_CODE(a.dtype == DType::boolean, Code::bad_file, "The operands are not bool.");
  c.out(0, c.m.compare("NotEqual", a, b));
  return {};
}

Status is_nan(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.compare("NotEqual", x, x));
  return {};
}

Status is_inf(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t positive, c.integer("detect_positive", 1));
  BOWLINE_TRY_ASSIGN(const int64_t negative, c.integer("detect_negative", 1));
  const Term above = c.m.compare("Equal", x, c.m.scalar(x.dtype, INFINITY));
  const Term below = c.m.compare("Equal", x, c.m.scalar(x.dtype, -INFINITY));
  const Term none = c.m.compare("NotEqual", above, above);
  c.out(0, positive != 0 && negative != 0 ? c.m.binary("Or", above, below)
           : positive != 0                ? above
           : negative != 0                ? below
                                          : none);
  return {};
}

// a^n by repeated products, which wrap around as integers do.
Term power(Context& c, const Term& a, int64_t n) {
  Term out, square = a;
  for (bool first = true; n > 0; n /= 2) {
    if (n % 2 == 1) {
      out = first ? square : c.m.binary("Mul", out, square);
      first = false;
    }
    square = n > 1 ? c.m.binary("Mul", square, square) : square;
  }
  return out;
}

// Integers to the power of integers, as products too. For a negative exponent the result is 1 /
// a^|b|, truncated.
Term power_of_each(Context& c, const Term& a, const Term& b) {
  const auto whole = [&](DType dtype, double v) { return c.m.scalar(dtype, v); };
  const Term one = whole(a.dtype, 1), zero = whole(b.dtype, 0), two = whole(b.dtype, 2);
  // From exponent 64 on, only the powers of 0, 1 and -1 fit in i64. They depend only on whether the
  // exponent is odd.
  const Term odd = c.m.sub(b, c.m.mul(c.m.div(b, two), two));
  const Term large = c.m.add(c.m.binary("Mul", odd, odd), 62);
  Term left = c.m.where(c.m.compare("Less", whole(b.dtype, 63), b), large, b);
  Term out = one, square = a;
  for (int bit = 0; bit < 6; ++bit) {
    const Term half = c.m.div(left, two);
    const Term set = c.m.compare("NotEqual", left, c.m.mul(half, two));
    out = c.m.where(set, c.m.binary("Mul", out, square), out);
    square = bit < 5 ? c.m.binary("Mul", square, square) : square;
    left = half;
  }
  const Term minus_one = whole(a.dtype, -1);
  const Term sign = c.m.where(c.m.compare("Equal", odd, zero), one, minus_one);
  const Term small =
      c.m.where(c.m.compare("Equal", a, one), one,
                c.m.where(c.m.compare("Equal", a, minus_one), sign, whole(a.dtype, 0)));
  return c.m.where(c.m.compare("Less", b, zero), small, out);
}

// An integer to an integer power uses products. Other powers use f32. The f32 result can be
// slightly below the exact power, so it is truncated from slightly above: exact up to 2^19.
Status pow(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(Term b, second(c, a));
  if (b.constant() && b.elements() == 1) {
    b = c.m.constant(*b.numbers());  // a constant exponent is not trained
    if (is_float(a.dtype) && a.rank() >= b.rank() && b.numbers()->reals()[0] == 2) {
      c.out(0, c.m.binary("Mul", a, a));
      return {};
    }
    const double n = b.numbers()->reals()[0];
    if (!is_float(a.dtype) && a.rank() >= b.rank() && n >= 1 && n < 64 && n == std::trunc(n)) {
      c.out(0, power(c, a, static_cast<int64_t>(n)));
      return {};
    }
  }
  const bool whole = !is_float(a.dtype);
  if (whole && !is_float(b.dtype)) {
    c.out(0, power_of_each(c, a, b));
    return {};
  }
  const DType dtype = whole ? DType::f32 : a.dtype;
  const Term y = c.m.binary("Pow", c.m.cast(a, dtype), c.m.cast(b, dtype));
  c.out(0, whole ? c.m.cast(c.m.mul(y, 1 + std::ldexp(1.0, -20)), a.dtype) : y);
  return {};
}

// fmod of floats, exact for quotients below 2^70.
//
// Subtracts multiples of the divisor, 7 bits of the quotient at a time. Each part of the quotient
// is rounded to nearest, so the remainder stays below half the divisor times 2^s. The divisor is
// split into parts of 8 and 16 bits. Products and differences are then exact, with or without fused
// multiply-add.
Term exact_rest(Context& c, const Term& a, const Term& b) {
  constexpr int kBits = 7, kParts = 10;
  const Term size = c.m.unary("Abs", a), divisor = c.m.unary("Abs", b);
  const Term high = c.m.cast(c.m.cast(divisor, DType::bf16), DType::f32);
  const Term low = c.m.sub(divisor, high);
  Term rest = size;
  for (int s = (kParts - 1) * kBits; s >= 0; s -= kBits) {
    const double unit = std::ldexp(1.0, s);
    const Term q = c.m.mul(c.m.unary("Round", c.m.div(c.m.mul(rest, 1 / unit), divisor)), unit);
    rest = c.m.sub(c.m.sub(rest, c.m.mul(q, high)), c.m.mul(q, low));
  }
  const Term zero = c.m.scalar(DType::f32, 0);
  rest = c.m.where(c.m.compare("Less", rest, zero), c.m.add(rest, divisor), rest);
  rest = c.m.where(c.m.compare("Less", a, zero), c.m.unary("Neg", rest), rest);
  // If |a| < |b| the result is `a`. This covers an infinite divisor.
  return c.m.where(c.m.compare("Less", size, divisor), a, rest);
}

// The result has the sign of `a` if fmod is 1, else the sign of `b`.
Status mod(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(1));
  BOWLINE_TRY_ASSIGN(const int64_t fmod, c.integer("fmod", 0));
  const auto f32 = [&](const Term& x) { return c.m.cast(x, DType::f32); };
  // Integer division truncates towards zero.
  Term rest = is_float(a.dtype) ? c.m.cast(exact_rest(c, f32(a), f32(b)), a.dtype)
                                : c.m.sub(a, c.m.mul(c.m.div(a, b), b));
  if (fmod == 0) {
    const Term zero = c.m.scalar(a.dtype, 0);
    const Term below = c.m.compare("Less", rest, zero);
    const Term other = c.m.compare("NotEqual", below, c.m.compare("Less", b, zero));
    const Term some = c.m.compare("NotEqual", rest, zero);
    rest = c.m.where(c.m.binary("And", other, some), c.m.add(rest, b), rest);
  }
  c.out(0, rest);
  return {};
}

Status where(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term condition, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term a, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(2));
  c.out(0, c.m.where(condition, a, b));
  return {};
}

// Attributes that apply only to casts to 8-bit floats, a dtype that is rejected.
void ignore_rules_of_8_bits(Context& c) {
  c.ignore("saturate");
  c.ignore("round_mode");
}

Status cast_to(Context& c, int64_t number) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  ignore_rules_of_8_bits(c);
  BOWLINE_REQUIRE_CODE(number >= 0 && number <= INT32_MAX, Code::bad_file,
                       "It casts to {}, which is not a dtype number of ONNX.", number);
  BOWLINE_TRY_ASSIGN(const DType to, dtype_of(static_cast<int32_t>(number)));
  c.out(0, c.m.cast(x, to));
  return {};
}

Status cast(Context& c) {
  BOWLINE_TRY_ASSIGN(const int64_t to, c.integer("to", -1));
  return cast_to(c, to);
}

Status cast_like(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term like, c.in(1));
  ignore_rules_of_8_bits(c);
  c.out(0, c.m.cast(x, like.dtype));
  return {};
}

constexpr Lowering kElementwiseLowerings[] = {
    {"Abs", same<kAbs>},
    {"Neg", same<kNeg>},
    {"Exp", same<kExp>},
    {"Log", same<kLog>},
    {"Sqrt", same<kSqrt>},
    {"Erf", same<kErf>},
    {"Sin", same<kSin>},
    {"Cos", same<kCos>},
    {"Tan", tan},
    {"Asin", asin},
    {"Acos", acos},
    {"Atan", atan},
    {"Tanh", same<kTanh>},
    {"Sinh", sinh},
    {"Cosh", cosh},
    {"Asinh", asinh},
    {"Acosh", acosh},
    {"Atanh", atanh},
    {"Sigmoid", same<kSigmoid>},
    {"Relu", same<kRelu>},
    {"Floor", same<kFloor>},
    {"Ceil", ceil},
    {"Round", same<kRound>},
    {"Sign", same<kSign>},
    {"Softplus", same<kSoftplus>},
    {"Softsign", softsign},
    {"HardSwish", same<kHardSwish>},
    {"HardSigmoid", hard_sigmoid},
    {"LeakyRelu", leaky_relu},
    {"ThresholdedRelu", thresholded_relu},
    {"PRelu", prelu},
    {"Elu", elu},
    {"Selu", selu},
    {"Gelu", gelu},
    {"Swish", swish},
    {"SwiGLU", swiglu},
    {"Mish", mish},
    {"Celu", celu},
    {"Shrink", shrink},
    {"Clip", clip},
    {"Reciprocal", reciprocal},
    {"Add", two<kAdd>},
    {"Sub", two<kSub>},
    {"Mul", two<kMul>},
    {"Div", two<kDiv>},
    {"Pow", pow},
    {"Mod", mod},
    {"Sum", many<kAdd>},
    {"Mean", mean},
    {"Max", many<kMax>},
    {"Min", many<kMin>},
    {"Equal", comparison<kEqual>},
    {"Less", comparison<kLess>},
    {"LessOrEqual", comparison<kLessOrEqual>},
    {"Greater", comparison<kGreater>},
    {"GreaterOrEqual", comparison<kGreaterOrEqual>},
    {"And", two<kAnd>},
    {"Or", two<kOr>},
    {"Xor", exclusive_or},
    {"Not", same<kNot>},
    {"BitShift", bit_shift},
    {"BitwiseAnd", bitwise_and},
    {"BitwiseOr", bitwise_or},
    {"BitwiseXor", bitwise_xor},
    {"BitwiseNot", bitwise_not},
    {"IsNaN", is_nan},
    {"IsInf", is_inf},
    {"Where", where},
    {"Cast", cast},
    {"CastLike", cast_like},
};

}  // namespace

std::span<const Lowering> lowerings_of_elementwise() { return kElementwiseLowerings; }

}  // namespace bowline::onnx
