#include "graph/tie_metadata.h"

#include <set>

#include "graph/op_table.h"

namespace bowline::detail::graph {
namespace {

constexpr std::string_view kTiedTo = "tied_to.";
constexpr std::string_view kTieWordEmbeddings = "tie_word_embeddings";

// The storages that an embedding reads, and those that a product reads as a matrix. A node that can
// read quantized values in both ways is an embedding if it has ids.
struct Uses {
  std::set<uint32_t> looked_up, multiplied;
};

void add_uses(const GenericGraph& graph, const params::Table& table, Uses& out) {
  for (const GenericNode& node : graph.nodes) {
    const bool has_ids =
        std::ranges::any_of(node.inputs, [&](ValueId v) { return !is_float(graph[v].dtype); });
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const OpDef& def = op_def(node.op);
      if ((def.encoded_inputs >> i & 1) == 0 || may_write_codes(def)) {
        continue;
      }
      for (const uint32_t p : graph[node.inputs[i]].parameters) {
        (has_ids ? out.looked_up : out.multiplied).insert(table.parameters[p].tie);
      }
    }
  }
}

// True if an embedding and a head share a storage. Nothing if the model lacks one of them.
std::optional<bool> ties_word_embeddings(const ModelState& model) {
  Uses uses;
  for (const GenericGraph& graph : model.entry_points.graphs) {
    for (const GenericGraph* const g : with_bodies(graph)) {
      add_uses(*g, model.table, uses);
    }
  }
  if (uses.looked_up.empty() || uses.multiplied.empty()) {
    return {};
  }
  return std::ranges::any_of(uses.looked_up,
                             [&](uint32_t tie) { return uses.multiplied.contains(tie); });
}

// The contradiction between the entry and the ties, or "". `tied` is ties_word_embeddings().
std::string contradiction(const ModelState& model, std::optional<bool> tied,
                          const Settings::value_type& entry) {
  const auto& [key, value] = entry;
  if (key == kTieWordEmbeddings && (value == "true" || value == "false")) {
    if (!tied || *tied == (value == "true")) {
      return {};
    }
    return *tied ? "an embedding and a head share a storage"
                 : "no embedding shares its storage with a head";
  }
  if (!key.starts_with(kTiedTo)) {
    return {};
  }
  const params::Table& table = model.table;
  const std::string name = key.substr(kTiedTo.size());
  for (const std::string& one : {name, value}) {
    if (!table.find(one)) {
      return format("there is no parameter \"{}\"", one);
    }
  }
  const uint32_t a = table.parameters[*table.find(name)].tie;
  const uint32_t b = table.parameters[*table.find(value)].tie;
  return a == b ? std::string()
                : format("\"{}\" has storage {} and \"{}\" has storage {}", name, a, value, b);
}

}  // namespace

Status check_tie_metadata(const ModelState& model) {
  const std::optional<bool> tied = ties_word_embeddings(model);
  for (const Settings::value_type& entry : model.extras.metadata) {
    const std::string why = contradiction(model, tied, entry);
    if (!why.empty()) {
      return Status(
          Code::bad_file,
          format("The metadata has \"{}\" = \"{}\", but in the parameter table {}. "
                 "OpenOptions::ignore_tie_metadata opens the file with the ties of the table.",
                 entry.first, entry.second, why));
    }
  }
  return {};
}

Settings true_metadata(const ModelState& model) {
  const std::optional<bool> tied = ties_word_embeddings(model);
  Settings out;
  for (const Settings::value_type& entry : model.extras.metadata) {
    if (contradiction(model, tied, entry).empty()) {
      out.push_back(entry);
    } else if (entry.first == kTieWordEmbeddings) {
      out.emplace_back(entry.first, entry.second == "true" ? "false" : "true");
    }
  }
  return out;
}

}  // namespace bowline::detail::graph
