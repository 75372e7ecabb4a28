// bowline import: a model of another format as a model file.
#include "onnx/import.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "architectures/architecture.h"
#include "base/escape.h"
#include "base/pattern.h"
#include "base/status.h"
#include "bowline_text.h"
#include "common/flag_uses.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/report.h"
#include "common/text.h"
#include "common/trained_values.h"
#include "data/examples.h"
#include "gguf/read.h"
#include "huggingface/read.h"
#include "import/adapter.h"
#include "verb.h"

namespace bowline::command {
namespace {

using import::Built;
using import::Source;
using import::TensorReport;
using nlohmann::json;

// What is imported.
enum Kind : unsigned { kFolder = 1, kSkeleton = 2, kGguf = 4, kOnnx = 8, kAdapter = 16 };
constexpr InputKind kKinds[] = {
    {kFolder, "a folder of Hugging Face"},
    {kSkeleton, "a skeleton"},
    {kGguf, "a GGUF file"},
    {kOnnx, "an ONNX file"},
    {kAdapter, "an adapter (--base)"},
};
constexpr unsigned kTextModels = kFolder | kGguf;

// Tasks as bits.
constexpr unsigned bit_of(import::Task task) { return 1u << static_cast<unsigned>(task); }
constexpr unsigned kGenerates = bit_of(import::Task::generate);
constexpr unsigned kClassifies = bit_of(import::Task::classify);
constexpr unsigned kEmbeds = bit_of(import::Task::embed);
constexpr unsigned kAnyTask = kGenerates | kClassifies | kEmbeds;
constexpr InputKind kTasks[] = {
    {kGenerates, "a model for the task generate"},
    {kClassifies, "a model for the task classify"},
    {kEmbeds, "a model for the task embed"},
};

struct ImportFlags {
  std::string model;
  std::string out;
  std::string format = "text";
  bool force = false;
  // Of ONNX.
  std::string entry = "forward";
  std::vector<std::string> dims;
  std::vector<std::string> shapes;
  std::string batch_dim;
  std::vector<std::string> given;
  std::vector<std::string> trainable;
  std::vector<std::string> freeze;
  // Of adapters.
  std::string base;
  std::string name;
  // Of text models.
  std::string task;
  std::string labels;
  std::string dtype;
  std::string kv_dtype = "f32";
  std::string pooling;
  std::vector<std::string> ties;
  bool tie_equal = false;
  bool multi_label = false;
  double label_smoothing = 0;
  bool dropout = false;
  uint64_t seed = 0;
  bool skeleton = false;
  FlagUses uses;       // which flags are for which Kind
  FlagUses task_uses;  // and for which tasks
};

json described(const EntryPointInfo& entry) {
  json inputs = json::array();
  for (const InputInfo& i : entry.inputs) {
    json shape = json::array();
    for (const GraphDim& d : i.dims) {
      shape.push_back(d.name.empty() ? json(d.value) : json(d.name));
    }
    inputs.push_back(
        {{"name", i.name}, {"dtype", std::string(name_of(i.dtype))}, {"shape", shape}});
  }
  json outputs = json::array();
  for (const OutputInfo& o : entry.outputs) {
    outputs.push_back({{"name", o.name}, {"dtype", std::string(name_of(o.dtype))}});
  }
  return {{"name", entry.name},
          {"nodes", entry.nodes.size()},
          {"inputs", inputs},
          {"outputs", outputs}};
}

json described(const std::vector<import::NotFinite>& tensors) {
  json out = json::array();
  for (const import::NotFinite& t : tensors) {
    out.push_back({{"tensor", t.tensor}, {"values", t.values}, {"elements", t.elements}});
  }
  return out;
}

// ------------------------------------------------------------------------------------------- ONNX

void print_onnx(const ImportFlags& o, const EntryPointInfo& entry, const ModelInfo& info,
                const std::vector<std::string>& notes) {
  print("{}: entry point {} with {} nodes and {} parameters\n", o.out, listed_name(entry.name),
        entry.nodes.size(), info.parameters.size());
  const TrainedValues trained = trained_values(info);
  print("  {} of {} values are trained\n", trained.values, trained.all);
  for (const InputInfo& i : entry.inputs) {
    std::string shape;
    for (const GraphDim& d : i.dims) {
      shape += (shape.empty() ? "" : ",") +
               (d.name.empty() ? std::to_string(d.value) : listed_name(d.name));
    }
    print("  input {} {}[{}]\n", listed_name(i.name), std::string(name_of(i.dtype)), shape);
  }
  for (const OutputInfo& out : entry.outputs) {
    print("  output {} {}\n", listed_name(out.name), std::string(name_of(out.dtype)));
  }
  for (const std::string& note : notes) {
    print("  {}\n", note);
  }
}

// Errors  bad_argument: --seed was given, and the source has the values of all weights.
Status check_seed(const ImportFlags& o, const Built& built, const ModelInfo& info) {
  const bool drawn = std::ranges::any_of(info.parameters, [&](const ParameterInfo& p) {
    return p.trainable && std::ranges::find(built.tensors, p.name, &TensorReport::parameter) ==
                              built.tensors.end();
  });
  return o.uses.check("--seed", drawn, "the source has the values of all weights");
}

// "x=1,3,48,192": the name and the numbers. `batch` stands for kBatch, if it is not empty. Errors
// bad_argument.
template <class T>
Result<std::pair<std::string, std::vector<T>>> parse_numbers(const std::string& flag,
                                                             const std::string& text,
                                                             const std::string& batch = "") {
  const size_t equals = text.rfind('=');
  const std::string form =
      fmt::format("{} \"{}\" is not of the form NAME=NUMBER,NUMBER,...", flag, escaped(text));
  BOWLINE_REQUIRE(equals != std::string::npos && equals > 0, "{}", form);
  std::vector<T> numbers;
  for (size_t at = equals + 1; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view entry = std::string_view(text).substr(at, end - at);
    T number = static_cast<T>(onnx::kBatch);
    if (batch.empty() || entry != batch) {
      const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
      BOWLINE_REQUIRE(error == std::errc() && stop == entry.data() + entry.size(), "{}", form);
      BOWLINE_REQUIRE(batch.empty() || number != static_cast<T>(onnx::kBatch), "{}", form);
    }
    numbers.push_back(number);
    at = end + 1;
  }
  return std::pair(text.substr(0, equals), numbers);
}

Result<onnx::ImportOptions> onnx_options(const ImportFlags& o) {
  onnx::ImportOptions options;
  options.entry_point = o.entry;
  options.batch_dim = o.batch_dim;
  options.tie_equal = o.tie_equal;
  for (const std::string& flag : o.dims) {
    BOWLINE_TRY_ASSIGN(BoundDim dim, parse_dim(flag));
    options.dims.push_back(std::move(dim));
  }
  for (const std::string& flag : o.shapes) {
    BOWLINE_TRY_ASSIGN(auto shape, parse_numbers<int64_t>("--shape", flag, o.batch_dim));
    const bool legal = std::ranges::all_of(shape.second, [&](int64_t d) {
      return d > 0 || (d == onnx::kBatch && !o.batch_dim.empty());
    });
    BOWLINE_REQUIRE(legal, "--shape \"{}\" has a dimension below 1.", escaped(flag));
    options.shapes.insert(std::move(shape));
  }
  for (const std::string& flag : o.given) {
    BOWLINE_TRY_ASSIGN(auto values, parse_numbers<double>("--given", flag));
    options.fixed.insert(std::move(values));
  }
  if (!o.trainable.empty()) {
    std::vector<std::string> patterns;
    for (const std::string& pattern : o.trainable) {
      BOWLINE_TRY_ASSIGN(const std::vector<std::string> some, alternatives(pattern));
      patterns.insert(patterns.end(), some.begin(), some.end());
    }
    options.trains = [patterns](const std::string& name) { return matches_any(patterns, name); };
  }
  return options;
}

// Freezes what matches --freeze. Errors  bad_argument: a pattern of --freeze or --trainable matches
// nothing that trains.
Status choose_trained(Model& model, const ImportFlags& o) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  using Names = std::vector<std::string>;
  const auto matched = [&](const std::string& flag, const std::string& pattern) -> Result<Names> {
    BOWLINE_TRY_ASSIGN(const Names patterns, alternatives(pattern));
    Names names;
    for (const ParameterInfo& p : info.parameters) {
      if (p.trainable && matches_any(patterns, p.name)) {
        names.push_back(p.name);
      }
    }
    BOWLINE_REQUIRE(!names.empty(), "{} \"{}\" matches no parameter that can be trained.", flag,
                    escaped(pattern));
    return names;
  };
  for (const std::string& pattern : o.trainable) {
    BOWLINE_TRY(matched("--trainable", pattern).status());
  }
  for (const std::string& pattern : o.freeze) {
    BOWLINE_TRY_ASSIGN(const Names names, matched("--freeze", pattern));
    for (const std::string& name : names) {
      BOWLINE_TRY(model.freeze(name));
    }
  }
  return {};
}

Result<int> import_onnx(const ImportFlags& o) {
  const Result<onnx::ImportOptions> options = onnx_options(o);
  if (!options.ok()) {
    return fail_flags(options.status());
  }
  Result<onnx::Imported> read = onnx::import_file(o.model, options.value());
  if (read.status().code() == Code::bad_argument) {
    return fail_flags(read.status());
  }
  if (read.status().code() == Code::unsupported) {  // the file asks for what Bowline has not
    return fail(kBadFile, read.status().message());
  }
  BOWLINE_TRY(Status(read.status()));
  onnx::Imported& imported = read.value();
  if (const Status s = choose_trained(imported.model, o); !s.ok()) {
    return fail_flags(s);
  }
  BOWLINE_TRY_ASSIGN(const ModelInfo info, imported.model.describe());
  BOWLINE_TRY(imported.model.save(o.out));
  if (!imported.not_finite.empty()) {
    imported.notes.push_back(
        import::note_of(imported.not_finite) +
        " They are treated as masks and not trained. --trainable trains them.");
  }
  const EntryPointInfo& entry = info.entry_points[0];
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"out", o.out},
                {"entry", described(entry)},
                {"parameters", info.parameters.size()},
                {"trained_values", trained_values(info).values},
                {"not_finite", described(imported.not_finite)},
                {"notes", imported.notes}});
  } else {
    print_onnx(o, entry, info, imported.notes);
  }
  return static_cast<int>(kOk);
}

// ------------------------------------------------------------------------------------ text models

std::optional<DType> float_of(std::string_view name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    if (name_of(t) == name) {
      return t;
    }
  }
  return std::nullopt;
}

Result<import::BuildOptions> build_options(const ImportFlags& o) {
  import::BuildOptions options;
  for (const import::Task t :
       {import::Task::generate, import::Task::classify, import::Task::embed}) {
    if (name_of(t) == o.task) {
      options.task = t;
    }
  }
  if (!o.labels.empty()) {
    BOWLINE_TRY_ASSIGN(const std::string text, read_text(o.labels, true));
    BOWLINE_TRY_ASSIGN(options.labels, read_labels(text, o.labels));
  }
  options.dtype = float_of(o.dtype);
  options.kv_dtype = o.kv_dtype == "int8" ? DType::i8 : float_of(o.kv_dtype).value_or(DType::f32);
  options.pooling = o.pooling;
  options.multi_label = o.multi_label;
  options.label_smoothing = o.label_smoothing;
  options.tie_equal = o.tie_equal;
  options.dropout = o.dropout;
  options.seed = o.seed;
  options.skeleton = o.skeleton;
  for (size_t i = 0; i + 1 < o.ties.size(); i += 2) {
    options.ties.emplace_back(o.ties[i], o.ties[i + 1]);
  }
  return options;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Names that differ in one number alone are one line: "model.layers.{0..29}.mlp.up_proj.weight".
struct NameGroup {
  const TensorReport* first = nullptr;
  std::string before, behind;  // of the number
  int64_t least = -1, most = -1;
  int64_t count = 0;
};

NameGroup group_of(const TensorReport& t) {
  NameGroup g{&t, t.name, "", -1, -1, 1};
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 1; i < t.name.size(); ++i) {
    if (t.name[i - 1] != '.' || !is_digit(t.name[i])) {
      continue;
    }
    const size_t end = std::min(t.name.find('.', i), t.name.size());
    if (end - i <= 9 && std::all_of(t.name.begin() + static_cast<ptrdiff_t>(i),
                                    t.name.begin() + static_cast<ptrdiff_t>(end), is_digit)) {
      g.before = t.name.substr(0, i);
      g.behind = t.name.substr(end);
      g.least = g.most = std::stoll(t.name.substr(i, end - i));
      break;
    }
  }
  return g;
}

std::vector<NameGroup> grouped_names(const std::vector<TensorReport>& tensors) {
  std::vector<NameGroup> groups;
  std::map<std::string, size_t> where;
  for (const TensorReport& t : tensors) {
    const NameGroup g = group_of(t);
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", name_of(t.use), g.before,
                                        g.behind, t.stored, shape_text(t.shape), t.reason);
    const auto [at, is_new] = where.emplace(key, groups.size());
    if (is_new) {
      groups.push_back(g);
      continue;
    }
    NameGroup& all = groups[at->second];
    all.least = std::min(all.least, g.least);
    all.most = std::max(all.most, g.most);
    ++all.count;
  }
  return groups;
}

std::string name_text(const NameGroup& g) {
  if (g.count == 1) {
    return listed_name(g.first->name);
  }
  return fmt::format(
      "{} ({})", listed_name(fmt::format("{}{{{}..{}}}{}", g.before, g.least, g.most, g.behind)),
      g.count);
}

void print_report(const ImportFlags& o, const Source& source, const Built& built,
                  const ModelInfo& info, uint64_t bytes) {
  std::map<TensorReport::Use, size_t> uses;
  for (const TensorReport& t : built.tensors) {
    ++uses[t.use];
  }
  print("{}: {} from {}, task {}, {}\n", o.out, built.model.metadata("architecture"), source.format,
        std::string(name_of(built.task)), bytes_text(bytes));
  if (o.skeleton) {
    print("  a skeleton: {} parameters of this size, without values\n", info.parameters.size());
  } else {
    print("  {} tensors: {} taken, {} tied, {} dropped\n", built.tensors.size(),
          uses[TensorReport::Use::taken], uses[TensorReport::Use::tied],
          uses[TensorReport::Use::dropped]);
  }
  for (const NameGroup& g : grouped_names(built.tensors)) {
    print("  {:<7} {}  {}{}{}{}\n", std::string(name_of(g.first->use)), name_text(g),
          g.first->stored, shape_text(g.first->shape), g.first->reason.empty() ? "" : "  ",
          g.first->reason);
  }
  for (const TieInfo& tie : info.ties) {
    std::string names;
    for (const uint32_t p : tie.parameters) {
      names += (names.empty() ? "" : ", ") + listed_name(info.parameters[p].name);
    }
    print("  one weight: {}, {} saved\n", names, bytes_text(tie.saved_bytes));
  }
  for (const EntryPointInfo& entry : info.entry_points) {
    print("  entry point {}\n", listed_name(entry.name));
  }
  for (const auto& [key, value] : info.metadata) {
    print("  {} = {}\n", key, listed_name(value));
  }
  for (const std::string& note : built.notes) {
    print("  note: {}\n", note);
  }
}

json report_json(const ImportFlags& o, const Source& source, const Built& built,
                 const ModelInfo& info, uint64_t bytes) {
  json tensors = json::array();
  for (const TensorReport& t : built.tensors) {
    tensors.push_back({{"name", t.name},
                       {"stored", t.stored},
                       {"shape", t.shape},
                       {"use", std::string(name_of(t.use))},
                       {"parameter", t.parameter},
                       {"reason", t.reason}});
  }
  json ties = json::array();
  for (const TieInfo& tie : info.ties) {
    json names = json::array();
    for (const uint32_t p : tie.parameters) {
      names.push_back(info.parameters[p].name);
    }
    ties.push_back({{"parameters", names}, {"saved_bytes", tie.saved_bytes}});
  }
  json entries = json::array();
  for (const EntryPointInfo& entry : info.entry_points) {
    entries.push_back(described(entry));
  }
  json metadata = json::object();
  for (const auto& [key, value] : info.metadata) {
    metadata[key] = value;
  }
  return {{"file", o.model},
          {"out", o.out},
          {"format", source.format},
          {"task", std::string(name_of(built.task))},
          {"bytes", bytes},
          {"skeleton", o.skeleton},
          {"tensors", tensors},
          {"ties", ties},
          {"entries", entries},
          {"metadata", metadata},
          {"not_finite", described(built.finite.found())},
          {"notes", built.notes},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

// A tokenizer that gives ids which the model has not is refused; one that cannot be used is said
// so, as the model works without.
Status check_tokenizer(Built& built) {
  if (!built.model.asset("tokenizer").ok()) {
    built.notes.push_back("The source has no tokenizer: the model takes ids alone.");
    return {};
  }
  const Result<text::Tokenizer> tokenizer = text::Tokenizer::from(built.model);
  if (!tokenizer.ok()) {
    built.notes.push_back(
        fmt::format("The tokenizer cannot be used: {}", tokenizer.status().message()));
    return {};
  }
  const auto rows = static_cast<size_t>(std::stoull(built.model.metadata("vocabulary")));
  BOWLINE_REQUIRE_CODE(tokenizer.value().size() <= rows, Code::bad_file,
                       "The tokenizer has ids up to {}, the embedding has {} rows.",
                       tokenizer.value().size() - 1, rows);
  built.notes.push_back(fmt::format("The tokenizer is {} with {} ids.", tokenizer.value().kind(),
                                    tokenizer.value().size()));
  return {};
}

Result<int> import_text_model(const ImportFlags& o, const Source& source) {
  BOWLINE_TRY_ASSIGN(const import::BuildOptions options, build_options(o));
  Result<Built> made = build_model(source, options);
  if (made.status().code() == Code::bad_argument) {
    return fail_flags(
        Status(made.status()).at(fmt::format("While importing \"{}\".", escaped(o.model))));
  }
  if (!made.ok()) {
    const int code = made.status().code() == Code::unsupported ? static_cast<int>(kBadFile)
                                                               : exit_code(made.status().code());
    return fail(code, Status(made.status())
                          .at(fmt::format("While importing \"{}\".", escaped(o.model)))
                          .message());
  }
  Built& built = made.value();
  if (const Status s = o.task_uses.check(bit_of(built.task), kTasks); !s.ok()) {
    return fail_flags(s);
  }
  BOWLINE_TRY(check_tokenizer(built).at(fmt::format("While importing \"{}\".", escaped(o.model))));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, built.model.describe());
  if (const Status s = check_seed(o, built, info); !s.ok()) {
    return fail_flags(s);
  }
  BOWLINE_TRY(built.model.save_compacted(o.out).status());
  if (const std::vector<import::NotFinite> found = built.finite.found(); !found.empty()) {
    built.notes.push_back(import::note_of(found) +
                          (o.dtype == "f16" ? " f16 holds values up to 65504: --dtype bf16 or f32 "
                                              "keeps larger ones."
                                            : ""));
  }
  uint64_t bytes = 0;
  for (const StorageInfo& s : info.storages) {
    bytes += s.empty ? 0 : s.bytes;
  }
  if (o.format == "json") {
    print_json(report_json(o, source, built, info, bytes));
  } else {
    print_report(o, source, built, info, bytes);
  }
  return static_cast<int>(kOk);
}

// --------------------------------------------------------------------------------------- adapters

Result<int> import_adapter_file(const ImportFlags& o) {
  const Result<AdapterReport> report = import_adapter({o.model, o.base, o.out, o.name});
  if (report.status().code() == Code::unsupported) {
    return fail(kBadFile, report.status().message());
  }
  BOWLINE_TRY(Status(report.status()));
  const std::vector<std::string>& targets = report.value().targets;
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"base", o.base},
                {"out", o.out},
                {"name", o.name},
                {"targets", targets},
                {"bytes", report.value().bytes}});
  } else {
    print("{}: adapter {} of {}, {} parameters, {}\n", o.out, listed_name(o.name), o.base,
          targets.size(), bytes_text(report.value().bytes));
  }
  return static_cast<int>(kOk);
}

// ------------------------------------------------------------------------------- which format it
// is

bool begins_with(const std::string& path, std::string_view magic) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(magic.size(), '\0');
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin == magic;
}

Result<int> run(const ImportFlags& o) {
  if (const Status s = check_new(o.out, o.force); !s.ok()) {
    return fail_flags(s);
  }
  if (begins_with(o.model, "BOWLINE1")) {
    return fail(
        kBadFile,
        fmt::format(
            "\"{0}\" is already a Bowline model file. 'bowline inspect {0}' shows its content.",
            escaped(o.model)));
  }
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(o.model, error);
  if (o.skeleton && !is_folder) {
    return fail(kUsage,
                fmt::format("--skeleton reads config.json in a folder, but \"{}\" is not a folder.",
                            escaped(o.model)));
  }
  const Kind kind = !o.base.empty()                ? kAdapter
                    : o.skeleton                   ? kSkeleton
                    : is_folder                    ? kFolder
                    : begins_with(o.model, "GGUF") ? kGguf
                                                   : kOnnx;
  if (const Status s = o.uses.check(kind, kKinds); !s.ok()) {
    return fail_flags(s);
  }
  if (kind == kAdapter) {
    return import_adapter_file(o);
  }
  if (kind == kOnnx) {
    return import_onnx(o);
  }
  const Result<Source> source = o.skeleton  ? huggingface::read_config(o.model)
                                : is_folder ? huggingface::read(o.model)
                                            : gguf::read(o.model);
  if (source.status().code() == Code::unsupported) {
    return fail(kBadFile, source.status().message());
  }
  BOWLINE_TRY(Status(source.status()));
  return import_text_model(o, source.value());
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  CLI::App* verb =
      add_verb(app, "import", "Converts a model from Hugging Face, GGUF, ONNX or PEFT",
               "bowline import smollm2/ --out lm.bowline\n"
               "bowline import minilm/ --task classify --labels labels.txt --out m.bowline\n"
               "bowline import llama-8b/ --skeleton --out shapes.bowline\n"
               "bowline import peft/ --base lm.bowline --out adapter.bowline\n"
               "bowline import model.onnx --dim batch=1 --out model.bowline\n"
               "bowline import model.onnx --batch-dim batch --out model.bowline\n"
               "bowline import ocr.onnx --shape x=1,3,48,192 --freeze 'stem.*' --out ocr.bowline");
  auto o = std::make_shared<ImportFlags>();
  verb->add_option("model", o->model, "Hugging Face folder, GGUF file or ONNX file")->required();
  verb->add_option("--out", o->out, "Model file to write")->type_name("FILE")->required();
  // Which kinds of input, and which tasks, a flag has an effect on.
  o->uses = o->task_uses = FlagUses(verb);
  const auto use = [&o](CLI::Option* option, unsigned kinds, unsigned tasks = kAnyTask) {
    o->uses.add(option, kinds);
    o->task_uses.add(option, tasks);
    return option;
  };
  use(verb->add_option("--entry", o->entry, "ONNX: name of the entry point")->type_name("NAME"),
      kOnnx)
      ->capture_default_str();
  use(verb->add_option("--dim", o->dims, "ONNX: size of a named dimension")->type_name("NAME=N"),
      kOnnx);
  use(verb->add_option("--shape", o->shapes, "ONNX: shape of an input")->type_name("NAME=N,N"),
      kOnnx);
  use(verb->add_option("--batch-dim", o->batch_dim, "ONNX: keep the batch dynamic, under this name")
          ->type_name("NAME"),
      kOnnx);
  use(verb->add_option("--given", o->given, "ONNX: replace an input by constant values")
          ->group(kAdvanced)
          ->type_name("NAME=VALUE"),
      kOnnx);
  use(verb->add_option("--trainable", o->trainable,
                       "ONNX: train tensors that are taken as constants")
          ->group(kAdvanced)
          ->type_name("PATTERN"),
      kOnnx);
  use(verb->add_option("--freeze", o->freeze, "ONNX: do not train these parameters")
          ->type_name("PATTERN"),
      kOnnx);
  CLI::Option* base =
      verb->add_option("--base", o->base, "Import a LoRA adapter for this model file")
          ->type_name("FILE");
  o->name = "lora";
  use(verb->add_option("--name", o->name, "Name of the adapter")
          ->group(kAdvanced)
          ->type_name("NAME"),
      kAdapter)
      ->needs(base)
      ->capture_default_str();
  use(verb->add_option("--task", o->task, "Task of the model"), kTextModels | kSkeleton)
      ->check(CLI::IsMember({"generate", "classify", "embed"}));
  use(verb->add_option("--labels", o->labels, "One label per line, in class order")
          ->type_name("FILE"),
      kTextModels, kClassifies);
  use(verb->add_option("--dtype", o->dtype, "Dtype of the weights [the source's]"),
      kTextModels | kSkeleton)
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  use(verb->add_option("--kv-dtype", o->kv_dtype, "Dtype of the KV cache")->group(kAdvanced),
      kTextModels | kSkeleton, kGenerates)
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->capture_default_str();
  use(verb->add_option("--pooling", o->pooling, "Pooling of an encoder [the source's, or mean]")
          ->group(kAdvanced),
      kTextModels, kClassifies | kEmbeds)
      ->check(CLI::IsMember({"mean", "cls", "max"}));
  use(verb->add_option("--tie", o->ties, "Tie tensors A and B, whose values are equal")
          ->group(kAdvanced)
          ->type_name("A B"),
      kTextModels)
      ->type_size(2);
  use(verb->add_flag("--tie-equal", o->tie_equal, "Tie equal tensors, and merge equal layers")
          ->group(kAdvanced),
      kTextModels | kOnnx);
  use(verb->add_flag("--multi-label", o->multi_label, "Allow several labels per text"), kTextModels,
      kClassifies);
  use(verb->add_option("--label-smoothing", o->label_smoothing, "Label smoothing of the loss [0]")
          ->group(kAdvanced),
      kTextModels, kClassifies)
      ->check(CLI::Range(0.0, 0.999));
  use(verb->add_flag("--dropout", o->dropout, "Train with the dropout rates of the config")
          ->group(kAdvanced),
      kTextModels | kSkeleton, kGenerates | kClassifies);
  use(verb->add_option("--seed", o->seed, "Random seed of weights that the source lacks [0]")
          ->group(kAdvanced),
      kTextModels, kClassifies);
  verb->add_flag("--skeleton", o->skeleton, "Import only the shapes, from config.json")
      ->excludes(base);
  verb->add_flag("--force", o->force, "Replace an existing file");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return run(*o); });
}

}  // namespace bowline::command
