// Imports ONNX files.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/pattern.h"
#include "base/status.h"
#include "common/flags.h"
#include "common/strings.h"
#include "common/trained_values.h"
#include "import/flags.h"
#include "onnx/import.h"
#include "verb.h"

namespace bowline::command {
namespace {

void print_onnx(const ImportFlags& o, const EntryPointInfo& entry, const ModelInfo& info,
                const std::vector<std::string>& notes) {
  print("{}: entry point {} with {} nodes and {} parameters\n", o.out, listed_name(entry.name),
        entry.nodes.size(), info.parameters.size());
  const TrainedValues trained = trained_values(info);
  print("  {} of {} values are trained\n", trained.values, trained.all);
  for (const InputInfo& i : entry.inputs) {
    const auto dim = [](const GraphDim& d) {
      return d.name.empty() ? std::to_string(d.value) : listed_name(d.name);
    };
    print("  input {} {}[{}]\n", listed_name(i.name), std::string(name_of(i.dtype)),
          joined(i.dims, dim, ","));
  }
  for (const OutputInfo& out : entry.outputs) {
    print("  output {} {}\n", listed_name(out.name), std::string(name_of(out.dtype)));
  }
  for (const std::string& note : notes) {
    print("  {}\n", note);
  }
}

// Parses "x=1,3,48,192" into the name and the numbers. If `batch` is not empty, this word stands
// for kBatch.
// Errors  bad_argument: the text has another form.
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
    constexpr T kBatch = static_cast<T>(onnx::kBatch);
    const bool is_batch = !batch.empty() && entry == batch;
    const std::optional<T> number = is_batch ? kBatch : number_in<T>(entry);
    BOWLINE_REQUIRE(number && (batch.empty() || is_batch || *number != kBatch), "{}", form);
    numbers.push_back(*number);
    at = end + 1;
  }
  return std::pair(text.substr(0, equals), numbers);
}

Result<onnx::ImportOptions> onnx_options(const ImportFlags& o) {
  onnx::ImportOptions options = o.onnx;
  options.tie_equal = o.build.tie_equal;
  for (const std::string& flag : o.dims) {
    BOWLINE_TRY_ASSIGN(BoundDim dim, parse_dim(flag));
    options.dims.push_back(std::move(dim));
  }
  for (const std::string& flag : o.shapes) {
    BOWLINE_TRY_ASSIGN(auto shape, parse_numbers<int64_t>("--shape", flag, o.onnx.batch_dim));
    const bool legal = std::ranges::all_of(shape.second, [&](int64_t d) {
      return d > 0 || (d == onnx::kBatch && !o.onnx.batch_dim.empty());
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

// Freezes the parameters that match --freeze.
// Errors  bad_argument: a pattern of --freeze or --trainable matches no trainable parameter.
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

}  // namespace

Status import_onnx(const ImportFlags& o) {
  BOWLINE_TRY_ASSIGN(const onnx::ImportOptions options, onnx_options(o));
  BOWLINE_TRY_ASSIGN(onnx::Imported imported, onnx::import_file(o.model, options));
  BOWLINE_TRY(choose_trained(imported.model, o));
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
  return {};
}

}  // namespace bowline::command
