#include "graph/save.h"

#include <algorithm>

#include "graph/load.h"
#include "graph/tie_metadata.h"
#include "graph/updates.h"
#include "model/assemble.h"
#include "params/file.h"

namespace bowline::detail::graph {
namespace {

constexpr uint32_t kNoNumber = UINT32_MAX;

// Numbers the values of one graph as the file does, and writes its nodes; bodies follow their
// graph.
class GraphWriter {
 public:
  GraphWriter(std::vector<model::GraphEntry>& graphs, const GenericGraph& from)
      : graphs_(graphs), from_(from) {}

  Status write(bool body) {
    number_.assign(from_.values.size(), kNoNumber);
    index_ = graphs_.size();
    graphs_.emplace_back();
    to().name = from_.name;
    to().body = body;
    add_inputs(body);
    add_parameters(body);
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      BOWLINE_TRY(add_node(from_.nodes[i]).at(format("While writing {}.", describe(from_, i))));
    }
    for (size_t i = 0; i < from_.outputs.size(); ++i) {
      to().outputs.push_back(
          {body ? std::string_view() : from_.output_names[i], number_[from_.outputs[i]]});
    }
    return {};
  }

  // The parameter lists of a body, in the order of their values.
  static std::vector<std::span<const uint32_t>> lists_of(const GenericGraph& body) {
    std::vector<std::span<const uint32_t>> out;
    for (const GenericValue& v : body.values) {
      if (v.kind == ValueKind::parameter) {
        out.emplace_back(v.parameters);
      }
    }
    return out;
  }

 private:
  // Not a reference member: adding a body moves the others.
  model::GraphEntry& to() { return graphs_[index_]; }

  void add_inputs(bool body) {
    for (const ValueId v : from_.inputs) {
      number_[v] = next_++;
      model::InputEntry value;
      value.name = from_[v].name;
      if (!body) {
        value.dtype = from_[v].dtype;
        value.dims = from_[v].dims;
      }
      to().inputs.push_back(std::move(value));
    }
  }

  void add_parameters(bool body) {
    for (ValueId v = 0; v < from_.values.size(); ++v) {
      if (from_[v].kind == ValueKind::parameter) {
        number_[v] = next_++;
        if (body) {
          ++to().body_parameters;
        } else {
          to().parameters.push_back(from_[v].parameters[0]);
        }
      }
    }
  }

  Status add_node(const GenericNode& node) {
    BOWLINE_REQUIRE_CODE(!is_internal(node.op), Code::internal,
                         "The operator is internal and cannot be saved.");
    model::NodeEntry out;
    out.op = node.op;
    out.name = node.name;
    for (const ValueId v : node.inputs) {
      out.inputs.push_back(number_[v]);
    }
    out.outputs = static_cast<uint32_t>(node.outputs.size());
    for (const ValueId v : node.outputs) {
      number_[v] = next_++;
    }
    if (!node.repeat) {
      out.attributes = node.attributes;
      to().nodes.push_back(std::move(out));
      return {};
    }
    model::RepeatEntry& repeat = out.repeat.emplace();
    repeat.body = static_cast<uint32_t>(graphs_.size());  // written next
    repeat.count = node.repeat->count;
    repeat.carried = node.repeat->carried;
    repeat.parameters = lists_of(*node.repeat->body);
    to().nodes.push_back(std::move(out));
    return GraphWriter(graphs_, *node.repeat->body).write(true);
  }

  std::vector<model::GraphEntry>& graphs_;
  const GenericGraph& from_;
  size_t index_ = 0;
  std::vector<uint32_t> number_;
  uint32_t next_ = 0;
};

// The rows that a file gets. Rows of a training are saved only with its state.
std::vector<bool> kept_rows(const params::Table& table, const model::TrainingState* training) {
  std::vector<bool> keep;
  for (const params::Storage& s : table.storages) {
    const bool gradient = s.role == params::Role::gradient;
    const bool optimizer = s.role == params::Role::moment || s.role == params::Role::master;
    keep.push_back(gradient    ? training != nullptr && training->micro_step > 0
                   : optimizer ? training != nullptr
                               : true);
  }
  return keep;
}

// True if no value changed since loading, because every loaded row with bytes has version 1.
bool is_unchanged(const params::Table& table) {
  return std::ranges::all_of(table.storages,
                             [](const params::Storage& s) { return s.empty || s.version <= 1; });
}

Status write_entry_point(model::Description& out, const GenericGraph& g,
                         const params::Table& table) {
  const size_t index = out.graphs.size();
  BOWLINE_TRY(GraphWriter(out.graphs, g).write(false));
  BOWLINE_TRY_ASSIGN(out.graphs[index].updates, written_storages(g, table));
  return {};
}

// The result refers to `state`.
Result<model::Description> describe(const ModelState& state, const model::TrainingState* training) {
  model::Description out;
  out.dims = state.entry_points.dims;
  params::describe_table(state.table, kept_rows(state.table, training), out);
  for (const GenericGraph& g : state.entry_points.graphs) {
    BOWLINE_TRY(
        write_entry_point(out, g, state.table).at(format("While writing graph \"{}\".", g.name)));
  }
  out.metadata = true_metadata(state);
  out.assets = state.extras.assets;
  if (is_unchanged(state.table)) {
    out.self_tests = state.extras.self_tests;
  }
  out.base = state.extras.base ? &*state.extras.base : nullptr;
  out.training = training;
  return out;
}

}  // namespace

Status save_model(const ModelState& state, const std::string& path,
                  const model::TrainingState* training, FileSystem& files) {
  BOWLINE_TRY_ASSIGN(const model::Description model, describe(state, training));
  const auto accepted = [](std::shared_ptr<const model::VerifiedFile> file) {
    return load_model(std::move(file)).status();
  };
  Status status = model::write_model(path, model, accepted, files);
  if (!status.ok()) {  // after a success nothing may fail, not even this format()
    return std::move(status).at(format("While saving \"{}\".", path));
  }
  return status;
}

}  // namespace bowline::detail::graph
