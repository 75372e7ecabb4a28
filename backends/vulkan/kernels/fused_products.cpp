//! ops(f32, f16, bf16) FusedNormMatMul
// Products of a few rows with what is around them, as in decoding.
#include <algorithm>

#include "few_rows.h"

namespace bowline::detail::vulkan::fused_products_kernels {
namespace {

// Why the kernels do not read these operands, or null. Inputs 1 to `weights` may be quantized.
const char* refuse_operands(const NodeView& v, int64_t m, size_t weights) {
  const auto& inputs = v.query.inputs;
  const bool quantized = !inputs[1].encoding.is_plain();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_weight = i >= 1 && i <= weights;
    if (is_weight && inputs[i].encoding.is_plain() == quantized) {
      return "Only some weights are quantized.";
    }
    if (is_weight && quantized && inputs[i].bytes() > UINT32_MAX) {
      return "A quantized matrix has more than 2^32 bytes.";
    }
    if (!(is_weight && quantized) && inputs[i].dtype != v.query.type) {
      return "The operands have several dtypes.";
    }
  }
  const auto is_other = [&](const device::Operand& o) { return o.dtype != v.query.type; };
  if (std::ranges::any_of(v.query.outputs, is_other)) {
    return "The operands have several dtypes.";
  }
  if (has_few_rows(v.physical, m, v.query.type, quantized)) {
    return nullptr;
  }
  return m <= 1 ? "Plain products of one row in f32 are faster without fusion."
                : "Products of many rows are faster without fusion.";
}

const char* refuse_norm_product(const NodeView& v) {
  const auto& t = v.attributes<FusedNormMatMulAttributes>();
  if (v.in(0).back() == 0 || (t.gate() && !t.transpose_b())) {
    return "The product is not one of decoding.";
  }
  return refuse_operands(v, v.in(0).rows(), static_cast<size_t>(t.weights()));
}

std::vector<WeightPart> parts_of(const Launch& l) {
  const auto& t = l.attributes<FusedNormMatMulAttributes>();
  const NormProductInputs inputs(t);
  const size_t columns_axis = t.transpose_b() ? 0 : 1;
  std::vector<WeightPart> parts;
  const auto add = [&](size_t weight, size_t output, uint32_t first, int64_t n) {
    const VkDeviceAddress bias =
        inputs.bias < 0
            ? 0
            : l.in(static_cast<size_t>(inputs.bias) + weight - 1) + first * size_of(l.type());
    parts.push_back({weight, first, static_cast<uint32_t>(n), bias, l.out(output)});
  };
  if (t.sizes()->size() > 0) {
    uint32_t first = 0;
    for (size_t o = 0; o < l.outputs(); ++o) {
      add(1, o, first, l.out_shape(o).back());
      first += parts.back().n;
    }
    return parts;
  }
  for (size_t i = 0; std::cmp_less(i, inputs.weights); ++i) {
    add(1 + i, t.gate() ? 0 : i, 0, l.in_shape(1 + i)[static_cast<int>(columns_axis)]);
  }
  return parts;
}

void fused_norm_mat_mul(Launch& l) {
  const auto& t = l.attributes<FusedNormMatMulAttributes>();
  const NormProductInputs inputs(t);
  const Shape& x = l.in_shape(0);
  FewRowsProduct p;
  p.m = static_cast<uint32_t>(x.rows());
  p.k = static_cast<uint32_t>(x.back());
  p.transpose_b = t.transpose_b();
  p.parts = parts_of(l);
  p.gamma = l.in(static_cast<size_t>(inputs.gamma));
  p.beta = inputs.beta < 0 ? 0 : l.in(static_cast<size_t>(inputs.beta));
  p.eps = t.eps();
  p.activation = t.activation();
  p.gate = t.gate();
  if (p.m != 0) {
    multiply_few_rows(l, p, 0);
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(fused_norm_mat_mul, .launch = fused_norm_mat_mul,
                          .refusal = refuse_norm_product, .encoded = 0b1110);

}  // namespace bowline::detail::vulkan::fused_products_kernels
