#include "common/trained_values.h"

#include <functional>
#include <numeric>
#include <set>

#include "base/status.h"
#include "common/array.h"
#include "common/html.h"

namespace bowline::command {
namespace {

// Adds the storages that Embedding nodes read.
void add_looked_up(const std::vector<NodeInfo>& nodes, const ModelInfo& info,
                   std::set<uint32_t>& ties) {
  for (const NodeInfo& node : nodes) {
    add_looked_up(node.body, info, ties);
    if (node.op != "Embedding") {
      continue;
    }
    for (const NodeValueInfo& input : node.inputs) {
      for (const uint32_t p : input.parameters) {
        ties.insert(info.parameters[p].tie);
      }
    }
  }
}

}  // namespace

uint64_t elements_of(const StorageInfo& s) {
  return static_cast<uint64_t>(
      std::accumulate(s.shape.begin(), s.shape.end(), int64_t{1}, std::multiplies<>()));
}

bool is_trained(const StorageInfo& s) {
  const bool weight = s.role == StorageRole::weight || s.role == StorageRole::adapter_a ||
                      s.role == StorageRole::adapter_b;
  return weight && !s.empty && s.trainable && is_float(s.dtype) && s.encoding == "plain";
}

TrainedValues trained_values(const ModelInfo& info) {
  TrainedValues out;
  for (const StorageInfo& s : info.storages) {
    if (s.empty || is_training(s.role) || s.role == StorageRole::kv_cache) {
      continue;
    }
    out.all += elements_of(s);
    out.values += is_trained(s) ? elements_of(s) : 0;
  }
  return out;
}

Status require_weights_to_train(const ModelInfo& info) {
  std::set<uint32_t> looked_up;
  for (const EntryPointInfo& entry : info.entry_points) {
    add_looked_up(entry.nodes, info, looked_up);
  }
  uint64_t quantized = 0;
  bool any_matrix = false;
  for (const StorageInfo& s : info.storages) {
    const bool is_quantized = !s.empty && s.role == StorageRole::weight && s.encoding != "plain";
    quantized += is_quantized ? elements_of(s) : 0;
    any_matrix = any_matrix || (is_trained(s) && s.shape.size() >= 2 && !looked_up.contains(s.tie));
  }
  const TrainedValues trained = trained_values(info);
  BOWLINE_REQUIRE(quantized == 0 || any_matrix,
                  "Almost nothing would be trained: {} of the {} values of the model are quantized "
                  "and stay as they are. Only {} would be trained (norms, biases, embeddings).\n"
                  "- --lora-rank 8 trains an adapter over the quantized weights.\n"
                  "- 'bowline quantize MODEL --encoding plain --out PLAIN' makes a model whose "
                  "weights can be trained.",
                  grouped(quantized), grouped(trained.all), grouped(trained.values));
  return {};
}

}  // namespace bowline::command
