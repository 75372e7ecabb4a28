#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/status.h"
#include "peft/adapter.h"
#include "peft/changes.h"
#include "peft/head.h"

namespace bowline::peft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Architectures whose fused products transformers splits when it loads them. So its modules are not
// those of the files.
constexpr std::string_view kSplit[] = {"gte", "nomic_bert"};
// Encoders whose names always have a prefix, as those of decoders.
constexpr std::string_view kPrefixed[] = {"eurobert", "modernbert"};

// transformers adds the kind of the encoder to the names in models with a head.
std::string module_in_transformers(const Model& model, std::string_view module) {
  const std::string architecture = model.metadata("architecture");
  const bool has_prefix = model.metadata("causal") == "true" ||
                          std::ranges::find(kPrefixed, architecture) != std::end(kPrefixed);
  if (!has_class_head(model) || has_prefix) {
    return std::string(module);
  }
  const std::string begin = (architecture == "xlm-roberta" ? "roberta" : architecture) + ".";
  return (module.starts_with(begin) ? "" : begin) + std::string(module);
}

std::string_view kind_of(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// Returns the last parts of the module names, or the whole names if not all modules with these last
// parts are changed.
std::vector<std::string> target_modules(const Model& model, const ModelInfo& info,
                                        const std::vector<Change>& changes) {
  std::set<std::string_view> names, kinds;
  for (const Change& c : changes) {
    names.insert(c.parameter);
    kinds.insert(kind_of(module_of(c.parameter)));
  }
  const bool all = std::ranges::all_of(info.parameters, [&](const ParameterInfo& p) {
    return !p.target.empty() || module_of(p.name).empty() || names.contains(p.name) ||
           !kinds.contains(kind_of(module_of(p.name)));
  });
  std::vector<std::string> out;
  for (const std::string_view name : all ? kinds : names) {
    out.push_back(all ? std::string(name) : module_in_transformers(model, module_of(name)));
  }
  return out;
}

std::string_view task_type_of(const Model& model) {
  const std::string task = model.metadata("task");
  return task == "classify" ? "SEQ_CLS"
         : task == "tag"    ? "TOKEN_CLS"
         : task == "embed"  ? "FEATURE_EXTRACTION"
                            : "CAUSAL_LM";
}

// Writes an integral value as an integer, and others with the digits of a float.
json number_of(double n) {
  return n == std::floor(n) && std::abs(n) < 1e9
             ? json(static_cast<int64_t>(n))
             : json::parse(fmt::format("{}", static_cast<float>(n)));
}

std::string config_of(const Model& model, const ModelInfo& info, const LowRank& from,
                      bool has_head) {
  const std::string base = model.metadata("name");
  const bool has_conv1d = std::ranges::count(from.changes, Layout::conv1d, &Change::layout) != 0;
  const ordered_json config = {
      {"peft_type", "LORA"},
      {"task_type", task_type_of(model)},
      {"base_model_name_or_path", base.empty() ? json() : json(base)},
      {"r", from.rank},
      {"lora_alpha", number_of(from.scaling * static_cast<double>(from.rank))},
      {"lora_dropout", number_of(from.dropout)},
      {"target_modules", target_modules(model, info, from.changes)},
      {"fan_in_fan_out", has_conv1d},
      {"bias", "none"},
      {"use_rslora", false},
      {"use_dora", false},
      {"modules_to_save", has_head ? json::array({head_module(model)}) : json()},
      {"rank_pattern", json::object()},
      {"alpha_pattern", json::object()},
      {"init_lora_weights", true},
      {"inference_mode", true}};
  return config.dump(2) + "\n";
}

struct Named {
  std::string name;
  Factor* factor;
};

constexpr std::string_view kWritten = "base_model.model.";

std::vector<Named> tensors_of(const Model& model, std::vector<Change>& changes,
                              std::vector<Factor>& head) {
  std::vector<Named> out;
  for (Change& c : changes) {
    const std::string begin =
        std::string(kWritten) + module_in_transformers(model, module_of(c.parameter));
    const bool table = c.layout == Layout::embedding;
    out.push_back({begin + (table ? ".lora_embedding_A" : ".lora_A.weight"), &c.a});
    out.push_back({begin + (table ? ".lora_embedding_B" : ".lora_B.weight"), &c.b});
  }
  for (Factor& whole : head) {
    out.push_back({std::string(kWritten) + whole.name, &whole});
  }
  return out;
}

std::string header_of(const std::vector<Named>& tensors) {
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t bytes = 0;
  for (const auto& [name, factor] : tensors) {
    const uint64_t end = bytes + factor->bytes.size();
    header[name] = {{"dtype", type_name(factor->dtype)},
                    {"shape", factor->shape},
                    {"data_offsets", {bytes, end}}};
    bytes = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

// peft merges module by module, and so changes a weight that two modules share twice.
std::vector<std::string> notes_on_ties(const ModelInfo& info, const std::vector<Change>& changes) {
  std::map<uint32_t, std::string> first;  // changed parameter of a storage
  std::vector<std::string> notes;
  for (const ParameterInfo& p : info.parameters) {
    if (std::ranges::find(changes, p.name, &Change::parameter) == changes.end()) {
      continue;
    }
    const auto [other, is_first] = first.try_emplace(p.tie, p.name);
    if (!is_first) {
      notes.push_back(fmt::format(
          "\"{}\" and \"{}\" share one weight. merge_and_unload() of the peft package adds the "
          "change to it twice. To merge, use 'bowline export MODEL --adapter ADAPTER --to hf'.",
          other->second, p.name));
    }
  }
  return notes;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Result<AdapterFolder> adapter_folder(const Model& model, std::string_view name) {
  const std::string architecture = model.metadata("architecture");
  BOWLINE_REQUIRE(
      std::ranges::find(kSplit, architecture) == std::end(kSplit),
      "transformers divides the tensors of {} into other modules than those of its "
      "files, so peft cannot load an adapter for them. Export the merged model: bowline "
      "export MODEL --adapter ADAPTER --to hf.",
      architecture);
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(LowRank from, changes_of(model, name));
  BOWLINE_TRY_ASSIGN(std::vector<Factor> head, head_of(model, from));
  std::erase_if(from.changes, [&](const Change& c) { return in_head(model, c.parameter); });
  BOWLINE_REQUIRE(
      !from.changes.empty(),
      "Adapter \"{}\" changes only the classification head. peft cannot store an adapter "
      "without a low-rank module.",
      name);
  BOWLINE_TRY(require_low_rank(from));
  const std::vector<Named> tensors = tensors_of(model, from.changes, head);
  AdapterFolder out;
  out.notes = notes_on_ties(info, from.changes);
  FolderFile weights{std::string(kWeightsFile), {bytes_of(header_of(tensors))}};
  const std::string config = config_of(model, info, from, !head.empty());
  for (const Named& t : tensors) {
    ++out.tensors;
    out.bytes += t.factor->bytes.size();
    weights.pieces.push_back(std::move(t.factor->bytes));
  }
  out.files = {std::move(weights), {"adapter_config.json", {bytes_of(config)}}};
  return out;
}

}  // namespace bowline::peft
