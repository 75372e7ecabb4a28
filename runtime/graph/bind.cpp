#include "graph/bind.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/adapters.h"
#include "graph/precision.h"
#include "graph/updates.h"
#include "ops/build.h"

namespace bowline::detail::graph {
namespace {

// The part of the storage that parameter `index` views.
StorageUse use_of(const params::Table& table, uint32_t index) {
  const params::ParameterRow& row = table.parameters[index];
  const params::Storage& storage = table.storages[row.tie];
  const Shape& shape = storage.shape;
  const int64_t row_elements = shape.rank() == 0 ? 1 : shape.elements(1, shape.rank());
  const auto first = static_cast<uint64_t>(row.view.row_start * row_elements);
  return {row.tie, first, 0, storage.encoding.simplest(shape),
          storage.encoding.place(storage.dtype, shape, first)};
}

Shape swapped(Shape shape) {
  std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
  return shape;
}

BoundNode transpose_of(BoundGraph& graph, ValueId v) {
  const int rank = graph[v].shape.rank();
  TransposeAttributesT t;
  for (int a = 0; a < rank; ++a) {
    t.permutation.push_back(a);
  }
  std::swap(t.permutation[static_cast<size_t>(rank - 1)],
            t.permutation[static_cast<size_t>(rank - 2)]);
  const std::string name = graph[v].name + ".view";
  return BoundGraph::make_node(op_with(OpRole::transpose), Attributes::of(t), {v},
                               {graph.add_value({})}, name);
}

// Rewrites a graph with transposed parameters. Operators that can read a transposed matrix do so.
// For the others a Transpose node makes a copy. Copies of parameters come before all other nodes.
class TransposedParameters {
 public:
  TransposedParameters(BoundGraph& graph, std::vector<bool> transposed)
      : graph_(graph), transposed_(std::move(transposed)) {}

  void rewrite() {
    for (BoundNode& node : graph_.nodes) {
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
      // The Transpose of a result follows the node of the result.
      std::vector<BoundNode>& to = graph_[v].kind == ValueKind::parameter ? copies_ : nodes_;
      to.push_back(transpose_of(graph_, v));
      it->second = to.back().outputs[0];
    }
    return it->second;
  }

  void add(BoundNode node) {
    ValueId addend = kNoValue;
    // An elementwise node keeps the order of its input, so its result is transposed too.
    if (op_def(node.op).derived_copy == DerivedCopy::by_element && is_transposed(node.inputs[0])) {
      transposed_[node.outputs[0]] = true;
      nodes_.push_back(std::move(node));
      return;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!is_transposed(node.inputs[i])) {
        continue;
      }
      const TransposedInput t = transposed_input(graph_, node, i);
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
    const ValueId product = graph_.add_value({});
    const std::vector<ValueId> sum = std::exchange(node.outputs, {product});
    addend = is_transposed(addend) ? copy_of(addend) : addend;
    const std::string name = node.name;
    nodes_.push_back(std::move(node));
    nodes_.push_back(
        BoundGraph::make_node(op_with(OpRole::sum), no_attributes(), {product, addend}, sum, name));
  }

  BoundGraph& graph_;
  std::vector<bool> transposed_;  // by value
  std::map<ValueId, ValueId> made_;
  std::vector<BoundNode> copies_;
  std::vector<BoundNode> nodes_;
};

Status check_dims(const std::vector<NamedDim>& limits, Dims dims) {
  for (const BoundDim& d : dims) {
    const auto it = std::ranges::find(limits, d.name, &NamedDim::name);
    BOWLINE_REQUIRE(it != limits.end(), "The model has no dim \"{}\".", d.name);
    BOWLINE_REQUIRE(d.value >= it->min && d.value <= it->max, "Dim {} = {} lies outside {}..{}.",
                    d.name, d.value, it->min, it->max);
  }
  return {};
}

// Binds the sizes and parameters of one complete graph.
class Binder {
 public:
  Binder(const GenericGraph& from, const ModelState& model, Dims dims)
      : from_(from), model_(model), dims_(dims) {}

  Result<BoundGraph> run() {
    out_.name = from_.name;
    out_.inputs = from_.inputs;
    out_.outputs = from_.outputs;
    out_.output_names = from_.output_names;
    for (const GenericValue& value : from_.values) {
      BOWLINE_TRY(add_value(value));
    }
    for (size_t n = 0; n < from_.nodes.size(); ++n) {
      BOWLINE_TRY(add_node(n));
    }
    if (std::ranges::find(transposed_, true) != transposed_.end()) {
      TransposedParameters(out_, std::move(transposed_)).rewrite();
    }
    return std::move(out_);
  }

 private:
  Status add_value(const GenericValue& from) {
    GenericValue shown = from;
    BOWLINE_TRY(set_parameters(shown, model_.table));
    BoundValue value{shown, {}, {}, {}};
    bool transpose = false;
    for (const uint32_t p : shown.parameters) {
      value.uses.push_back(use_of(model_.table, p));
      value.uses.back().elements = static_cast<uint64_t>(shown.shape.elements());
      transpose = model_.table.parameters[p].view.transpose;
    }
    // Until an operator reads the transpose, the value has the shape of the storage.
    value.shape = transpose ? swapped(shown.shape) : shown.shape;
    transposed_.push_back(transpose);
    out_.add_value(std::move(value));
    return {};
  }

  bool is_counted(const AttributeDim& size) const {
    const NamedDim* const dim = model_.entry_points.find_dim(size.dim);
    return dim != nullptr && dim->dynamic;
  }

  Status add_node(size_t n) {
    const GenericNode& from = from_.nodes[n];
    BoundNode node;
    node.op = from.op;
    node.inputs = from.inputs;
    node.outputs = from.outputs;
    node.name = from.name;
    std::ranges::copy_if(from.attributes.dims(), std::back_inserter(node.counted_sizes),
                         [&](const AttributeDim& size) { return is_counted(size); });
    BOWLINE_TRY_ASSIGN(node.attributes,
                       in_context(attributes_bound(from.op, from.attributes, dims_),
                                  format("While binding {}.", describe(from_, n))));
    if (from.repeat) {
      const GenericRepeat& repeat = *from.repeat;
      BOWLINE_TRY_ASSIGN(BoundGraph body, Binder(*repeat.body, model_, dims_).run());
      node.repeat = std::make_shared<BoundRepeat>(
          BoundRepeat{std::make_shared<BoundGraph>(std::move(body)), repeat.count, repeat.carried});
    }
    out_.nodes.push_back(std::move(node));
    return {};
  }

  const GenericGraph& from_;
  const ModelState& model_;
  Dims dims_;
  BoundGraph out_;
  std::vector<bool> transposed_;  // by value
};

Status refresh_parameters(GenericGraph& graph, const params::Table& table) {
  for (GenericGraph* const g : with_bodies(graph)) {
    for (GenericValue& info : g->values) {
      BOWLINE_TRY(set_parameters(info, table));
    }
  }
  return {};
}

}  // namespace

Result<BoundGraph> bind(const GenericGraph& generic, const ModelState& model, Dims dims,
                        std::optional<DType> asked, std::optional<DType> of_device) {
  const std::optional<DType> compute = asked ? asked : of_device;
  BOWLINE_TRY(check_dims(model.entry_points.dims, dims));
  BOWLINE_TRY(written_storages(generic, model.table).status());
  GenericGraph graph = deep_copy(generic);
  for (const ValueId v : graph.inputs) {
    BOWLINE_TRY_ASSIGN(graph[v].shape, bind_shape(graph[v].dims, dims));
  }
  BOWLINE_TRY(add_adapters(graph, model.table));
  if (compute && *compute != DType::f32) {
    BOWLINE_TRY(refresh_parameters(graph, model.table));
    BOWLINE_TRY(infer(graph, dims));
    BOWLINE_TRY(compute_in(graph, *compute, dims, !of_device));
  }
  BOWLINE_TRY_ASSIGN(BoundGraph bound, Binder(graph, model, dims).run());
  BOWLINE_TRY(infer(bound));
  return bound;
}

namespace {

Status check_alike(const params::ParameterRow& row, bool transpose,
                   const params::ParameterRow& other) {
  const auto shows = [](bool transposed) { return transposed ? "transposed" : "row-major"; };
  BOWLINE_REQUIRE(transpose == other.view.transpose,
                  "Parameter \"{}\" views its storage {}, but \"{}\", in the same list of a "
                  "Repeat, views it {}.",
                  row.name, shows(transpose), other.name, shows(other.view.transpose));
  return {};
}

}  // namespace

Status set_parameters(GenericValue& info, const params::Table& table) {
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
    // Kernels of a node read quantized values of any encoding, but not plain values too.
    BOWLINE_REQUIRE(
        encoding.is_plain() == info.encoding.is_plain(),
        "Parameter \"{}\" is stored as {}, but \"{}\", the first of its list, is stored as {}.",
        row.name, encoding, info.name, info.encoding);
    BOWLINE_REQUIRE(shape == info.shape && storage.dtype == info.dtype,
                    "Parameter \"{}\" is {}{}, but \"{}\", the first of its list, is {}{}.",
                    row.name, storage.dtype, shape, info.name, info.dtype, info.shape);
  }
  return {};
}

Status check_orientation(const GenericGraph& graph, const params::Table& table, uint32_t parameter,
                         bool transpose) {
  for (const GenericGraph* const g : with_bodies(graph)) {
    for (const GenericValue& info : g->values) {
      if (std::ranges::find(info.parameters, parameter) == info.parameters.end()) {
        continue;
      }
      for (const uint32_t other : info.parameters) {
        if (other != parameter) {
          BOWLINE_TRY(check_alike(table.parameters[parameter], transpose, table.parameters[other]));
        }
      }
    }
  }
  return {};
}

Result<std::vector<GenericGraph>> inferred(const ModelState& model, const params::Table& table,
                                           std::optional<DType> inputs) {
  const std::vector<BoundDim> probes = model.entry_points.probes();
  std::vector<GenericGraph> out;
  for (const GenericGraph& graph : model.entry_points.graphs) {
    out.push_back(deep_copy(graph));
    for (const ValueId v : out.back().inputs) {
      DType& dtype = out.back()[v].dtype;
      dtype = inputs && is_float(dtype) ? *inputs : dtype;
    }
    const auto infer_it = [&]() -> Status {
      BOWLINE_TRY(refresh_parameters(out.back(), table));
      BOWLINE_TRY(written_storages(out.back(), table).status());
      BOWLINE_TRY(infer(out.back(), probes));
      GenericGraph adapted = deep_copy(out.back());
      BOWLINE_TRY(add_adapters(adapted, table));
      BOWLINE_TRY(refresh_parameters(adapted, table));
      return infer(adapted, probes);
    };
    BOWLINE_TRY(infer_it().at(format("While checking graph \"{}\".", graph.name)));
  }
  return out;
}

std::vector<BoundDim> EntryPoints::probes() const {
  constexpr int64_t kPrimes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
  std::vector<BoundDim> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    out.push_back(
        {dims[i].name, std::clamp(kPrimes[i % std::size(kPrimes)], dims[i].min, dims[i].max)});
  }
  return out;
}

}  // namespace bowline::detail::graph
