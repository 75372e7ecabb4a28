#include "graph/bind.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/adapters.h"
#include "graph/precision.h"
#include "graph/updates.h"

namespace bowline::detail::graph {
namespace {

// The part of the storage that parameter `index` shows.
StorageUse use_of(const params::Table& table, uint32_t index) {
  const params::ParameterRow& row = table.parameters[index];
  const params::Storage& storage = table.storages[row.tie];
  const Shape& shape = storage.shape;
  const int64_t row_elements = shape.rank() == 0 ? 1 : shape.elements(1, shape.rank());
  const auto first = static_cast<uint64_t>(row.view.row_start * row_elements);
  return {row.tie, first, 0, storage.encoding.place(storage.dtype, shape, first)};
}

Shape swapped(Shape shape) {
  std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
  return shape;
}

// Returns whether the graph reads the transpose of what the storage holds.
Result<bool> bind_parameter(ValueInfo& info, const params::Table& table) {
  BOWLINE_TRY(set_parameters(info, table));
  for (const uint32_t p : info.parameters) {
    info.uses.push_back(use_of(table, p));
    info.uses.back().elements = static_cast<uint64_t>(info.shape.elements());
  }
  const bool transpose = table.parameters[info.parameters[0]].view.transpose;
  if (transpose) {
    info.shape = swapped(info.shape);
  }
  return transpose;
}

Node transpose_of(Graph& graph, ValueId v) {
  const int rank = graph[v].shape.rank();
  TransposeAttributesT t;
  for (int a = 0; a < rank; ++a) {
    t.permutation.push_back(a);
  }
  std::swap(t.permutation[static_cast<size_t>(rank - 1)],
            t.permutation[static_cast<size_t>(rank - 2)]);
  Node node;
  node.op = op_with<&OpDef::is_transpose>();
  node.attributes = Attributes::of(t);
  node.name = graph[v].name + ".view";
  node.inputs = {v};
  node.outputs = {graph.add_value({})};
  return node;
}

// The nodes of a graph with parameters that are transposes: read as they lie where the operator
// can, else copied by a node, that of a parameter in front of all others.
class TransposedParameters {
 public:
  TransposedParameters(Graph& graph, std::vector<bool> transposed)
      : graph_(graph), transposed_(std::move(transposed)) {}

  void rewrite() {
    for (Node& node : graph_.nodes) {
      add(std::move(node));
    }
    for (ValueId& v : graph_.outputs) {
      v = is_transposed(v) ? copy_of(v) : v;
    }
    nodes_.insert(nodes_.begin(), std::make_move_iterator(copies_.begin()),
                  std::make_move_iterator(copies_.end()));
    graph_.nodes = std::move(nodes_);
    renumber(graph_);
  }

 private:
  bool is_transposed(ValueId v) const { return v < transposed_.size() && transposed_[v]; }

  ValueId copy_of(ValueId v) {
    const auto [it, is_new] = made_.try_emplace(v, kNoValue);
    if (is_new) {
      // That of a result follows it.
      std::vector<Node>& to = graph_[v].kind == ValueKind::parameter ? copies_ : nodes_;
      to.push_back(transpose_of(graph_, v));
      it->second = to.back().outputs[0];
    }
    return it->second;
  }

  void add(Node node) {
    ValueId addend = kNoValue;
    // What works element by element keeps the order of its input, so that a storage and its copy
    // are transposed alike.
    if (op_def(node.op).derived_copy == DerivedCopy::by_element && is_transposed(node.inputs[0])) {
      transposed_[node.outputs[0]] = true;
      nodes_.push_back(std::move(node));
      return;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!is_transposed(node.inputs[i])) {
        continue;
      }
      const TransposedInput t = read_as_it_lies(node, i);
      if (t.op == Op::Invalid) {
        node.inputs[i] = copy_of(node.inputs[i]);
        continue;
      }
      if (t.addend >= 0 && std::cmp_less(t.addend, node.inputs.size())) {
        addend = node.inputs[static_cast<size_t>(t.addend)];
        node.inputs.erase(node.inputs.begin() + t.addend);
      }
      node.op = t.op;
      node.attributes = t.attributes;
    }
    if (addend == kNoValue) {
      nodes_.push_back(std::move(node));
      return;
    }
    Node sum;
    sum.op = op_with<&OpDef::is_sum>();
    sum.attributes = Attributes::of(NoAttributesT{});
    sum.name = node.name;
    sum.outputs = node.outputs;
    node.outputs = {graph_.add_value({})};
    sum.inputs = {node.outputs[0], is_transposed(addend) ? copy_of(addend) : addend};
    nodes_.push_back(std::move(node));
    nodes_.push_back(std::move(sum));
  }

  TransposedInput read_as_it_lies(const Node& node, size_t i) const {
    const auto rule = op_def(node.op).with_transposed;
    if (rule == nullptr) {
      return {};
    }
    TransposedInput t = rule(node.attributes, static_cast<int>(i));
    for (size_t other = 0; other < node.inputs.size(); ++other) {
      const bool stays = std::cmp_not_equal(other, t.addend);
      if (stays && graph_[node.inputs[other]].shape.rank() < 2) {
        return {};
      }
    }
    return t;
  }

  Graph& graph_;
  std::vector<bool> transposed_;  // by value
  std::map<ValueId, ValueId> made_;
  std::vector<Node> copies_;
  std::vector<Node> nodes_;
};

Status bind_parameters(Graph& graph, const params::Table& table) {
  std::vector<bool> transposed(graph.values.size());
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    if (graph[v].kind == ValueKind::parameter) {
      BOWLINE_TRY_ASSIGN(transposed[v], bind_parameter(graph[v], table));
    }
  }
  for (Node& node : graph.nodes) {
    if (node.repeat) {
      BOWLINE_TRY(bind_parameters(*node.repeat->body, table));
    }
  }
  if (std::ranges::find(transposed, true) != transposed.end()) {
    TransposedParameters(graph, std::move(transposed)).rewrite();
  }
  return {};
}

Status check_dims(const std::vector<NamedDim>& limits, Dims dims) {
  for (const BoundDim& d : dims) {
    const auto it = std::ranges::find(limits, d.name, &NamedDim::name);
    BOWLINE_REQUIRE(it != limits.end(), "The model has no dim \"{}\".", d.name);
    BOWLINE_REQUIRE(d.value >= it->min && d.value <= it->max, "Dim {} = {} lies outside {}..{}.",
                    d.name, d.value, it->min, it->max);
  }
  return {};
}

}  // namespace

Graph deep_copy(const Graph& graph) {
  Graph out = graph;
  for (Node& node : out.nodes) {
    if (node.repeat) {
      node.repeat = std::make_shared<RepeatInfo>(*node.repeat);
      node.repeat->body = std::make_shared<Graph>(deep_copy(*node.repeat->body));
    }
  }
  return out;
}

namespace {

Status bind_attributes(Graph& graph, const ModelState& model, Dims dims) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    std::ranges::copy_if(node.attributes.dims(), std::back_inserter(node.counted_sizes),
                         [&](const AttributeDim& size) {
                           const auto dim =
                               std::ranges::find(model.dims, size.dim, &NamedDim::name);
                           return dim != model.dims.end() && dim->dynamic;
                         });
    Result<Attributes> bound = attributes_bound(node.op, node.attributes, dims);
    BOWLINE_TRY(Status(bound.status()).at(format("While binding {}.", describe(graph, n))));
    node.attributes = std::move(bound).value();
    if (node.repeat) {
      BOWLINE_TRY(bind_attributes(*node.repeat->body, model, dims));
    }
  }
  return {};
}

}  // namespace

namespace {

Status refresh_parameters(Graph& graph, const params::Table& table) {
  for (ValueInfo& info : graph.values) {
    BOWLINE_TRY(set_parameters(info, table));
  }
  for (Node& node : graph.nodes) {
    if (node.repeat) {
      BOWLINE_TRY(refresh_parameters(*node.repeat->body, table));
    }
  }
  return {};
}

}  // namespace

Result<Graph> bind(const Graph& generic, const ModelState& model, Dims dims,
                   std::optional<DType> asked, std::optional<DType> of_device) {
  const std::optional<DType> compute = asked ? asked : of_device;
  BOWLINE_TRY(check_dims(model.dims, dims));
  BOWLINE_TRY(written_storages(generic, model.table).status());
  Graph graph = deep_copy(generic);
  for (const ValueId v : graph.inputs) {
    BOWLINE_TRY_ASSIGN(graph[v].shape, bind_shape(graph[v].dims, dims));
  }
  BOWLINE_TRY(bind_attributes(graph, model, dims));
  BOWLINE_TRY(add_adapters(graph, model.table));
  if (compute && *compute != DType::f32) {
    BOWLINE_TRY(refresh_parameters(graph, model.table));
    BOWLINE_TRY(infer(graph, dims));
    BOWLINE_TRY(compute_in(graph, *compute, dims, !of_device));
  }
  BOWLINE_TRY(bind_parameters(graph, model.table));
  BOWLINE_TRY(infer(graph, dims));
  return graph;
}

namespace {

Status check_alike(const params::ParameterRow& row, bool transpose,
                   const params::ParameterRow& other) {
  const auto shows = [](bool transposed) { return transposed ? "transposed" : "row-major"; };
  BOWLINE_REQUIRE(transpose == other.view.transpose,
                  "Parameter \"{}\" shows its storage {}, but \"{}\", in the same list of a "
                  "Repeat, {}.",
                  row.name, shows(transpose), other.name, shows(other.view.transpose));
  return {};
}

}  // namespace

Status set_parameters(ValueInfo& info, const params::Table& table) {
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    const params::ParameterRow& row = table.parameters[info.parameters[i]];
    const params::Storage& storage = table.storages[row.tie];
    BOWLINE_TRY_ASSIGN(const Shape shape, params::view_shape(row.view, storage.shape));
    const params::ParameterRow& first = table.parameters[info.parameters[0]];
    const Encoding encoding = storage.encoding.simplest(storage.shape);
    if (i == 0) {
      info.name = row.name;
      info.shape = shape;
      info.dtype = storage.dtype;
      info.encoding = encoding;
    }
    BOWLINE_TRY(check_alike(row, row.view.transpose, first));
    BOWLINE_REQUIRE(encoding == info.encoding,
                    "Parameter \"{}\" is stored as {}, but \"{}\", the first of its list, as {}.",
                    row.name, encoding, info.name, info.encoding);
    BOWLINE_REQUIRE(shape == info.shape && storage.dtype == info.dtype,
                    "Parameter \"{}\" is {}{}, but \"{}\", the first of its list, {}{}.", row.name,
                    storage.dtype, shape, info.name, info.dtype, info.shape);
  }
  return {};
}

Status check_orientation(const Graph& graph, const params::Table& table, uint32_t parameter,
                         bool transpose) {
  for (const ValueInfo& info : graph.values) {
    if (std::ranges::find(info.parameters, parameter) == info.parameters.end()) {
      continue;
    }
    for (const uint32_t other : info.parameters) {
      if (other != parameter) {
        BOWLINE_TRY(check_alike(table.parameters[parameter], transpose, table.parameters[other]));
      }
    }
  }
  for (const Node& node : graph.nodes) {
    if (node.repeat) {
      BOWLINE_TRY(check_orientation(*node.repeat->body, table, parameter, transpose));
    }
  }
  return {};
}

Result<std::vector<Graph>> inferred(const ModelState& model, const params::Table& table,
                                    std::optional<DType> inputs) {
  const std::vector<BoundDim> probes = probe_dims(model.dims);
  std::vector<Graph> out;
  for (const Graph& graph : model.graphs) {
    out.push_back(deep_copy(graph));
    for (const ValueId v : out.back().inputs) {
      DType& dtype = out.back()[v].dtype;
      dtype = inputs && is_float(dtype) ? *inputs : dtype;
    }
    const auto infer_it = [&]() -> Status {
      BOWLINE_TRY(refresh_parameters(out.back(), table));
      BOWLINE_TRY(written_storages(out.back(), table).status());
      BOWLINE_TRY(infer(out.back(), probes));
      Graph adapted = deep_copy(out.back());
      BOWLINE_TRY(add_adapters(adapted, table));
      BOWLINE_TRY(refresh_parameters(adapted, table));
      return infer(adapted, probes);
    };
    BOWLINE_TRY(infer_it().at(format("While checking graph \"{}\".", graph.name)));
  }
  return out;
}

std::vector<BoundDim> probe_dims(const std::vector<NamedDim>& dims) {
  constexpr int64_t kPrimes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
  std::vector<BoundDim> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    out.push_back(
        {dims[i].name, std::clamp(kPrimes[i % std::size(kPrimes)], dims[i].min, dims[i].max)});
  }
  return out;
}

}  // namespace bowline::detail::graph
