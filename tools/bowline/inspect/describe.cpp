#include "inspect/describe.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/status.h"
#include "common/sha256.h"
#include "common/trained_values.h"

namespace bowline::command {
namespace {

using nlohmann::json;

json dims_of(const std::vector<GraphDim>& dims) {
  json out = json::array();
  for (const GraphDim& dim : dims) {
    out.push_back(dim.name.empty() ? json(dim.value) : json(dim.name));
  }
  return out;
}

json dims_of(const TensorShape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

void count_nodes(const std::vector<NodeInfo>& nodes, std::map<std::string, uint64_t>& counts) {
  for (const NodeInfo& node : nodes) {
    count_nodes(node.body, counts);
    ++counts[node.op];
  }
}

json entry_point(const EntryPointInfo& e) {
  json inputs = json::array();
  for (const InputInfo& input : e.inputs) {
    inputs.push_back({{"name", input.name},
                      {"dtype", std::string(name_of(input.dtype))},
                      {"shape", dims_of(input.dims)}});
  }
  json outputs = json::array();
  for (const OutputInfo& output : e.outputs) {
    outputs.push_back(output.name);
  }
  std::map<std::string, uint64_t> counts;
  count_nodes(e.nodes, counts);
  uint64_t nodes = 0;
  for (const auto& [name, count] : counts) {
    nodes += count;
  }
  return {{"name", e.name},
          {"inputs", inputs},
          {"outputs", outputs},
          {"nodes", nodes},
          {"operators", counts}};
}

// Lists every storage with more than one parameter, and its size without the tie.
json ties_of(const ModelInfo& model) {
  json out = json::array();
  for (const TieInfo& tie : model.ties) {
    out.push_back({{"tie", tie.tie},
                   {"parameters", names_of(model, tie)},
                   {"bytes", tie.bytes},
                   {"saved_bytes", tie.saved_bytes}});
  }
  return out;
}

json storages_of(const ModelInfo& model) {
  json out = json::array();
  for (const StorageInfo& s : model.storages) {
    json row = {{"tie", s.tie}, {"empty", s.empty}};
    if (!s.empty) {
      row.update({{"dtype", std::string(name_of(s.dtype))},
                  {"shape", dims_of(s.shape)},
                  {"bytes", s.bytes},
                  {"encoding", s.encoding},
                  {"role", std::string(name_of(s.role))},
                  {"trainable", s.trainable}});
    }
    out.push_back(row);
  }
  return out;
}

json parameters_of(const ModelInfo& model) {
  json out = json::array();
  for (const ParameterInfo& p : model.parameters) {
    out.push_back({{"name", p.name},
                   {"tie", p.tie},
                   {"dtype", std::string(name_of(p.dtype))},
                   {"shape", dims_of(p.shape)},
                   {"view", !(p.view == View{})},
                   {"trainable", p.trainable}});
  }
  return out;
}

// Returns elements and bytes. A tied weight counts once; training state counts separately.
json sizes_of(const ModelInfo& model) {
  uint64_t elements = 0;
  uint64_t trainable = 0;
  uint64_t bytes = 0;
  uint64_t training = 0;
  uint64_t rows = 0;
  for (const StorageInfo& s : model.storages) {
    if (s.empty) {
      continue;
    }
    if (s.role == StorageRole::gradient || s.role == StorageRole::moment) {
      training += s.bytes;
      continue;
    }
    const uint64_t n = elements_of(s);
    ++rows;
    elements += n;
    trainable += s.trainable ? n : 0;
    bytes += s.bytes;
  }
  return {{"storages", rows},
          {"elements", elements},
          {"trainable_elements", trainable},
          {"bytes", bytes},
          {"training_bytes", training}};
}

json object_of(const Settings& settings) { return std::map(settings.begin(), settings.end()); }

json training_of(const TrainingInfo& t) {
  // "run" holds the settings that must be the same to resume. The optimizer is the first.
  return {{"step", t.step},
          {"micro_step", t.micro_step},
          {"epoch", t.epoch},
          {"run", object_of(t.run)},
          {"settings", object_of(t.config)},
          {"versions", object_of(t.versions)}};
}

}  // namespace

bool is_skeleton(const ModelInfo& model) {
  return std::ranges::any_of(model.storages, [](const StorageInfo& s) {
    return !s.empty && s.role == StorageRole::weight && s.where == "nowhere";
  });
}

std::vector<std::string> names_of(const ModelInfo& model, const TieInfo& tie) {
  std::vector<std::string> out;
  for (const uint32_t number : tie.parameters) {
    out.push_back(model.parameters[number].name);
  }
  return out;
}

Result<json> describe_model(const ModelInfo& model, const std::string& path) {
  json all = {{"file", path},
              {"kind", model.training       ? "checkpoint"
                       : is_skeleton(model) ? "skeleton"
                                            : "model"},
              {"file_bytes", std::filesystem::file_size(path)},
              {"sizes", sizes_of(model)},
              {"metadata", object_of(model.metadata)},
              {"dims", json::array()},
              {"dynamic_dims", json::array()},
              {"entry_points", json::array()},
              {"parameters", parameters_of(model)},
              {"storages", storages_of(model)},
              {"ties", ties_of(model)}};
  BOWLINE_TRY_ASSIGN(all["sha256"], sha256_of_file(path));
  if (model.training) {
    all["training"] = training_of(*model.training);
  }
  for (const DimInfo& d : model.dims) {
    all["dims"].push_back(d.name);
    if (d.dynamic) {
      all["dynamic_dims"].push_back(d.name);
    }
  }
  for (const EntryPointInfo& e : model.entry_points) {
    all["entry_points"].push_back(entry_point(e));
  }
  uint64_t saved = 0;
  for (const TieInfo& tie : model.ties) {
    saved += tie.saved_bytes;
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
