//! ops(f32, f16, bf16) Lstm LstmGrad Gru GruGrad
// Recurrent layers: one dispatch per step, or two for a Gru without reset_after. Values passed
// between steps are f32, in the workspace.
#include "core/recurrent.h"

#include <algorithm>

#include "convert.h"
#include "kernel.h"

namespace bowline::detail::vulkan::recurrent_kernels {
namespace {

constexpr uint64_t kRows = 4;  // batch rows that a subgroup, or an invocation, processes at once

struct Layer : RecurrentLayer {
  explicit Layer(const Launch& l) : RecurrentLayer(recurrent_layer_of(l.record())) {}

  uint64_t blocks() const { return units * ((batch + kRows - 1) / kRows); }
  double products() const { return 2 * static_cast<double>(gates * units * state()); }
};

// A loop over all rows of the weight.
template <size_t kWeight>
const char* refusal(const NodeView& node) {
  return refuse_loops(node, node.in(kWeight)[0],
                      "A layer has more units than the loops of a software device run.");
}

// The address of a step in an operand of the storage dtype, with `each` elements per step.
VkDeviceAddress at_step(const Launch& l, VkDeviceAddress base, uint64_t step, uint64_t each) {
  return base + step * each * size_of(l.type());
}

// Forward: two buffers alternate between the state before a step and the state after it; without
// reset_after, r * h and z have buffers too. Backward: two buffers alternate for the gradients of
// the products; a Gru also has a buffer for dh.
uint64_t workspace(const NodeView& node) {
  const RecurrentLayer layer = recurrent_layer_of(node.query);
  const uint64_t state = buffer_bytes(layer.state());
  if (node.query.op == Op::Lstm || node.query.op == Op::Gru) {
    return state * (layer.reset_after ? 2 : 4);
  }
  return 2 * buffer_bytes(layer.gates * layer.state()) + (layer.gates == 3 ? state : 0);
}

struct States {
  VkDeviceAddress at[4];
  States(const Launch& l, const Layer& layer) {
    for (uint64_t i = 0; i < 4; ++i) {
      at[i] = l.workspace() + i * buffer_bytes(layer.state());
    }
  }
};

void dispatch(Launch& l, const Layer& layer, const shader::ByType& shader, const Push& push,
              double share) {
  l.dispatch(shader, {}, push, l.over_rows(layer.blocks()), {layer.products() * share, 0});
}

void lstm(Launch& l) {
  const Layer layer(l);
  const States states(l, layer);
  convert(l, l.in(2), l.type(), states.at[0], DType::f32, layer.state());
  for (uint64_t i = 0; i < layer.steps; ++i) {
    const uint64_t t = layer.at(i);
    const auto c_at = [&](uint64_t step) { return l.out(1) + step * layer.state() * 4; };
    Push push;
    push.add(at_step(l, l.in(0), t, 4 * layer.state()), l.in(1), states.at[i % 2],
             states.at[(i + 1) % 2]);
    push.add(at_step(l, l.out(0), t, layer.state()), at_step(l, l.out(2), t, 4 * layer.state()),
             i == 0 ? l.in(3) : c_at(layer.at(i - 1)), c_at(t))
        .u32(layer.batch, layer.units, 0);
    l.barrier();
    dispatch(l, layer, shader::recurrent_lstm, push, 1);
  }
}

void gru(Launch& l) {
  const Layer layer(l);
  const States states(l, layer);
  const VkDeviceAddress bias = l.inputs() > 3 ? l.in(3) : 0;
  const auto run = [&](const shader::ByType& shader, uint64_t t, VkDeviceAddress h,
                       VkDeviceAddress next_h, VkDeviceAddress old_h, double share) {
    Push push;
    push.add(at_step(l, l.in(0), t, 3 * layer.state()), l.in(1), h, next_h,
             at_step(l, l.out(0), t, layer.state()), at_step(l, l.out(1), t, 3 * layer.state()),
             bias, at_step(l, l.out(2), t, layer.state()), states.at[3], old_h);
    push.u32(layer.batch, layer.units, bias != 0);
    l.barrier();
    dispatch(l, layer, shader, push, share);
  };
  convert(l, l.in(2), l.type(), states.at[0], DType::f32, layer.state());
  for (uint64_t i = 0; i < layer.steps; ++i) {
    const uint64_t t = layer.at(i);
    const VkDeviceAddress h = states.at[i % 2], next_h = states.at[(i + 1) % 2];
    if (layer.reset_after) {
      run(shader::recurrent_gru, t, h, next_h, h, 1);
      continue;
    }
    run(shader::recurrent_gru_gates, t, h, states.at[2], h, 2.0 / 3);
    run(shader::recurrent_gru_new, t, states.at[2], next_h, h, 1.0 / 3);
  }
}

// The buffers of workspace().
struct Behind {
  VkDeviceAddress at[2];
  VkDeviceAddress dh;
  Behind(const Launch& l, const Layer& layer) {
    const uint64_t each = buffer_bytes(layer.gates * layer.state());
    at[0] = l.workspace();
    at[1] = at[0] + each;
    dh = at[1] + each;
  }
};

void dispatch_grad(Launch& l, const Layer& layer, const shader::ByType& shader, Push push,
                   uint64_t from, uint64_t depth, uint32_t flags) {
  const Grid grid = l.over_single_elements(layer.blocks());
  push.u32(layer.batch, layer.units, from, depth, flags, grid.per_group);
  l.barrier();
  l.dispatch(shader, {}, push, grid,
             {layer.products() * static_cast<double>(std::max<uint64_t>(depth, 1)) /
                  static_cast<double>(layer.gates * layer.units),
              0});
}

constexpr uint32_t kEnds = 1;
constexpr uint32_t kHasMore = 2;  // dc of an Lstm, reset_after of a Gru

void lstm_grad(Launch& l) {
  const Layer layer(l);
  const Behind behind(l, layer);
  const VkDeviceAddress dc_in = l.inputs() > 5 ? l.in(5) : 0;
  // Step i of the running steps; -1 computes the gradient of the first state.
  for (auto i = static_cast<int64_t>(layer.steps) - 1; i >= -1; --i) {
    const auto number = static_cast<uint64_t>(std::max<int64_t>(i, 0));
    const uint64_t t = layer.steps == 0 ? 0 : layer.at(number);
    const bool is_last = number + 1 >= layer.steps && i >= 0;
    const auto f32_at = [&](VkDeviceAddress base, uint64_t step) {
      return base + step * layer.state() * 4;
    };
    Push push;
    push.add(at_step(l, l.in(0), t, 4 * layer.state()), l.in(1),
             behind.at[static_cast<uint64_t>(i + 2) % 2],
             behind.at[static_cast<uint64_t>(i + 1) % 2]);
    push.add(i > 0 ? f32_at(l.in(3), layer.at(number - 1)) : l.in(2), f32_at(l.in(3), t),
             at_step(l, l.in(4), t, layer.state()), dc_in == 0 ? 0 : f32_at(dc_in, t), l.out(2),
             at_step(l, l.out(0), t, 4 * layer.state()), l.out(1));
    dispatch_grad(l, layer, shader::recurrent_grad_lstm, push, 0,
                  is_last || layer.steps == 0 ? 0 : 4 * layer.units,
                  (i < 0 ? kEnds : 0) | (dc_in != 0 ? kHasMore : 0));
  }
}

void gru_grad(Launch& l) {
  const Layer layer(l);
  const Behind behind(l, layer);
  for (auto i = static_cast<int64_t>(layer.steps) - 1; i >= -1; --i) {
    const auto number = static_cast<uint64_t>(std::max<int64_t>(i, 0));
    const uint64_t t = layer.steps == 0 ? 0 : layer.at(number);
    const bool is_last = number + 1 >= layer.steps && i >= 0;
    const VkDeviceAddress made = behind.at[static_cast<uint64_t>(i + 1) % 2];
    const auto push_of = [&](VkDeviceAddress from) {
      Push push;
      push.add(at_step(l, l.in(0), t, 3 * layer.state()), l.in(2), from, made,
               at_step(l, l.in(1), t, layer.state()),
               i > 0 ? at_step(l, l.in(4), layer.at(number - 1), layer.state()) : l.in(3),
               at_step(l, l.in(5), t, layer.state()), at_step(l, l.out(1), t, layer.state()),
               behind.dh);
      push.add(at_step(l, l.out(0), t, 3 * layer.state()), l.out(2));
      return push;
    };
    const uint64_t through = (layer.reset_after ? 3 : 2) * layer.units;
    dispatch_grad(l, layer, shader::recurrent_grad_gru,
                  push_of(behind.at[static_cast<uint64_t>(i + 2) % 2]), 0,
                  is_last || layer.steps == 0 ? 0 : through,
                  (i < 0 ? kEnds : 0) | (layer.reset_after ? kHasMore : 0));
    if (!layer.reset_after && i >= 0) {
      dispatch_grad(l, layer, shader::recurrent_grad_gru_reset, push_of(made), 2 * layer.units,
                    layer.units, 0);
    }
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(lstm, .launch = lstm, .workspace = workspace, .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(gru, .launch = gru, .workspace = workspace, .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(lstm_grad, .launch = lstm_grad, .workspace = workspace,
                          .refusal = refusal<1>);
BOWLINE_KERNELS_OF_FLOATS(gru_grad, .launch = gru_grad, .workspace = workspace,
                          .refusal = refusal<2>);

}  // namespace bowline::detail::vulkan::recurrent_kernels
