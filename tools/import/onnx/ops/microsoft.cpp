// Operators of the ONNX Runtime domain com.microsoft whose definition is public.
//
// Source  ONNX Runtime, docs/ContribOperators.md.

#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// gelu(x + bias). The bias of FastGelu is optional.
Term bias_gelu(Context& c) {
  const Term x = c.has(1) ? c.in(0) + c.in(1) : c.in(0);
  return c.m.unary("Gelu", x, {{"form", c.op() == "FastGelu" ? "tanh" : "erf"}});
}

// x sigmoid(alpha x)
Term quick_gelu(Context& c) {
  const Term x = c.in(0);
  const double alpha = c.real("alpha", 1.702);
  return x * sigmoid(x * alpha);
}

// alpha a' b'
Term fused_matmul(Context& c) {
  const Term a = c.in(0);
  const Term b = c.in(1);
  for (const char* name : {"transBatchA", "transBatchB"}) {
    const int64_t batches = c.integer(name, 0);
    support(batches == 0, "Attribute {} is {}; only 0 is supported.", name, batches);
  }
  support(a.rank() >= 2 && b.rank() >= 2, "{} and {} are not matrices.", a.dims, b.dims);
  return scaled_product(c, a, b);
}

// The norm of input + skip + bias along the last axis. The sum is output 3. Simplified: without
// mean and beta.
Term skip_normalization(Context& c) {
  const bool simplified = c.op() == "SkipSimplifiedLayerNormalization";
  const Term x = c.in(0), skip = c.in(1), gamma = c.in(2);
  const Term bias = c.optional(simplified ? 3 : 4);
  const double eps = c.real("epsilon", 1e-12);
  const bool fits = x.rank() >= 2 && gamma.dims == Dims{x.dims.back()};
  require(fits, "Gamma {} does not fit {}.", gamma.dims, x.dims);
  // Computed in f32: a 16-bit sum can overflow although its norm would not.
  Term sum = in_f32(x) + in_f32(skip);
  sum = bias ? sum + in_f32(bias) : sum;
  require(sum.dims == x.dims, "Skip {} does not fit {}.", skip.dims, x.dims);
  Terms in = {sum, in_f32(gamma)};
  if (!simplified) {
    in.push_back(c.has(3) ? in_f32(c.in(3)) : c.m.filled(sum.dtype, gamma.dims, 0));
  }
  c.out(3, cast(sum, x.dtype));
  return cast(c.m.op(simplified ? "RmsNorm" : "LayerNorm", in, {{"eps", eps}}, sum.dtype, x.dims),
              x.dtype);
}

// (x - zero point) * scale
Term real_of(Context& c, size_t first) {
  const Term x = c.in(first), scale = c.in(first + 1), zero = c.optional(first + 2);
  return centred(x, zero ? c.m.reshape(zero, {}) : zero) * c.m.reshape(scale, {});
}

// saturate(round(x / scale) + zero point), in the dtype of the zero point, or of the inputs if
// there is no zero point.
Term whole_of(Context& c, const Term& x, size_t first, DType dtype) {
  const Term scale = c.in(first), zero = c.optional(first + 1);
  return saturated(x / c.m.reshape(scale, {}), zero ? c.m.reshape(zero, {}) : c.m.scalar(dtype, 0));
}

Term qlinear_binary(Context& c) {
  const char* const op = c.op() == "QLinearAdd" ? "Add" : "Mul";
  return whole_of(c, binary(op, real_of(c, 0), real_of(c, 3)), 6, c.in(0).dtype);
}

Term qlinear_sigmoid(Context& c) { return whole_of(c, sigmoid(real_of(c, 0)), 3, c.in(0).dtype); }

Term qlinear_leaky_relu(Context& c) {
  const double alpha = c.real("alpha", 0.01);
  return whole_of(c, c.m.unary("LeakyRelu", real_of(c, 0), {{"alpha", alpha}}), 3, c.in(0).dtype);
}

Term qlinear_global_average_pool(Context& c) {
  const Term x = c.in(0);
  const bool last = c.flag("channels_last", false);
  require(x.rank() >= 3, "{} has no spatial axes.", x.dims);
  std::vector<int64_t> axes = all_axes(x.rank());
  axes.erase(last ? axes.end() - 1 : axes.begin() + 1);
  axes.erase(axes.begin());
  return whole_of(c, c.m.reduce("ReduceMean", real_of(c, 0), axes, true), 3, x.dtype);
}

// Inputs: the scale and zero point of the result, then three inputs per part.
Term qlinear_concat(Context& c) {
  const int64_t axis = c.integer("axis", 0);
  require(c.inputs() >= 5 && c.inputs() % 3 == 2,
          "The node has {} inputs. It needs 2, plus 3 for each part.", c.inputs());
  const Term first = c.in(2);
  Terms parts;
  for (size_t i = 2; i < c.inputs(); i += 3) {
    parts.push_back(real_of(c, i));
  }
  return whole_of(c, c.m.concat(parts, axis), 0, first.dtype);
}

// Value i of a packed row of `bits`-bit values, lowest bits first.
int64_t packed_at(const std::vector<std::byte>& bytes, size_t row, int64_t i, int64_t bits) {
  const int64_t each = 8 / bits;
  const auto byte = static_cast<int64_t>(bytes[row + static_cast<size_t>(i / each)]);
  return byte >> (i % each * bits) & ((int64_t{1} << bits) - 1);
}

// Quantized weights [n, k], in blocks of a row: (value - zero point) * scale.
struct BlockWeights {
  int64_t n = 0, k = 0, bits = 4, block = 0;

  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t row_bytes() const { return blocks() * block * bits / 8; }
};

BlockWeights block_weights_of(Context& c) {
  const BlockWeights w{c.integer("N", 0), c.integer("K", 0), c.integer("bits", 4),
                       c.integer("block_size", 0)};
  require_small("K, N or block_size", {w.k, w.n, w.block});
  support(w.bits == 2 || w.bits == 4 || w.bits == 8, "Weights of {} bits are not supported.",
          w.bits);
  require(w.k >= 1 && w.n >= 1 && w.block >= 8 && w.block % 8 == 0,
          "K is {}, N is {} and the block size is {}: out of range.", w.k, w.n, w.block);
  return w;
}

// Returns the zero point of each block.
std::vector<double> zero_points_of(Context& c, const BlockWeights& w) {
  const auto count = static_cast<size_t>(w.n * w.blocks());
  std::vector<double> zeros(count, static_cast<double>(int64_t{1} << (w.bits - 1)));
  if (!c.has(3)) {
    return zeros;
  }
  const ConstantTensor given = c.numbers(3);
  const int64_t bytes = (w.blocks() * w.bits + 7) / 8;
  const bool packed = given.dtype == DType::u8;
  const bool fits =
      packed ? static_cast<int64_t>(given.bytes.size()) == w.n * bytes : given.elements() == count;
  require(fits, "Zero points {} do not fit {} rows of {} blocks.", given.shape, w.n, w.blocks());
  if (!packed) {
    return given.reals();
  }
  for (size_t i = 0; i < count; ++i) {
    const auto row = static_cast<int64_t>(i) / w.blocks(),
               at = static_cast<int64_t>(i) % w.blocks();
    zeros[i] =
        static_cast<double>(packed_at(given.bytes, static_cast<size_t>(row * bytes), at, w.bits));
  }
  return zeros;
}

// a w' + bias. The weights become an f32 parameter.
Term matmul_nbits(Context& c) {
  const Term a = c.in(0);
  const ConstantTensor values = c.numbers(1), scale_numbers = c.numbers(2);
  const BlockWeights w = block_weights_of(c);
  const auto& [n, k, bits, block] = w;
  c.ignore("accuracy_level");
  support(!c.has(4), "Reordered weights (g_idx) are not supported.");
  const bool sized = values.dtype == DType::u8 &&
                     static_cast<int64_t>(values.bytes.size()) == n * w.row_bytes() &&
                     static_cast<int64_t>(scale_numbers.elements()) == n * w.blocks();
  require(sized, "Values {} and scales {} do not fit {} rows of {} values in blocks of {}.",
          values.shape, scale_numbers.shape, n, k, block);
  const std::vector<double> scales = scale_numbers.reals(), zeros = zero_points_of(c, w);
  std::vector<double> weights;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<size_t>(row * w.blocks() + i / block);
      const auto value = static_cast<double>(
          packed_at(values.bytes, static_cast<size_t>(row * w.row_bytes()), i, bits));
      weights.push_back((value - zeros[at]) * scales[at]);
    }
  }
  const Term table = c.m.weight(ConstantTensor::of(DType::f32, {n, k}, weights), c.node().input(1));
  require(a.rank() >= 1 && a.dims.back() == k, "{} does not fit weights of {} rows of {}.", a.dims,
          n, k);
  const Term flat = c.m.reshape(a, {a.elements() / k, k});
  const Term y = c.m.matmul(flat, cast(table, a.dtype), false, true);
  return c.m.reshape(c.has(5) ? y + c.in(5) : y, a.dims.with_last(n));
}

constexpr Lowering kMicrosoftLowerings[] = {
    {"Gelu BiasGelu FastGelu", bias_gelu, kMicrosoft},
    {"QuickGelu", quick_gelu, kMicrosoft},
    {"FusedMatMul", fused_matmul, kMicrosoft},
    {"SkipLayerNormalization SkipSimplifiedLayerNormalization", skip_normalization, kMicrosoft},
    {"QLinearAdd QLinearMul", qlinear_binary, kMicrosoft},
    {"QLinearSigmoid", qlinear_sigmoid, kMicrosoft},
    {"QLinearLeakyRelu", qlinear_leaky_relu, kMicrosoft},
    {"QLinearGlobalAveragePool", qlinear_global_average_pool, kMicrosoft},
    {"QLinearConcat", qlinear_concat, kMicrosoft},
    {"MatMulNBits", matmul_nbits, kMicrosoft},
};

}  // namespace

std::span<const Lowering> lowerings_of_microsoft() { return kMicrosoftLowerings; }

}  // namespace bowline::onnx
