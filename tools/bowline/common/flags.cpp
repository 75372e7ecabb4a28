#include "common/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/escape.h"
#include "base/nearest.h"
#include "base/status.h"
#include "common/files.h"
#include "common/find.h"
#include "common/numbers.h"
#include "common/strings.h"
#include "verb.h"

namespace bowline::command {
namespace {

const CLI::Range kDim(1, 1 << 30);
constexpr std::string_view kCpu = "cpu";

// Returns a hint: the dim with the most similar name, or all dims of the model.
std::string known_dims(const std::string& name, const ModelInfo& model) {
  std::vector<std::string> names;
  for (const DimInfo& d : model.dims) {
    names.push_back(d.name);
  }
  const std::string close = nearest(name, names);
  return names.empty()   ? "it has none"
         : close.empty() ? "it has " + joined(names)
                         : "did you mean " + close;
}

// True if an attribute of a node contains the name of the dim.
bool names_dim(const std::vector<NodeInfo>& nodes, const std::string& dim) {
  return std::ranges::any_of(nodes, [&](const NodeInfo& node) {
    return names_dim(node.body, dim) ||
           std::ranges::any_of(node.attributes, [&](const auto& attribute) {
             return attribute.second.find(dim) != std::string::npos;
           });
  });
}

// True if the entry point may have the dim. Entry points with updates may have the dims of their
// caches, which no input shows.
bool has_dim(const EntryPointInfo& entry, const std::string& dim) {
  const bool of_input = std::ranges::any_of(
      entry.inputs, [&](const InputInfo& input) { return find_named(input.dims, dim) != nullptr; });
  return of_input || !entry.updates.empty() || names_dim(entry.nodes, dim);
}

// True if `bowline import` reads this folder or file.
bool importable(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) || begins_with(path, "GGUF") ||
         path.ends_with(".onnx");
}

// Adds --threads, which applies only to the CPU.
void add_threads(CLI::App* verb, int& threads) {
  CLI::Option* const flag =
      add_number(verb, "--threads", threads, "CPU threads [one per core]", 0, 1024);
  // "best" and "gpu" name a device only after they are opened. The verb reports errors of opening.
  verb->parse_complete_callback([verb, flag] {
    const auto name = verb->get_option("--device")->as<std::string>();
    if (flag->count() == 0 || name == kCpu) {
      return;
    }
    const Result<Device> device = Device::open(name);
    if (device.ok() && device.value().info().name != kCpu) {
      throw CLI::ValidationError(fmt::format("--threads has no effect on device {}; it is for {}.",
                                             device.value().info().name, kCpu));
    }
  });
}

}  // namespace

CLI::Option* with_default(CLI::Option* flag) {
  return flag->get_description().ends_with(']') ? flag : flag->capture_default_str();
}

CLI::Option* add_choice(CLI::App* verb, const std::string& names, std::string& to,
                        const std::string& help, const std::vector<std::string>& choices) {
  return with_default(verb->add_option(names, to, help)->check(CLI::IsMember(choices)));
}

CLI::Option* add_compute(CLI::App* verb, std::string& dtype) {
  return add_choice(verb, "--compute", dtype, "Dtype that the operators compute in",
                    {"f32", "bf16", "f16"});
}

std::optional<DType> compute_of(std::string_view dtype) {
  return dtype == "bf16"  ? std::optional(DType::bf16)
         : dtype == "f16" ? std::optional(DType::f16)
                          : std::nullopt;
}

Result<BoundDim> parse_dim(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  const auto value = number_in<int64_t>(text.substr(std::min(equals + 1, text.size())));
  BOWLINE_REQUIRE(value && *value > 0 && equals > 0, "--dim \"{}\" is not of the form name=number.",
                  text);
  return BoundDim{text.substr(0, equals), *value};
}

void add_device(CLI::App* verb, std::string& device) {
  add_text(verb, "--device", device, "Device name, gpu, or best (GPU, else CPU)", "NAME")
      ->capture_default_str();
}

void add_memory_budget(CLI::App* verb, uint64_t& bytes) {
  verb->add_option("--memory-budget", bytes, "Limit of device memory, such as 512MiB [no limit]")
      ->transform(byte_count());
}

void add_device(CLI::App* verb, DeviceFlags& flags) {
  add_device(verb, flags.name);
  add_threads(verb, flags.threads);
  add_memory_budget(verb, flags.memory_budget);
  add_matmul_precision(verb, flags.matmul_precision);
}

void add_entry(CLI::App* verb, std::string& entry) {
  add_text(verb, "--entry", entry, "Entry point [forward, else the only entry point]", "NAME");
}

Result<EntryPointInfo> entry_point(const ModelInfo& model, const std::string& name) {
  const EntryPointInfo* entry = find_named(model.entry_points, name.empty() ? "forward" : name);
  if (entry == nullptr && name.empty() && model.entry_points.size() == 1) {
    entry = &model.entry_points[0];
  }
  const std::string names = joined(model.entry_points, &EntryPointInfo::name);
  BOWLINE_REQUIRE(entry != nullptr || !name.empty(),
                  "The model has several entry points: {}. Choose one with --entry NAME.", names);
  BOWLINE_REQUIRE(entry != nullptr, "The model has no entry point \"{}\"; it has {}.", name,
                  names.empty() ? "none" : names);
  return *entry;
}

void add_quantize_flag(CLI::App* verb, std::string& encoding) {
  add_text(verb, "--quantize", encoding, "Quantize weights in memory: int8, q4_k_m, ...",
           "ENCODING");
}

void add_changes(CLI::App* verb, Changes& changes) {
  add_quantize_flag(verb, changes.encoding);
  add_text(verb, "--adapter", changes.adapters,
           "LoRA adapter, multiplied by WEIGHT [1]; repeatable", "FILE[=WEIGHT]");
}

Status quantize_all(Model& model, const std::string& encoding) {
  if (encoding.empty()) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const QuantizeReport report, quantize(model, encoding));
  BOWLINE_REQUIRE(report.storages > 0, "--quantize {} cannot quantize any weight of the model:\n{}",
                  encoding, report.text());
  return {};
}

Result<QuantizeReport> decode_weights(Model& model, const std::string& pattern) {
  BOWLINE_TRY_ASSIGN(const ModelInfo before, model.describe());
  BOWLINE_TRY_ASSIGN(QuantizeReport report, dequantize(model, pattern));
  BOWLINE_TRY_ASSIGN(const ModelInfo after, model.describe());
  for (const ParameterInfo& p : after.parameters) {
    const StorageInfo& s = after.storages[p.tie];
    const bool decoded = before.storages[p.tie].encoding != "plain" && s.encoding == "plain";
    if (decoded && s.role == StorageRole::weight) {
      BOWLINE_TRY(model.freeze_storage(p.name, false));
    }
  }
  return report;
}

namespace {

// `bowline finetune` gives all of its adapters the same name. If the model already has an adapter
// of that name, returns name_2, name_3 and so on. Empty: the name in the file is kept.
std::string free_name(const Model& model, const std::string& path) {
  const std::vector<std::string> taken = adapters(model);
  if (taken.empty()) {
    return {};
  }
  const Result<Model> adapter = Model::open(path);
  if (!adapter.ok() || adapters(adapter.value()).size() != 1) {
    return {};
  }
  const std::string own = adapters(adapter.value())[0];
  std::string name = own;
  for (int i = 2; std::ranges::find(taken, name) != taken.end(); ++i) {
    name = fmt::format("{}_{}", own, i);
  }
  return name;
}

// An adapter that was trained over quantized weights stores the digest of the quantized weights. If
// the model is not quantized, it is quantized in the same way.
Result<std::string> load_for_base(Model& model, const std::string& path) {
  Result<std::string> name = load_adapter(model, path, free_name(model, path));
  if (name.ok()) {
    return name;
  }
  const Result<Model> adapter = Model::open(path);
  const std::string encoding =
      adapter.ok() ? adapter.value().metadata("base_encoding") : std::string();
  if (encoding.empty() || !adapters(model).empty() || !quantize(model, encoding).ok()) {
    return with_import(std::move(name).status(), path, " --base MODEL --out ADAPTER.bowline");
  }
  BOWLINE_TRY_ASSIGN(std::string loaded, load_adapter(model, path));
  print(stderr,
        "bowline: The adapter {} was trained with {} weights. The model is now quantized in the "
        "same way.\n",
        escaped(path), encoding);
  return loaded;
}

}  // namespace

Status change(Model& model, const Changes& changes) {
  BOWLINE_TRY(quantize_all(model, changes.encoding));
  std::vector<std::string> loaded;
  for (const std::string& flag : changes.adapters) {
    const size_t equals = flag.rfind('=');
    const std::optional<float> weight =
        equals == std::string::npos ? std::nullopt : number_in<float>(flag.substr(equals + 1));
    const std::string path = weight ? flag.substr(0, equals) : flag;
    for (const std::string& other : loaded) {
      BOWLINE_REQUIRE(!same_place(path, other),
                      "--adapter names \"{}\" twice. To double its weight, write FILE=2.", path);
    }
    loaded.push_back(path);
    BOWLINE_TRY_ASSIGN(const std::string name, load_for_base(model, path));
    BOWLINE_TRY(weight ? set_adapter_weight(model, name, *weight) : Status());
  }
  return {};
}

Status require_entry_point(const Model& model, const std::string& path, const std::string& name) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_REQUIRE_CODE(find_named(info.entry_points, name) != nullptr, Code::bad_file,
                       "Model \"{}\" has no entry point \"{}\".", path, name);
  return {};
}

void add_dims(CLI::App* verb, DimFlags& flags) {
  add_text(verb, "--dim", flags.dims, "Size of a dimension; if dynamic, its maximum size",
           "NAME=N");
  verb->add_option("--batch", flags.batch, "Short for --dim batch=N")->check(kDim);
  verb->add_option("--seq", flags.seq, "Short for --dim seq=N")->check(kDim);
}

Result<std::vector<BoundDim>> dims_of(const DimFlags& flags, const ModelInfo& model,
                                      const EntryPointInfo* entry) {
  std::vector<BoundDim> dims;
  for (const std::string& text : flags.dims) {
    BOWLINE_TRY_ASSIGN(BoundDim dim, parse_dim(text));
    BOWLINE_REQUIRE(find_named(dims, dim.name) == nullptr, "Dim \"{}\" is given twice.", dim.name);
    dims.push_back(std::move(dim));
  }
  for (const auto& [name, value] : {std::pair("batch", flags.batch), std::pair("seq", flags.seq)}) {
    BOWLINE_REQUIRE(value == 0 || find_named(dims, name) == nullptr, "Dim \"{}\" is given twice.",
                    name);
    if (value != 0) {
      dims.push_back({name, value});
    }
  }
  for (const BoundDim& dim : dims) {
    BOWLINE_REQUIRE(find_named(model.dims, dim.name) != nullptr,
                    "The model has no named dim \"{}\"; {}.", dim.name,
                    known_dims(dim.name, model));
    BOWLINE_REQUIRE(entry == nullptr || has_dim(*entry, dim.name),
                    "Dim \"{}\" has no effect on the entry point \"{}\", which does not have it.",
                    dim.name, entry->name);
  }
  return dims;
}

std::string missing_dims(const ModelInfo& model, std::span<const BoundDim> dims) {
  std::vector<DimInfo> missing;
  std::ranges::copy_if(model.dims, std::back_inserter(missing),
                       [&](const DimInfo& d) { return find_named(dims, d.name) == nullptr; });
  return joined(missing, &DimInfo::name);
}

Status with_import(Status status, const std::string& path, const std::string& more) {
  if (importable(path)) {
    return std::move(status).at(
        fmt::format("'bowline import {}{}' converts it to a model file.", escaped(path), more));
  }
  std::error_code error;
  const bool is_read = std::filesystem::is_regular_file(path, error) && std::ifstream(path).good();
  return is_read && !begins_with(path, "BOWLINE1")
             ? std::move(status).at(
                   "'bowline import' converts models from Hugging Face, GGUF and ONNX to Bowline "
                   "files.")
             : status;
}

Result<Model> open_model(const std::string& path) {
  Result<Model> model = Model::open(path);
  return model.ok() ? std::move(model)
                    : Result<Model>(with_import(std::move(model).status().as(Code::bad_file), path,
                                                " --out MODEL.bowline"));
}

Result<Model> open_to_measure(const std::string& path) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(path));
  BOWLINE_TRY(model.materialize(1));
  return model;
}

Status check_new(const std::string& path, bool force) {
  std::error_code error;
  BOWLINE_REQUIRE(force || !std::filesystem::exists(path, error),
                  "\"{}\" exists already; --force replaces it.", path);
  return {};
}

}  // namespace bowline::command
