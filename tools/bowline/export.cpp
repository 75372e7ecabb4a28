// bowline export: writes a model without its training state: as a model file, as the bytes of its
// storages, or in a format of other tools. --dtype converts the values.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/formats.h"
#include "base/status.h"
#include "common/flag_uses.h"
#include "common/flags.h"
#include "common/report.h"
#include "common/strings.h"
#include "export/adapter.h"
#include "export/gguf.h"
#include "export/huggingface.h"
#include "export/output.h"
#include "export/tensors.h"
#include "verb.h"

namespace bowline::command {
namespace {

using nlohmann::json;

struct ExportOptions {
  std::string model;
  std::string out;
  std::string weights;
  std::string dtype;
  std::string to;
  std::string encoding;
  std::vector<std::string> adapters;
  std::vector<std::string> untied;
  std::string format = "text";
  bool strip = false;
  bool force = false;
  FlagUses uses;
};

// Returns the storages of all parameters, each once.
std::set<uint32_t> storages_of(const ModelInfo& info) {
  std::set<uint32_t> out;
  for (const ParameterInfo& p : info.parameters) {
    out.insert(p.tie);
  }
  return out;
}

json rows_of(const ModelInfo& info) {
  json rows = json::array();
  for (const ParameterInfo& p : info.parameters) {
    const StorageInfo& s = info.storages[p.tie];
    rows.push_back({{"name", p.name},
                    {"tie", p.tie},
                    {"dtype", std::string(name_of(s.dtype))},
                    {"shape", std::vector<int64_t>(s.shape.begin(), s.shape.end())}});
  }
  return rows;
}

// Writes storage_<tie>.bin with the bytes of each storage that has a parameter, and
// parameters.json, which lists these files.
Result<json> write_weights(const Model& model, const std::string& folder, bool replace) {
  constexpr const char* kParameters = "parameters.json";
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const std::set<uint32_t> ties = storages_of(info);
  uint64_t bytes = 0;
  for (const uint32_t tie : ties) {
    bytes += info.storages[tie].bytes;
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  BOWLINE_TRY_ASSIGN(Output out, Output::begin(folder, kParameters, replace, bytes));
  for (const uint32_t tie : ties) {
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> storage, model.storage_bytes(tie));
    BOWLINE_TRY(out.add(fmt::format("storage_{}.bin", tie), storage));
  }
  const json rows = rows_of(info);
  BOWLINE_TRY(out.add(kParameters, rows.dump(2) + "\n"));
  BOWLINE_TRY(out.commit());
  return json{{"parameters", rows.size()}, {"storages", ties.size()}, {"bytes", bytes}};
}

Status export_weights(const ExportOptions& o, const Model& model) {
  BOWLINE_TRY_ASSIGN(json result, write_weights(model, o.weights, o.force));
  if (o.format == "json") {
    result["file"] = o.model;
    result["weights"] = o.weights;
    print_json(result);
  } else {
    print("{}: {} storages of {} parameters, {}\n", o.weights, result["storages"].get<size_t>(),
          result["parameters"].get<size_t>(), bytes_text(result["bytes"].get<uint64_t>()));
  }
  return {};
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    print("note: {}\n", note);
  }
}

Status export_model(const ExportOptions& o, const Model& model,
                    const std::vector<std::string>& notes) {
  BOWLINE_TRY(model.save(o.out));  // without training state
  const uint64_t before = std::filesystem::file_size(o.model);
  const uint64_t after = std::filesystem::file_size(o.out);
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"out", o.out},
                {"bytes_before", before},
                {"bytes", after},
                {"notes", notes}});
    return {};
  }
  print("{}: {}, input {}\n", o.out, bytes_text(after), bytes_text(before));
  print_notes(notes);
  return {};
}

DType dtype_of(const std::string& name) {
  return name == "f16" ? DType::f16 : name == "bf16" ? DType::bf16 : DType::f32;
}

Status cast(Model& model, const std::string& name) {
  const DType dtype = dtype_of(name);
  Result<CastReport> cast = model.cast(dtype);
  if (!cast.ok()) {
    return std::move(cast).status().at(
        fmt::format("Some operators of the model compute in f32. If it was imported, import its "
                    "source again with --dtype {}, which adds the casts.",
                    name));
  }
  const CastReport& report = cast.value();
  print(stderr, "converted {} storages to {}: {}, input {}\n", report.storages, name,
        bytes_text(report.bytes_after), bytes_text(report.bytes_before));
  for (const std::string& kept : report.kept) {
    print(stderr, "not cast: {}\n", kept);
  }
  return {};
}

Status untie_all(Model& model, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    BOWLINE_TRY_ASSIGN(const uint64_t bytes, model.untie(name));
    BOWLINE_REQUIRE(bytes != 0, "--untie names \"{}\", which is not tied to another parameter.",
                    name);
  }
  return {};
}

// Merges adapters into the weights. Quantized weights are dequantized first. They are quantized
// again if they were quantized in the file and the output format supports their encoding.
class Merging {
 public:
  Merging(Model& model, const ExportOptions& o) : model_(model), o_(o) {}

  // Returns notes for the report.
  Result<std::vector<std::string>> run() {
    BOWLINE_TRY_ASSIGN(const ModelInfo file, model_.describe());
    BOWLINE_TRY(change(model_, {"", o_.adapters}));
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model_.describe());
    choose(file, info);
    for (const auto& [pattern, group] : groups_) {
      BOWLINE_TRY(decode_weights(model_, braced(group.names)).status());
    }
    BOWLINE_TRY_ASSIGN(const std::vector<float> base, sampled(DType::f32));
    for (const std::string& name : adapters(model_)) {
      BOWLINE_TRY(merge_adapter(model_, name)
                      .at("--untie PARAMETER gives a tied parameter its own weight. --to peft and "
                          "--to gguf-lora write the adapter without the model."));
    }
    BOWLINE_TRY_ASSIGN(const std::vector<float> merged, sampled(DType::f32));
    BOWLINE_TRY(restore());
    BOWLINE_TRY_ASSIGN(const std::vector<float> written, sampled(dtype_of(o_.dtype)));
    if (groups_.empty()) {
      return notes_;
    }
    notes_.push_back(survival(base, merged, written));
    return std::move(notes_);
  }

 private:
  // The same weight of every layer.
  struct Group {
    std::string encoding;  // in the file
    DType dtype = DType::f32;
    bool again = false;  // quantized again after the merge
    std::vector<std::string> names;
  };

  static std::string braced(const std::vector<std::string>& names) {
    return fmt::format("{{{}}}", fmt::join(names, ","));
  }

  bool holds(const std::string& encoding) const {
    return o_.to.empty() || (o_.to == "gguf" && find_block_format(encoding) != nullptr);
  }

  // `file` describes the model before its adapters were loaded. Loading may quantize the weights.
  void choose(const ModelInfo& file, const ModelInfo& info) {
    std::set<uint32_t> changed;      // tie indices
    std::set<std::string> patterns;  // in a Repeat, the weights of a pattern have one encoding
    for (const ParameterInfo& p : info.parameters) {
      const auto target = std::ranges::find(info.parameters, p.target, &ParameterInfo::name);
      if (!p.target.empty() && target != info.parameters.end()) {
        targets_.insert(p.target);
        changed.insert(target->tie);
      }
    }
    for (const ParameterInfo& p : info.parameters) {
      if (changed.contains(p.tie)) {
        patterns.insert(pattern_of(p.name));
      }
    }
    std::set<uint32_t> seen;
    for (const ParameterInfo& p : info.parameters) {
      const StorageInfo& s = info.storages[p.tie];
      if (s.encoding == "plain" || s.role == StorageRole::kv_cache || !seen.insert(p.tie).second) {
        continue;
      }
      const bool again = o_.dtype.empty() && o_.encoding.empty() && holds(s.encoding) &&
                         p.tie < file.storages.size() &&
                         file.storages[p.tie].encoding == s.encoding;
      const std::string pattern = pattern_of(p.name);
      if (!again || patterns.contains(pattern)) {
        Group& group = groups_[{pattern, s.encoding}];
        group.encoding = s.encoding;
        group.dtype = o_.dtype.empty() ? s.dtype : dtype_of(o_.dtype);
        group.again = again;
        group.names.push_back(p.name);
      }
    }
  }

  // With --dtype the decoded weights stay in f32. All weights are cast together later, because
  // operators require equal dtypes of their inputs.
  Status restore() {
    for (const auto& [key, group] : groups_) {
      const std::string names = braced(group.names);
      if (group.dtype != DType::f32 && o_.dtype.empty()) {
        BOWLINE_TRY(model_.cast(group.dtype, names).status());
      }
      if (!group.again) {
        written_as_.insert(std::string(name_of(group.dtype)));
        continue;
      }
      BOWLINE_TRY_ASSIGN(const QuantizeReport report, quantize(model_, group.encoding, names));
      for (const std::string& kept : report.kept) {
        notes_.push_back("Not quantized again: " + kept);
      }
      written_as_.insert(group.encoding);
    }
    if (!o_.encoding.empty()) {
      written_as_ = {o_.encoding};
    }
    return quantize_all(model_, o_.encoding);
  }

  // At most this many values of each changed weight are compared, evenly spread.
  static constexpr size_t kSample = 65536;

  // Returns values of the changed weights, rounded to the dtype `rounded`.
  Result<std::vector<float>> sampled(DType rounded) const {
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model_.describe());
    std::vector<float> out;
    for (const ParameterInfo& p : info.parameters) {
      if (groups_.empty() || !targets_.contains(p.name)) {
        continue;
      }
      ExportedTensor tensor;
      tensor.parameter = p.name;
      tensor.dtype = p.dtype;
      tensor.shape.assign(p.shape.begin(), p.shape.end());
      BOWLINE_TRY_ASSIGN(const std::vector<float> values, floats_of(model_, tensor, rounded));
      const size_t step = values.size() / kSample + 1;
      for (size_t i = 0; i < values.size(); i += step) {
        out.push_back(values[i]);
      }
    }
    return out;
  }

  // Returns how much of the change is in the written weights: the projection of their change on the
  // exact change.
  std::string survival(const std::vector<float>& base, const std::vector<float>& merged,
                       const std::vector<float>& written) const {
    double common = 0;
    double whole = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      const double change = double{merged[i]} - base[i];
      common += change * (double{written[i]} - base[i]);
      whole += change * change;
    }
    const double percent = whole == 0 ? 100 : 100 * common / whole;
    constexpr double kMostIsLost = 90;
    return fmt::format(
        "The adapter was merged into quantized weights, which were decoded for it and written as "
        "{}: {:.0f} percent of its change survives.{}",
        fmt::join(written_as_, ", "), percent,
        percent < kMostIsLost ? " --dtype f32 or f16 keeps more of it. --to peft and --to "
                                "gguf-lora keep all of it in a separate adapter."
                              : "");
  }

  Model& model_;
  const ExportOptions& o_;
  std::set<std::string> targets_;
  std::map<std::pair<std::string, std::string>, Group> groups_;  // by pattern and encoding
  std::set<std::string> written_as_;
  std::vector<std::string> notes_;
};

// Formats of other tools, by the value of --to.
struct Form {
  const char* name;
  Result<ExportReport> (*write)(const Model& model, const std::string& path,
                                std::optional<DType> dtype, bool replace);
};
constexpr Form kForms[] = {{"hf", export_huggingface}, {"gguf", export_gguf}};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const BlockFormat& format : block_formats()) {
    names.emplace_back(format.name);
  }
  return names;
}

std::vector<std::string> form_names() {
  std::vector<std::string> names;
  for (const Form& form : kForms) {
    names.emplace_back(form.name);
  }
  for (const std::string_view form : adapter_forms()) {
    names.emplace_back(form);
  }
  return names;
}

// An adapter format contains only the adapter. Other formats contain the weights with the adapters
// merged into them.
Result<ExportReport> write_form(const ExportOptions& o, Model& model) {
  if (is_adapter_form(o.to)) {
    BOWLINE_TRY(change(model, {"", o.adapters}));
    return export_adapter(model, o.to, o.out, o.force);
  }
  std::vector<std::string> notes;
  if (o.adapters.empty()) {
    BOWLINE_TRY(quantize_all(model, o.encoding));
  } else {
    BOWLINE_TRY_ASSIGN(notes, Merging(model, o).run());
  }
  const auto* const form =
      std::ranges::find_if(kForms, [&](const Form& f) { return f.name == o.to; });
  const auto dtype = o.dtype.empty() ? std::nullopt : std::optional(dtype_of(o.dtype));
  BOWLINE_TRY_ASSIGN(ExportReport report, form->write(model, o.out, dtype, o.force));
  report.notes.insert(report.notes.begin(), notes.begin(), notes.end());
  return report;
}

Status export_form(const ExportOptions& o, Model& model) {
  BOWLINE_TRY_ASSIGN(const ExportReport report, write_form(o, model));
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"out", o.out},
                {"to", o.to},
                {"tensors", report.tensors},
                {"bytes", report.bytes},
                {"notes", report.notes}});
    return {};
  }
  print("{}: {} tensors, {}\n", o.out, report.tensors, bytes_text(report.bytes));
  print_notes(report.notes);
  return {};
}

Status export_as_asked(const ExportOptions& o, Model& model) {
  BOWLINE_TRY(untie_all(model, o.untied));
  if (!o.to.empty()) {
    return export_form(o, model);
  }
  std::vector<std::string> notes;
  if (!o.adapters.empty()) {
    BOWLINE_TRY_ASSIGN(notes, Merging(model, o).run());
  }
  if (!o.dtype.empty()) {
    BOWLINE_TRY(cast(model, o.dtype));
  }
  return o.weights.empty() ? export_model(o, model, notes) : export_weights(o, model);
}

Result<int> run(const ExportOptions& o) {
  const bool storages = !o.weights.empty();
  if (!storages && o.out.empty()) {
    return fail(kUsage,
                "No output is given. Use --out FILE with --strip, --dtype or --adapter; --out PATH "
                "with --to; or --weights FOLDER.");
  }
  if (!storages && !o.strip && o.dtype.empty() && o.to.empty() && o.adapters.empty()) {
    return fail(kUsage,
                "--out needs --strip (leave out the training state), --dtype, --adapter or --to.");
  }
  if (!o.encoding.empty() && o.to != "gguf") {
    return fail(kUsage, "--encoding is for --to gguf: safetensors has no quantized weights.");
  }
  if (!o.untied.empty() && is_adapter_form(o.to)) {
    return fail(kUsage, "--untie is for --to hf and gguf: an adapter changes no tie of its model.");
  }
  if (!o.untied.empty() && o.to.empty() && o.adapters.empty()) {
    return fail(kUsage, "--untie is for --to hf and gguf, and for a merged --adapter.");
  }
  BOWLINE_TRY_FLAGS(o.uses.check("--dtype", !is_adapter_form(o.to),
                                 "an adapter is written in the dtype of its factors"));
  BOWLINE_TRY_FLAGS(check_new(storages ? o.weights : o.out, o.force));
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
  BOWLINE_TRY(export_as_asked(o, model));
  return kOk;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<ExportOptions>(
      app, context, run, "export",
      "Writes a model for other tools, merges adapters, strips checkpoints",
      "# A checkpoint without its training state\n"
      "bowline export run/step-00000300.bowline --strip --out tuned.bowline\n"
      "# A model with a merged adapter, for Bowline and for Hugging Face\n"
      "bowline export lm.bowline --adapter a.bowline --out merged.bowline\n"
      "bowline export lm.bowline --adapter a.bowline --to hf --out lm/\n"
      "# The adapter alone, for PEFT\n"
      "bowline export lm.bowline --adapter a.bowline --to peft --out a/\n"
      "# A GGUF file for llama.cpp\n"
      "bowline export lm.bowline --to gguf --encoding q8_0 --out lm.gguf");
  verb->add_option("model", o->model, "Model file or checkpoint")->required();
  CLI::Option* strip =
      verb->add_flag("--strip", o->strip, "Leave out optimizer state, gradients and progress");
  CLI::Option* out =
      add_text(verb, "--out", o->out, "File or folder to write; needed without --weights", "FILE");
  CLI::Option* to =
      verb->add_option("--to", o->to, "Format; peft, gguf-lora: adapter only [Bowline]")
          ->check(CLI::IsMember(form_names()))
          ->needs(out)
          ->excludes(strip);
  add_text(verb, "--adapter", o->adapters, "Adapter to merge or convert, times WEIGHT [1]",
           "FILE[=WEIGHT]")
      ->needs(out);
  add_text(verb, "--untie", o->untied, "Give a tied parameter its own copy of the weight", "NAME")
      ->needs(out);
  verb->add_option("--encoding", o->encoding, "Quantize matrices for --to gguf: q8_0, q4_k, ...")
      ->type_name("FORMAT")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return find_block_format(name) != nullptr
                       ? ""
                       : fmt::format("{} is not one of {}", name, fmt::join(format_names(), ", "));
          },
          ""))
      ->needs(to);
  add_text(verb, "--weights", o->weights, "Instead of --out: raw weights, parameters.json",
           "FOLDER")
      ->excludes(out)
      ->excludes(strip);
  add_choice(verb, "--dtype", o->dtype, "Dtype of the written weights [the model's]",
             {"f32", "f16", "bf16"});
  verb->add_flag("--force", o->force, "Replace existing outputs");
  add_format(verb, o->format, "Output format of the summary");
  o->uses = FlagUses(verb);
}

}  // namespace bowline::command
