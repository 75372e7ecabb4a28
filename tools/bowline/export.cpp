// bowline export: a model without what a training left in it, as a model file or as the bytes of its storages, in the dtype that
// is asked for; or in the form of the tools that it came from.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/flags.h"
#include "common/report.h"
#include "common/require.h"
#include "export/adapter.h"
#include "export/gguf.h"
#include "export/huggingface.h"
#include "export/output.h"
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
};

// Storages of parameters, each once.
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

// storage_<tie>.bin with the bytes of each storage that a parameter shows, and parameters.json, which names them.
Result<json> write_weights(const Model& model, const std::string& folder, bool replace) {
  constexpr const char* kParameters = "parameters.json";
  BOWLINE_ASSIGN(const ModelInfo info, model.describe());
  const std::set<uint32_t> ties = storages_of(info);
  uint64_t bytes = 0;
  for (const uint32_t tie : ties) {
    bytes += info.storages[tie].bytes;
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  BOWLINE_ASSIGN(Output out, Output::begin(folder, kParameters, replace, bytes));
  for (const uint32_t tie : ties) {
    BOWLINE_ASSIGN(const std::vector<std::byte> storage, model.storage_bytes(tie));
    BOWLINE_TRY(out.open(fmt::format("storage_{}.bin", tie)));
    BOWLINE_TRY(out.write(storage));
    BOWLINE_TRY(out.close());
  }
  const json rows = rows_of(info);
  BOWLINE_TRY(out.open(kParameters));
  BOWLINE_TRY(out.write(rows.dump(2) + "\n"));
  BOWLINE_TRY(out.close());
  BOWLINE_TRY(out.commit());
  return json{{"parameters", rows.size()}, {"storages", ties.size()}, {"bytes", bytes}};
}

Status export_weights(const ExportOptions& o, const Model& model) {
  BOWLINE_ASSIGN(json result, write_weights(model, o.weights, o.force));
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

Status export_model(const ExportOptions& o, const Model& model) {
  BOWLINE_TRY(model.save(o.out));  // without the training
  const uint64_t before = std::filesystem::file_size(o.model);
  const uint64_t after = std::filesystem::file_size(o.out);
  if (o.format == "json") {
    print_json({{"file", o.model}, {"out", o.out}, {"bytes_before", before}, {"bytes", after}});
  } else {
    print("{}: {}, before {}\n", o.out, bytes_text(after), bytes_text(before));
  }
  return {};
}

DType dtype_of(const std::string& name) {
  return name == "f16" ? DType::f16 : name == "bf16" ? DType::bf16 : DType::f32;
}

Status cast(Model& model, const std::string& name) {
  const DType dtype = dtype_of(name);
  BOWLINE_ASSIGN(const CastReport report, model.cast(dtype));
  print(stderr, "{} storages to {}: {}, before {}\n", report.storages, name,
        bytes_text(report.bytes_after), bytes_text(report.bytes_before));
  for (const std::string& kept : report.kept) {
    print(stderr, "not cast: {}\n", kept);
  }
  return {};
}

Status untie_all(Model& model, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    BOWLINE_ASSIGN(const uint64_t bytes, model.untie(name));
    BOWLINE_REQUIRE(bytes != 0, "--untie names \"{}\", which shares its storage with none.", name);
  }
  return {};
}

// Adapters become a part of the weights, which are numbers then.
Status merge_adapters(Model& model, const ExportOptions& o) {
  BOWLINE_TRY(change(model, {"", o.adapters}));
  if (o.adapters.empty()) {
    return {};
  }
  if (!o.dtype.empty()) {
    BOWLINE_TRY(model.dequantize("*", dtype_of(o.dtype)).status());
  }
  for (const std::string& name : model.adapters()) {
    BOWLINE_TRY(model.merge_adapter(name).at(
        "--untie PARAMETER writes one as a weight of its own; --to peft and gguf-lora write the "
        "adapter beside the model."));
  }
  return {};
}

// Forms of other tools, by the word behind --to.
struct Form {
  const char* name;
  Result<ExportReport> (*write)(const Model& model, const std::string& path,
                                std::optional<DType> dtype, bool replace);
};
constexpr Form kForms[] = {{"hf", export_huggingface}, {"gguf", export_gguf}};

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

// Adapters stay beside the weights for a form of theirs, and become a part of them for the others.
Result<ExportReport> write_form(const ExportOptions& o, Model& model) {
  if (is_adapter_form(o.to)) {
    BOWLINE_TRY(change(model, {"", o.adapters}));
    return export_adapter(model, o.to, o.out, o.force);
  }
  BOWLINE_TRY(untie_all(model, o.untied));
  BOWLINE_TRY(merge_adapters(model, o));
  BOWLINE_TRY(quantize_all(model, o.encoding));
  const auto* const form =
      std::ranges::find_if(kForms, [&](const Form& f) { return f.name == o.to; });
  const auto dtype = o.dtype.empty() ? std::nullopt : std::optional(dtype_of(o.dtype));
  return form->write(model, o.out, dtype, o.force);
}

Status export_form(const ExportOptions& o, Model& model) {
  BOWLINE_ASSIGN(const ExportReport report, write_form(o, model));
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
  for (const std::string& note : report.notes) {
    print("note: {}\n", note);
  }
  return {};
}

Status export_as_asked(const ExportOptions& o, Model& model) {
  if (!o.to.empty()) {
    return export_form(o, model);
  }
  if (!o.dtype.empty()) {
    BOWLINE_TRY(cast(model, o.dtype));
  }
  return o.weights.empty() ? export_model(o, model) : export_weights(o, model);
}

Result<int> run(const ExportOptions& o) {
  const bool storages = !o.weights.empty();
  if (!storages && o.out.empty()) {
    return fail(kUsage,
                "What is written? --out FILE with --strip or --dtype, --out PATH with --to, or "
                "--weights FOLDER.");
  }
  if (!storages && !o.strip && o.dtype.empty() && o.to.empty()) {
    return fail(kUsage,
                "--out needs --strip, which says that what a training left is not written, --dtype "
                "or --to.");
  }
  if (!o.encoding.empty() && o.to != "gguf") {
    return fail(kUsage, "--encoding is for --to gguf: safetensors has no codes.");
  }
  if (!o.untied.empty() && is_adapter_form(o.to)) {
    return fail(kUsage, "--untie is for --to hf and gguf: an adapter changes no tie of its model.");
  }
  if (const Status s = check_new(storages ? o.weights : o.out, o.force); !s.ok()) {
    return fail_flags(s);
  }
  BOWLINE_ASSIGN(Model model, open_model(o.model));
  BOWLINE_TRY(export_as_asked(o, model));
  return static_cast<int>(kOk);
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(app, "export", "Writes a model without what a training left in it",
                            "bowline export run/step-00000300.bowline --strip --out tuned.bowline\n"
                            "bowline export lm.bowline --adapter a.bowline --to hf --out lm/\n"
                            "bowline export lm.bowline --adapter a.bowline --to peft --out a/\n"
                            "bowline export lm.bowline --to gguf --encoding q8_0 --out lm.gguf");
  auto o = std::make_shared<ExportOptions>();
  verb->add_option("model", o->model, "Model file or checkpoint")->required();
  CLI::Option* strip =
      verb->add_flag("--strip", o->strip, "Leave out moments, gradients and the record of the run");
  CLI::Option* out = verb->add_option("--out", o->out, "Where the model is written");
  CLI::Option* to =
      verb->add_option("--to", o->to,
                       "Instead of a model file the form of another tool: hf, a folder as "
                       "transformers writes it, or gguf, a file; peft or gguf-lora: the adapter "
                       "alone; of an imported model")
          ->check(CLI::IsMember(form_names()))
          ->needs(out)
          ->excludes(strip);
  verb->add_option("--adapter", o->adapters,
                   "FILE or FILE=WEIGHT of an adapter of the model, which is merged into the "
                   "weights that --to hf and gguf write, where several add up, and written by the "
                   "others")
      ->needs(to);
  verb->add_option("--untie", o->untied,
                   "Parameter that gets a weight of its own, such as lm_head.weight, which an "
                   "adapter of the head alone needs; any number")
      ->needs(to);
  verb->add_option("--encoding", o->encoding,
                   "Matrices that --to gguf writes become codes: q8_0 or q4_0")
      ->check(CLI::IsMember({"q8_0", "q4_0"}))
      ->needs(to);
  verb->add_option("--weights", o->weights,
                   "Instead a folder for storage_<tie>.bin, the bytes of each storage, and "
                   "parameters.json, with the name, tie, dtype and shape of each parameter")
      ->excludes(out)
      ->excludes(strip);
  verb->add_option("--dtype", o->dtype,
                   "Weights and float inputs in this dtype, which --out takes instead of --strip "
                   "too; running "
                   "statistics stay f32")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  verb->add_flag("--force", o->force, "Replace what is there");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return run(*o); });
}

}  // namespace bowline::command
