// Builds a recipe as a model of the library and trains it on a device.
#include <algorithm>
#include <cstring>
#include <map>

#include "conformance/random/recipe.h"
#include "graph/model_state.h"

namespace bowline::conformance::random {
namespace {

using Dims = std::vector<int64_t>;

Dims sizes_of(const Shape& s) { return {s.dims().begin(), s.dims().end()}; }

std::string input_name(const Node& node) { return format("x{}", node.item); }

// Returns the name of a parameter that shows the whole storage.
std::string whole_name(const Recipe& recipe, size_t storage) {
  const auto p = declaring_parameter(recipe, storage);
  return p ? parameter_name(*p) : storage_name(storage);
}

// Adds graphs of the recipe to the model.
class Builder {
 public:
  Builder(std::span<const bowline::Parameter> parameters, bool as_repeat)
      : parameters_(parameters), as_repeat_(as_repeat) {}

  using Values = std::vector<std::vector<Value>>;  // by node and output

  // Adds the nodes of `g` to `b`. In an unrolled body, `iteration` selects the parameters.
  std::vector<Value> add(GraphBuilder& b, const Graph& g, const Values* outer,
                         const std::vector<Value>& carried, int iteration) {
    Values at(g.nodes.size());
    const bool inside = outer != nullptr && as_repeat_;
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      const Node& node = g.nodes[n];
      switch (node.kind) {
        case Node::Kind::input: {
          const Dims d = sizes_of(node.shapes[0]);
          at[n] = {b.input(input_name(node), node.classes > 0 ? DType::i32 : DType::f32,
                           {d.begin(), d.end()})};
          break;
        }
        case Node::Kind::parameter:
          at[n] = {inside ? b.parameter(list(node)) : b.parameter(one(node, iteration))};
          break;
        case Node::Kind::carried:
          at[n] = {carried[node.item]};
          break;
        case Node::Kind::capture: {
          const Value v = (*outer)[node.outer.node][node.outer.output];
          at[n] = {inside ? b.capture(v) : v};
          break;
        }
        case Node::Kind::op:
          b.op(name_of(node.op), values_of(node.inputs, at), node.attributes);
          at[n] = b.last_outputs();
          at[n].resize(node.shapes.size());
          break;
        case Node::Kind::repeat:
          at[n] = repeat(b, node, at);
          at[n].resize(node.shapes.size());
          break;
      }
    }
    return values_of(g.outputs, at);
  }

 private:
  static std::vector<Value> values_of(const std::vector<Ref>& refs, const Values& at) {
    std::vector<Value> out;
    for (const Ref r : refs) {
      out.push_back(at[r.node][r.output]);
    }
    return out;
  }

  std::vector<Value> repeat(GraphBuilder& b, const Node& node, const Values& at) {
    std::vector<Value> carried = values_of(node.inputs, at);
    const Graph& body = node.body[0];
    if (as_repeat_) {
      return b.repeat(static_cast<int>(node.count), carried,
                      [&](GraphBuilder& inner, const std::vector<Value>& entering) {
                        return add(inner, body, &at, entering, 0);
                      });
    }
    for (uint32_t i = 0; i < node.count; ++i) {
      carried = add(b, body, &at, carried, static_cast<int>(i));
    }
    return carried;
  }

  bowline::ParameterList list(const Node& node) const {
    bowline::ParameterList out;
    for (const uint32_t p : node.parameters) {
      out.items.push_back(parameters_[p]);
    }
    return out;
  }
  bowline::Parameter one(const Node& node, int iteration) const {
    return parameters_
        [node.parameters[node.parameters.size() == 1 ? 0 : static_cast<size_t>(iteration)]];
  }

  std::span<const bowline::Parameter> parameters_;
  bool as_repeat_;
};

// Declares storages and parameters. Parameters that a verb ties later have their own storage here.
Result<std::vector<bowline::Parameter>> declare(Model& m, const Recipe& recipe) {
  std::vector<bowline::Parameter> whole;
  for (size_t s = 0; s < recipe.storages.size(); ++s) {
    BOWLINE_TRY_ASSIGN(
        const bowline::Parameter p,
        m.parameter(whole_name(recipe, s), sizes_of(recipe.storages[s].shape), Init::zeros()));
    whole.push_back(p);
  }
  std::vector<bowline::Parameter> out;
  for (size_t i = 0; i < recipe.parameters.size(); ++i) {
    const ParameterRow& row = recipe.parameters[i];
    const StorageRow& storage = recipe.storages[row.storage];
    if (declaring_parameter(recipe, row.storage) == i) {
      out.push_back(whole[row.storage]);
    } else if (row.by_verb) {
      BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(row.view, storage.shape));
      BOWLINE_TRY_ASSIGN(const bowline::Parameter p,
                         m.parameter(parameter_name(i), sizes_of(shape), Init::zeros()));
      out.push_back(p);
    } else {
      BOWLINE_TRY_ASSIGN(const bowline::Parameter p,
                         m.tied_parameter(parameter_name(i), whole[row.storage], row.view));
      out.push_back(p);
    }
  }
  return out;
}

Status tie_by_verb(Model& m, const Recipe& recipe) {
  for (size_t i = 0; i < recipe.parameters.size(); ++i) {
    const ParameterRow& row = recipe.parameters[i];
    if (row.by_verb) {
      BOWLINE_TRY(m.tie(whole_name(recipe, row.storage), parameter_name(i), row.view).status());
    }
  }
  return {};
}

Status fill(Model& m, const Recipe& recipe) {
  BOWLINE_TRY(m.materialize(1));
  for (size_t s = 0; s < recipe.storages.size(); ++s) {
    std::vector<float> values = recipe.storages[s].values;
    const Dims dims = sizes_of(recipe.storages[s].shape);
    const std::string name = whole_name(recipe, s);
    BOWLINE_TRY(m.set_value(name, {name, DType::f32, dims, values.data()}));
    if (recipe.storages[s].frozen) {
      BOWLINE_TRY(m.freeze(name));
    }
  }
  return {};
}

Status add_graph(Builder& builder, Model& m, const Graph& g, std::string_view name) {
  GraphBuilder b(m, name);
  const std::vector<Value> outputs = builder.add(b, g, nullptr, {}, 0);
  b.output(name, outputs[0]);
  return b.finish();
}

// One batch of an entry point with its bytes.
struct Batch {
  std::vector<std::vector<int32_t>> words;  // f32 as bits
  std::vector<std::string> names;
  std::vector<Dims> dims;
  std::vector<Tensor> tensors;

  Batch(const Recipe& recipe, const Graph& g, uint32_t number) {
    for (const Node& node : g.nodes) {
      if (node.kind != Node::Kind::input) {
        continue;
      }
      std::vector<int32_t>& w = words.emplace_back();
      for (const double v : batch_values(recipe, node, number)) {
        const auto f = static_cast<float>(v);
        const auto n = static_cast<int32_t>(v);
        std::memcpy(&w.emplace_back(), node.classes > 0 ? static_cast<const void*>(&n) : &f, 4);
      }
      names.push_back(input_name(node));
      dims.push_back(sizes_of(node.shapes[0]));
      tensors.push_back({{}, node.classes > 0 ? DType::i32 : DType::f32, {}, nullptr});
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].name = names[i];
      tensors[i].shape = dims[i];
      tensors[i].data = words[i].data();
    }
  }
};

std::vector<double> doubles(std::span<const float> from) { return {from.begin(), from.end()}; }

Status observe_probe(const Device& device, const Recipe& recipe, const Model& m, uint32_t batch,
                     Observation& out) {
  if (recipe.probe.nodes.empty()) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(Session session, Session::create(m, device, "probe", {}));
  Batch in(recipe, recipe.probe, batch);
  const Shape& shape = recipe.probe.shape(recipe.probe.outputs[0]);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  const Dims dims = sizes_of(shape);
  const Tensor result{"probe", DType::f32, dims, values.data()};
  BOWLINE_TRY(session.run(in.tensors, {&result, 1}));
  out.push_back({"output of the second entry point", doubles(values)});
  return {};
}

Status observe_parameters(const Recipe& recipe, const Model& m, Observation& out) {
  for (size_t p = 0; p < recipe.parameters.size(); ++p) {
    const ParameterRow& row = recipe.parameters[p];
    BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(row.view, recipe.storages[row.storage].shape));
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    const Dims dims = sizes_of(shape);
    const std::string name = parameter_name(p);
    BOWLINE_TRY(m.get_value(name, {name, DType::f32, dims, values.data()}));
    out.push_back({format("values of {}", name), doubles(values)});
  }
  return {};
}

Status observe_row(const Model& m, const ModelInfo& info, uint32_t tie, StorageRole role,
                   uint32_t slot, std::string name, Observation& out) {
  const auto row = std::ranges::find_if(info.storages, [&](const StorageInfo& r) {
    return r.owner == tie && r.role == role && r.slot == slot;
  });
  BOWLINE_REQUIRE(row != info.storages.end(), "There is no {}.", name);
  BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, m.storage_bytes(row->tie));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  out.push_back({std::move(name), doubles(values)});
  return {};
}

Status observe_owned(const Recipe& recipe, const Model& m, Observation& out) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, m.describe());
  for (size_t s = 0; s < recipe.storages.size(); ++s) {
    if (recipe.storages[s].frozen) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const Parameter p, m.find(whole_name(recipe, s)));
    const uint32_t tie = info.parameters[p.index].tie;
    BOWLINE_TRY(observe_row(m, info, tie, StorageRole::gradient, 0,
                            format("gradient of {}", storage_name(s)), out));
    const size_t moments = moments_of(recipe.options.optimizer, recipe.storages[s].shape).size();
    for (uint32_t k = 0; k < moments; ++k) {
      BOWLINE_TRY(observe_row(m, info, tie, StorageRole::moment, k,
                              format("moment {} of {}", k, storage_name(s)), out));
    }
  }
  return {};
}

}  // namespace

Result<Observation> train_on(const Device& device, const Recipe& recipe, bool as_repeat) {
  Model m;
  BOWLINE_TRY_ASSIGN(const std::vector<bowline::Parameter> parameters, declare(m, recipe));
  Builder builder(parameters, as_repeat);
  BOWLINE_TRY(add_graph(builder, m, recipe.loss, "loss"));
  if (!recipe.probe.nodes.empty()) {
    BOWLINE_TRY(add_graph(builder, m, recipe.probe, "probe"));
  }
  BOWLINE_TRY(tie_by_verb(m, recipe));
  BOWLINE_TRY(fill(m, recipe));
  BOWLINE_TRY(m.to(device));
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(m, device, recipe.options));
  Observation out;
  uint32_t batch = 0;
  for (uint32_t s = 0; s < recipe.steps; ++s) {
    std::vector<std::unique_ptr<Batch>> batches;
    std::vector<std::span<const Tensor>> tensors;
    for (uint32_t k = 0; k < recipe.options.accumulation; ++k, ++batch) {
      batches.push_back(std::make_unique<Batch>(recipe, recipe.loss, batch));
      tensors.emplace_back(batches.back()->tensors);
    }
    BOWLINE_TRY_ASSIGN(const StepReport report, trainer.step(tensors));
    out.push_back({format("loss of step {}", s + 1), {static_cast<double>(report.loss)}});
    out.push_back({format("norm of step {}", s + 1), {static_cast<double>(report.grad_norm)}});
  }
  Batch in(recipe, recipe.loss, batch);
  BOWLINE_TRY_ASSIGN(const float evaluated, trainer.evaluate(in.tensors));
  out.push_back({"evaluated loss", {static_cast<double>(evaluated)}});
  BOWLINE_TRY(observe_probe(device, recipe, m, batch, out));
  BOWLINE_TRY(observe_parameters(recipe, m, out));
  BOWLINE_TRY(observe_owned(recipe, m, out));
  return out;
}

}  // namespace bowline::conformance::random
