//! ops(f32, f16, bf16) Adafactor
// Adafactor (runtime/ops/adafactor.cpp). The storages are updated one after the other, each with
// several dispatches (shaders/adafactor.comp).
#include <algorithm>

#include "core/optimizers.h"
#include "kernel.h"

namespace bowline::detail::vulkan::adafactor_kernels {
namespace {

constexpr uint64_t kPartials = 256;  // partial sums of w^2, and as many of u^2

// Two lists of partial sums, and one mean per matrix. A storage has at most as many matrices as
// elements, and the operand has as many elements as the largest storage.
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
  push.add(f.w, f.g, f.row, f.column, l.workspace(), l.in(2));
  l.push_step_words(push);
  push.u32(f.batch, f.rows, f.columns, f.is_vector, kPartials, first, count, grid.per_group);
  push.add(t.beta2_decay(), t.eps() == 0 ? 0x1p-23f : t.eps(), t.eps2(), t.update_clip());
  push.add(t.weight_decay(), t.learning_rate_factor());
  const auto n = static_cast<double>(f.elements());
  l.dispatch(shader, {}, push, grid, {n * 10, n * 8});
}

void adafactor_storage(Launch& l, const Factored& f) {
  // Rows that one dispatch adds, because software devices limit the iterations of a loop.
  constexpr uint64_t kRun = 16384;
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

void round_weights(Launch& l, VkDeviceAddress masters, VkDeviceAddress weights, uint64_t n) {
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(masters, weights);
  l.push_step_words(push);
  push.u32(n, grid.per_group);
  const auto elements = static_cast<double>(n);
  l.dispatch(shader::adafactor_round, {}, push, grid,
             {elements, elements * (4 + l.element_bytes())});
}

// Barriers separate the storages, because they share the workspace.
void adafactor(Launch& l) {
  const size_t values = updated_values(l.type(), l.inputs());
  const bool matrices = l.inputs() == (values == 0 ? 5 : 6);
  const auto weights = l.in_list(values), rounded = l.in_list(0), grads = l.in_list(1),
             rows = l.in_list(3);
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
    if (values != 0) {
      l.barrier();
      round_weights(l, f.w, rounded[e].address, n);
    }
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(adafactor, .launch = adafactor, .workspace = adafactor_workspace,
                          .refusal = adafactor_refusal);

}  // namespace bowline::detail::vulkan::adafactor_kernels
