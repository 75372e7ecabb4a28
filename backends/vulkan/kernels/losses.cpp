//! ops(f32, f16, bf16) CrossEntropy CrossEntropyGrad FusedCrossEntropy
//! ops(f32, f16, bf16) NegativeLogLikelihood NegativeLogLikelihoodGrad
//! ops(f32, f16, bf16) MeanSquaredError BinaryCrossEntropy Huber
//! ops(f32, f16, bf16) MeanSquaredErrorGrad BinaryCrossEntropyGrad HuberGrad
// Losses. Shaders write the terms and their weights side by side; then one subgroup adds them in a
// fixed order.
#include "core/losses.h"

#include "kernel.h"

namespace bowline::detail::vulkan::losses_kernels {
namespace {

constexpr uint64_t kTermBytes = 8;  // a loss and a weight
constexpr uint64_t kParts = 256;    // fixed, so that the order depends only on the subgroup size

uint64_t elements(const Shape& shape) { return static_cast<uint64_t>(shape.elements()); }

const char* rows_refusal(const NodeView& node) {
  const int64_t limit = kMaxIterations * node.physical.subgroup_size;
  return node.physical.is_software() && node.in(1).elements() > limit
             ? "There are more rows than the loops of a software device run."
             : nullptr;
}

// Three loops over the row, or four with label smoothing; each lane processes every S-th element.
const char* cross_entropy_refusal(const NodeView& node) {
  const int64_t limit = kMaxIterations / 4 * node.physical.subgroup_size;
  return node.physical.is_software() && node.in(0).rank() > 0 && node.in(0).back() > limit
             ? "A row is longer than the loops of a software device run."
             : rows_refusal(node);
}

void add_up(Launch& l, VkDeviceAddress terms, uint64_t n, Reduction reduction, size_t output = 0) {
  l.barrier();
  Push push;
  push.add(terms, l.out(output)).u32(n, reduction);
  l.dispatch(shader::loss_total, {}, push, l.one_subgroup(), {static_cast<double>(n) * 20, 0});
}

// Operands that all kernels of losses with labels share.
struct Labels {
  VkDeviceAddress losses = 0;
  VkDeviceAddress weight = 0;
  VkDeviceAddress dloss = 0;
  VkDeviceAddress dx = 0;
};

template <class Table>
void push_labels(Push& push, const Launch& l, const Labels& c) {
  const auto& t = l.attributes<Table>();
  push.add(c.losses, c.weight, c.dloss, c.dx, l.step())
      .u32(elements(l.in_shape(1)), l.in_shape(0).back());
  push.add(t.ignore_index()).u32(t.reduction(), l.node());
}

Push push_cross_entropy(const Launch& l, const Labels& c, VkDeviceAddress lse) {
  Push push;
  push.add(l.in(0), l.in(1), lse);
  push_labels<CrossEntropyAttributes>(push, l, c);
  push.add(l.attributes<CrossEntropyAttributes>().label_smoothing());
  return push;
}

// `input` is the input with the class weights.
template <class Table>
Push push_likelihood(const Launch& l, const Labels& c, size_t input, const Grid& grid) {
  const bool has_weight = l.inputs() > input;
  Push push;
  push.add(l.in(0), l.in(1), l.in(has_weight ? input : 0));
  push_labels<Table>(push, l, c);
  push.u32(has_weight, grid.per_group);
  return push;
}

uint64_t terms_workspace(const NodeView& node) { return elements(node.in(1)) * kTermBytes; }

void cross_entropy(Launch& l) {
  const Reduction reduction = l.attributes<CrossEntropyAttributes>().reduction();
  Labels c;
  c.losses = reduction == Reduction::none ? l.out(0) : l.workspace();
  const uint64_t rows = elements(l.in_shape(1));
  const auto n = static_cast<double>(elements(l.in_shape(0)));
  l.dispatch(shader::cross_entropy_rows, {}, push_cross_entropy(l, c, l.out(1)), l.over_rows(rows),
             {n * 40, n * 8});
  if (reduction != Reduction::none) {
    add_up(l, c.losses, rows, reduction);
  }
}

uint64_t grad_workspace(const NodeView&) { return 4; }

// Writes the sum of the weights of all rows into the workspace.
template <class Table>
void add_weights(Launch& l, const Labels& c, size_t input) {
  if (l.attributes<Table>().reduction() == Reduction::mean) {
    l.dispatch(shader::negative_log_likelihood_weights, {}, push_likelihood<Table>(l, c, input, {}),
               l.one_subgroup(), {static_cast<double>(elements(l.in_shape(1))) * 20, 0});
    l.barrier();
  }
}

Labels gradient_of(const Launch& l, size_t dloss) {
  Labels c;
  c.weight = l.workspace();
  c.dloss = l.in(dloss);
  c.dx = l.out(0);
  return c;
}

void cross_entropy_grad(Launch& l) {
  const Labels c = gradient_of(l, 3);
  constexpr size_t kNoWeights = 4;
  add_weights<CrossEntropyAttributes>(l, c, kNoWeights);
  const auto n = static_cast<double>(elements(l.in_shape(0)));
  l.dispatch(shader::cross_entropy_grad, {}, push_cross_entropy(l, c, l.in(2)),
             l.over_rows(elements(l.in_shape(1))), {n * 40, n * 8});
}

// The terms of all rows, then the weight.
uint64_t fused_workspace(const NodeView& node) {
  return terms_workspace(node) + grad_workspace(node);
}

const char* fused_refusal(const NodeView& node) {
  return node.physical.uses_cpu_kernels()
             ? "CrossEntropy and its gradient are as fast without fusion on a software device."
             : cross_entropy_refusal(node);
}

void fused_cross_entropy(Launch& l) {
  const Reduction reduction = l.attributes<CrossEntropyAttributes>().reduction();
  const uint64_t rows = elements(l.in_shape(1));
  Labels c;
  c.losses = reduction == Reduction::none ? l.out(1) : l.workspace();
  c.weight = l.workspace() + rows * kTermBytes;
  c.dloss = l.in(2);
  c.dx = l.out(0);
  constexpr size_t kNoWeights = 3;
  add_weights<CrossEntropyAttributes>(l, c, kNoWeights);
  Push push;
  push.add(l.in(0), l.in(1));
  push_labels<CrossEntropyAttributes>(push, l, c);
  push.add(l.attributes<CrossEntropyAttributes>().label_smoothing());
  const auto n = static_cast<double>(elements(l.in_shape(0)));
  const Grid grid{l.physical().workgroup(256), rows, 1, rows};
  l.dispatch(shader::cross_entropy_fused, {}, push, grid, {n * 80, n * 8});
  if (reduction != Reduction::none) {
    add_up(l, c.losses, rows, reduction, 1);
  }
}

void negative_log_likelihood(Launch& l) {
  using Table = NegativeLogLikelihoodAttributes;
  const Reduction reduction = l.attributes<Table>().reduction();
  Labels c;
  c.losses = reduction == Reduction::none ? l.out(0) : l.workspace();
  const uint64_t rows = elements(l.in_shape(1));
  const Grid grid = l.over_elements(rows);
  const auto n = static_cast<double>(rows);
  l.dispatch(shader::negative_log_likelihood_rows, {}, push_likelihood<Table>(l, c, 2, grid), grid,
             {n * 4, n * 16});
  if (reduction != Reduction::none) {
    add_up(l, c.losses, rows, reduction);
  }
}

void negative_log_likelihood_grad(Launch& l) {
  using Table = NegativeLogLikelihoodAttributes;
  const Labels c = gradient_of(l, 2);
  add_weights<Table>(l, c, 3);
  const uint64_t n = elements(l.in_shape(0));
  const Grid grid = l.over_elements(n);
  l.dispatch(shader::negative_log_likelihood_grad, {}, push_likelihood<Table>(l, c, 3, grid), grid,
             l.each(n, 4, 1));
}

Push push_elements(const Launch& l, const LossCall& f, VkDeviceAddress y, VkDeviceAddress dloss,
                   VkDeviceAddress dx, uint64_t per_group) {
  const uint64_t n = elements(l.in_shape(0));
  Push push;
  push.add(l.in(0), l.in(1), y, dloss, dx)
      .u32(n, per_group, kParts, f.reduction == Reduction::none);
  push.f32(f.divisor(static_cast<int64_t>(n))).add(f.p);
  return push;
}

uint64_t parts_workspace(const NodeView&) { return kParts * kTermBytes; }

void element_loss(Launch& l) {
  const LossCall f = loss_call_of(l.record());
  const auto n = static_cast<double>(elements(l.in_shape(0)));
  const double bytes = n * 2 * l.element_bytes();
  if (f.reduction == Reduction::none) {
    const Grid grid = l.over_elements(elements(l.in_shape(0)));
    l.dispatch(shader::element_loss_each, {static_cast<uint32_t>(f.loss)},
               push_elements(l, f, l.out(0), 0, 0, grid.per_group), grid, {n * 20, bytes});
    return;
  }
  l.dispatch(shader::element_loss_parts, {static_cast<uint32_t>(f.loss)},
             push_elements(l, f, l.workspace(), 0, 0, 0), l.over_rows(kParts), {n * 20, bytes});
  add_up(l, l.workspace(), kParts, f.reduction);
}

void element_loss_grad(Launch& l) {
  const LossCall f = loss_call_of(l.record());
  const uint64_t n = elements(l.in_shape(0));
  const Grid grid = l.over_elements(n);
  l.dispatch(shader::element_loss_grad, {static_cast<uint32_t>(f.loss)},
             push_elements(l, f, 0, l.in(2), l.out(0), grid.per_group), grid, l.each(n, 20, 3));
}

const char* parts_refusal(const NodeView& node) {
  const int64_t limit = kMaxIterations * static_cast<int64_t>(kParts) * node.physical.subgroup_size;
  return node.physical.is_software() && node.in(0).elements() > limit
             ? "There are more elements than the loops of a software device run."
             : nullptr;
}

}  // namespace

#define BOWLINE_ELEMENT_LOSS(stem)                                                      \
  BOWLINE_KERNELS_OF_FLOATS(stem, .launch = element_loss, .workspace = parts_workspace, \
                            .refusal = parts_refusal);                                  \
  BOWLINE_KERNELS_OF_FLOATS(stem##_grad, .launch = element_loss_grad)

BOWLINE_KERNELS_OF_FLOATS(cross_entropy, .launch = cross_entropy, .workspace = terms_workspace,
                          .refusal = cross_entropy_refusal);
BOWLINE_KERNELS_OF_FLOATS(cross_entropy_grad, .launch = cross_entropy_grad,
                          .workspace = grad_workspace, .refusal = cross_entropy_refusal);
BOWLINE_KERNELS_OF_FLOATS(fused_cross_entropy, .launch = fused_cross_entropy,
                          .workspace = fused_workspace, .refusal = fused_refusal);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood, .launch = negative_log_likelihood,
                          .workspace = terms_workspace, .refusal = rows_refusal);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood_grad, .launch = negative_log_likelihood_grad,
                          .workspace = grad_workspace, .refusal = rows_refusal);
BOWLINE_ELEMENT_LOSS(mean_squared_error);
BOWLINE_ELEMENT_LOSS(binary_cross_entropy);
BOWLINE_ELEMENT_LOSS(huber);
#undef BOWLINE_ELEMENT_LOSS

}  // namespace bowline::detail::vulkan::losses_kernels
