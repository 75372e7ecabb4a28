#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/require.h"
#include "peft/adapter.h"
#include "peft/modules.h"

namespace bowline::peft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Written {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

Result<const ParameterInfo*> parameter_of(const ModelInfo& info, std::string_view name) {
  const auto found = std::ranges::find(info.parameters, name, &ParameterInfo::name);
  BOWLINE_REQUIRE(found != info.parameters.end(), "There is no parameter \"{}\".", name);
  return &*found;
}

Result<double> number_of(const Model& model, const ModelInfo& info, const std::string& name) {
  BOWLINE_ASSIGN(const ParameterInfo* p, parameter_of(info, name));
  BOWLINE_REQUIRE(p->dtype == DType::f32, "\"{}\" is {}, not f32.", name, name_of(p->dtype));
  float out = 0;
  BOWLINE_TRY(model.get_value(name, {"", DType::f32, p->shape, &out}));
  return out;
}

Result<Written> factor_of(const Model& model, const ModelInfo& info, const std::string& parameter,
                          std::string name, bool transpose) {
  BOWLINE_ASSIGN(const ParameterInfo* p, parameter_of(info, parameter));
  const int64_t rows = p->shape[0], columns = p->shape[1];
  Written out{std::move(name), p->dtype, {rows, columns}, {}};
  out.bytes.resize(static_cast<size_t>(rows * columns) * size_of(p->dtype));
  BOWLINE_TRY(model.get_value(parameter, {"", p->dtype, p->shape, out.bytes.data()}));
  if (transpose) {
    out.bytes = transposed(out.bytes, static_cast<size_t>(rows), static_cast<size_t>(columns),
                           size_of(p->dtype));
    out.shape = {columns, rows};
  }
  return out;
}

// The classes of transformers with a head call their encoder by its kind.
std::string module_in_transformers(const Model& model, std::string_view module) {
  const std::string architecture = model.metadata("architecture");
  if (model.metadata("task") != "classify" || module.starts_with("classifier")) {
    return std::string(module);
  }
  const std::string begin = (architecture == "xlm-roberta" ? "roberta" : architecture) + ".";
  return (module.starts_with(begin) ? "" : begin) + std::string(module);
}

struct Targets {
  std::vector<const ParameterInfo*> parameters;  // that see the change
  std::vector<std::string> modules;              // what target_modules says
  bool has_conv1d = false;
};

std::string_view kind_of(std::string_view module) { return module.substr(module.rfind('.') + 1); }

Result<Targets> targets_of(const Model& model, const ModelInfo& info, std::string_view adapter) {
  Targets out;
  std::set<std::string_view> names, kinds;
  for (const ParameterInfo& p : info.parameters) {
    if (!p.target.empty() && p.name == fmt::format("{}.{}.lora_a", p.target, adapter)) {
      names.insert(p.target);
    }
  }
  BOWLINE_REQUIRE(!names.empty(), "There is no adapter \"{}\".", adapter);
  for (const ParameterInfo& p : info.parameters) {
    if (!names.contains(p.name)) {
      continue;
    }
    BOWLINE_REQUIRE(!module_of(p.name).empty() && p.shape.size() == 2,
                    "Adapter \"{}\" changes \"{}\", which is no module of peft.", adapter, p.name);
    out.parameters.push_back(&p);
    out.has_conv1d = out.has_conv1d || layout_of(model, p.name) == Layout::conv1d;
    kinds.insert(kind_of(module_of(p.name)));
  }
  // The last part of their names, where all modules that have it are changed, else the whole names.
  const bool all = std::ranges::all_of(info.parameters, [&](const ParameterInfo& p) {
    return !p.target.empty() || module_of(p.name).empty() || names.contains(p.name) ||
           !kinds.contains(kind_of(module_of(p.name)));
  });
  out.modules.assign(kinds.begin(), all ? kinds.end() : kinds.begin());
  for (const ParameterInfo* p : out.parameters) {
    if (!all) {
      out.modules.push_back(module_in_transformers(model, module_of(p->name)));
    }
  }
  return out;
}

Result<std::vector<Written>> tensors_of(const Model& model, const ModelInfo& info,
                                        const Targets& targets, std::string_view adapter) {
  std::vector<Written> out;
  for (const ParameterInfo* p : targets.parameters) {
    const Layout layout = layout_of(model, p->name);
    const auto [left, right] = factors_of(*p, adapter);
    const bool linear = layout == Layout::linear, table = layout == Layout::embedding;
    const std::string begin =
        "base_model.model." + module_in_transformers(model, module_of(p->name));
    BOWLINE_ASSIGN(out.emplace_back(),
                   factor_of(model, info, linear ? right : left,
                             begin + (table ? ".lora_embedding_A" : ".lora_A.weight"), !linear));
    BOWLINE_ASSIGN(out.emplace_back(),
                   factor_of(model, info, linear ? left : right,
                             begin + (table ? ".lora_embedding_B" : ".lora_B.weight"), !linear));
  }
  return out;
}

std::string_view task_type_of(const Model& model) {
  const std::string task = model.metadata("task");
  return task == "classify" ? "SEQ_CLS" : task == "embed" ? "FEATURE_EXTRACTION" : "CAUSAL_LM";
}

// A whole number as one, and a float by its shortest digits.
json number_text(double n) {
  return n == std::floor(n) && std::abs(n) < 1e9
             ? json(static_cast<int64_t>(n))
             : json::parse(fmt::format("{}", static_cast<float>(n)));
}

Result<std::string> config_of(const Model& model, const ModelInfo& info, const Targets& targets,
                              std::string_view adapter, int64_t rank) {
  BOWLINE_ASSIGN(const double scale, number_of(model, info, fmt::format("{}.lora_scale", adapter)));
  const std::string dropout = fmt::format("{}.lora_dropout", adapter);
  double rate = 0;
  if (std::ranges::count(info.parameters, dropout, &ParameterInfo::name) != 0) {
    BOWLINE_ASSIGN(rate, number_of(model, info, dropout));
  }
  const std::string base = model.metadata("name");
  const ordered_json config = {{"peft_type", "LORA"},
                               {"task_type", task_type_of(model)},
                               {"base_model_name_or_path", base.empty() ? json() : json(base)},
                               {"r", rank},
                               {"lora_alpha", number_text(scale * static_cast<double>(rank))},
                               {"lora_dropout", number_text(rate)},
                               {"target_modules", targets.modules},
                               {"fan_in_fan_out", targets.has_conv1d},
                               {"bias", "none"},
                               {"use_rslora", false},
                               {"use_dora", false},
                               {"modules_to_save", nullptr},
                               {"rank_pattern", json::object()},
                               {"alpha_pattern", json::object()},
                               {"init_lora_weights", true},
                               {"inference_mode", true}};
  return config.dump(2) + "\n";
}

std::string header_of(const std::vector<Written>& tensors) {
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t bytes = 0;
  for (const Written& t : tensors) {
    const char* const dtype = t.dtype == DType::f32   ? "F32"
                              : t.dtype == DType::f16 ? "F16"
                                                      : "BF16";
    header[t.name] = {
        {"dtype", dtype}, {"shape", t.shape}, {"data_offsets", {bytes, bytes + t.bytes.size()}}};
    bytes += t.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

Status write(const std::string& path, std::string_view text, const std::vector<Written>& tensors) {
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(text))};
  for (const Written& t : tensors) {
    pieces.emplace_back(t.bytes);
  }
  return write_file(path, pieces);
}

}  // namespace

Result<WrittenAdapter> write_adapter(const Model& model, std::string_view name,
                                     const std::string& folder, bool replace) {
  BOWLINE_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_ASSIGN(const Targets targets, targets_of(model, info, name));
  BOWLINE_ASSIGN(const std::vector<Written> tensors, tensors_of(model, info, targets, name));
  // lora_A is [rank, ...] in every layout.
  BOWLINE_ASSIGN(const std::string config,
                 config_of(model, info, targets, name, tensors[0].shape[0]));
  BOWLINE_REQUIRE(replace || !is_folder(folder), "There is an adapter in \"{}\" already.",
                  escaped(folder));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  BOWLINE_REQUIRE_CODE(!error, Code::io_error, "Folder \"{}\" cannot be made: {}.", escaped(folder),
                       error.message());
  const std::filesystem::path to(folder);
  BOWLINE_TRY(write((to / "adapter_model.safetensors").string(), header_of(tensors), tensors));
  BOWLINE_TRY(write((to / "adapter_config.json").string(), config, {}));
  WrittenAdapter out;
  for (const Written& t : tensors) {
    ++out.tensors;
    out.bytes += t.bytes.size();
  }
  return out;
}

}  // namespace bowline::peft
