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

// A row for each item.
json rows_of(const auto& items, const auto& row) {
  json out = json::array();
  for (const auto& item : items) {
    out.push_back(row(item));
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
  const auto dim = [](const GraphDim& d) { return d.name.empty() ? json(d.value) : json(d.name); };
  const auto input = [&](const InputInfo& i) -> json {
    return {{"name", i.name},
            {"dtype", std::string(name_of(i.dtype))},
            {"shape", rows_of(i.dims, dim)}};
  };
  std::map<std::string, uint64_t> counts;
  count_nodes(e.nodes, counts);
  uint64_t nodes = 0;
  for (const auto& [name, count] : counts) {
    nodes += count;
  }
  return {{"name", e.name},
          {"inputs", rows_of(e.inputs, input)},
          {"outputs", rows_of(e.outputs, [](const OutputInfo& o) { return o.name; })},
          {"nodes", nodes},
          {"operators", counts}};
}

json storage_row(const StorageInfo& s) {
  json row = {{"tie", s.tie}, {"empty", s.empty}};
  if (!s.empty) {
    row.update({{"dtype", std::string(name_of(s.dtype))},
                {"shape", dims_of(s.shape)},
                {"bytes", s.bytes},
                {"encoding", s.encoding},
                {"role", std::string(name_of(s.role))},
                {"trainable", s.trainable}});
  }
  return row;
}

json parameter_row(const ParameterInfo& p) {
  return {{"name", p.name},
          {"tie", p.tie},
          {"dtype", std::string(name_of(p.dtype))},
          {"shape", dims_of(p.shape)},
          {"view", !(p.view == View{})},
          {"trainable", p.trainable}};
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
  uint64_t saved = 0;
  json dynamic = json::array();
  for (const DimInfo& d : model.dims) {
    if (d.dynamic) {
      dynamic.push_back(d.name);
    }
  }
  // A storage with more than one parameter, and its size without the tie.
  const auto tie = [&](const TieInfo& t) -> json {
    saved += t.saved_bytes;
    return {{"tie", t.tie},
            {"parameters", names_of(model, t)},
            {"bytes", t.bytes},
            {"saved_bytes", t.saved_bytes}};
  };
  json all = {{"file", path},
              {"kind", model.training       ? "checkpoint"
                       : is_skeleton(model) ? "skeleton"
                                            : "model"},
              {"file_bytes", std::filesystem::file_size(path)},
              {"sizes", sizes_of(model)},
              {"metadata", object_of(model.metadata)},
              {"dims", rows_of(model.dims, [](const DimInfo& d) { return d.name; })},
              {"dynamic_dims", dynamic},
              {"entry_points", rows_of(model.entry_points, entry_point)},
              {"parameters", rows_of(model.parameters, parameter_row)},
              {"storages", rows_of(model.storages, storage_row)},
              {"ties", rows_of(model.ties, tie)}};
  BOWLINE_TRY_ASSIGN(all["sha256"], sha256_of_file(path));
  if (model.training) {
    all["training"] = training_of(*model.training);
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
