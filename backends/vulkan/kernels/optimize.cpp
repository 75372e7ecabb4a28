//! optimizers(f32, f16, bf16)
//! ops ZeroGrad AccumulateGrad ClipByGlobalNorm LossScale
//! ops(f16, bf16) AccumulateGrad
// Gradient storages and optimizers. Clipping and optimizers divide all storages into a table of
// chunks, which one dispatch processes. ZeroGrad and AccumulateGrad have one dispatch per storage.
// Per-step scalars are read from the step buffer.
#include <algorithm>

#include "core/optimizers.h"
#include "kernel.h"

namespace bowline::detail::vulkan::optimize_kernels {
namespace {

constexpr uint64_t kChunk = 4096;  // elements per workgroup

void push_address(std::vector<uint32_t>* words, VkDeviceAddress address) {
  words->push_back(static_cast<uint32_t>(address));
  words->push_back(static_cast<uint32_t>(address >> 32));
}

struct TableList {
  std::vector<ListEntry> entries;
  uint64_t element_bytes = 4;
};

// Rows of [address per list, elements, padding]; all lists have entries of the same sizes.
std::vector<uint32_t> chunk_table(const std::vector<TableList>& lists, uint64_t* count) {
  std::vector<uint32_t> words;
  *count = 0;
  for (size_t e = 0; e < lists[0].entries.size(); ++e) {
    const uint64_t elements = lists[0].entries[e].elements;
    for (uint64_t first = 0; first < elements; first += kChunk) {
      for (const TableList& list : lists) {
        push_address(&words, list.entries[e].address + list.element_bytes * first);
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
  push.add(grad.address, contribution, l.step()).u32(grad.elements, grid.per_group, grad.first);
  const auto n = static_cast<double>(grad.elements);
  l.dispatch(shader::gradient, {function}, push, grid, {n, n * (8.0 + l.element_bytes())});
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
  l.dispatch(shader::loss_scale, {}, push, l.one_subgroup(), {0, 4});
}

// The partial sums of the norm, one per subgroup. A large GPU runs thousands of subgroups at once.
uint64_t partials_of(const PhysicalDevice& physical) {
  return physical.uses_cpu_kernels() ? 256 : 2048;
}

uint64_t clip_workspace(const NodeView& node) { return partials_of(node.physical) * 4; }

void clip(Launch& l) {
  uint64_t count = 0;
  const std::vector<uint32_t> words = chunk_table({{l.in_list(0)}}, &count);
  const uint64_t partials = partials_of(l.physical());
  Push push;
  const bool has_loss = l.inputs() > 1;
  push.table(l.table(words)).add(l.workspace(), l.out(0), has_loss ? l.in(1) : l.out(0));
  l.push_step_words(push);
  push.u32(count, partials)
      .f32(static_cast<double>(l.attributes<ClipByGlobalNormAttributes>().max_norm()))
      .u32(has_loss);
  const double n = static_cast<double>(count * kChunk);
  l.dispatch(shader::clip_squares, {}, push, l.over_rows(partials), {n * 2, n * 4});
  l.barrier();
  l.dispatch(shader::clip_scale, {}, push, l.one_subgroup(), {0, 0});
}

Grid over_chunks(const Launch& l, uint64_t count) {
  return {l.physical().uses_cpu_kernels() ? l.lanes() : l.physical().workgroup(256), count, 1};
}

shader::ByType shader_of(Op op) {
  switch (op) {
#define BOWLINE_OPTIMIZER(Name, stem) \
  case Op::Name:                      \
    return shader::update_##stem;
#include "generated/optimizers.inc"
    default:
      return {};
  }
}

// Fills the push block of generated/update_<stem>.comp. A missing state gets the address of the
// updated values, and so do missing 16-bit weights. The shader does not access the values there.
void update(Launch& l) {
  const OptimizerDef& def = *optimizer_of(l.op());
  const UpdateOperands operands = update_operands(l.op(), l.attributes());
  const size_t values = updated_values(l.type(), l.inputs());
  std::vector<TableList> lists = {{l.in_list(values)}, {l.in_list(1)}};
  for (size_t s = 0; s < def.states.size(); ++s) {
    lists.push_back({l.in_list(operands.states[s].value_or(values))});
  }
  lists.push_back({l.in_list(0), size_of(l.type())});
  uint64_t count = 0;
  const std::vector<uint32_t> words = chunk_table(lists, &count);
  Push push;
  push.table(l.table(words)).add(l.in(kUpdateScale));
  l.push_step_words(push);
  push.u32(count);
  for (size_t i = 0; i < operands.count; ++i) {
    push.add(operands.numbers[i]);
  }
  const double n = static_cast<double>(count * kChunk);
  const double rounded = values == 0 ? 0 : l.element_bytes();
  const auto moved = static_cast<double>(4 * (3 + 2 * def.states.size())) + rounded;
  l.dispatch(shader_of(l.op()), {}, push, over_chunks(l, count), {n * 20, n * moved});
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(optimizers, .launch = update);
BOWLINE_KERNELS_OF_FLOATS(accumulate_grad, .launch = accumulate_grad);
BOWLINE_KERNEL(zero_grad, .launch = zero_grad);
BOWLINE_KERNEL(clip_by_global_norm, .launch = clip, .workspace = clip_workspace);
BOWLINE_KERNEL(loss_scale, .launch = loss_scale);

}  // namespace bowline::detail::vulkan::optimize_kernels
