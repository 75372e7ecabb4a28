// bowline run: runs an entry point. Inputs and outputs are NumPy files or text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "bowline_text.h"
#include "common/find.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/inputs.h"
#include "common/text_array.h"
#include "common/tokenizers.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct RunOptions : ModelOptions {
  std::string entry;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> steps;
  Changes changes;
  DimFlags dims;
  bool force = false;
};

// Returns the file of each output name.
Result<std::map<std::string, std::string>> files_of(const RunOptions& o,
                                                    const EntryPointInfo& entry) {
  std::map<std::string, std::string> files;
  for (const std::string& flag : o.outputs) {
    const size_t equals = flag.find("=@");
    BOWLINE_REQUIRE(equals != std::string::npos && equals + 2 < flag.size(),
                    "--output \"{}\" is not of the form NAME=@file.npy or NAME=@file.txt.", flag);
    const std::string name = flag.substr(0, equals);
    const std::string path = flag.substr(equals + 2);
    BOWLINE_REQUIRE(find_named(entry.outputs, name) != nullptr,
                    "Entry point \"{}\" has no output \"{}\".", entry.name, name);
    BOWLINE_REQUIRE(files.emplace(name, path).second, "Output \"{}\" is given twice.", name);
    BOWLINE_TRY(check_new(path, o.force));
  }
  return files;
}

std::string summary_text(const Array& array) {
  if (array.dtype != DType::f32 || array.elements() == 0) {
    return "";
  }
  double least = INFINITY, largest = -INFINITY, sum = 0;
  uint64_t finite = 0;
  for (const float value : floats_of(array)) {
    if (std::isfinite(value)) {
      const auto x = static_cast<double>(value);
      least = std::min(least, x);
      largest = std::max(largest, x);
      sum += x;
      ++finite;
    }
  }
  const uint64_t others = array.elements() - finite;
  return fmt::format("  min {:.6g}, mean {:.6g}, max {:.6g}{}", least,
                     sum / static_cast<double>(finite), largest,
                     others == 0 ? "" : fmt::format(", {} not finite", others));
}

struct Outputs {
  std::vector<Array> arrays;
  std::vector<Tensor> tensors;
};

struct Request {
  EntryPointInfo entry;
  Inputs inputs;
  std::map<std::string, std::string> files;  // by output name
  std::vector<StepScalar> steps;
};

// Returns the shape of an output in this run. The size of a dynamic dimension comes from the
// inputs, a flag or a per-step scalar; otherwise it is the maximum.
TensorShape shape_of(const IoInfo& output, const Request& request) {
  std::vector<int64_t> shape(output.shape.begin(), output.shape.end());
  for (size_t axis = 0; axis < output.dynamic_dims.size(); ++axis) {
    const std::string& dim = output.dynamic_dims[axis];
    if (dim.empty()) {
      continue;
    }
    const BoundDim* const given = find_named(request.inputs.lengths, dim);
    shape[axis] = given == nullptr ? shape[axis] : given->value;
    const StepScalar* const step = find_named(request.steps, dim);
    if (step != nullptr && std::holds_alternative<uint64_t>(step->value)) {
      shape[axis] = static_cast<int64_t>(std::get<uint64_t>(step->value));
    }
  }
  return shape;
}

// `outputs` must outlive the result.
Result<Outputs> make_outputs(const std::vector<IoInfo>& outputs, const Request& request) {
  Outputs out;
  for (const IoInfo& o : outputs) {
    BOWLINE_TRY_ASSIGN(Array array, make_array(o.dtype, shape_of(o, request)));
    out.arrays.push_back(std::move(array));
  }
  for (size_t i = 0; i < out.arrays.size(); ++i) {
    out.tensors.push_back(out.arrays[i].tensor(outputs[i].name));
  }
  return out;
}

// Replaces "tokens=text:Hello" by the token ids of the text: "tokens=9906".
Result<std::vector<std::string>> with_ids(const std::vector<std::string>& inputs,
                                          const Model& model) {
  constexpr std::string_view kText = "=text:";
  std::vector<std::string> out;
  for (const std::string& input : inputs) {
    const size_t at = std::min(input.find('='), input.size());
    if (!std::string_view(input).substr(at).starts_with(kText)) {
      out.push_back(input);
      continue;
    }
    BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, tokenizer_of(model));
    BOWLINE_TRY_ASSIGN(const text::Encoding encoding,
                       tokenizer.encode(std::string_view(input).substr(at + kText.size())));
    BOWLINE_REQUIRE(!encoding.ids.empty(), "The text of --input \"{}\" has no tokens.", input);
    out.push_back(fmt::format("{}={}", input.substr(0, at), fmt::join(encoding.ids, ",")));
  }
  return out;
}

Result<Request> read_request(const RunOptions& o, const Model& model) {
  Request r;
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_TRY_ASSIGN(r.entry, entry_point(info, o.entry));
  BOWLINE_TRY_ASSIGN(std::vector<BoundDim> dims, dims_of(o.dims, info, &r.entry));
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> inputs, with_ids(o.inputs, model));
  BOWLINE_TRY_ASSIGN(r.inputs, make_inputs(r.entry, inputs, std::move(dims), ""));
  BOWLINE_TRY_ASSIGN(r.files, files_of(o, r.entry));
  BOWLINE_TRY_ASSIGN(r.steps, steps_of(o.steps));
  return r;
}

Result<int> run(const RunOptions& o) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
  Result<Request> read = read_request(o, model);
  if (!read.ok()) {
    return fail_flags(read.status());
  }
  Request request = std::move(read).value();
  const std::string& entry = request.entry.name;
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY(change(model, o.changes));
  BOWLINE_TRY(model.to(device));
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, entry, request.inputs.dims));
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, session.describe());
  const std::vector<IoInfo>& places = plan.segments[0].outputs;
  BOWLINE_TRY_ASSIGN(const Outputs outputs, make_outputs(places, request));
  BOWLINE_TRY(session.run(request.inputs.tensors(), outputs.tensors, request.steps));

  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < outputs.arrays.size(); ++i) {
    const Array& array = outputs.arrays[i];
    const std::string& name = places[i].name;
    const auto file = request.files.find(name);
    if (file != request.files.end()) {
      BOWLINE_TRY(is_text_path(file->second) ? write_text_array(file->second, array)
                                             : write_npy(file->second, array));
    }
    const std::string path = file == request.files.end() ? "" : file->second;
    rows.push_back({{"name", name},
                    {"dtype", std::string(name_of(array.dtype))},
                    {"shape", array.shape},
                    {"file", path}});
    if (o.format == "text") {
      print("{} {}{}{}{}\n", listed_name(name), std::string(name_of(array.dtype)),
            shape_text(array.shape), path.empty() ? "" : " -> " + path, summary_text(array));
    }
  }
  if (o.format == "json") {
    print_json({{"device", device.info().name}, {"entry", entry}, {"outputs", rows}});
  }
  return kOk;
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<RunOptions>(
      app, context, run, "run", "Runs an entry point, on inputs from files or the command line",
      "# Values on the command line, or the tokens of a text\n"
      "bowline run base.bowline --input tokens=65,66,67\n"
      "bowline run lm.bowline --input tokens=text:Hello\n"
      "# NumPy files\n"
      "bowline run base.bowline --input tokens=@x.npy --output logits=@y.npy");
  verb->add_option("model", o->model, "Model file")->required();
  add_entry(verb, o->entry);
  add_text(verb, "--input", o->inputs, std::string(kInputHelp) + "|text:Hi", "NAME=VALUE");
  CLI::Option* outputs = add_text(verb, "--output", o->outputs,
                                  "Write this output to a .npy or .txt file", "NAME=@FILE");
  add_text(verb, "--step", o->steps, kStepHelp, "NAME=N")->group(kAdvanced);
  add_changes(verb, o->changes);
  add_dims(verb, o->dims);
  add_device(verb, o->device.name);
  add_memory_budget(verb, o->device.memory_budget);
  add_matmul_precision(verb, o->device.matmul_precision);
  verb->add_flag("--force", o->force, "Replace existing outputs")->needs(outputs);
  add_format(verb, o->format);
}

}  // namespace bowline::command
