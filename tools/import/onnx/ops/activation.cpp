// Activation functions.
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

Term gelu(Context& c) {
  const std::string kind = c.choice("approximate", "none", "none tanh", "Approximation");
  return c.m.unary("Gelu", c.in(0), {{"form", kind == "tanh" ? "tanh" : "erf"}});
}

// x sigmoid(alpha x)
Term swish(Context& c) {
  const Term x = c.in(0);
  const double alpha = c.real("alpha", 1);
  return alpha == 1 ? c.m.unary("Silu", x) : x * sigmoid(x * alpha);
}

Term swiglu(Context& c) { return swish(c) * c.in(1); }

Term mish(const Term& x) { return x * tanh(unary("Softplus", x)); }

Term leaky_relu(Context& c) {
  return c.m.unary("LeakyRelu", c.in(0), {{"alpha", c.real("alpha", 0.01)}});
}

Term elu(Context& c) { return elu(c.in(0), c.real("alpha", 1)); }

// gamma * (x > 0 ? x : alpha (e^x - 1))
Term selu(Context& c) {
  const double alpha = c.real("alpha", 1.67326319217681884765625);
  const double gamma = c.real("gamma", 1.05070102214813232421875);
  return elu(c.in(0), alpha) * gamma;
}

// max(0, x) + min(0, alpha (e^(x / alpha) - 1)) = alpha elu(x / alpha)
Term celu(Context& c) {
  const double alpha = c.real("alpha", 1);
  support(alpha > 0, "Alpha is {}.", alpha);
  return elu(c.in(0) / alpha, 1) * alpha;
}

Term hard_sigmoid(Context& c) {
  const double alpha = c.real("alpha", 0.2), beta = c.real("beta", 0.5);
  return clip(c.in(0) * alpha + beta, 0, 1);
}

Term softsign(const Term& x) { return x / (abs(x) + 1); }

Term thresholded_relu(Context& c) {
  const Term x = c.in(0);
  return where(x > c.real("alpha", 1), x, 0);
}

Term shrink(Context& c) {
  const Term x = c.in(0);
  const double lambd = c.real("lambd", 0.5), bias = c.real("bias", 0);
  const Term below = x < -lambd;
  const Term above = x > lambd;
  // For integers the sum is truncated, not the bias.
  const bool is_cut = !is_float(x.dtype) && bias != std::trunc(bias);
  const auto plus = [&](double by) {
    return is_cut ? cast(cast(x, DType::f32) + by, x.dtype) : x + by;
  };
  const Term rest = where(above, plus(-bias), 0);
  return where(below, plus(bias), rest);
}

Term prelu(Context& c) {
  const Term x = c.in(0), slope = c.in(1);
  const Term below = x < 0;
  return where(below, x * slope, x);
}

// Returns the bound if it is a known scalar of a float tensor, `otherwise` if the input is missing,
// and nothing in all other cases.
std::optional<double> known_bound(Context& c, size_t i, double otherwise) {
  const Term bound = c.optional(i);
  if (!bound) {
    return otherwise;
  }
  return bound.constant() && bound.elements() == 1 && bound.numbers()->of_batch.empty()
             ? std::optional(bound.numbers()->reals()[0])
             : std::nullopt;
}

// Clip takes only known float bounds. Integers and tensor bounds become Max and Min.
Term clip(Context& c) {
  Term x = c.in(0);
  if (c.opset < 11) {
    const double least = c.real("min", -INFINITY), most = c.real("max", INFINITY);
    return clip(x, least, most);
  }
  const std::optional<double> low = known_bound(c, 1, -INFINITY);
  const std::optional<double> high = known_bound(c, 2, INFINITY);
  if (is_float(x.dtype) && low && high && *low <= *high) {
    return clip(x, *low, *high);
  }
  x = c.has(1) ? max(x, c.in(1)) : x;
  return c.has(2) ? min(x, c.in(2)) : x;
}

constexpr Lowering kActivationLowerings[] = {
    {"Gelu", gelu},
    {"Swish", swish},
    {"SwiGLU", swiglu},
    {"Mish", plain<mish>},
    {"LeakyRelu", leaky_relu},
    {"Elu", elu},
    {"Selu", selu},
    {"Celu", celu},
    {"HardSigmoid", hard_sigmoid},
    {"Softsign", plain<softsign>},
    {"ThresholdedRelu", thresholded_relu},
    {"Shrink", shrink},
    {"PRelu", prelu},
    {"Clip", clip},
};

}  // namespace

std::span<const Lowering> lowerings_of_activation() { return kActivationLowerings; }

}  // namespace bowline::onnx
