#include "api/describe.h"

#include <set>

#include "params/describe.h"

namespace bowline::detail::api {
namespace {

using graph::GenericGraph;
using graph::GenericNode;
using graph::ValueId;

NodeValueInfo describe_value(const GenericGraph& g, ValueId v) {
  using Kind = NodeValueInfo::Kind;
  const graph::GenericValue& value = g[v];
  const Kind kind = value.kind == graph::ValueKind::input       ? Kind::input
                    : value.kind == graph::ValueKind::parameter ? Kind::parameter
                                                                : Kind::result;
  return {kind, v, value.dtype, value.parameters};
}

NodeInfo describe(const GenericGraph& g, const GenericNode& node) {
  NodeInfo out;
  out.op = format("{}", node.op);
  out.name = node.name;
  for (const ValueId v : node.inputs) {
    out.inputs.push_back(describe_value(g, v));
  }
  for (const ValueId v : node.outputs) {
    out.outputs.push_back(describe_value(g, v));
  }
  if (!node.repeat) {
    out.attributes = attributes_list(node.op, node.attributes);
    return out;
  }
  const GenericGraph& body = *node.repeat->body;
  out.count = node.repeat->count;
  out.body_inputs = body.inputs;
  out.body_outputs = body.outputs;
  for (const GenericNode& inner : body.nodes) {
    out.body.push_back(describe(body, inner));
  }
  return out;
}

bool has_named_size(const GenericGraph& g) {
  return std::ranges::any_of(g.nodes, [](const GenericNode& node) {
    return node.repeat ? has_named_size(*node.repeat->body) : !node.attributes.dims().empty();
  });
}

// True if the shapes do not depend on dims. Otherwise they are known only for probe values.
bool has_fixed_shapes(const GenericGraph& g) {
  return !has_named_size(g) && std::ranges::all_of(g.inputs, [&](ValueId v) {
    return std::ranges::all_of(g[v].dims, [](const GraphDim& d) { return d.name.empty(); });
  });
}

// Adds the storages that the operators of the graph update.
void add_updates(const GenericGraph& g, const params::Table& table, std::set<uint32_t>& ties) {
  for (const GenericNode& node : g.nodes) {
    for (const InPlace& pair : op_def(node.op).updates) {
      if (pair.output < 0) {
        continue;
      }
      for (const uint32_t p : g[node.inputs[static_cast<size_t>(pair.input)]].parameters) {
        ties.insert(table.parameters[p].tie);
      }
    }
  }
}

EntryPointInfo describe(const GenericGraph& g, const params::Table& table) {
  EntryPointInfo out;
  out.name = g.name;
  for (const ValueId v : g.inputs) {
    out.inputs.push_back({g[v].name, g[v].dtype, g[v].dims, v});
  }
  const bool fixed = has_fixed_shapes(g);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const graph::GenericValue& value = g[g.outputs[i]];
    OutputInfo& info = out.outputs.emplace_back();
    info.name = g.output_names[i];
    info.dtype = value.dtype;
    info.rank = static_cast<uint32_t>(value.shape.rank());
    info.value = g.outputs[i];
    if (fixed) {
      info.shape = value.shape.dims();
    }
  }
  std::set<uint32_t> ties;
  for (const GenericGraph* const each : graph::with_bodies(g)) {
    add_updates(*each, table, ties);
  }
  out.updates.assign(ties.begin(), ties.end());
  for (const GenericNode& node : g.nodes) {
    out.nodes.push_back(describe(g, node));
  }
  return out;
}

std::vector<TensorInfo> describe(const std::vector<model::SelfTestTensor>& tensors) {
  std::vector<TensorInfo> out;
  for (const model::SelfTestTensor& t : tensors) {
    out.push_back({t.name, t.dtype, t.shape});
  }
  return out;
}

TrainingInfo describe(const model::TrainingState& t) {
  TrainingInfo out;
  out.step = t.step;
  out.applied_steps = t.applied_steps;
  out.micro_step = t.micro_step;
  out.epoch = t.epoch;
  out.data_cursor = t.sample_cursor;
  out.data_seed = t.shuffle_seed;
  out.seed = t.rng_seed;
  out.counter = t.rng_counter;
  out.learning_rate = t.learning_rate;
  out.run = t.run;
  out.config = t.config;
  out.versions = t.versions;
  return out;
}

}  // namespace

ModelInfo describe(const graph::ModelState& state) {
  ModelInfo out;
  out.parameters = params::describe_parameters(state.table);
  out.storages = params::describe_storages(state.table);
  out.ties = params::describe_ties(state.table);
  out.dims = state.entry_points.dims;
  for (const GenericGraph& g : state.entry_points.graphs) {
    out.entry_points.push_back(describe(g, state.table));
  }
  out.metadata = state.extras.metadata;
  for (const model::Asset& a : state.extras.assets) {
    out.assets.push_back({a.name, a.media_type, a.range->length});
  }
  for (const model::SelfTest& t : state.extras.self_tests) {
    out.self_tests.push_back(
        {t.graph, describe(t.inputs), describe(t.outputs), t.relative_tolerance});
  }
  out.base = state.extras.base;
  if (state.extras.training) {
    out.training = describe(*state.extras.training);
  }
  return out;
}

}  // namespace bowline::detail::api
