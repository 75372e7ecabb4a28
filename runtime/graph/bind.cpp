#include "graph/bind.h"

namespace bowline::graph {
namespace {

// The part of the storage that parameter `index` shows, before a transpose.
Result<std::pair<StorageUse, Shape>> use_of(const params::Table& table, uint32_t index) {
  const params::ParameterRow& row = table.parameters[index];
  const params::Storage& storage = table.storages[row.tie];
  View flat = row.view;
  flat.transpose = false;
  BOWLINE_ASSIGN(const Shape shape, params::view_shape(flat, storage.shape));
  const int64_t row_elements =
      storage.shape.rank() == 0 ? 1 : storage.shape.elements(1, storage.shape.rank());
  const StorageUse use{row.tie, static_cast<uint64_t>(row.view.row_start * row_elements),
                       static_cast<uint64_t>(shape.elements())};
  return std::pair(use, shape);
}

Attributes swap_last_axes(int rank) {
  TransposeAttributesT t;
  for (int a = 0; a < rank; ++a) {
    t.permutation.push_back(a);
  }
  std::swap(t.permutation[static_cast<size_t>(rank - 1)],
            t.permutation[static_cast<size_t>(rank - 2)]);
  return Attributes::of(t);
}

Status bind_parameter(Graph& graph, ValueId v, const params::Table& table,
                      std::vector<Node>& transposes) {
  bool transpose = false;
  for (size_t i = 0; i < graph[v].parameters.size(); ++i) {
    const uint32_t p = graph[v].parameters[i];
    BOWLINE_ASSIGN(const auto bound, use_of(table, p));
    ValueInfo& info = graph[v];
    const params::ParameterRow& row = table.parameters[p];
    if (i == 0) {
      info.shape = bound.second;
      info.dtype = table.storages[row.tie].dtype;
      info.name = row.name;
      transpose = row.view.transpose;
    }
    BOWLINE_REQUIRE(info.shape == bound.second && transpose == row.view.transpose,
                    "Parameter {} ({}) differs in shape or transpose from {} ({}), which is in the "
                    "same list of a Repeat.",
                    row.name, bound.second, info.name, info.shape);
    info.uses.push_back(bound.first);
  }
  if (!transpose) {
    return {};
  }
  BOWLINE_REQUIRE(graph[v].shape.rank() >= 2, "Parameter {} is a transpose of rank {}.",
                  graph[v].name, graph[v].shape.rank());
  Node node;
  node.op = Op::Transpose;
  node.attributes = swap_last_axes(graph[v].shape.rank());
  node.name = graph[v].name + ".view";
  node.inputs = {v};
  ValueInfo result;
  result.kind = ValueKind::result;
  node.outputs = {graph.add_value(std::move(result))};
  transposes.push_back(std::move(node));
  return {};
}

// Inserts the transposes before all other nodes and lets these read the transposed value.
void insert_transposes(Graph& graph, std::vector<Node> transposes) {
  std::vector<ValueId> now(graph.values.size());
  for (ValueId v = 0; v < now.size(); ++v) {
    now[v] = v;
  }
  for (const Node& t : transposes) {
    now[t.inputs[0]] = t.outputs[0];
  }
  for (Node& node : graph.nodes) {
    for (ValueId& v : node.inputs) {
      v = now[v];
    }
  }
  for (ValueId& v : graph.outputs) {
    v = now[v];
  }
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(transposes.begin()),
                     std::make_move_iterator(transposes.end()));
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : graph.nodes[n].outputs) {
      graph[v].node = n;
    }
  }
}

Status bind_parameters(Graph& graph, const params::Table& table) {
  std::vector<Node> transposes;
  const size_t values = graph.values.size();
  for (ValueId v = 0; v < values; ++v) {
    if (graph[v].kind == ValueKind::parameter) {
      BOWLINE_TRY(bind_parameter(graph, v, table, transposes));
    }
  }
  for (Node& node : graph.nodes) {
    if (node.repeat) {
      BOWLINE_TRY(bind_parameters(*node.repeat->body, table));
    }
  }
  if (!transposes.empty()) {
    insert_transposes(graph, std::move(transposes));
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

Result<Graph> bind(const Graph& generic, const ModelState& model, Dims dims) {
  BOWLINE_TRY(check_dims(model.dims, dims));
  Graph graph = deep_copy(generic);
  for (const ValueId v : graph.inputs) {
    BOWLINE_ASSIGN(graph[v].shape, bind_shape(graph[v].dims, dims));
  }
  BOWLINE_TRY(bind_parameters(graph, model.table));
  BOWLINE_TRY(infer(graph, dims));
  return graph;
}

Status set_parameters(ValueInfo& info, const params::Table& table) {
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    const params::ParameterRow& row = table.parameters[info.parameters[i]];
    const params::Storage& storage = table.storages[row.tie];
    BOWLINE_ASSIGN(const Shape shape, params::view_shape(row.view, storage.shape));
    if (i == 0) {
      info.name = row.name;
      info.shape = shape;
      info.dtype = storage.dtype;
    }
    BOWLINE_REQUIRE(shape == info.shape && storage.dtype == info.dtype,
                    "Parameter \"{}\" is {}{}, but \"{}\", the first of its list, {}{}.", row.name,
                    storage.dtype, shape, info.name, info.dtype, info.shape);
  }
  return {};
}

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

Result<std::vector<Graph>> inferred(const ModelState& model, const params::Table& table) {
  const std::vector<BoundDim> probes = probe_dims(model.dims);
  std::vector<Graph> out;
  for (const Graph& graph : model.graphs) {
    out.push_back(deep_copy(graph));
    const auto infer_it = [&]() -> Status {
      BOWLINE_TRY(refresh_parameters(out.back(), table));
      return infer(out.back(), probes);
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

}  // namespace bowline::graph
