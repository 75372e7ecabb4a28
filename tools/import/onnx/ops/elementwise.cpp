// Operators that work element by element.
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// An operator of Bowline of the same name and meaning.
template <const char* op>
Status same(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.unary(op, x));
  return {};
}

// In operator sets below 7 the second operand broadcasts only where an attribute says so, and along an axis.
Result<Term> second(Context& c, const Term& a) {
  BOWLINE_ASSIGN(Term b, c.in(1));
  if (c.opset < 7) {
    BOWLINE_ASSIGN(const int64_t broadcasts, c.integer("broadcast", 0));
    BOWLINE_ASSIGN(const int64_t axis, c.integer("axis", -1));
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
  BOWLINE_ASSIGN(const Term a, c.in(0));
  BOWLINE_ASSIGN(const Term b, second(c, a));
  c.out(0, c.m.binary(op, a, b));
  return {};
}

template <const char* op>
Status comparison(Context& c) {
  BOWLINE_ASSIGN(const Term a, c.in(0));
  BOWLINE_ASSIGN(const Term b, second(c, a));
  c.out(0, c.m.compare(op, a, b));
  return {};
}

template <const char* op>
Status many(Context& c) {
  BOWLINE_ASSIGN(Term sum, c.in(0));
  for (size_t i = 1; i < c.inputs(); ++i) {
    BOWLINE_ASSIGN(const Term next, c.in(i));
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
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.unary("Neg", c.m.unary("Floor", c.m.unary("Neg", x))));
  return {};
}

Status reciprocal(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.div(c.m.scalar(x.dtype, 1), x));
  return {};
}

// (e^x - e^-x) / 2 from e^x - 1, which keeps what is near 0: s = (a + a / (a + 1)) / 2 with a = e^x - 1 = 2 sinh(x/2) e^(x/2). Without an
// operator for that, Elu gives e^x - 1 below 0, so of |x|: a = -expm1(-|x|), sinh|x| = (a + a / (1 - a)) / 2.
Status sinh(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  const Term down = c.m.unary("Neg", c.m.unary("Abs", x));
  const Term a = c.m.unary("Neg", c.m.unary("Elu", down, {{"alpha", 1.0}}));
  const Term size = c.m.mul(c.m.add(a, c.m.div(a, c.m.unary("Exp", down))), 0.5);
  c.out(0, c.m.mul(c.m.unary("Sign", x), size));
  return {};
}

Status cosh(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.mul(c.m.add(c.m.unary("Exp", x), c.m.unary("Exp", c.m.unary("Neg", x))), 0.5));
  return {};
}

Status tan(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.div(c.m.unary("Sin", x), c.m.unary("Cos", x)));
  return {};
}

// sign(x) log(|x| + sqrt(x^2 + 1))
Status asinh(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  const Term size = c.m.unary("Abs", x);
  const Term root = c.m.unary("Sqrt", c.m.add(c.m.unary("Square", x), 1));
  c.out(0, c.m.mul(c.m.unary("Sign", x), c.m.unary("Log", c.m.add(size, root))));
  return {};
}

// log(x + sqrt((x - 1) (x + 1)))
Status acosh(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  const Term square = c.m.mul(c.m.add(x, -1), c.m.add(x, 1));
  c.out(0, c.m.unary("Log", c.m.add(x, c.m.unary("Sqrt", square))));
  return {};
}

// (log(1 + x) - log(1 - x)) / 2
Status atanh(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  const Term quotient = c.m.div(c.m.add(x, 1), c.m.sub(c.m.scalar(x.dtype, 1), x));
  c.out(0, c.m.mul(c.m.unary("Log", quotient), 0.5));
  return {};
}

Status leaky_relu(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double alpha, c.real("alpha", 0.01));
  c.out(0, c.m.unary("LeakyRelu", x, {{"alpha", alpha}}));
  return {};
}

Status elu(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double alpha, c.real("alpha", 1));
  c.out(0, c.m.unary("Elu", x, {{"alpha", alpha}}));
  return {};
}

// gamma * (x > 0 ? x : alpha (e^x - 1))
Status selu(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double alpha, c.real("alpha", 1.67326319217681884765625));
  BOWLINE_ASSIGN(const double gamma, c.real("gamma", 1.05070102214813232421875));
  c.out(0, c.m.mul(c.m.unary("Elu", x, {{"alpha", alpha}}), gamma));
  return {};
}

// max(0, x) + min(0, alpha (e^(x / alpha) - 1)) = alpha elu(x / alpha)
Status celu(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double alpha, c.real("alpha", 1));
  BOWLINE_REQUIRE_CODE(alpha > 0, Code::unsupported, "Alpha is {}.", alpha);
  const Term scaled = c.m.div(x, c.m.scalar(x.dtype, alpha));
  c.out(0, c.m.mul(c.m.unary("Elu", scaled, {{"alpha", 1.0}}), alpha));
  return {};
}

Status hard_sigmoid(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double alpha, c.real("alpha", 0.2));
  BOWLINE_ASSIGN(const double beta, c.real("beta", 0.5));
  c.out(0, c.m.unary("Clip", c.m.add(c.m.mul(x, alpha), beta), {{"min", 0.0}, {"max", 1.0}}));
  return {};
}

Status softsign(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.div(x, c.m.add(c.m.unary("Abs", x), 1)));
  return {};
}

Status thresholded_relu(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double alpha, c.real("alpha", 1));
  const Term above = c.m.compare("Greater", x, c.m.scalar(x.dtype, alpha));
  c.out(0, c.m.where(above, x, c.m.scalar(x.dtype, 0)));
  return {};
}

Status shrink(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const double lambd, c.real("lambd", 0.5));
  BOWLINE_ASSIGN(const double bias, c.real("bias", 0));
  const Term below = c.m.compare("Less", x, c.m.scalar(x.dtype, -lambd));
  const Term above = c.m.compare("Greater", x, c.m.scalar(x.dtype, lambd));
  const Term rest = c.m.where(above, c.m.add(x, -bias), c.m.scalar(x.dtype, 0));
  c.out(0, c.m.where(below, c.m.add(x, bias), rest));
  return {};
}

Status prelu(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const Term slope, c.in(1));
  const Term below = c.m.compare("Less", x, c.m.scalar(x.dtype, 0));
  c.out(0, c.m.where(below, c.m.mul(x, slope), x));
  return {};
}

// Integers are clipped too, so it is Max and Min; the bounds may be tensors.
Status clip(Context& c) {
  BOWLINE_ASSIGN(Term x, c.in(0));
  if (c.opset < 11) {
    BOWLINE_ASSIGN(const double least, c.real("min", -INFINITY));
    BOWLINE_ASSIGN(const double most, c.real("max", INFINITY));
    c.out(0, c.m.unary("Clip", x, {{"min", least}, {"max", most}}));
    return {};
  }
  if (c.has(1)) {
    BOWLINE_ASSIGN(const Term least, c.in(1));
    x = c.m.binary("Max", x, least);
  }
  if (c.has(2)) {
    BOWLINE_ASSIGN(const Term most, c.in(2));
    x = c.m.binary("Min", x, most);
  }
  c.out(0, x);
  return {};
}

Status exclusive_or(Context& c) {
  BOWLINE_ASSIGN(const Term a, c.in(0));
  BOWLINE_ASSIGN(const Term b, second(c, a));
  BOWLINE_REQUIRE_CODE(a.dtype == DType::boolean, Code::bad_file,
                       "Its operands are no truth values.");
  c.out(0, c.m.compare("NotEqual", a, b));
  return {};
}

Status is_nan(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  c.out(0, c.m.compare("NotEqual", x, x));
  return {};
}

Status is_inf(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const int64_t positive, c.integer("detect_positive", 1));
  BOWLINE_ASSIGN(const int64_t negative, c.integer("detect_negative", 1));
  const Term above = c.m.compare("Equal", x, c.m.scalar(x.dtype, INFINITY));
  const Term below = c.m.compare("Equal", x, c.m.scalar(x.dtype, -INFINITY));
  const Term none = c.m.compare("NotEqual", above, above);
  c.out(0, positive != 0 && negative != 0 ? c.m.binary("Or", above, below)
           : positive != 0                ? above
           : negative != 0                ? below
                                          : none);
  return {};
}

// Whole numbers are raised in f32 and, as that is a little below or above the power, cut off from a little above it: exact up to 2^19.
Status pow(Context& c) {
  BOWLINE_ASSIGN(const Term a, c.in(0));
  BOWLINE_ASSIGN(Term b, second(c, a));
  if (b.constant() && b.elements() == 1) {
    b = c.m.constant(*b.numbers());  // an exponent alone is not trained
  }
  const bool whole = !is_float(a.dtype);
  const DType dtype = whole ? DType::f32 : a.dtype;
  const Term y = c.m.binary("Pow", c.m.cast(a, dtype), c.m.cast(b, dtype));
  c.out(0, whole ? c.m.cast(c.m.mul(y, 1 + std::ldexp(1.0, -20)), a.dtype) : y);
  return {};
}

// Of floats a - trunc(a / b) b (fmod) or a - floor(a / b) b, of whole numbers exact.
Status mod(Context& c) {
  BOWLINE_ASSIGN(const Term a, c.in(0));
  BOWLINE_ASSIGN(const Term b, c.in(1));
  BOWLINE_ASSIGN(const int64_t fmod, c.integer("fmod", 0));
  const Term zero = c.m.scalar(a.dtype, 0);
  Term quotient = c.m.div(a, b);  // of whole numbers towards zero
  if (is_float(a.dtype)) {
    BOWLINE_REQUIRE_CODE(fmod != 0, Code::bad_file, "Fmod is 0 for operands of {}.",
                         bowline::name_of(a.dtype));
    const Term size = c.m.unary("Floor", c.m.unary("Abs", quotient));
    quotient = c.m.mul(c.m.unary("Sign", quotient), size);
  }
  Term rest = c.m.sub(a, c.m.mul(quotient, b));
  if (fmod == 0) {
    // The sign of the divisor.
    const Term below = c.m.compare("Less", rest, zero);
    const Term other = c.m.compare("NotEqual", below, c.m.compare("Less", b, zero));
    const Term some = c.m.compare("NotEqual", rest, zero);
    rest = c.m.where(c.m.binary("And", other, some), c.m.add(rest, b), rest);
  }
  c.out(0, rest);
  return {};
}

Status where(Context& c) {
  BOWLINE_ASSIGN(const Term condition, c.in(0));
  BOWLINE_ASSIGN(const Term a, c.in(1));
  BOWLINE_ASSIGN(const Term b, c.in(2));
  c.out(0, c.m.where(condition, a, b));
  return {};
}

// What only casts to floats of 8 bits obey; those are refused as a dtype.
void ignore_rules_of_8_bits(Context& c) {
  c.ignore("saturate");
  c.ignore("round_mode");
}

Status cast_to(Context& c, int64_t number) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  ignore_rules_of_8_bits(c);
  BOWLINE_REQUIRE_CODE(number >= 0 && number <= INT32_MAX, Code::bad_file, "It casts to dtype {}.",
                       number);
  BOWLINE_ASSIGN(const DType to, dtype_of(static_cast<int32_t>(number)));
  c.out(0, c.m.cast(x, to));
  return {};
}

Status cast(Context& c) {
  BOWLINE_ASSIGN(const int64_t to, c.integer("to", -1));
  return cast_to(c, to);
}

Status cast_like(Context& c) {
  BOWLINE_ASSIGN(const Term x, c.in(0));
  BOWLINE_ASSIGN(const Term like, c.in(1));
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
    {"IsNaN", is_nan},
    {"IsInf", is_inf},
    {"Where", where},
    {"Cast", cast},
    {"CastLike", cast_like},
};

}  // namespace

std::span<const Lowering> lowerings_of_elementwise() { return kElementwiseLowerings; }

}  // namespace bowline::onnx
