//! makes Add Cast Dropout Linear MatMul Mul Reshape of Linear MatMul
//! makes Add Cast Dropout Embedding Linear MatMul Mul Reshape of Embedding
#include "graph/adapters.h"

#include <algorithm>
#include <map>
#include <set>

#include "ops/build.h"

namespace bowline::detail::graph {
namespace {

using file::DropoutAttributesT;
using params::Reading;

// The input of a node that is a matrix that an adapter may change, or nothing.
std::optional<size_t> matrix_input(Op op) {
  switch (op) {
    case Op::Linear:
    case Op::MatMul:
      return 1;
    case Op::Embedding:
      return 0;
    default:
      return std::nullopt;
  }
}

std::optional<size_t> bias_input(Op op) {
  return op == Op::Linear ? std::optional<size_t>(2) : std::nullopt;
}

void read(const GenericGraph& graph, ValueId v, Reading as, std::vector<Reading>& out) {
  for (const uint32_t p : graph[v].parameters) {
    out[p] = out[p] == Reading::none || out[p] == as ? as : Reading::other;
  }
}

void add_readings(const GenericGraph& graph, std::vector<Reading>& out) {
  for (const GenericNode& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      read(graph, node.inputs[i],
           matrix_input(node.op) == i ? Reading::matrix
           : bias_input(node.op) == i ? Reading::bias
                                      : Reading::other,
           out);
    }
  }
  for (const ValueId v : graph.outputs) {
    read(graph, v, Reading::other, out);
  }
}

// The change of a value by one adapter, with an entry per iteration.
struct Change {
  std::string name;  // "head.sql"
  ValueId u = kNoValue;
  ValueId v = kNoValue;
  ValueId scale = kNoValue;
  float dropout = 0;
};

// Streams for the dropouts of adapters, so that no two draw the same random values. The streams of
// a graph's own dropouts count from 0.
constexpr uint32_t kFirstStream = uint32_t{1} << 31;

class Adapting {
 public:
  // `stream`: the stream of the next dropout.
  Adapting(GenericGraph& graph, const params::Table& table, std::span<const std::string> adapters,
           uint32_t& stream)
      : graph_(graph), table_(table), adapters_(adapters), stream_(stream) {}

  Status rewrite() {
    std::vector<GenericNode> before = std::move(graph_.nodes);
    for (size_t n = 0; n < before.size(); ++n) {
      if (before[n].repeat) {
        BOWLINE_TRY(Adapting(*before[n].repeat->body, table_, adapters_, stream_).rewrite());
      }
      BOWLINE_TRY(add(std::move(before[n])));
    }
    for (const ValueId v : graph_.outputs) {
      BOWLINE_TRY(require_unchanged(v, "an output"));
    }
    nodes_.insert(nodes_.begin(), std::make_move_iterator(casts_.begin()),
                  std::make_move_iterator(casts_.end()));
    graph_.nodes = std::move(nodes_);
    renumber(graph_);
    return {};
  }

 private:
  Status add(GenericNode node) {
    const std::optional<size_t> matrix = matrix_input(node.op);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (bias_input(node.op) == i) {
        BOWLINE_TRY_ASSIGN(node.inputs[i], with_changes(node.inputs[i]));
      } else if (matrix != i) {
        BOWLINE_TRY(require_unchanged(node.inputs[i], format("{} \"{}\"", node.op, node.name)));
      }
    }
    if (!matrix) {
      nodes_.push_back(std::move(node));
      return {};
    }
    BOWLINE_TRY_ASSIGN(const std::vector<Change> changes, changes_of(node.inputs[*matrix]));
    const GenericNode base = node;
    if (!changes.empty()) {
      node.outputs[0] = graph_.add_value({});  // the last sum replaces it
    }
    nodes_.push_back(std::move(node));
    ValueId sum = nodes_.back().outputs[0];
    for (const Change& change : changes) {
      const bool last = &change == &changes.back();
      const ValueId added = product(base, change);
      sum = append(change, Op::Add, {sum, added}, no_attributes(),
                   last ? base.outputs[0] : graph_.add_value({}));
    }
    return {};
  }

  // Adds scale * u v of each change to a bias. The product is a matrix of one row.
  Result<ValueId> with_changes(ValueId bias) {
    BOWLINE_TRY_ASSIGN(const std::vector<Change> changes, changes_of(bias));
    const Attributes none = no_attributes();
    for (const Change& c : changes) {
      const ValueId row = step(c, Op::MatMul, {c.u, c.v}, mat_mul_attributes(false, false));
      const ValueId scaled = step(c, Op::Mul, {row, c.scale}, none);
      bias =
          step(c, Op::Add, {bias, step(c, Op::Reshape, {scaled}, reshape_attributes({-1}))}, none);
    }
    return bias;
  }

  ValueId step(const Change& of, Op op, std::vector<ValueId> inputs, const Attributes& attributes) {
    return append(of, op, std::move(inputs), attributes, graph_.add_value({}));
  }

  // The result of the node for the matrix u v, times the scale.
  ValueId product(const GenericNode& of, const Change& c) {
    const auto step = [&](Op op, std::vector<ValueId> inputs, const Attributes& attributes) {
      return this->step(c, op, std::move(inputs), attributes);
    };
    const auto scaled = [&](ValueId x) { return step(Op::Mul, {x, c.scale}, no_attributes()); };
    const Attributes none = no_attributes();
    if (of.op == Op::Embedding) {
      const ValueId rows = scaled(step(Op::Embedding, {c.u, of.inputs[1]}, none));
      return step(Op::MatMul, {rows, c.v}, mat_mul_attributes(false, false));
    }
    ValueId x = of.inputs[0];
    if (c.dropout != 0) {
      DropoutAttributesT dropout;
      dropout.rate = c.dropout;
      dropout.stream = stream_++;
      x = step(Op::Dropout, {x}, Attributes::of(dropout));
    }
    if (of.op == Op::Linear) {
      return step(Op::Linear, {scaled(step(Op::Linear, {x, c.v}, none)), c.u}, none);
    }
    const bool transposed = of.attributes.as<file::MatMulAttributes>().transpose_b();
    const ValueId narrow = scaled(step(Op::MatMul, {x, transposed ? c.v : c.u}, of.attributes));
    return step(Op::MatMul, {narrow, transposed ? c.u : c.v},
                mat_mul_attributes(false, transposed));
  }

  ValueId append(const Change& of, Op op, std::vector<ValueId> inputs, const Attributes& attributes,
                 ValueId output) {
    nodes_.push_back(GenericGraph::make_node(op, attributes, std::move(inputs), {output}, of.name));
    return output;
  }

  bool changes(uint32_t parameter, std::string_view adapter) const {
    return params::low_rank(table_, parameter, adapter).has_value();
  }

  Status require_unchanged(ValueId v, std::string_view reader) const {
    for (const uint32_t p : graph_[v].parameters) {
      for (const std::string& adapter : adapters_) {
        BOWLINE_REQUIRE(!changes(p, adapter),
                        "Adapter \"{}\" changes \"{}\", but {} reads it neither as the matrix of "
                        "Linear, Embedding or MatMul nor as a bias.",
                        adapter, table_.parameters[p].name, reader);
      }
    }
    return {};
  }

  Result<std::vector<Change>> changes_of(ValueId matrix) {
    const auto known = changes_.find(matrix);
    if (known != changes_.end()) {
      return known->second;
    }
    std::vector<Change> out;
    const std::vector<uint32_t> parameters = graph_[matrix].parameters;
    for (const std::string& adapter : adapters_) {
      const auto first =
          std::ranges::find_if(parameters, [&](uint32_t p) { return changes(p, adapter); });
      if (first != parameters.end()) {
        BOWLINE_TRY_ASSIGN(out.emplace_back(), change_of(parameters, *first, adapter));
      }
    }
    changes_[matrix] = out;
    return out;
  }

  // If the adapter does not change the parameter of an iteration, the iteration uses the factors of
  // `some` with scale 0.
  Result<Change> change_of(const std::vector<uint32_t>& parameters, uint32_t some,
                           std::string_view adapter) {
    BOWLINE_TRY_ASSIGN(const uint32_t scale, params::scale_of(table_, adapter));
    BOWLINE_TRY_ASSIGN(const uint32_t zero, params::zero_of(table_, adapter));
    BOWLINE_TRY_ASSIGN(const float dropout, params::dropout_of(table_, adapter));
    std::vector<uint32_t> u, v, scales;
    for (const uint32_t p : parameters) {
      const auto own = params::low_rank(table_, p, adapter);
      const params::LowRank factors = own ? *own : *params::low_rank(table_, some, adapter);
      u.push_back(factors.u);
      v.push_back(factors.v);
      scales.push_back(own ? scale : zero);
    }
    const DType dtype = table_.storages[table_.parameters[some].tie].dtype;
    return Change{format("{}.{}", table_.parameters[some].name, adapter),
                  value_of(std::move(u), dtype), value_of(std::move(v), dtype),
                  value_of(std::move(scales), dtype), dropout};
  }

  // The parameters as a value with the dtype of the matrix.
  ValueId value_of(std::vector<uint32_t> parameters, DType dtype) {
    const auto [at, is_new] = values_.try_emplace({parameters, dtype}, kNoValue);
    if (!is_new) {
      return at->second;
    }
    const params::ParameterRow& first = table_.parameters[parameters[0]];
    GenericValue info;
    info.kind = ValueKind::parameter;
    info.parameters = std::move(parameters);
    ValueId value = graph_.add_value(std::move(info));
    if (table_.storages[first.tie].dtype != dtype) {
      const ValueId cast = graph_.add_value({});
      casts_.push_back(GenericGraph::make_node(Op::Cast, cast_attributes(dtype), {value}, {cast},
                                               first.name + ".cast"));
      value = cast;
    }
    return at->second = value;
  }

  GenericGraph& graph_;
  const params::Table& table_;
  std::span<const std::string> adapters_;
  uint32_t& stream_;
  std::map<ValueId, std::vector<Change>> changes_;
  std::map<std::pair<std::vector<uint32_t>, DType>, ValueId> values_;
  std::vector<GenericNode> casts_;
  std::vector<GenericNode> nodes_;
};

}  // namespace

std::vector<Reading> readings(std::span<const GenericGraph> graphs, const params::Table& table) {
  std::vector<Reading> out(table.parameters.size(), Reading::none);
  for (const GenericGraph& graph : graphs) {
    for (const GenericGraph* const g : with_bodies(graph)) {
      add_readings(*g, out);
    }
  }
  return out;
}

Status add_adapters(GenericGraph& graph, const params::Table& table) {
  const std::vector<std::string> adapters = params::adapter_names(table);
  if (adapters.empty()) {
    return {};
  }
  uint32_t stream = kFirstStream;
  return Adapting(graph, table, adapters, stream).rewrite();
}

void renumber_parameters(GenericGraph& graph, std::span<const uint32_t> numbers) {
  for (GenericGraph* const g : with_bodies(graph)) {
    for (GenericValue& info : g->values) {
      for (uint32_t& p : info.parameters) {
        p = numbers[p];
      }
    }
  }
}

}  // namespace bowline::detail::graph
