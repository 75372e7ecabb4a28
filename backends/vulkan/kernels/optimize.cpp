//! ops ZeroGrad AccumulateGrad ClipByGlobalNorm Sgd AdamW Adagrad RmsProp Lion Adafactor LossScale
//! ops(f16, bf16) AccumulateGrad RoundWeights
// What runs once per step over lists of storages. A list becomes a table of chunks, so that one
// dispatch serves storages of all sizes; rates and counters are read from the step words.
#include <algorithm>

#include "convert.h"
#include "kernel.h"

namespace bowline::detail::vulkan::optimize_kernels {
namespace {

constexpr uint64_t kChunk = 4096;    // elements per workgroup
constexpr uint64_t kPartials = 256;  // partial sums of the norm

void push_address(std::vector<uint32_t>* words, VkDeviceAddress address) {
  words->push_back(static_cast<uint32_t>(address));
  words->push_back(static_cast<uint32_t>(address >> 32));
}

// Rows of [address per list, elements, padding]; all lists have entries of the same sizes.
std::vector<uint32_t> chunk_table(const std::vector<std::vector<ListEntry>>& lists,
                                  uint64_t* count) {
  std::vector<uint32_t> words;
  *count = 0;
  for (size_t e = 0; e < lists[0].size(); ++e) {
    const uint64_t elements = lists[0][e].elements;
    for (uint64_t first = 0; first < elements; first += kChunk) {
      for (const auto& list : lists) {
        push_address(&words, list[e].address + 4 * first);
      }
      words.push_back(static_cast<uint32_t>(std::min(kChunk, elements - first)));
      words.push_back(0);
      ++*count;
    }
  }
  words.resize(std::max(words.size(), 2 * lists.size() + 2), 0);  // never empty
  return words;
}

void gradient(Launch& l, uint32_t function, const ListEntry& grad, VkDeviceAddress contribution) {
  const Grid grid = l.over_elements(grad.elements);
  Push push;
  push.add(grad.address)
      .add(contribution)
      .add(l.step())
      .u32(grad.elements)
      .u32(grid.per_group)
      .u32(grad.first ? 1 : 0);
  const auto n = static_cast<double>(grad.elements);
  l.dispatch(of_type(l.type(), shader::gradient_f32, shader::gradient_f16, shader::gradient_bf16),
             {function}, push, grid, n, n * (8.0 + l.element_bytes()));
}

void accumulate_grad(Launch& l) { gradient(l, 0, l.in_list(0)[0], l.in(1)); }

void zero_grad(Launch& l) {
  for (const ListEntry& grad : l.in_list(0)) {
    gradient(l, 1, grad, 0);
  }
}

void loss_scale(Launch& l) {
  Push push;
  push.add(l.out(0));
  l.push_step_words(push);
  l.dispatch(shader::loss_scale, {}, push, {l.lanes(), 1, 1}, 0, 4);
}

void round_weights(Launch& l) {
  const std::vector<ListEntry> masters = l.in_list(0);
  const std::vector<ListEntry> weights = l.in_list(1);
  for (size_t i = 0; i < masters.size(); ++i) {
    convert(l, masters[i].address, DType::f32, weights[i].address, l.type(), masters[i].elements);
  }
}

uint64_t clip_workspace(const NodeView&) { return kPartials * 4; }

void clip(Launch& l) {
  uint64_t count = 0;
  const std::vector<uint32_t> words = chunk_table({l.in_list(0)}, &count);
  Push push;
  const bool has_loss = l.inputs() > 1;
  push.table(l.table(words)).add(l.workspace()).add(l.out(0));
  push.add(has_loss ? l.in(1) : l.out(0));
  l.push_step_words(push);
  push.u32(count).u32(kPartials).f32(
      static_cast<double>(l.attributes<ClipByGlobalNormAttributes>().max_norm()));
  push.u32(has_loss ? 1 : 0);
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::clip_squares, {}, push, l.over_rows(kPartials), n * 2, n * 4);
  l.barrier();
  l.dispatch(shader::clip_scale, {}, push, {l.lanes(), 1, 1}, 0, 0);
}

Grid over_chunks(const Launch& l, uint64_t count) {
  return {l.physical().is_software() ? l.lanes() : 256, count, 1};
}

void sgd(Launch& l) {
  const auto& attributes = l.attributes<SgdAttributes>();
  const bool has_momentum = l.inputs() > 3;
  uint64_t count = 0;
  const std::vector<uint32_t> words =
      chunk_table({l.in_list(0), l.in_list(1), has_momentum ? l.in_list(3) : l.in_list(0)}, &count);
  Push push;
  push.table(l.table(words)).add(l.in(2));
  l.push_step_words(push);
  push.u32(count).add(attributes.momentum());
  push.add(attributes.weight_decay()).u32(attributes.nesterov() ? 1 : 0).u32(has_momentum ? 1 : 0);
  push.add(attributes.learning_rate_factor());
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::sgd, {}, push, over_chunks(l, count), n * 8, n * 20);
}

void adam_w(Launch& l) {
  const auto& attributes = l.attributes<AdamWAttributes>();
  uint64_t count = 0;
  const std::vector<uint32_t> words =
      chunk_table({l.in_list(0), l.in_list(1), l.in_list(2), l.in_list(3)}, &count);
  Push push;
  push.table(l.table(words)).add(l.in(4));
  l.push_step_words(push);
  push.u32(count).add(attributes.beta1()).add(attributes.beta2());
  push.add(attributes.eps()).add(attributes.weight_decay()).add(attributes.learning_rate_factor());
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::adam_w, {}, push, over_chunks(l, count), n * 20, n * 28);
}

// The start of the push block that all of these share: chunks of the lists, the scale, the step
// words.
Push over_lists(Launch& l, const std::vector<std::vector<ListEntry>>& lists, size_t scale,
                uint64_t* count) {
  const std::vector<uint32_t> words = chunk_table(lists, count);
  Push push;
  push.table(l.table(words)).add(l.in(scale));
  l.push_step_words(push);
  push.u32(*count);
  return push;
}

void adagrad(Launch& l) {
  const auto& t = l.attributes<AdagradAttributes>();
  uint64_t count = 0;
  Push push = over_lists(l, {l.in_list(0), l.in_list(1), l.in_list(2)}, 3, &count);
  push.add(t.learning_rate_decay()).add(t.eps()).add(t.weight_decay());
  push.add(t.learning_rate_factor());
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::adagrad, {}, push, over_chunks(l, count), n * 15, n * 20);
}

// Lists that it does not have are the weights, which nothing reads through them.
void rms_prop(Launch& l) {
  const auto& t = l.attributes<RmsPropAttributes>();
  const size_t mean = t.centered() ? 4 : 0;
  const size_t momenta = t.momentum() == 0 ? 0 : t.centered() ? 5 : 4;
  uint64_t count = 0;
  Push push =
      over_lists(l, {l.in_list(0), l.in_list(1), l.in_list(3), l.in_list(mean), l.in_list(momenta)},
                 2, &count);
  push.add(t.alpha()).add(t.momentum()).add(t.eps()).add(t.weight_decay());
  push.add(t.learning_rate_factor()).u32(t.centered() ? 1 : 0);
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::rms_prop, {}, push, over_chunks(l, count), n * 20, n * 32);
}

void lion(Launch& l) {
  const auto& t = l.attributes<LionAttributes>();
  uint64_t count = 0;
  Push push = over_lists(l, {l.in_list(0), l.in_list(1), l.in_list(2)}, 3, &count);
  push.add(t.beta1()).add(t.beta2()).add(t.weight_decay()).add(t.learning_rate_factor());
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::lion, {}, push, over_chunks(l, count), n * 10, n * 20);
}

// There are no more matrices than elements, and no entry has more of those than the operand.
uint64_t adafactor_workspace(const NodeView& node) {
  return (2 * kPartials + static_cast<uint64_t>(node.in(0).elements())) * 4;
}

const char* adafactor_refusal(const NodeView& node) {
  const int64_t limit = kMaxIterations * static_cast<int64_t>(node.physical.subgroup_size);
  return node.physical.is_software() && node.in(0).elements() > limit * 64
             ? "A storage has more elements than the loops of a software device run."
             : nullptr;
}

// One storage of Adafactor: `batch` matrices [rows, columns], or a vector.
struct Factored {
  VkDeviceAddress w = 0, g = 0, row = 0, column = 0;
  uint64_t batch = 1, rows = 1, columns = 0;
  bool is_vector = true;

  uint64_t elements() const { return batch * rows * columns; }
};

void adafactor_part(Launch& l, uint32_t shader, const Factored& f, const Grid& grid,
                    uint64_t first = 0, uint64_t count = 0) {
  const auto& t = l.attributes<AdafactorAttributes>();
  Push push;
  push.add(f.w).add(f.g).add(f.row).add(f.column).add(l.workspace()).add(l.in(2));
  l.push_step_words(push);
  push.u32(f.batch).u32(f.rows).u32(f.columns).u32(f.is_vector ? 1 : 0).u32(kPartials);
  push.u32(first).u32(count).u32(grid.per_group);
  push.add(t.beta2_decay()).add(t.eps1() == 0 ? 0x1p-23f : t.eps1()).add(t.eps2()).add(t.d());
  push.add(t.weight_decay()).add(t.learning_rate_factor());
  const auto n = static_cast<double>(f.elements());
  l.dispatch(shader, {}, push, grid, n * 10, n * 8);
}

void adafactor_storage(Launch& l, const Factored& f) {
  constexpr uint64_t kRun = 16384;  // rows that one dispatch adds up: loops of software devices end
  const uint64_t n = f.elements();
  adafactor_part(l, shader::adafactor_parts, f, l.over_rows(kPartials));
  if (f.is_vector) {
    adafactor_part(l, shader::adafactor_vector, f, l.over_elements(n));
  } else {
    adafactor_part(l, shader::adafactor_rows, f, l.over_rows(f.batch * f.rows));
    for (uint64_t first = 0; first < f.rows; first += kRun) {
      if (first > 0) {
        l.barrier();
      }
      adafactor_part(l, shader::adafactor_columns, f, l.over_single_elements(f.batch * f.columns),
                     first, std::min(kRun, f.rows - first));
    }
    l.barrier();
    adafactor_part(l, shader::adafactor_means, f, l.over_rows(f.batch));
  }
  l.barrier();
  adafactor_part(l, shader::adafactor_size, f, l.over_rows(kPartials));
  l.barrier();
  adafactor_part(l, shader::adafactor_apply, f, l.over_elements(n));
}

// Storage after storage: they share the workspace.
void adafactor(Launch& l) {
  const bool matrices = l.inputs() > 4;
  const auto weights = l.in_list(0), grads = l.in_list(1), rows = l.in_list(3);
  const auto columns = matrices ? l.in_list(4) : rows;
  bool first = true;
  for (size_t e = 0; e < weights.size(); ++e) {
    const uint64_t n = weights[e].elements;
    if (n == 0) {
      continue;
    }
    if (!first) {
      l.barrier();
    }
    first = false;
    Factored f{weights[e].address, grads[e].address, rows[e].address, columns[e].address, 1, 1, n};
    if (matrices) {
      f.is_vector = false;
      f.batch = rows[e].elements * columns[e].elements / n;
      f.rows = rows[e].elements / f.batch;
      f.columns = columns[e].elements / f.batch;
    }
    adafactor_storage(l, f);
  }
}

}  // namespace

BOWLINE_VULKAN_KERNEL(adagrad, .launch = adagrad);
BOWLINE_VULKAN_KERNEL(rms_prop, .launch = rms_prop);
BOWLINE_VULKAN_KERNEL(lion, .launch = lion);
BOWLINE_VULKAN_KERNEL(adafactor, .launch = adafactor, .workspace = adafactor_workspace,
                      .refusal = adafactor_refusal);
BOWLINE_VULKAN_KERNEL(accumulate_grad, .launch = accumulate_grad);
BOWLINE_VULKAN_KERNEL(zero_grad, .launch = zero_grad);
BOWLINE_VULKAN_KERNEL(clip_by_global_norm, .launch = clip, .workspace = clip_workspace);
BOWLINE_VULKAN_KERNEL(sgd, .launch = sgd);
BOWLINE_VULKAN_KERNEL(adam_w, .launch = adam_w);
BOWLINE_VULKAN_KERNEL(loss_scale, .launch = loss_scale);
BOWLINE_VULKAN_KERNEL(accumulate_grad_f16, .launch = accumulate_grad);
BOWLINE_VULKAN_KERNEL(accumulate_grad_bf16, .launch = accumulate_grad);
BOWLINE_VULKAN_KERNEL(round_weights_f16, .launch = round_weights);
BOWLINE_VULKAN_KERNEL(round_weights_bf16, .launch = round_weights);

}  // namespace bowline::detail::vulkan::optimize_kernels
