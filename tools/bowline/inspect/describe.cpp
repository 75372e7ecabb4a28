#include "inspect/describe.h"

#include <filesystem>
#include <map>

#include "common/sha256.h"
#include "core/status.h"
#include "graph/model_state.h"

namespace bowline::command {
namespace {

using graph::Graph;
using nlohmann::json;
using params::Role;

json shape_of(const graph::ValueInfo& value) {
  json out = json::array();
  if (value.dims.empty()) {
    for (int i = 0; i < value.shape.rank(); ++i) {
      out.push_back(value.shape[i]);
    }
  }
  for (const GraphDim& dim : value.dims) {
    out.push_back(dim.name.empty() ? json(dim.value) : json(dim.name));
  }
  return out;
}

void count_nodes(const Graph& g, std::map<std::string, uint64_t>& counts) {
  for (const graph::Node& node : g.nodes) {
    if (node.repeat) {
      count_nodes(*node.repeat->body, counts);
    }
    ++counts[op_def(node.op).name];
  }
}

json entry_point(const Graph& g) {
  json inputs = json::array();
  for (const graph::ValueId v : g.inputs) {
    inputs.push_back(
        {{"name", g[v].name}, {"dtype", format("{}", g[v].dtype)}, {"shape", shape_of(g[v])}});
  }
  std::map<std::string, uint64_t> counts;
  count_nodes(g, counts);
  uint64_t nodes = 0;
  for (const auto& [name, count] : counts) {
    nodes += count;
  }
  return {{"name", g.name},
          {"inputs", inputs},
          {"outputs", g.output_names},
          {"nodes", nodes},
          {"operators", counts}};
}

// Every storage with more than one parameter, and what its parameters would cost without the tie.
json ties_of(const params::Table& table) {
  std::vector<json> names(table.storages.size(), json::array());
  std::vector<uint64_t> untied(table.storages.size());
  for (const params::ParameterRow& p : table.parameters) {
    const params::Storage& storage = table.storages[p.tie];
    const Result<Shape> shape = params::view_shape(p.view, storage.shape);
    names[p.tie].push_back(p.name);
    untied[p.tie] +=
        storage.encoding.bytes(storage.dtype, shape.ok() ? shape.value() : storage.shape);
  }
  json out = json::array();
  for (size_t tie = 0; tie < names.size(); ++tie) {
    if (names[tie].size() > 1) {
      const uint64_t bytes = table.storages[tie].bytes();
      out.push_back({{"tie", tie},
                     {"parameters", names[tie]},
                     {"bytes", bytes},
                     {"saved_bytes", untied[tie] > bytes ? untied[tie] - bytes : 0}});
    }
  }
  return out;
}

json dims_of(const Shape& shape) {
  return std::vector<int64_t>(shape.dims().begin(), shape.dims().end());
}

json storages_of(const params::Table& table) {
  json out = json::array();
  for (size_t tie = 0; tie < table.storages.size(); ++tie) {
    const params::Storage& s = table.storages[tie];
    json row = {{"tie", tie}, {"empty", s.empty}};
    if (!s.empty) {
      row.update({{"dtype", format("{}", s.dtype)},
                  {"shape", dims_of(s.shape)},
                  {"bytes", s.bytes()},
                  {"role", std::string(params::name_of(s.role))},
                  {"trainable", s.trainable}});
    }
    out.push_back(row);
  }
  return out;
}

json parameters_of(const params::Table& table) {
  json out = json::array();
  for (const params::ParameterRow& p : table.parameters) {
    const params::Storage& s = table.storages[p.tie];
    const Result<Shape> view = params::view_shape(p.view, s.shape);
    out.push_back({{"name", p.name},
                   {"tie", p.tie},
                   {"dtype", format("{}", s.dtype)},
                   {"shape", dims_of(view.ok() ? view.value() : s.shape)},
                   {"view", !(p.view == View{})},
                   {"trainable", s.trainable}});
  }
  return out;
}

// Numbers and bytes; a tied weight counts once, and what a training adds counts apart.
json sizes_of(const params::Table& table) {
  uint64_t elements = 0;
  uint64_t trainable = 0;
  uint64_t bytes = 0;
  uint64_t training = 0;
  uint64_t rows = 0;
  for (const params::Storage& s : table.storages) {
    if (s.empty) {
      continue;
    }
    if (s.role == Role::gradient || s.role == Role::moment) {
      training += s.bytes();
      continue;
    }
    const auto n = static_cast<uint64_t>(s.shape.elements());
    ++rows;
    elements += n;
    trainable += s.trainable ? n : 0;
    bytes += s.bytes();
  }
  return {{"storages", rows},
          {"elements", elements},
          {"trainable_elements", trainable},
          {"bytes", bytes},
          {"training_bytes", training}};
}

json training_of(const file::TrainingStateT& t) {
  json settings = json::object();
  for (const auto& entry : t.config) {
    settings[entry->key] = entry->value;
  }
  // What must be the same for the run to go on; the optimizer is the first of it.
  json run = json::object();
  for (const auto& entry : t.run) {
    run[entry->key] = entry->value;
  }
  json versions = json::object();
  for (const auto& entry : t.versions) {
    versions[entry->key] = entry->value;
  }
  return {{"step", t.step}, {"micro_step", t.micro_step}, {"epoch", t.epoch},
          {"run", run},     {"settings", settings},       {"versions", versions}};
}

}  // namespace

Result<json> describe_model(const Model& model, const std::string& path) {
  const graph::ModelState& state = *model.state();
  json all = {{"file", path},
              {"kind", state.training ? "checkpoint" : "model"},
              {"file_bytes", std::filesystem::file_size(path)},
              {"sizes", sizes_of(state.table)},
              {"metadata", json::object()},
              {"dims", json::array()},
              {"counted_dims", json::array()},
              {"entry_points", json::array()},
              {"parameters", parameters_of(state.table)},
              {"storages", storages_of(state.table)},
              {"ties", ties_of(state.table)}};
  BOWLINE_ASSIGN(all["sha256"], sha256_of_file(path));
  if (state.training) {
    all["training"] = training_of(*state.training);
  }
  for (const auto& entry : state.metadata) {
    all["metadata"][entry->key] = entry->value;
  }
  for (const graph::NamedDim& d : state.dims) {
    all["dims"].push_back(d.name);
    if (d.counted) {
      all["counted_dims"].push_back(d.name);
    }
  }
  for (const Graph& g : state.graphs) {
    all["entry_points"].push_back(entry_point(g));
  }
  uint64_t saved = 0;
  for (const json& tie : all["ties"]) {
    saved += tie["saved_bytes"].get<uint64_t>();
  }
  all["saved_bytes"] = saved;
  return all;
}

json describe_memory(const MemoryReport& m) {
  return {{"predicted_bytes", m.predicted_bytes},
          {"storage_bytes", m.storage_bytes},
          {"arena_bytes", m.arena_bytes},
          {"arena_lower_bound_bytes", m.lower_bound_bytes},
          {"io_bytes", m.io_bytes},
          {"backend_bytes", m.backend_bytes},
          {"staging_bytes", m.staging_bytes}};
}

}  // namespace bowline::command
