#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "common/require.h"
#include "huggingface/safetensors.h"
#include "peft/adapter.h"
#include "peft/modules.h"
#include "source/file.h"
#include "source/json.h"

namespace bowline::peft {
namespace {

using import::Fields;
using import::SourceTensor;
using nlohmann::json;

constexpr uint64_t kMostConfigBytes = uint64_t{1} << 20;
constexpr std::string_view kConfig = "adapter_config.json", kTensors = "adapter_model.safetensors";

std::string path_in(const std::string& folder, std::string_view file) {
  return (std::filesystem::path(folder) / file).string();
}

struct Config {
  int64_t rank = 0;
  double scaling = 0;
  double dropout = 0;
};

// Settings that change what an adapter computes, and that one of Bowline has not.
constexpr std::string_view kUnsupported[] = {
    "use_dora",          "modules_to_save", "rank_pattern",      "alpha_pattern",
    "lora_bias",         "use_qalora",      "layer_replication", "alora_invocation_tokens",
    "use_bdlora",        "arrow_config",    "kasa_config",       "trainable_token_indices",
    "target_parameters", "velora_config",   "monteclora_config", "megatron_config"};

bool asks(const json& value) {
  return !value.is_null() && value != json(false) && !(value.is_structured() && value.empty());
}

Result<Config> read_config(const std::string& folder) {
  const std::string path = path_in(folder, kConfig);
  BOWLINE_ASSIGN(const std::string text, import::read_whole(path, kMostConfigBytes));
  BOWLINE_ASSIGN(const json config, import::parse_json(kConfig, text));
  BOWLINE_REQUIRE_CODE(config.is_object(), Code::bad_file, "{} is no object.", kConfig);
  Fields fields(std::string(kConfig), config);
  const std::string type = fields.text("peft_type");
  const std::string bias = fields.text_or("bias", "none");
  Config out;
  out.rank = fields.integer("r", 1, 65536);
  const double alpha = fields.number("lora_alpha", -1e9, 1e9);
  out.dropout = fields.number_or("lora_dropout", 0, 1, 0);
  const bool by_root = fields.boolean_or("use_rslora", false);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(type == "LORA", Code::unsupported,
                       "The adapter is of the kind {}; LORA alone is read.", listed_name(type));
  for (const std::string_view key : kUnsupported) {
    const auto found = config.find(key);
    BOWLINE_REQUIRE_CODE(found == config.end() || !asks(*found), Code::unsupported,
                         "{} asks for \"{}\" ({}), which an adapter has not.", kConfig, key,
                         import::shown(*found));
  }
  BOWLINE_REQUIRE_CODE(bias == "none", Code::unsupported,
                       "{} asks for trained biases (\"bias\": {}), which an adapter has not.",
                       kConfig, listed_name(bias));
  BOWLINE_REQUIRE_CODE(out.dropout < 1, Code::bad_file, "{} has a \"lora_dropout\" of 1.", kConfig);
  const auto rank = static_cast<double>(out.rank);
  out.scaling = alpha / (by_root ? std::sqrt(rank) : rank);
  return out;
}

// The tensors of a module.
struct Pair {
  const SourceTensor* a = nullptr;
  const SourceTensor* b = nullptr;
  // (optional) The weight itself, which peft writes of tables of tokens and of heads.
  const SourceTensor* base = nullptr;
  bool is_embedding = false;
};

struct Ending {
  std::string_view text;
  const SourceTensor* Pair::*tensor;
  bool is_embedding;
};
constexpr Ending kEndings[] = {{".lora_A.weight", &Pair::a, false},
                               {".lora_B.weight", &Pair::b, false},
                               {".lora_embedding_A", &Pair::a, true},
                               {".lora_embedding_B", &Pair::b, true},
                               {".base_layer.weight", &Pair::base, false}};

// By the module's name in the model that peft wrapped.
Result<std::map<std::string, Pair>> pairs_of(const std::vector<SourceTensor>& tensors) {
  constexpr std::string_view kBegin = "base_model.model.";
  std::map<std::string, Pair> out;
  for (const SourceTensor& t : tensors) {
    const auto* const end =
        std::ranges::find_if(kEndings, [&](const Ending& e) { return t.name.ends_with(e.text); });
    BOWLINE_REQUIRE_CODE(end != std::end(kEndings) && t.name.starts_with(kBegin), Code::unsupported,
                         "The tensor {} is no factor of LoRA; an adapter has no place for it.",
                         listed_name(t.name));
    std::string module = t.name.substr(kBegin.size());
    module.resize(module.size() - std::min(module.size(), end->text.size()));
    Pair& pair = out[module];
    pair.*end->tensor = &t;
    pair.is_embedding = pair.is_embedding || end->is_embedding;
  }
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "{} has no tensors.", kTensors);
  for (const auto& [module, pair] : out) {
    BOWLINE_REQUIRE_CODE(pair.a != nullptr && pair.b != nullptr, Code::bad_file,
                         "The module {} has one of its two factors alone.", listed_name(module));
  }
  return out;
}

// The parameter of a module: its weight, where the model may lack the name of the part that peft wrapped ("bert.", "model.") or have one
// more.
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
    const bool same_end = known.ends_with(dotted) || dotted.ends_with("." + std::string(known));
    if (same_end) {
      BOWLINE_REQUIRE_CODE(found == nullptr, Code::bad_file,
                           "The module {} may be \"{}\" or \"{}\" of the model.",
                           listed_name(module), found->name, p.name);
      found = &p;
    }
  }
  BOWLINE_REQUIRE_CODE(found != nullptr, Code::bad_file,
                       "The model has no parameter for the module {}: the adapter is for another "
                       "one.",
                       listed_name(module));
  return found;
}

struct Change {
  ParameterInfo target;
  Pair pair;
  Layout layout = Layout::linear;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status check_shapes(const Change& c, int64_t rank) {
  const TensorShape& shape = c.target.shape;
  BOWLINE_REQUIRE_CODE(shape.size() == 2, Code::bad_file, "\"{}\" is no matrix.", c.target.name);
  const bool is_transposed = c.layout != Layout::linear;
  const int64_t in = shape[is_transposed ? 0 : 1], out = shape[is_transposed ? 1 : 0];
  for (const auto& [tensor, wanted] :
       {std::pair(c.pair.a, std::vector{rank, in}), std::pair(c.pair.b, std::vector{out, rank})}) {
    BOWLINE_REQUIRE_CODE(tensor->shape == wanted, Code::bad_file,
                         "The tensor {} is {}, but a rank of {} and \"{}\" [{}, {}] make {}.",
                         listed_name(tensor->name), shape_text(tensor->shape), rank, c.target.name,
                         shape[0], shape[1], shape_text(wanted));
  }
  return {};
}

// The weight that the adapter was made for, where the file has it.
Status check_base(const Model& model, const Change& c) {
  if (c.pair.base == nullptr) {
    return {};
  }
  const SourceTensor& base = *c.pair.base;
  std::vector<std::byte> theirs(base.bytes), ours(base.bytes);
  const bool same_form = TensorShape(base.shape) == c.target.shape && base.dtype == c.target.dtype;
  if (same_form) {
    BOWLINE_TRY(base.read(0, theirs));
    BOWLINE_TRY(model.get_value(c.target.name, {"", base.dtype, c.target.shape, ours.data()}));
  }
  BOWLINE_REQUIRE_CODE(same_form && theirs == ours, Code::unsupported,
                       "The adapter brings another \"{}\" than the model has ({}, {}); an adapter "
                       "has no place for it.",
                       c.target.name, name_of(base.dtype), shape_text(base.shape));
  return {};
}

Result<std::vector<Change>> changes_of(const Model& model, const ModelInfo& info,
                                       const std::vector<SourceTensor>& tensors, int64_t rank) {
  BOWLINE_ASSIGN(const auto pairs, pairs_of(tensors));
  std::vector<Change> out;
  std::set<std::string> seen;
  for (const auto& [module, pair] : pairs) {
    BOWLINE_ASSIGN(const ParameterInfo* target, target_of(info, module));
    BOWLINE_REQUIRE_CODE(seen.insert(target->name).second, Code::bad_file,
                         "Two modules are \"{}\" of the model.", target->name);
    const Layout layout = pair.is_embedding ? Layout::embedding : layout_of(model, target->name);
    BOWLINE_REQUIRE_CODE(
        pair.is_embedding || layout != Layout::embedding, Code::bad_file,
        "The module {} is a table of rows, but its factors are those of a product.",
        listed_name(module));
    out.push_back({*target, pair, layout});
    BOWLINE_TRY(check_shapes(out.back(), rank));
    BOWLINE_TRY(check_base(model, out.back()));
  }
  return out;
}

// "{model.layers.*.self_attn.q_proj.weight,...}", if that matches these alone, else all names.
std::string pattern_of(const ModelInfo& info, const std::vector<Change>& changes) {
  std::set<std::string> starred, names;
  for (const Change& c : changes) {
    std::string text = c.target.name;
    const auto is_digit = [](char d) { return d >= '0' && d <= '9'; };
    const auto begin = std::ranges::find_if(text, is_digit);
    text.replace(begin, std::find_if_not(begin, text.end(), is_digit),
                 begin == text.end() ? "" : "*");
    starred.insert(text);
    names.insert(c.target.name);
  }
  const bool exact = std::ranges::all_of(info.parameters, [&](const ParameterInfo& p) {
    const bool matches = std::ranges::any_of(starred, [&](const std::string& pattern) {
      const size_t star = pattern.find('*');
      return star == std::string::npos ? p.name == pattern
                                       : p.name.size() > pattern.size() - 1 &&
                                             p.name.starts_with(pattern.substr(0, star)) &&
                                             p.name.ends_with(pattern.substr(star + 1));
    });
    return !p.target.empty() || matches == names.contains(p.name);
  });
  return fmt::format("{{{}}}", fmt::join(exact ? starred : names, ","));
}

// The values of a parameter of the adapter.
struct Value {
  std::string parameter;
  DType dtype = DType::f32;
  TensorShape shape;
  std::vector<std::byte> bytes;
};

Result<Value> value_of(const std::string& parameter, const SourceTensor& tensor, bool transpose) {
  Value out{parameter, tensor.dtype, TensorShape(tensor.shape),
            std::vector<std::byte>(tensor.bytes)};
  BOWLINE_TRY(tensor.read(0, out.bytes));
  if (transpose) {
    const int64_t rows = out.shape[0], columns = out.shape[1];
    out.bytes = transposed(out.bytes, static_cast<size_t>(rows), static_cast<size_t>(columns),
                           size_of(tensor.dtype));
    out.shape = {columns, rows};
  }
  return out;
}

Status add_values(const Change& c, std::string_view adapter, std::vector<Value>& out) {
  const Factors factors = factors_of(c.target, adapter);
  const bool is_linear = c.layout == Layout::linear;
  BOWLINE_ASSIGN(out.emplace_back(),
                 value_of(is_linear ? factors.right : factors.left, *c.pair.a, !is_linear));
  BOWLINE_ASSIGN(out.emplace_back(),
                 value_of(is_linear ? factors.left : factors.right, *c.pair.b, !is_linear));
  return {};
}

Result<DType> dtype_of(const std::vector<SourceTensor>& tensors) {
  for (const SourceTensor& t : tensors) {
    const bool is_float = t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16;
    BOWLINE_REQUIRE_CODE(is_float && t.dtype == tensors[0].dtype, Code::unsupported,
                         "The tensor {} is {}, and {} is {}; the factors of an adapter are of one "
                         "dtype of floats.",
                         listed_name(t.name), name_of(t.dtype), listed_name(tensors[0].name),
                         name_of(tensors[0].dtype));
  }
  return tensors[0].dtype;
}

AdapterOptions options_of(const Config& config, std::string pattern) {
  AdapterOptions out;
  out.rank = config.rank;
  out.alpha = static_cast<float>(config.scaling * static_cast<double>(config.rank));
  out.dropout = static_cast<float>(config.dropout);
  out.target = std::move(pattern);
  // peft changes modules, not what several of them share.
  out.per_use = true;
  out.freeze_others = false;
  return out;
}

Result<AdapterReport> add(Model& model, const AdapterOptions& options, std::vector<Value>& values,
                          DType dtype, std::string_view name) {
  BOWLINE_ASSIGN(AdapterReport out, model.add_adapter(name, options));
  BOWLINE_REQUIRE_CODE(2 * out.targets.size() == values.size(), Code::bad_file,
                       "The adapter changes {} parameters, of which {} are matrices that an "
                       "adapter can change.",
                       values.size() / 2, out.targets.size());
  BOWLINE_TRY(model.cast(dtype, fmt::format("*.{}.lora_?", name)).status());
  for (Value& v : values) {
    BOWLINE_TRY(model.set_value(v.parameter, {"", v.dtype, v.shape, v.bytes.data()}));
  }
  return out;
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path_in(path, kConfig), error);
}

Result<AdapterReport> read_adapter(Model& model, const std::string& folder, std::string_view name) {
  const bool known = std::ranges::count(model.adapters(), std::string(name)) != 0;
  const auto read = [&]() -> Result<AdapterReport> {
    BOWLINE_ASSIGN(const Config config, read_config(folder));
    const std::string path = path_in(folder, kTensors);
    std::error_code error;
    BOWLINE_REQUIRE_CODE(std::filesystem::exists(path, error), Code::bad_file,
                         "It has no {}; other forms of the weights are not read.", kTensors);
    BOWLINE_ASSIGN(const huggingface::Safetensors file, huggingface::read_safetensors(path));
    BOWLINE_ASSIGN(const ModelInfo info, model.describe());
    BOWLINE_ASSIGN(const std::vector<Change> changes,
                   changes_of(model, info, file.tensors, config.rank));
    BOWLINE_ASSIGN(const DType dtype, dtype_of(file.tensors));
    std::vector<Value> values;
    for (const Change& c : changes) {
      BOWLINE_TRY(add_values(c, name, values));
    }
    Result<AdapterReport> added =
        add(model, options_of(config, pattern_of(info, changes)), values, dtype, name);
    if (!added.ok() && !known && std::ranges::count(model.adapters(), std::string(name)) != 0) {
      BOWLINE_TRY(model.remove_adapter(name));
    }
    return added;
  };
  Result<AdapterReport> out = read();
  if (!out.ok()) {
    return std::move(out).status().at(
        fmt::format("While reading the adapter \"{}\".", escaped(folder)));
  }
  return out;
}

}  // namespace bowline::peft
