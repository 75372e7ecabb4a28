// FusedNormMatMul: a fusion of LayerNorm or RmsNorm with the products that read its result.
//
//   h = LayerNorm(x, gamma, beta), or with rms: h = RmsNorm(x, gamma)
//   v_i = h b_i' + bias_i;  y_i = f(v_i), or with gate: y_0 = f(v_0) * v_1
//   b_i' is b_i; with transpose_b, it is b_i with its axes swapped. f is the activation: none, Gelu
//   in the form erf (gelu) or tanh (gelu_tanh), Silu or Relu.
//
// Shapes    x [..., K], 1 to 3 weights b_i [K, N_i] (transposed [N_i, K]), gamma [K], beta [K]
//           unless rms, with bias one bias_i [N_i] per weight  ->  y_i [..., N_i]. gate requires
//           two weights of one shape. With sizes, y_0 of the only weight is split along its last
//           axis into 2 or 3 outputs of these sizes.
// Domain    eps >= 1e-12.
// Numerics  statistics and sums in f32. A kernel need not round h.
// Quantized frozen weights may be quantized; kernels dequantize them while reading.
// Gradient  none. The operator occurs only in inference plans (graph/rewrites/norm_products.cpp).
// Source    LayerNorm, RmsNorm, Linear, MatMul, Add, Gelu, Silu, Relu, Mul, Split.
#include <numeric>

#include "core/products.h"
#include "ops/reference.h"

namespace bowline::detail {

namespace layer_norm_op {
extern const OpDef op_layer_norm;
}
namespace rms_norm_op {
extern const OpDef op_rms_norm;
}
namespace gelu_op {
extern const OpDef op_gelu;
}
namespace silu_op {
extern const OpDef op_silu;
}
namespace relu_op {
extern const OpDef op_relu;
}

namespace fused_norm_mat_mul_op {
namespace {

int count_outputs(const Attributes& attributes) {
  const auto& t = attributes.as<FusedNormMatMulAttributes>();
  const auto weights = static_cast<int>(std::clamp<int64_t>(t.weights(), 1, kMostNormProducts));
  return t.sizes()->size() > 0 ? static_cast<int>(t.sizes()->size()) : t.gate() ? 1 : weights;
}

Status check_form(const FusedNormMatMulAttributes& t, int inputs) {
  BOWLINE_REQUIRE(t.eps() >= 1e-12f, "Eps {} is not at least 1e-12.", t.eps());
  BOWLINE_REQUIRE(t.weights() >= 1 && t.weights() <= kMostNormProducts,
                  "{} weights are not 1 to {}.", t.weights(), kMostNormProducts);
  BOWLINE_REQUIRE(!t.gate() || t.weights() == 2, "A gate takes 2 weights, not {}.", t.weights());
  BOWLINE_REQUIRE(t.sizes()->size() == 0 || t.weights() == 1, "Sizes take 1 weight, not {}.",
                  t.weights());
  BOWLINE_REQUIRE(t.sizes()->size() != 1 && t.sizes()->size() <= kMostNormProducts,
                  "{} sizes are not 2 to {}.", t.sizes()->size(), kMostNormProducts);
  const int expected = NormProductInputs(t).count;
  BOWLINE_REQUIRE(inputs == expected, "{} inputs are given, but the attributes select {}.", inputs,
                  expected);
  return {};
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<FusedNormMatMulAttributes>();
  BOWLINE_TRY(check_form(t, c.inputs()));
  const NormProductInputs inputs(t);
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  BOWLINE_TRY(check_shape("gamma", c.in(inputs.gamma), "a row", Shape{x.back()}));
  if (inputs.beta >= 0) {
    BOWLINE_TRY(check_shape("beta", c.in(inputs.beta), "a row", Shape{x.back()}));
  }
  Shape y = x;
  for (int i = 0; i < inputs.weights; ++i) {
    const Shape& b = c.in(1 + i);
    BOWLINE_REQUIRE(b.rank() == 2, "Weight {} has rank {}, not 2.", i, b.rank());
    BOWLINE_REQUIRE(x.back() == b[t.transpose_b() ? 1 : 0],
                    "The inner dims of x {} and weight {} differ.", x, b);
    BOWLINE_REQUIRE(!t.gate() || b == c.in(1), "The gate {} has another shape than its factor {}.",
                    c.in(1), b);
    y[y.rank() - 1] = b[t.transpose_b() ? 0 : 1];
    if (inputs.bias >= 0) {
      BOWLINE_TRY(check_shape("bias", c.in(inputs.bias + i), "a row", Shape{y.back()}));
    }
    if (t.sizes()->size() == 0 && !(t.gate() && i == 1)) {
      BOWLINE_TRY(c.out(i, y));
    }
  }
  int64_t left = y.back();
  for (int i = 0; std::cmp_less(i, t.sizes()->size()); ++i) {
    y[y.rank() - 1] = t.sizes()->Get(static_cast<uint32_t>(i));
    BOWLINE_REQUIRE(y.back() >= 0 && y.back() <= left, "The sizes do not divide a row of {}.",
                    c.in(1)[t.transpose_b() ? 0 : 1]);
    left -= y.back();
    BOWLINE_TRY(c.out(i, y));
  }
  BOWLINE_REQUIRE(t.sizes()->size() == 0 || left == 0, "The sizes do not divide a row of {}.",
                  c.in(1)[t.transpose_b() ? 0 : 1]);
  return {};
}

// Values with the magnitudes against which their errors are measured.
struct Measured {
  std::vector<double> values, magnitude;
};

[[maybe_unused]] Measured normalized(const OracleContext& c) {
  const auto& t = c.attributes<FusedNormMatMulAttributes>();
  const NormProductInputs inputs(t);
  LayerNormAttributesT layer;
  layer.eps = t.eps();
  RmsNormAttributesT rms;
  rms.eps = t.eps();
  std::vector<OracleContext::Array> operands = {input_of(c, 0), input_of(c, inputs.gamma)};
  if (inputs.beta >= 0) {
    operands.push_back(input_of(c, inputs.beta));
  }
  Reference h =
      t.rms() ? reference_of(rms_norm_op::op_rms_norm, Attributes::of(rms), operands, {c.shape(0)})
              : reference_of(layer_norm_op::op_layer_norm, Attributes::of(layer), operands,
                             {c.shape(0)});
  Measured out = {h.outputs[0].values, h.magnitude[0]};
  if (out.magnitude.empty()) {  // of the values themselves
    for (const double v : out.values) {
      out.magnitude.push_back(std::abs(v));
    }
  }
  return out;
}

[[maybe_unused]] Measured product(const OracleContext& c, const Measured& h, int i) {
  const auto& t = c.attributes<FusedNormMatMulAttributes>();
  const NormProductInputs inputs(t);
  const auto b = c.in(1 + i);
  const auto k = static_cast<size_t>(c.shape(1 + i)[t.transpose_b() ? 1 : 0]);
  const auto n = static_cast<size_t>(c.shape(1 + i)[t.transpose_b() ? 0 : 1]);
  const auto rows = static_cast<size_t>(c.shape(0).rows());
  Measured out = {std::vector<double>(rows * n), std::vector<double>(rows * n)};
  for (size_t at = 0; at < rows * n; ++at) {
    const size_t row = at / n, column = at % n;
    const double bias = inputs.bias < 0 ? 0 : c.in(inputs.bias + i)[column];
    double v = bias, size = std::abs(bias);
    for (size_t j = 0; j < k; ++j) {
      const double factor = b[t.transpose_b() ? column * k + j : j * n + column];
      v += h.values[row * k + j] * factor;
      size += h.magnitude[row * k + j] * std::abs(factor);
    }
    out.values[at] = v;
    out.magnitude[at] = size;
  }
  return out;
}

// No activation has a slope above 1.13, so errors of v keep their magnitude.
[[maybe_unused]] void activate(ProductActivation activation, Measured& v) {
  if (activation == ProductActivation::none) {
    return;
  }
  GeluAttributesT form;
  form.form = activation == ProductActivation::gelu ? GeluForm::erf : GeluForm::tanh;
  const bool is_gelu =
      activation == ProductActivation::gelu || activation == ProductActivation::gelu_tanh;
  const OpDef& def = is_gelu                                 ? gelu_op::op_gelu
                     : activation == ProductActivation::silu ? silu_op::op_silu
                                                             : relu_op::op_relu;
  const Shape shape{static_cast<int64_t>(v.values.size())};
  const Reference y =
      reference_of(def, is_gelu ? Attributes::of(form) : Attributes::of(file::NoAttributesT{}),
                   {{shape, v.values}}, {shape});
  v.values = y.outputs[0].values;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<FusedNormMatMulAttributes>();
  const Measured h = normalized(c);
  std::vector<Measured> y;
  for (int i = 0; i < t.weights(); ++i) {
    y.push_back(product(c, h, i));
    if (!t.gate() || i == 0) {
      activate(t.activation(), y.back());
    }
  }
  if (t.gate()) {
    for (size_t at = 0; at < y[0].values.size(); ++at) {
      y[0].magnitude[at] = y[0].magnitude[at] * std::abs(y[1].values[at]) +
                           y[1].magnitude[at] * std::abs(y[0].values[at]);
      y[0].values[at] *= y[1].values[at];
    }
  }
  const auto rows = static_cast<size_t>(c.shape(0).rows());
  size_t skipped = 0;  // columns of the outputs before, if one product is split
  for (int o = 0; o < count_outputs(c.attributes()); ++o) {
    const bool is_part = t.sizes()->size() > 0;
    const Measured& from = y[is_part ? 0 : static_cast<size_t>(o)];
    const auto n = static_cast<size_t>(c.out_shape(o).back());
    const size_t whole = rows == 0 ? 0 : from.values.size() / rows;
    const auto magnitude = c.zero_magnitude(o);
    for (size_t at = 0; at < c.out(o).size(); ++at) {
      const size_t of = at / n * whole + skipped + at % n;
      c.out(o)[at] = from.values[of];
      magnitude[at] = from.magnitude[of];
    }
    skipped += is_part ? n : 0;
  }
}

// The sums of the norm and those of the product, each over K; then the roundings of both, of the
// activation and of the gate.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(4 * c.in(0).back(), 20); }

}  // namespace

extern const OpDef op_fused_norm_mat_mul{
    .name = "FusedNormMatMul",
    .inputs = 3,
    .optional_inputs = 6,
    .count_outputs = count_outputs,
    .is_fused = true,
    .encoded_inputs = 0b1110,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace fused_norm_mat_mul_op
}  // namespace bowline::detail
