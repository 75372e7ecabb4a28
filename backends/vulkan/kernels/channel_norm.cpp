//! ops(f32, f16, bf16) BatchNorm BatchNormGrad GroupNorm InstanceNorm GroupNormGrad
// Norms over channels: one subgroup per channel of the batch, or per group of a sample.
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::channel_norm_kernels {
namespace {

// [batch, channels, elements of a plane].
struct Planes {
  explicit Planes(const Shape& x) : batch(x[0]), channels(x[1]), plane(x.elements(2, x.rank())) {}
  uint64_t of_channel() const { return static_cast<uint64_t>(batch * plane); }

  int64_t batch, channels, plane;
};

// The elements of a channel, from its first element on.
Loops<1> channel_loops(const Planes& p) {
  Loops<1> loops;
  loops.add(p.batch, {p.channels * p.plane});
  loops.add(p.plane, {1});
  return loops;
}

void finish(Push& push, const Planes& p, float eps, float momentum) {
  push.u32(p.channels, p.of_channel(), p.plane).f32(eps);
  push.f32(momentum);
}

void batch_norm(Launch& l) {
  const auto& t = l.attributes<BatchNormAttributes>();
  const Planes p(l.in_shape(0));
  const Loops<1> loops = channel_loops(p);
  Push push;
  push.add(l.in(0), l.in(1), l.in(2), l.out(1), l.out(2), l.out(0), l.out(3), l.out(4))
      .table(l.table(words_of(loops)));
  l.push_step_words(push);
  finish(push, p, t.eps(), t.momentum());
  l.dispatch(shader::batch_norm_forward, {rank_of(loops)}, push, l.over_rows(p.channels),
             l.each(l.in_shape(0).elements(), 20, 4));
}

void batch_norm_grad(Launch& l) {
  const Planes p(l.in_shape(0));
  const Loops<1> loops = channel_loops(p);
  Push push;
  push.add(l.in(0), l.in(1), l.in(2), l.in(3), l.in(4), l.out(0), l.out(1), l.out(2))
      .table(l.table(words_of(loops)));
  l.push_step_words(push);
  finish(push, p, 0, 0);
  l.dispatch(shader::batch_norm_backward, {rank_of(loops)}, push, l.over_rows(p.channels),
             l.each(l.in_shape(0).elements(), 20, 5));
}

// Three loops over a channel; each lane processes every S-th element.
const char* batch_refusal(const NodeView& node) {
  const Planes p(node.in(0));
  return node.physical.is_software() &&
                 p.batch * p.plane > kMaxIterations / 3 * node.physical.subgroup_size
             ? "A channel is longer than the loops of a software device run."
             : nullptr;
}

void push_group(Launch& l, Push& push, const Loops<1>& loops, const Planes& p, int64_t rows,
                int64_t groups, float eps) {
  const int64_t channels = groups == 0 ? 0 : p.channels / groups;
  push.table(l.table(words_of(loops))).u32(rows, channels * p.plane, groups);
  push.u32(channels, p.plane, p.batch).f32(eps);
}

// Maps an element of a group to the channel of the group.
Loops<1> group_loops(const Planes& p, int64_t groups) {
  Loops<1> loops;
  loops.add(groups == 0 ? 0 : p.channels / groups, {1});
  loops.add(p.plane, {0});
  return loops;
}

void normalise(Launch& l, int64_t groups, float eps) {
  const Planes p(l.in_shape(0));
  if (l.in_shape(0).elements() == 0) {
    return;
  }
  const Loops<1> loops = group_loops(p, groups);
  Push push;
  push.add(l.in(0), l.in(1), l.in(2), l.out(0), uint64_t{0}, uint64_t{0}, uint64_t{0});
  push_group(l, push, loops, p, p.batch * groups, groups, eps);
  l.dispatch(shader::group_norm_forward, {rank_of(loops)}, push, l.over_rows(p.batch * groups),
             l.each(l.in_shape(0).elements(), 20, 4));
}

void group_norm(Launch& l) {
  const auto& t = l.attributes<GroupNormAttributes>();
  normalise(l, t.groups(), t.eps());
}
void instance_norm(Launch& l) {
  normalise(l, l.in_shape(0)[1], l.attributes<InstanceNormAttributes>().eps());
}

uint64_t group_norm_grad_workspace(const NodeView& node) {
  return static_cast<uint64_t>(node.in(0)[0] * node.attributes<GroupNormAttributes>().groups()) * 8;
}

void group_norm_grad(Launch& l) {
  const auto& t = l.attributes<GroupNormAttributes>();
  const Planes p(l.in_shape(0));
  const Loops<1> loops = group_loops(p, t.groups());
  const auto dispatch = [&](const shader::ByType& shader, int64_t rows) {
    Push push;
    push.add(l.in(0), l.in(1), l.in(2), l.out(0), l.out(1), l.out(2), l.workspace());
    push_group(l, push, loops, p, rows, t.groups(), t.eps());
    l.dispatch(shader, {rank_of(loops)}, push, l.over_rows(rows),
               l.each(l.in_shape(0).elements(), 20, 5));
  };
  if (l.in_shape(0).elements() > 0) {
    dispatch(shader::group_norm_backward, p.batch * t.groups());
    l.barrier();
  }
  dispatch(shader::group_norm_channels, p.channels);
}

// Four loops over a group, or over the samples of a channel.
const char* group_refusal(const NodeView& node) {
  const Planes p(node.in(0));
  const int64_t lanes = node.physical.subgroup_size;
  const bool too_long = p.channels * p.plane > kMaxIterations / 4 * lanes ||
                        p.batch * (1 + (p.plane + lanes - 1) / lanes) > kMaxIterations;
  return node.physical.is_software() && too_long
             ? "A sample or a channel is longer than the loops of a software device run."
             : nullptr;
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(batch_norm, .launch = batch_norm, .refusal = batch_refusal);
BOWLINE_KERNELS_OF_FLOATS(batch_norm_grad, .launch = batch_norm_grad, .refusal = batch_refusal);
BOWLINE_KERNELS_OF_FLOATS(group_norm, .launch = group_norm, .refusal = group_refusal);
BOWLINE_KERNELS_OF_FLOATS(instance_norm, .launch = instance_norm, .refusal = group_refusal);
BOWLINE_KERNELS_OF_FLOATS(group_norm_grad, .launch = group_norm_grad,
                          .workspace = group_norm_grad_workspace, .refusal = group_refusal);

}  // namespace bowline::detail::vulkan::channel_norm_kernels
