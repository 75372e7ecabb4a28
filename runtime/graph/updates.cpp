#include "graph/updates.h"

#include <map>

namespace bowline::detail::graph {
namespace {

// A node of the entry point, or of the body that its node `outer` runs.
struct Place {
  uint32_t outer = 0;
  uint32_t inner = 0;
  uint32_t iteration = 0;
  bool in_body = false;
};

struct Write {
  Place at;
  uint32_t parameter = 0;
  std::string node;
};

class Updates {
 public:
  Updates(const GenericGraph& graph, const params::Table& table) : graph_(graph), table_(table) {}

  Result<std::vector<uint32_t>> find() {
    BOWLINE_TRY(each_graph([&](const GenericGraph& g, Place at) { return find_writes(g, at); }));
    if (!writes_.empty()) {
      BOWLINE_TRY(each_graph([&](const GenericGraph& g, Place at) { return check_reads(g, at); }));
    }
    std::vector<uint32_t> out;
    for (const auto& [tie, write] : writes_) {
      out.push_back(tie);
    }
    return out;
  }

 private:
  // Visits the entry point, and each body with the node that runs it.
  template <class F>
  Status each_graph(const F& f) const {
    BOWLINE_TRY(f(graph_, Place{}));
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].repeat) {
        BOWLINE_TRY(f(*graph_.nodes[n].repeat->body, Place{n, 0, 0, true}));
      }
    }
    return {};
  }

  static void set_node(Place& at, uint32_t n) { (at.in_body ? at.inner : at.outer) = n; }

  std::string name_of(const GenericGraph& g, const Place& at) const {
    return at.in_body
               ? format("{} in the body of {}", describe(g, at.inner), describe(graph_, at.outer))
               : describe(g, at.outer);
  }

  Status find_writes(const GenericGraph& g, Place at) {
    for (uint32_t n = 0; n < g.nodes.size(); ++n) {
      const GenericNode& node = g.nodes[n];
      const OpDef& def = op_def(node.op);
      set_node(at, n);
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const int input = updated_input(def, o);
        if (input >= 0) {
          BOWLINE_TRY(add_writes(g, node, input, name_of(g, at), at));
        }
      }
    }
    return {};
  }

  // True if the storage is plain, or quantized in a way that takes the rows that the node writes.
  static bool can_write(const GenericNode& node, const params::ParameterRow& row,
                        const params::Storage& storage) {
    const OpDef& def = op_def(node.op);
    return storage.encoding.is_plain() || (may_write_codes(def) && row.view.shape.empty() &&
                                           def.writes_rows(node.attributes, storage.shape) &&
                                           storage.encoding.takes_rows(storage.shape));
  }

  Status add_writes(const GenericGraph& g, const GenericNode& writer, int input,
                    const std::string& node, Place at) {
    const GenericValue& state = g[writer.inputs[static_cast<size_t>(input)]];
    BOWLINE_REQUIRE(state.kind == ValueKind::parameter,
                    "Input {} of {} is not a parameter, but the node writes it.", input, node);
    for (uint32_t i = 0; i < state.parameters.size(); ++i) {
      const params::ParameterRow& row = table_.parameters[state.parameters[i]];
      const params::Storage& storage = table_.storages[row.tie];
      BOWLINE_REQUIRE(!storage.trainable,
                      "{} writes parameter \"{}\", whose storage {} (a {}) is trainable.", node,
                      row.name, row.tie, bowline::name_of(storage.role));
      BOWLINE_REQUIRE(!row.view.transpose,
                      "{} writes parameter \"{}\", which is a transposed view of storage {}.", node,
                      row.name, row.tie);
      BOWLINE_REQUIRE(can_write(writer, row, storage),
                      "{} writes parameter \"{}\", whose storage {} is stored as {}. The node "
                      "cannot write rows of this encoding.",
                      node, row.name, row.tie, storage.encoding);
      at.iteration = i;
      const auto [other, is_first] =
          writes_.try_emplace(row.tie, Write{at, state.parameters[i], node});
      BOWLINE_REQUIRE(is_first,
                      "Storage {} has two writers: {} through parameter \"{}\", and {} "
                      "through \"{}\".",
                      row.tie, other->second.node, table_.parameters[other->second.parameter].name,
                      node, row.name);
    }
    return {};
  }

  // A view counts as read where its readers are.
  static std::vector<ValueId> shown_by(const GenericGraph& g) {
    std::vector<ValueId> shown(g.values.size());
    for (ValueId v = 0; v < shown.size(); ++v) {
      shown[v] = v;
    }
    for (const GenericNode& node : g.nodes) {
      if (op_def(node.op).is_view) {
        shown[node.outputs[0]] = shown[node.inputs[0]];
      }
    }
    return shown;
  }

  Status check_reads(const GenericGraph& g, Place at) const {
    const std::vector<ValueId> shown = shown_by(g);
    for (uint32_t n = 0; n < g.nodes.size(); ++n) {
      const GenericNode& node = g.nodes[n];
      const OpDef& def = op_def(node.op);
      set_node(at, n);
      for (size_t i = 0; i < node.inputs.size() && !def.is_view; ++i) {
        const bool is_state = std::ranges::any_of(
            def.updates, [&](const InPlace& pair) { return std::cmp_equal(pair.input, i); });
        if (!is_state) {
          BOWLINE_TRY(check_read(g[shown[node.inputs[i]]], at, [&] { return name_of(g, at); }));
        }
      }
    }
    set_node(at, static_cast<uint32_t>(g.nodes.size()));
    for (size_t o = 0; o < g.outputs.size(); ++o) {
      BOWLINE_TRY(check_read(g[shown[g.outputs[o]]], at, [&] {
        return at.in_body ? format("output {} of the body of {}", o, describe(graph_, at.outer))
                          : format("output \"{}\"", g.output_names[o]);
      }));
    }
    return {};
  }

  template <class Name>
  Status check_read(const GenericValue& value, Place at, const Name& reader) const {
    if (value.kind != ValueKind::parameter) {
      return {};
    }
    for (uint32_t i = 0; i < value.parameters.size(); ++i) {
      const params::ParameterRow& row = table_.parameters[value.parameters[i]];
      const auto write = writes_.find(row.tie);
      at.iteration = i;
      BOWLINE_REQUIRE(write == writes_.end() || is_before(at, write->second.at),
                      "{} reads parameter \"{}\", but not before {} writes its storage {} through "
                      "\"{}\". To read the new values, use the output of that node.",
                      reader(), row.name, write->second.node, row.tie,
                      table_.parameters[write->second.parameter].name);
    }
    return {};
  }

  // In a body, both must be in the same iteration.
  static bool is_before(const Place& read, const Place& write) {
    if (read.outer != write.outer) {
      return read.outer < write.outer;
    }
    return read.in_body && write.in_body && read.inner < write.inner &&
           read.iteration == write.iteration;
  }

  const GenericGraph& graph_;
  const params::Table& table_;
  std::map<uint32_t, Write> writes_;  // by tie
};

}  // namespace

Result<std::vector<uint32_t>> written_storages(const GenericGraph& graph,
                                               const params::Table& table) {
  return Updates(graph, table).find();
}

}  // namespace bowline::detail::graph
