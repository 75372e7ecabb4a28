// The report of an ONNX model.
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "common/strings.h"
#include "common/trained_values.h"
#include "import/flags.h"
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

}  // namespace

void print_onnx_report(const ImportFlags& o, const ImportedModel& imported, const ModelInfo& info) {
  const EntryPointInfo& entry = info.entry_points[0];
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"out", o.out},
                {"entry", described(entry)},
                {"parameters", info.parameters.size()},
                {"trained_values", trained_values(info).values},
                {"not_finite", described(imported.not_finite())},
                {"notes", imported.report.notes}});
  } else {
    print_onnx(o, entry, info, imported.report.notes);
  }
}

}  // namespace bowline::command
