// The reports of `bowline import`.
#include "common/report.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "common/npy.h"
#include "common/strings.h"
#include "import/flags.h"
#include "inspect/describe.h"
#include "verb.h"

namespace bowline::command {

using nlohmann::json;

namespace {

// Names that differ in only one number share a line: "model.layers.{0..29}.mlp.up_proj.weight".
struct NameGroup {
  const ImportedTensor* first = nullptr;
  std::string before, behind;  // text around the number
  uint32_t least = 0, most = 0;
  int64_t count = 1;
};

NameGroup group_of(const ImportedTensor& t) {
  for (size_t begin = t.name.find('.') + 1; begin != 0; begin = t.name.find('.', begin) + 1) {
    const size_t end = std::min(t.name.find('.', begin), t.name.size());
    if (const auto number = number_in<uint32_t>(t.name.substr(begin, end - begin))) {
      return {&t, t.name.substr(0, begin), t.name.substr(end), *number, *number};
    }
  }
  return {&t, t.name, ""};
}

std::vector<NameGroup> grouped_names(const std::vector<ImportedTensor>& tensors) {
  std::vector<NameGroup> groups;
  std::map<std::string, size_t> where;
  for (const ImportedTensor& t : tensors) {
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

void print_text(const ImportFlags& o, const ImportedModel& imported, const ModelInfo& info,
                uint64_t bytes) {
  const ImportReport& report = imported.report;
  std::map<ImportedTensor::Use, size_t> uses;
  for (const ImportedTensor& t : report.tensors) {
    ++uses[t.use];
  }
  print("{}: {} from {}, task {}, {}\n", o.out, imported.model.metadata("architecture"),
        std::string(name_of(report.format)), std::string(name_of(*report.task)), bytes_text(bytes));
  if (o.options.text.skeleton) {
    print("  a skeleton: {} parameters of this size, without values\n", info.parameters.size());
  } else {
    print("  {} tensors in the source: {} taken, {} tied to another, {} dropped\n",
          report.tensors.size(), uses[ImportedTensor::Use::taken], uses[ImportedTensor::Use::tied],
          uses[ImportedTensor::Use::dropped]);
  }
  for (const NameGroup& g : grouped_names(report.tensors)) {
    print("  {:<7} {}  {}{}{}{}\n", std::string(name_of(g.first->use)), name_text(g),
          g.first->stored, shape_text(g.first->shape), g.first->reason.empty() ? "" : "  ",
          g.first->reason);
  }
  for (const TieInfo& tie : info.ties) {
    print("  tie: {} are one weight, {} saved\n",
          joined(names_of(info, tie), [](const auto& name) { return listed_name(name); }),
          bytes_text(tie.saved_bytes));
  }
  for (const EntryPointInfo& entry : info.entry_points) {
    print("  entry point {}\n", listed_name(entry.name));
  }
  for (const auto& [key, value] : info.metadata) {
    print("  {} = {}\n", key, listed_name(value));
  }
  for (const std::string& note : report.notes) {
    print("  note: {}\n", note);
  }
}

json report_json(const ImportFlags& o, const ImportedModel& imported, const ModelInfo& info,
                 uint64_t bytes) {
  const ImportReport& report = imported.report;
  json tensors = json::array();
  for (const ImportedTensor& t : report.tensors) {
    tensors.push_back({{"name", t.name},
                       {"stored", t.stored},
                       {"shape", t.shape},
                       {"use", std::string(name_of(t.use))},
                       {"parameter", t.parameter},
                       {"reason", t.reason}});
  }
  json ties = json::array();
  for (const TieInfo& tie : info.ties) {
    ties.push_back({{"parameters", names_of(info, tie)}, {"saved_bytes", tie.saved_bytes}});
  }
  json entries = json::array();
  for (const EntryPointInfo& entry : info.entry_points) {
    entries.push_back(described(entry));
  }
  return {{"file", o.model},
          {"out", o.out},
          {"format", std::string(name_of(report.format))},
          {"task", std::string(name_of(*report.task))},
          {"bytes", bytes},
          {"skeleton", o.options.text.skeleton},
          {"tensors", tensors},
          {"ties", ties},
          {"entries", entries},
          {"metadata", std::map(info.metadata.begin(), info.metadata.end())},
          {"not_finite", described(imported.not_finite())},
          {"notes", report.notes},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

}  // namespace

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

json described(const std::vector<NotFiniteTensor>& tensors) {
  json out = json::array();
  for (const NotFiniteTensor& t : tensors) {
    out.push_back({{"tensor", t.tensor}, {"values", t.values}, {"elements", t.elements}});
  }
  return out;
}

void print_report(const ImportFlags& o, const ImportedModel& imported, const ModelInfo& info) {
  uint64_t bytes = 0;
  for (const StorageInfo& s : info.storages) {
    bytes += s.empty ? 0 : s.bytes;
  }
  if (o.format == "json") {
    print_json(report_json(o, imported, info, bytes));
  } else {
    print_text(o, imported, info, bytes);
  }
}

}  // namespace bowline::command
