#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/escape.h"
#include "base/status.h"
#include "huggingface/safetensors.h"
#include "peft/adapter.h"
#include "peft/changes.h"
#include "peft/head.h"
#include "source/file.h"
#include "source/json.h"
#include "source/keys.h"

namespace bowline::peft {
namespace {

using import::Fields;
using import::KeyRule;
using import::KeyUse;
using import::SourceTensor;
using nlohmann::json;

constexpr uint64_t kMostConfigBytes = uint64_t{1} << 20;
constexpr std::string_view kConfig = "adapter_config.json", kTensors = "adapter_model.safetensors";

std::string path_in(const std::string& folder, std::string_view file) {
  return (std::filesystem::path(folder) / file).string();
}

constexpr std::string_view kNone = "[null, false, {}, []]";

// Source  peft, tuners/lora/config.py (LoraConfig) and config.py (PeftConfigMixin).
constexpr KeyRule kKeys[] = {
    {"peft_type r lora_alpha lora_dropout use_rslora bias modules_to_save"},
    {"task_type auto_mapping peft_version base_model_name_or_path revision inference_mode",
     KeyUse::harmless},
    {"target_modules", KeyUse::harmless},  // same as the modules that have tensors
    {"exclude_modules layers_to_transform layers_pattern", KeyUse::harmless},
    {"fan_in_fan_out", KeyUse::harmless},  // storage order of the base weights
    {"megatron_core qalora_group_size", KeyUse::harmless},
    {"eva_config", KeyUse::harmless},  // initialization of the factors
    // Other methods also change the base weights.
    {"init_lora_weights", KeyUse::fixed, R"([null, true, false, "gaussian", "orthogonal", "eva"])"},
    {"loftq_config corda_config lora_ga_config use_dora rank_pattern alpha_pattern lora_bias "
     "use_qalora layer_replication alora_invocation_tokens use_bdlora arrow_config kasa_config "
     "trainable_token_indices target_parameters velora_config monteclora_config megatron_config "
     "ensure_weight_tying",
     KeyUse::fixed, kNone},
};

// Accepts only the classification head in modules_to_save. peft lists the names of encoders and
// decoders.
Status check_saved(const Model& model, const json& config) {
  const auto found = config.find("modules_to_save");
  if (found == config.end() || !import::asks(*found)) {
    return {};
  }
  const bool known = has_class_head(model) && found->is_array() &&
                     std::ranges::all_of(*found, [](const json& module) {
                       return module == "classifier" || module == "score";
                     });
  BOWLINE_REQUIRE_CODE(known, Code::unsupported,
                       "{} has \"modules_to_save\" ({}), which is supported only for the "
                       "classification head.",
                       kConfig, import::shown(*found));
  return {};
}

// Reads everything except the changes.
Result<LowRank> read_config(const Model& model, const std::string& folder) {
  BOWLINE_TRY_ASSIGN(const std::string text,
                     import::read_whole(path_in(folder, kConfig), kMostConfigBytes));
  BOWLINE_TRY_ASSIGN(const json config, import::parse_json(kConfig, text));
  BOWLINE_REQUIRE_CODE(config.is_object(), Code::bad_file, "{} is not an object.", kConfig);
  Fields fields(std::string(kConfig), config);
  const std::string type = fields.text("peft_type");
  const std::string bias = fields.text_or("bias", "none");
  LowRank out;
  out.rank = fields.integer("r", 1, 65536);
  const double alpha = fields.number("lora_alpha", -1e9, 1e9);
  out.dropout = fields.number_or("lora_dropout", 0, 1, 0);
  const bool by_root = fields.boolean_or("use_rslora", false);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(type == "LORA", Code::unsupported,
                       "The adapter has the type {}. Only LORA is supported.", listed_name(type));
  BOWLINE_TRY(import::check_keys(kConfig, config, {kKeys}));
  BOWLINE_TRY(check_saved(model, config));
  BOWLINE_REQUIRE_CODE(bias == "none", Code::unsupported,
                       "{} has trained biases (\"bias\": {}), which are not supported.", kConfig,
                       listed_name(bias));
  BOWLINE_REQUIRE_CODE(out.dropout < 1, Code::bad_file,
                       "{} has a \"lora_dropout\" of 1. It must be below 1.", kConfig);
  const auto rank = static_cast<double>(out.rank);
  out.scaling = alpha / (by_root ? std::sqrt(rank) : rank);
  return out;
}

// The tensors of a module.
struct Parts {
  const SourceTensor* a = nullptr;
  const SourceTensor* b = nullptr;
  // (optional) The base weight, which peft also writes for embedding tables and heads.
  const SourceTensor* base = nullptr;
  bool is_embedding = false;
};

struct Ending {
  std::string_view text;
  const SourceTensor* Parts::*tensor;
  bool is_embedding;
};
constexpr Ending kEndings[] = {{".lora_A.weight", &Parts::a, false},
                               {".lora_B.weight", &Parts::b, false},
                               {".lora_embedding_A", &Parts::a, true},
                               {".lora_embedding_B", &Parts::b, true},
                               {".base_layer.weight", &Parts::base, false}};

constexpr std::string_view kBegin = "base_model.model.";

// Moves the tensors of the head to full-rank changes.
Result<std::vector<Change>> head_changes(const Model& model, const LowRank& from,
                                         std::vector<SourceTensor>& tensors) {
  const auto is_saved = [&](const SourceTensor& t) {
    return t.name.starts_with(kBegin) && t.name.find(".lora_") == std::string::npos &&
           in_head(model, std::string_view(t.name).substr(kBegin.size()));
  };
  std::vector<Change> out;
  for (SourceTensor t : tensors) {
    if (is_saved(t)) {
      t.name = t.name.substr(kBegin.size());
      BOWLINE_TRY_ASSIGN(std::optional<Change> change, head_change(model, t, from));
      if (change) {
        out.push_back(std::move(*change));
      }
    }
  }
  std::erase_if(tensors, is_saved);
  return out;
}

// By the module's name in the wrapped model.
Result<std::map<std::string, Parts>> parts_of(const std::vector<SourceTensor>& tensors) {
  std::map<std::string, Parts> out;
  for (const SourceTensor& t : tensors) {
    const auto* const end =
        std::ranges::find_if(kEndings, [&](const Ending& e) { return t.name.ends_with(e.text); });
    BOWLINE_REQUIRE_CODE(end != std::end(kEndings) && t.name.starts_with(kBegin), Code::unsupported,
                         "The tensor {} is not a LoRA factor. Other tensors are not supported.",
                         listed_name(t.name));
    std::string module = t.name.substr(kBegin.size());
    module.resize(module.size() - std::min(module.size(), end->text.size()));
    Parts& parts = out[module];
    parts.*end->tensor = &t;
    parts.is_embedding = parts.is_embedding || end->is_embedding;
  }
  for (const auto& [module, parts] : out) {
    BOWLINE_REQUIRE_CODE(parts.a != nullptr && parts.b != nullptr, Code::bad_file,
                         "The module {} has only one of its two factors.", listed_name(module));
  }
  return out;
}

// Returns the weight of a module. The name in the model may lack the prefix of the wrapped model
// ("bert.", "model."), or have an additional prefix.
Result<const ParameterInfo*> target_of(const ModelInfo& info, const std::string& module) {
  const std::string dotted = "." + module;
  const ParameterInfo* found = nullptr;
  for (const ParameterInfo& p : info.parameters) {
    const std::string_view known = module_of(p.name);
    if (known.empty() || !p.target.empty()) {
      continue;
    }
    if (known == module) {
      return &p;
    }
    if (known.ends_with(dotted) || dotted.ends_with("." + std::string(known))) {
      BOWLINE_REQUIRE_CODE(found == nullptr, Code::bad_file,
                           "The module {} is ambiguous: the model has \"{}\" and \"{}\".",
                           listed_name(module), found->name, p.name);
      found = &p;
    }
  }
  BOWLINE_REQUIRE_CODE(found != nullptr, Code::bad_file,
                       "The model has no parameter for the module {}: the adapter is for another "
                       "model.",
                       listed_name(module));
  return found;
}

// Compares the base weight with the model's, if the file has it.
Status check_base(const Model& model, const ParameterInfo& target, const SourceTensor* base) {
  if (base == nullptr) {
    return {};
  }
  std::vector<std::byte> theirs(base->bytes), ours(base->bytes);
  const bool same_form = TensorShape(base->shape) == target.shape && base->dtype == target.dtype;
  if (same_form) {
    BOWLINE_TRY(base->read(0, theirs));
    BOWLINE_TRY(model.get_value(target.name, {"", base->dtype, target.shape, ours.data()}));
  }
  BOWLINE_REQUIRE_CODE(
      same_form && theirs == ours, Code::unsupported,
      "The adapter contains a \"{}\" that differs from the model's ({}, [{}]), which is "
      "not supported.",
      target.name, name_of(base->dtype), fmt::format("{}", fmt::join(base->shape, ", ")));
  return {};
}

Result<Factor> factor_of(const SourceTensor& tensor) {
  Factor out{tensor.name, tensor.dtype, tensor.shape, std::vector<std::byte>(tensor.bytes)};
  BOWLINE_TRY(tensor.read(0, out.bytes));
  return out;
}

Result<Change> change_of(const Model& model, const ModelInfo& info, const std::string& module,
                         const Parts& parts) {
  BOWLINE_TRY_ASSIGN(const ParameterInfo* target, target_of(info, module));
  Change out{target->name, layout_of(model, target->name), {}, {}};
  BOWLINE_REQUIRE_CODE(parts.is_embedding == (out.layout == Layout::embedding), Code::bad_file,
                       "The module {} is {}an embedding table in the model, but is {}in the file.",
                       listed_name(module), parts.is_embedding ? "not " : "",
                       parts.is_embedding ? "" : "not ");
  BOWLINE_TRY(check_base(model, *target, parts.base));
  BOWLINE_TRY_ASSIGN(out.a, factor_of(*parts.a));
  BOWLINE_TRY_ASSIGN(out.b, factor_of(*parts.b));
  return out;
}

Result<AdapterReport> read(Model& model, const std::string& folder, std::string_view name) {
  BOWLINE_TRY(import::check_inside(folder, path_in(folder, kConfig)));
  BOWLINE_TRY_ASSIGN(LowRank from, read_config(model, folder));
  const std::string path = path_in(folder, kTensors);
  BOWLINE_TRY(import::check_inside(folder, path));
  std::error_code error;
  BOWLINE_REQUIRE_CODE(std::filesystem::exists(path, error), Code::bad_file,
                       "The folder has no {}. Other weight formats are not supported.", kTensors);
  BOWLINE_TRY_ASSIGN(huggingface::Safetensors file, huggingface::read_safetensors(path));
  BOWLINE_TRY_ASSIGN(from.changes, head_changes(model, from, file.tensors));
  BOWLINE_TRY_ASSIGN(const auto all, parts_of(file.tensors));
  BOWLINE_REQUIRE_CODE(!all.empty(), Code::bad_file, "{} has no LoRA factors.", kTensors);
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  for (const auto& [module, parts] : all) {
    BOWLINE_TRY_ASSIGN(from.changes.emplace_back(), change_of(model, info, module, parts));
  }
  return add_changes(model, name, from);
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path_in(path, kConfig), error);
}

Result<AdapterReport> read_adapter(Model& model, const std::string& folder, std::string_view name) {
  Result<AdapterReport> out = read(model, folder, name);
  BOWLINE_TRY(
      Status(out.status()).at(fmt::format("While reading the adapter \"{}\".", escaped(folder))));
  return out;
}

}  // namespace bowline::peft
