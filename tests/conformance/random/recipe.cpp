#include "conformance/random/recipe.h"

#include <algorithm>

#include "conformance/random/dice.h"
#include "core/optimizers.h"

namespace bowline::conformance::random {

std::vector<double> batch_values(const Recipe& recipe, const Node& input, uint32_t batch) {
  const auto length = static_cast<size_t>(input.shapes[0].elements());
  const uint64_t key = mixed(recipe.seed + 1, batch);
  if (input.classes == 0) {
    return draw(Values::normal, length, key, input.item);
  }
  Dice dice(mixed(key, input.item));
  std::vector<double> out;
  for (size_t i = 0; i < length; ++i) {
    out.push_back(static_cast<double>(dice.below(input.classes)));
  }
  return out;
}

std::string parameter_name(size_t parameter) { return format("p{}", parameter); }
std::string storage_name(size_t storage) { return format("s{}", storage); }

std::optional<size_t> declaring_parameter(const Recipe& recipe, size_t storage) {
  for (size_t p = 0; p < recipe.parameters.size(); ++p) {
    const ParameterRow& row = recipe.parameters[p];
    if (row.storage == storage && row.view == View{} && !row.by_verb) {
      return p;
    }
  }
  return {};
}

std::vector<Shape> moments_of(const Optimizer& optimizer, const Shape& weight) {
  const OptimizerDef& def = *optimizer_named(optimizer.name);
  std::vector<Shape> out;
  for (const OptimizerState& state : def.states) {
    if (!state.needs.empty() && setting_of(def, optimizer, state.needs) == 0) {
      continue;
    }
    if (!state.factored || weight.rank() < 2) {
      out.push_back(weight);
      continue;
    }
    const auto dims = weight.dims();
    Shape columns(dims.first(dims.size() - 2));
    columns.push_back(dims.back());
    out.insert(out.end(), {Shape(dims.first(dims.size() - 1)), columns});
  }
  return out;
}

Result<std::vector<size_t>> element_map(const StorageRow& storage, const ParameterRow& parameter) {
  BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(parameter.view, storage.shape));
  const int64_t row =
      storage.shape.rank() == 0 ? 1 : storage.shape.elements(1, storage.shape.rank());
  const int64_t first = parameter.view.row_start * row;
  std::vector<size_t> out;
  const int64_t columns = shape.back();
  const int64_t rows = shape.rank() < 2 ? 1 : shape[shape.rank() - 2];
  for (int64_t i = 0; i < shape.elements(); ++i) {
    int64_t from = i;
    if (parameter.view.transpose) {
      const int64_t matrix = i / (rows * columns), r = i / columns % rows, c = i % columns;
      from = matrix * rows * columns + c * rows + r;
    }
    out.push_back(static_cast<size_t>(first + from));
  }
  return out;
}

namespace {

// Marks the nodes that the outputs need, and removes the others.
void drop_dead(Graph& g, const Graph* outer, std::vector<char>* outer_read) {
  std::vector<char> read(g.nodes.size());
  for (const Ref r : g.outputs) {
    read[r.node] = 1;
  }
  for (size_t n = g.nodes.size(); n-- > 0;) {
    Node& node = g.nodes[n];
    if (node.kind == Node::Kind::carried) {
      read[n] = 1;
    }
    if (read[n] == 0) {
      continue;
    }
    for (const Ref r : node.inputs) {
      read[r.node] = 1;
    }
    for (Graph& body : node.body) {
      drop_dead(body, &g, &read);
    }
    if (node.kind == Node::Kind::capture && outer != nullptr) {
      (*outer_read)[node.outer.node] = 1;
    }
  }
  std::vector<uint32_t> now(g.nodes.size());
  std::vector<Node> kept;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    now[n] = static_cast<uint32_t>(kept.size());
    if (read[n] != 0) {
      kept.push_back(std::move(g.nodes[n]));
    }
  }
  g.nodes = std::move(kept);
  for (Node& node : g.nodes) {
    for (Ref& r : node.inputs) {
      r.node = now[r.node];
    }
    for (Graph& body : node.body) {
      for (Node& inner : body.nodes) {
        if (inner.kind == Node::Kind::capture) {
          inner.outer.node = now[inner.outer.node];
        }
      }
    }
  }
  for (Ref& r : g.outputs) {
    r.node = now[r.node];
  }
}

template <class Visit>
void each_parameter(Graph& g, const Visit& visit) {
  for (Node& node : g.nodes) {
    std::ranges::for_each(node.parameters, visit);
    for (Graph& body : node.body) {
      each_parameter(body, visit);
    }
  }
}

// Removes rows that no graph refers to, and renumbers the others.
template <class Row>
std::vector<uint32_t> drop_rows(std::vector<Row>& rows, const std::vector<char>& used) {
  std::vector<uint32_t> now(rows.size());
  std::vector<Row> kept;
  for (size_t i = 0; i < rows.size(); ++i) {
    now[i] = static_cast<uint32_t>(kept.size());
    if (used[i] != 0) {
      kept.push_back(std::move(rows[i]));
    }
  }
  rows = std::move(kept);
  return now;
}

Status infer_op_node(const Graph& g, Node& node) {
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  for (const Ref r : node.inputs) {
    shapes.push_back(g.shape(r));
    dtypes.push_back(g.dtype(r));
  }
  BOWLINE_TRY_ASSIGN(const Attributes attributes, attributes_from(node.op, node.attributes));
  BOWLINE_TRY_ASSIGN(Signature made, infer(node.op, attributes, shapes, dtypes));
  node.shapes = std::move(made.shapes);
  node.dtypes = std::move(made.dtypes);
  return {};
}

Status infer_graph(const Recipe& recipe, Graph& g, const Graph* outer, const Node* repeat) {
  for (Node& node : g.nodes) {
    switch (node.kind) {
      case Node::Kind::input:
        break;
      case Node::Kind::parameter:
        for (size_t i = 0; i < node.parameters.size(); ++i) {
          const ParameterRow& row = recipe.parameters[node.parameters[i]];
          BOWLINE_TRY_ASSIGN(const Shape shape,
                             view_shape(row.view, recipe.storages[row.storage].shape));
          BOWLINE_REQUIRE(i == 0 || shape == node.shapes[0], "A list has two shapes.");
          node.shapes = {shape};
        }
        break;
      case Node::Kind::carried:
        node.shapes = {outer->shape(repeat->inputs[node.item])};
        break;
      case Node::Kind::capture:
        node.shapes = {outer->shape(node.outer)};
        node.classes = outer->nodes[node.outer.node].classes;
        node.dtypes = {outer->dtype(node.outer)};
        break;
      case Node::Kind::op:
        BOWLINE_TRY(infer_op_node(g, node));
        break;
      case Node::Kind::repeat:
        node.shapes.clear();
        BOWLINE_TRY(infer_graph(recipe, node.body[0], &g, &node));
        for (size_t c = 0; c < node.inputs.size(); ++c) {
          BOWLINE_REQUIRE(g.shape(node.inputs[c]) == node.body[0].shape(node.body[0].outputs[c]),
                          "A carried value changes its shape.");
          node.shapes.push_back(g.shape(node.inputs[c]));
        }
        break;
    }
  }
  return {};
}

}  // namespace

Status tidy(Recipe& recipe) {
  drop_dead(recipe.loss, nullptr, nullptr);
  drop_dead(recipe.probe, nullptr, nullptr);
  std::vector<char> used(recipe.parameters.size());
  each_parameter(recipe.loss, [&](uint32_t p) { used[p] = 1; });
  each_parameter(recipe.probe, [&](uint32_t p) { used[p] = 1; });
  std::vector<char> storages(recipe.storages.size());
  for (size_t p = 0; p < used.size(); ++p) {
    char& storage = storages[recipe.parameters[p].storage];
    storage = static_cast<char>(storage | used[p]);
  }
  const std::vector<uint32_t> parameter_now = drop_rows(recipe.parameters, used);
  const std::vector<uint32_t> storage_now = drop_rows(recipe.storages, storages);
  for (ParameterRow& row : recipe.parameters) {
    row.storage = storage_now[row.storage];
  }
  const auto renumber = [&](uint32_t& p) { p = parameter_now[p]; };
  each_parameter(recipe.loss, renumber);
  each_parameter(recipe.probe, renumber);
  BOWLINE_TRY(infer_graph(recipe, recipe.loss, nullptr, nullptr));
  return infer_graph(recipe, recipe.probe, nullptr, nullptr);
}

}  // namespace bowline::conformance::random
