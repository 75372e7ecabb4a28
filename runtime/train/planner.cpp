#include "train/planner.h"

#include "graph/bind.h"
#include "graph/fuse.h"
#include "graph/precision.h"
#include "graph/updates.h"
#include "model/checksum.h"
#include "plan/listing.h"
#include "train/optimizer.h"
#include "train/options.h"

namespace bowline::detail::train {
namespace {

using graph::BoundGraph;
using graph::ValueId;

Result<ValueId> output_named(const BoundGraph& g, std::string_view name) {
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.output_names[i] == name) {
      return g.outputs[i];
    }
  }
  return Status(Code::bad_argument, format("Graph \"{}\" has no output \"{}\".", g.name, name));
}

void keep_output(BoundGraph& g, ValueId value, const std::string& name) {
  g.outputs = {value};
  g.output_names = {name};
}

// Lets the update read its only input, the loss, where the accumulate segment writes it.
void read_loss_at(plan::Plan& update, uint64_t offset) {
  for (device::Record& r : update.program.records) {
    for (device::Operand& o : r.inputs) {
      if (o.slot == device::kIoSlot) {
        o.offset = offset;
      }
    }
  }
}

bool has_f16(const BoundGraph& g) {
  return std::ranges::any_of(g.values,
                             [](const graph::BoundValue& v) { return v.dtype == DType::f16; }) ||
         std::ranges::any_of(g.nodes, [](const graph::BoundNode& n) {
           return n.repeat && has_f16(*n.repeat->body);
         });
}

// Marks the storages whose gradient rows the graph writes.
void mark_written(const BoundGraph& g, const params::Table& table, std::vector<char>& written) {
  for (const graph::BoundNode& node : g.nodes) {
    if (op_def(node.op).gradient_rows == GradientRows::added) {
      for (const graph::StorageUse& u : g[node.inputs[0]].uses) {
        if (u.elements != 0) {
          written[static_cast<size_t>(table.storages[u.tie].owner)] = 1;
        }
      }
    }
    if (node.repeat) {
      mark_written(*node.repeat->body, table, written);
    }
  }
}

// Errors  unsupported: one of these storages, which the graph writes, is not a running statistic.
Status check_states(const graph::GenericGraph& graph, const params::Table& table,
                    std::span<const uint32_t> states) {
  for (const uint32_t tie : states) {
    const params::Storage& state = table.storages[tie];
    BOWLINE_REQUIRE_CODE(state.role == params::Role::running_statistic, Code::unsupported,
                         "Graph \"{}\" writes storage {}, a {}. During training, a graph may only "
                         "write running statistics.",
                         graph.name, tie, bowline::name_of(state.role));
  }
  return {};
}

}  // namespace

Status Planner::check_gradients(const BoundGraph& graph, const params::Table& table) const {
  std::vector<char> written(table.storages.size());
  mark_written(graph, table, written);
  for (const uint32_t tie : trained(table)) {
    if (written[tie] != 0) {
      continue;
    }
    std::string names;
    for (const uint32_t p : sorted(table.users(tie))) {
      names += (names.empty() ? "" : ", ") + table.parameters[p].name;
    }
    return Status(Code::bad_argument,
                  format("The loss \"{}\" gives no gradient to the trainable storage {} ({}).",
                         options_.loss, tie, names));
  }
  return {};
}

Result<BoundLoss> Planner::bound_loss(std::span<const BoundDim> dims,
                                      std::optional<DType> compute) const {
  const graph::GenericGraph* generic = model_.entry_points.find(options_.entry_point);
  BOWLINE_REQUIRE(generic != nullptr, "The model has no entry point \"{}\".", options_.entry_point);
  BOWLINE_TRY_ASSIGN(const auto states, graph::written_storages(*generic, model_.table));
  BOWLINE_TRY(check_states(*generic, model_.table, states));
  BoundLoss out;
  BOWLINE_TRY_ASSIGN(
      out.graph, graph::bind(*generic, model_, dims, options_.precision.compute_dtype, compute));
  BOWLINE_TRY_ASSIGN(out.loss, output_named(out.graph, options_.loss));
  keep_output(out.graph, out.loss, options_.loss);
  prune(out.graph);
  BOWLINE_TRY_ASSIGN(out.graph.outputs[0], graph::in_f32(out.graph, out.graph.outputs[0]));
  out.loss = out.graph.outputs[0];
  return out;
}

Result<std::vector<BoundLoss>> Planner::bound_losses(std::optional<DType> compute) const {
  std::vector<BoundLoss> out;
  for (const std::vector<BoundDim>& dims : sets_of_dims(options_)) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), bound_loss(dims, compute));
  }
  return out;
}

Result<uint64_t> Planner::graph_hash() const {
  BOWLINE_TRY_ASSIGN(const std::vector<BoundLoss> bound, bound_losses({}));
  std::string text;
  for (const BoundLoss& b : bound) {
    text += plan::list_nodes(b.graph, 0, b.graph.nodes.size()) +
            plan::list_repeat_lists(plan::describe_repeat_lists(b.graph));
  }
  return model::checksum(std::as_bytes(std::span(text)));
}

std::vector<const plan::Plan*> Plans::all() const {
  std::vector<const plan::Plan*> out;
  for (const PlannedSet& set : sets) {
    out.insert(out.end(), {&set.accumulate, &set.update, &set.evaluate});
    if (set.weigh) {
      out.push_back(&*set.weigh);
    }
  }
  return out;
}

// Returns one loss per set of dims, or none if one weight suits all terms of a micro-batch.
Result<std::vector<graph::FactoredLoss>> Planner::factored_losses(
    std::span<const BoundLoss> bound, const graph::GradientOptions& options) const {
  std::vector<graph::FactoredLoss> out;
  bool one_weight = true;
  for (size_t i = 0; options_.accumulation > 1 && i < bound.size(); ++i) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), graph::factored_loss(bound[i].graph, bound[i].loss,
                                                                options, bound.size() == 1));
    one_weight = one_weight && out[i].has_one_weight;
    BOWLINE_REQUIRE_CODE(
        out[i].means.size() == out[0].means.size(), Code::internal,
        "The loss has {} means with some dims and {} with others. This is a bug in Bowline: please "
        "report it. Until it is fixed, train with an accumulation of 1.",
        out[0].means.size(), out[i].means.size());
  }
  return one_weight ? std::vector<graph::FactoredLoss>() : std::move(out);
}

Result<Plans> Planner::make(std::span<const BoundLoss> bound, const params::Table& staged,
                            const device::OpenDevice& device,
                            const graph::GradientOptions& options) const {
  Plans p;
  plan::StepLayout layout;  // one for all plans: the update reads what the accumulate segment wrote
  const auto lower = [&](const BoundGraph& g, const char* name) {
    return plan::lower(g, name, device, layout, options_.budget);
  };
  BOWLINE_TRY_ASSIGN(std::vector<graph::FactoredLoss> factored, factored_losses(bound, options));
  for (const BoundLoss& b : bound) {
    PlannedSet& set = p.sets.emplace_back();
    BoundGraph evaluated = graph::deep_copy(b.graph);
    graph::GradientOptions weighted = options;
    weighted.weighs_loss = options_.accumulation > 1 && factored.empty();
    weighted.weight_unit = p.sets.size() == 1 ? 0 : p.weight_unit;
    BoundLoss trained{graph::deep_copy(b.graph), b.loss};
    if (!factored.empty()) {
      graph::FactoredLoss& f = factored[p.sets.size() - 1];
      trained = {std::move(f.graph), f.loss};
      set.means = std::move(f.means);
      graph::drop_what_trains(f.weights);
      plan::derive_copies(f.weights, staged);
      BOWLINE_TRY_ASSIGN(set.weigh.emplace(), lower(f.weights, "weights of the loss"));
    }
    graph::pack_attention(trained.graph, device);
    BOWLINE_TRY_ASSIGN(set.training,
                       graph::differentiate(std::move(trained.graph), trained.loss, weighted));
    p.weight_unit = set.training.weight_unit;
    BOWLINE_TRY(check_gradients(set.training.graph, staged));
    p.dynamic_scale =
        p.dynamic_scale || (options_.precision.loss_scale == 0 && has_f16(set.training.graph));
    graph::drop_what_trains(evaluated);
    graph::pack_attention(evaluated, device);
    plan::derive_copies(evaluated, staged);
    set.training.backward_begin =
        plan::derive_copies(set.training.graph, staged, set.training.backward_begin);
    for (const auto fuse : {graph::fuse_products, graph::fuse_norm_gradients,
                            graph::fuse_bias_gradients, graph::fuse_losses}) {
      set.training.backward_begin = fuse(set.training.graph, device, set.training.backward_begin);
    }
    (void)graph::fuse_products(evaluated, device, 0);
    if (p.update_graph.nodes.empty()) {
      BOWLINE_TRY_ASSIGN(p.update_graph, update_graph(staged, options_, set.training.graph));
    }
    BOWLINE_TRY_ASSIGN(set.accumulate, lower(set.training.graph, "accumulate"));
    BOWLINE_TRY_ASSIGN(set.update, lower(p.update_graph, "update"));
    BOWLINE_TRY_ASSIGN(set.evaluate, lower(evaluated, "forward"));
    read_loss_at(set.update, set.accumulate.outputs[0].offset);
  }
  p.steps.emplace(layout);
  for (const PlannedSet& set : p.sets) {
    BOWLINE_TRY(p.steps->check(set.evaluate));
    BOWLINE_TRY(set.weigh ? p.steps->check(*set.weigh) : Status());
  }
  fill_(*p.steps);
  for (const PlannedSet& set : p.sets) {
    BOWLINE_TRY(p.steps->check(set.accumulate));
    BOWLINE_TRY(p.steps->check(set.update));
  }
  for (const plan::Plan* plan : p.all()) {
    p.sizes.cover(*plan, layout);
  }
  return p;
}

// A batch selects its set of dims by the shapes of its inputs, so the sets must differ.
Status Planner::check_distinct(const Plans& p) const {
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options_);
  for (size_t i = 0; i < p.sets.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool same = std::ranges::equal(p.sets[i].accumulate.inputs, p.sets[j].accumulate.inputs,
                                           {}, &plan::IoRange::shape, &plan::IoRange::shape);
      BOWLINE_REQUIRE(!same,
                      "The dims {} and {} give batches of the same shapes, so the trainer cannot "
                      "tell them apart.",
                      text_of(dims[j]), text_of(dims[i]));
    }
  }
  return {};
}

}  // namespace bowline::detail::train
