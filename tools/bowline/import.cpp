// bowline import: a model of another format as a model file.
#include "onnx/import.h"

#include <nlohmann/json.hpp>

#include "common/flags.h"
#include "common/report.h"
#include "common/require.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct ImportFlags {
  std::string model;
  std::string out;
  std::string entry = "forward";
  std::string format = "text";
  std::vector<std::string> dims;
  bool force = false;
};

nlohmann::json described(const EntryPointInfo& entry) {
  nlohmann::json inputs = nlohmann::json::array();
  for (const InputInfo& i : entry.inputs) {
    std::vector<int64_t> shape;
    for (const GraphDim& d : i.dims) {
      shape.push_back(d.value);
    }
    inputs.push_back(
        {{"name", i.name}, {"dtype", std::string(name_of(i.dtype))}, {"shape", shape}});
  }
  nlohmann::json outputs = nlohmann::json::array();
  for (const OutputInfo& o : entry.outputs) {
    outputs.push_back({{"name", o.name}, {"dtype", std::string(name_of(o.dtype))}});
  }
  return {{"name", entry.name},
          {"nodes", entry.nodes.size()},
          {"inputs", inputs},
          {"outputs", outputs}};
}

void print_text(const ImportFlags& o, const EntryPointInfo& entry, size_t parameters,
                const std::vector<std::string>& notes) {
  print("{}: entry point {} with {} nodes and {} parameters\n", o.out, listed_name(entry.name),
        entry.nodes.size(), parameters);
  for (const InputInfo& i : entry.inputs) {
    std::vector<int64_t> shape;
    for (const GraphDim& d : i.dims) {
      shape.push_back(d.value);
    }
    print("  input {} {}{}\n", listed_name(i.name), std::string(name_of(i.dtype)),
          onnx::shape_text(shape));
  }
  for (const OutputInfo& out : entry.outputs) {
    print("  output {} {}\n", listed_name(out.name), std::string(name_of(out.dtype)));
  }
  for (const std::string& note : notes) {
    print("  {}\n", note);
  }
}

Result<int> run(const ImportFlags& o) {
  onnx::ImportOptions options;
  options.entry_point = o.entry;
  for (const std::string& flag : o.dims) {
    Result<BoundDim> dim = parse_dim(flag);
    if (!dim.ok()) {
      return fail_flags(dim.status());
    }
    options.dims.push_back(std::move(dim).value());
  }
  if (const Status s = check_new(o.out, o.force); !s.ok()) {
    return fail_flags(s);
  }
  const Result<onnx::Imported> read = onnx::import_file(o.model, options);
  if (read.status().code() == Code::unsupported) {  // the file asks for what Bowline has not
    return fail(kBadFile, read.status().message());
  }
  BOWLINE_TRY(Status(read.status()));
  const onnx::Imported& imported = read.value();
  BOWLINE_ASSIGN(const ModelInfo info, imported.model.describe());
  BOWLINE_TRY(imported.model.save(o.out));
  const EntryPointInfo& entry = info.entry_points[0];
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"out", o.out},
                {"entry", described(entry)},
                {"parameters", info.parameters.size()},
                {"notes", imported.notes}});
  } else {
    print_text(o, entry, info.parameters.size(), imported.notes);
  }
  return static_cast<int>(kOk);
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  CLI::App* verb =
      add_verb(app, "import", "Makes a model file of a model of ONNX (operator sets 1 to 17)",
               "bowline import model.onnx --dim batch=1 --out model.bowline");
  auto o = std::make_shared<ImportFlags>();
  verb->add_option("model", o->model,
                   "File of ONNX; bytes that it keeps elsewhere lie in its folder")
      ->required();
  verb->add_option("--out", o->out, "Where the model is written")->required();
  verb->add_option("--entry", o->entry, "Name of the entry point that the graph becomes")
      ->capture_default_str();
  verb->add_option(
      "--dim", o->dims,
      "NAME=NUMBER of a dim that the inputs name; shapes are fixed when a model is read");
  verb->add_flag("--force", o->force, "Replace a file that is there");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return run(*o); });
}

}  // namespace bowline::command
