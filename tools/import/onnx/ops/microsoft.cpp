// Operators of the ONNX Runtime domain com.microsoft whose definition is public.
//
// Source  ONNX Runtime, docs/ContribOperators.md.
#include <algorithm>

#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

Term gelu_of(Context& c, const Term& x, const char* form) {
  return c.m.unary("Gelu", x, {{"form", form}});
}

// gelu(x + bias). The bias of FastGelu is optional.
template <bool fast>
Status bias_gelu(Context& c) {
  BOWLINE_TRY_ASSIGN(Term x, c.in(0));
  if (c.has(1)) {
    BOWLINE_TRY_ASSIGN(const Term bias, c.in(1));
    x = c.m.add(x, bias);
  }
  c.out(0, gelu_of(c, x, fast ? "tanh" : "erf"));
  return {};
}

// x sigmoid(alpha x)
Status quick_gelu(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 1.702));
  c.out(0, c.m.mul(x, c.m.unary("Sigmoid", c.m.mul(x, alpha))));
  return {};
}

// alpha a' b'
Status fused_matmul(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term b, c.in(1));
  for (const char* name : {"transBatchA", "transBatchB"}) {
    BOWLINE_TRY_ASSIGN(const int64_t batches, c.integer(name, 0));
    BOWLINE_REQUIRE_CODE(batches == 0, Code::unsupported,
                         "Attribute {} is {}; only 0 is supported.", name, batches);
  }
  BOWLINE_REQUIRE_CODE(a.rank() >= 2 && b.rank() >= 2, Code::unsupported,
                       "{} and {} are not matrices.", shape_text(a.dims), shape_text(b.dims));
  BOWLINE_TRY_ASSIGN(const Term y, scaled_product(c, a, b));
  c.out(0, y);
  return {};
}

// The norm of input + skip + bias along the last axis. The sum is output 3. Simplified: without
// mean and beta.
template <bool simplified>
Status skip_normalization(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term skip, c.in(1));
  BOWLINE_TRY_ASSIGN(const Term gamma, c.in(2));
  BOWLINE_TRY_ASSIGN(const double eps, c.real("epsilon", 1e-12));
  BOWLINE_TRY_ASSIGN(Term beta, c.optional(simplified ? SIZE_MAX : 3));
  BOWLINE_TRY_ASSIGN(const Term bias, c.optional(simplified ? 3 : 4));
  const bool fits = x.rank() >= 2 && gamma.dims == Dims{x.dims.back()};
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Gamma {} does not fit {}.", shape_text(gamma.dims),
                       shape_text(x.dims));
  // Computed in f32: a 16-bit sum can overflow although its norm would not.
  Term sum = c.m.add(in_f32(c, x), in_f32(c, skip));
  if (bias.source != nullptr) {
    sum = c.m.add(sum, in_f32(c, bias));
  }
  BOWLINE_REQUIRE_CODE(sum.dims == x.dims, Code::bad_file, "Skip {} does not fit {}.",
                       shape_text(skip.dims), shape_text(x.dims));
  const std::vector<Attribute> attributes = {{"eps", eps}};
  if (simplified) {
    c.out(0, c.m.cast(c.m.op("RmsNorm", {sum, in_f32(c, gamma)}, attributes, sum.dtype, x.dims),
                      x.dtype));
  } else {
    beta = beta.source == nullptr ? c.m.filled(sum.dtype, gamma.dims, 0) : in_f32(c, beta);
    c.out(0, c.m.cast(
                 c.m.op("LayerNorm", {sum, in_f32(c, gamma), beta}, attributes, sum.dtype, x.dims),
                 x.dtype));
  }
  c.out(3, c.m.cast(sum, x.dtype));
  return {};
}

// (x - zero point) * scale
Result<Term> real_of(Context& c, size_t first) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(first));
  BOWLINE_TRY_ASSIGN(const Term scale, c.in(first + 1));
  BOWLINE_TRY_ASSIGN(const Term zero, c.optional(first + 2));
  const Term whole = centred(c, x, zero.source == nullptr ? zero : c.m.reshape(zero, {}));
  return c.m.mul(whole, c.m.reshape(scale, {}));
}

// saturate(round(x / scale) + zero point), in the dtype of the zero point, or of the inputs if
// there is no zero point.
Result<Term> whole_of(Context& c, const Term& x, size_t first, DType dtype) {
  BOWLINE_TRY_ASSIGN(const Term scale, c.in(first));
  BOWLINE_TRY_ASSIGN(const Term zero, c.optional(first + 1));
  return saturated(c, c.m.div(x, c.m.reshape(scale, {})),
                   zero.source == nullptr ? c.m.scalar(dtype, 0) : c.m.reshape(zero, {}));
}

constexpr char kAddOp[] = "Add", kMulOp[] = "Mul";

template <const char* op>
Status qlinear_two(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, real_of(c, 0));
  BOWLINE_TRY_ASSIGN(const Term b, real_of(c, 3));
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term y, whole_of(c, c.m.binary(op, a, b), 6, x.dtype));
  c.out(0, y);
  return {};
}

// For operators with one input: dequantizes, applies `step` and quantizes again.
template <class Step>
Status qlinear_one(Context& c, const Step& step) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const Term real, real_of(c, 0));
  BOWLINE_TRY_ASSIGN(const Term y, whole_of(c, step(real), 3, x.dtype));
  c.out(0, y);
  return {};
}

Status qlinear_sigmoid(Context& c) {
  return qlinear_one(c, [&](const Term& x) { return c.m.unary("Sigmoid", x); });
}

Status qlinear_leaky_relu(Context& c) {
  BOWLINE_TRY_ASSIGN(const double alpha, c.real("alpha", 0.01));
  return qlinear_one(c, [&](const Term& x) {
    return c.m.unary("LeakyRelu", x, {{"alpha", alpha}});
  });
}

Status qlinear_global_average_pool(Context& c) {
  BOWLINE_TRY_ASSIGN(const int64_t last, c.integer("channels_last", 0));
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_REQUIRE_CODE(x.rank() >= 3, Code::bad_file, "{} has no spatial axes.",
                       shape_text(x.dims));
  std::vector<int64_t> axes = all_axes(x.rank());
  axes.erase(axes.begin() + (last != 0 ? static_cast<std::ptrdiff_t>(x.rank()) - 1 : 1));
  axes.erase(axes.begin());
  return qlinear_one(c,
                     [&](const Term& real) { return c.m.reduce("ReduceMean", real, axes, true); });
}

// Inputs: the scale and zero point of the result, then three inputs per part.
Status qlinear_concat(Context& c) {
  BOWLINE_TRY_ASSIGN(const int64_t axis, c.integer("axis", 0));
  BOWLINE_REQUIRE_CODE(c.inputs() >= 5 && c.inputs() % 3 == 2, Code::bad_file,
                       "The node has {} inputs. It needs 2, plus 3 for each part.", c.inputs());
  BOWLINE_TRY_ASSIGN(const Term first, c.in(2));
  Terms parts;
  for (size_t i = 2; i < c.inputs(); i += 3) {
    BOWLINE_TRY_ASSIGN(Term part, real_of(c, i));
    parts.push_back(std::move(part));
  }
  BOWLINE_TRY_ASSIGN(const Term y, whole_of(c, c.m.concat(parts, axis), 0, first.dtype));
  c.out(0, y);
  return {};
}

// Value i of a packed row of `bits`-bit values, lowest bits first.
int64_t packed_at(const std::vector<std::byte>& bytes, size_t row, int64_t i, int64_t bits) {
  const int64_t each = 8 / bits;
  const auto byte = static_cast<int64_t>(bytes[row + static_cast<size_t>(i / each)]);
  return byte >> (i % each * bits) & ((int64_t{1} << bits) - 1);
}

// a w' + bias. w is [n, k], quantized in blocks of a row: (value - zero point) * scale. The weights
// become an f32 parameter.
Status matmul_nbits(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term a, c.in(0));
  BOWLINE_TRY_ASSIGN(const ConstantTensor values, c.numbers(1));
  BOWLINE_TRY_ASSIGN(const ConstantTensor scale_numbers, c.numbers(2));
  BOWLINE_TRY_ASSIGN(const int64_t k, c.integer("K", 0));
  BOWLINE_TRY_ASSIGN(const int64_t n, c.integer("N", 0));
  BOWLINE_TRY_ASSIGN(const int64_t bits, c.integer("bits", 4));
  BOWLINE_TRY_ASSIGN(const int64_t block, c.integer("block_size", 0));
  c.ignore("accuracy_level");
  BOWLINE_TRY(require_small("K, N or block_size", {k, n, block}));
  BOWLINE_REQUIRE_CODE(bits == 2 || bits == 4 || bits == 8, Code::unsupported,
                       "Weights of {} bits are not supported.", bits);
  BOWLINE_REQUIRE_CODE(k >= 1 && n >= 1 && block >= 8 && block % 8 == 0, Code::bad_file,
                       "K is {}, N is {} and the block size is {}: out of range.", k, n, block);
  BOWLINE_REQUIRE_CODE(!c.has(4), Code::unsupported,
                       "Reordered weights (g_idx) are not supported.");
  const int64_t blocks = (k + block - 1) / block;
  const int64_t row_bytes = blocks * block * bits / 8;
  const bool sized = values.dtype == DType::u8 &&
                     static_cast<int64_t>(values.bytes.size()) == n * row_bytes &&
                     static_cast<int64_t>(scale_numbers.elements()) == n * blocks;
  BOWLINE_REQUIRE_CODE(sized, Code::bad_file,
                       "Values {} and scales {} do not fit {} rows of {} values in blocks of {}.",
                       shape_text(values.shape), shape_text(scale_numbers.shape), n, k, block);
  const std::vector<double> scales = scale_numbers.reals();
  std::vector<double> zeros(scales.size(), static_cast<double>(int64_t{1} << (bits - 1)));
  if (c.has(3)) {
    BOWLINE_TRY_ASSIGN(const ConstantTensor given, c.numbers(3));
    const int64_t zero_bytes = (blocks * bits + 7) / 8;
    const bool packed = given.dtype == DType::u8;
    const bool fits = packed ? static_cast<int64_t>(given.bytes.size()) == n * zero_bytes
                             : given.elements() == scales.size();
    BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Zero points {} do not fit {} rows of {} blocks.",
                         shape_text(given.shape), n, blocks);
    for (int64_t i = 0; packed && i < n * blocks; ++i) {
      zeros[static_cast<size_t>(i)] = static_cast<double>(
          packed_at(given.bytes, static_cast<size_t>(i / blocks * zero_bytes), i % blocks, bits));
    }
    zeros = packed ? zeros : given.reals();
  }
  std::vector<double> weights;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<size_t>(row * blocks + i / block);
      const auto value = static_cast<double>(
          packed_at(values.bytes, static_cast<size_t>(row * row_bytes), i, bits));
      weights.push_back((value - zeros[at]) * scales[at]);
    }
  }
  const Term table = c.m.weight(ConstantTensor::of(DType::f32, {n, k}, weights), c.node().input(1));
  BOWLINE_REQUIRE_CODE(a.rank() >= 1 && a.dims.back() == k, Code::bad_file,
                       "{} does not fit weights of {} rows of {}.", shape_text(a.dims), n, k);
  Dims dims = a.dims;
  dims.back() = n;
  const Term flat = c.m.reshape(a, {a.elements() / k, k});
  Term y = c.m.matmul(flat, c.m.cast(table, a.dtype), false, true);
  if (c.has(5)) {
    BOWLINE_TRY_ASSIGN(const Term bias, c.in(5));
    y = c.m.add(y, bias);
  }
  c.out(0, c.m.reshape(y, dims));
  return {};
}

constexpr Lowering kMicrosoftLowerings[] = {
    {"Gelu", bias_gelu<false>, kMicrosoft},
    {"BiasGelu", bias_gelu<false>, kMicrosoft},
    {"FastGelu", bias_gelu<true>, kMicrosoft},
    {"QuickGelu", quick_gelu, kMicrosoft},
    {"FusedMatMul", fused_matmul, kMicrosoft},
    {"SkipLayerNormalization", skip_normalization<false>, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", skip_normalization<true>, kMicrosoft},
    {"QLinearAdd", qlinear_two<kAddOp>, kMicrosoft},
    {"QLinearMul", qlinear_two<kMulOp>, kMicrosoft},
    {"QLinearSigmoid", qlinear_sigmoid, kMicrosoft},
    {"QLinearLeakyRelu", qlinear_leaky_relu, kMicrosoft},
    {"QLinearGlobalAveragePool", qlinear_global_average_pool, kMicrosoft},
    {"QLinearConcat", qlinear_concat, kMicrosoft},
    {"MatMulNBits", matmul_nbits, kMicrosoft},
};

}  // namespace

std::span<const Lowering> lowerings_of_microsoft() { return kMicrosoftLowerings; }

}  // namespace bowline::onnx
