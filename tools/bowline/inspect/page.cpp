#include "inspect/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "common/html.h"
#include "common/memory_curve.h"
#include "common/npy.h"
#include "common/page.h"
#include "common/report.h"
#include "common/strings.h"
#include "common/trained_values.h"
#include "inspect/graph_page.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr size_t kMostValue = 400;
constexpr size_t kMostRecords = 4000;  // rows of a plan

std::string storage_text(const StorageInfo& s) {
  return fmt::format("{} {}{}", std::string(name_of(s.dtype)), shape_text(s.shape),
                     s.encoding == "plain" ? "" : ", " + s.encoding);
}

// The name of a parameter, and how it shows its storage.
std::string name_html(const ParameterInfo& p, const StorageInfo& s) {
  return fmt::format("<code>{}</code>{}", html_text(p.name),
                     p.view.transpose     ? " transposed"
                     : p.shape != s.shape ? " as " + shape_text(p.shape)
                                          : "");
}

// Lists the storages that have parameters, or only those with several. The first column links to
// the row of the storage ("s7"), the last one to the row of the tie ("t7").
std::string storages_html(const ModelInfo& info, bool only_ties) {
  std::vector<std::vector<std::string>> names(info.storages.size());
  for (const ParameterInfo& p : info.parameters) {
    names[p.tie].push_back(name_html(p, info.storages[p.tie]));
  }
  std::map<uint32_t, uint64_t> saved;
  for (const TieInfo& tie : info.ties) {
    saved[tie.tie] = tie.saved_bytes;
  }
  Table t{.caption = only_ties ? "Storages with several names" : "Storages and their names",
          .head = {"storage", "parameters", "values", "role", "bytes", "tie saves"},
          .numbers = {0, 4, 5},
          .markup = {0, 1, 5}};
  for (const StorageInfo& s : info.storages) {
    const auto tie = saved.find(s.tie);
    if (s.empty || names[s.tie].empty() || (only_ties && tie == saved.end())) {
      continue;
    }
    t.ids.push_back(fmt::format("{}{}", only_ties ? 't' : 's', s.tie));
    t.rows.push_back(
        {link_html(fmt::format("s{}", s.tie), std::to_string(s.tie)),
         joined(names[s.tie], std::identity(), "<br/>"), storage_text(s),
         fmt::format("{}{}", name_of(s.role), s.trainable ? "" : ", frozen"), bytes_text(s.bytes),
         tie == saved.end() ? "" : link_html(fmt::format("t{}", s.tie), bytes_text(tie->second))});
  }
  return table_html(t);
}

std::string ties_html(const ModelInfo& info, uint64_t saved) {
  if (info.ties.empty()) {
    return paragraph_html("No two parameters share a storage.");
  }
  return paragraph_html(fmt::format("{} storages have more than one name. Without these ties the "
                                    "model would take {} more.",
                                    grouped(info.ties.size()), bytes_text(saved))) +
         storages_html(info, true);
}

// Counts the storages by role, dtype and encoding.
std::string forms_html(const ModelInfo& info) {
  struct Form {
    uint64_t storages = 0;
    uint64_t elements = 0;
    uint64_t bytes = 0;
  };
  std::map<std::array<std::string, 3>, Form> forms;
  for (const StorageInfo& s : info.storages) {
    if (!s.empty) {
      Form& form = forms[{std::string(name_of(s.role)), std::string(name_of(s.dtype)), s.encoding}];
      ++form.storages;
      form.elements += elements_of(s);
      form.bytes += s.bytes;
    }
  }
  Table t{.caption = "Storages by role, dtype and encoding",
          .head = {"role", "dtype", "encoding", "storages", "numbers", "bytes"},
          .numbers = {3, 4, 5}};
  for (const auto& [key, form] : forms) {
    t.rows.push_back({key[0], key[1], key[2], grouped(form.storages), grouped(form.elements),
                      bytes_text(form.bytes)});
  }
  return table_html(t);
}

std::string settings_html(const Settings& settings) {
  Facts facts;
  for (const auto& [name, value] : settings) {
    facts.emplace_back(name, shortened(value, kMostValue));
  }
  return facts_html(facts);
}

std::string file_html(const InspectedModel& m) {
  Facts facts = {{"File", m.all["file"].get<std::string>()},
                 {"Bytes", grouped(m.all["file_bytes"].get<uint64_t>())},
                 {"SHA-256", m.all["sha256"].get<std::string>()}};
  for (const DimInfo& d : m.info.dims) {
    facts.emplace_back(
        "Dim " + d.name,
        fmt::format("{} to {}{}", grouped(static_cast<uint64_t>(d.min)),
                    grouped(static_cast<uint64_t>(d.max)), d.dynamic ? ", dynamic" : ""));
  }
  for (const AssetInfo& a : m.info.assets) {
    facts.emplace_back("Asset " + a.name, fmt::format("{}, {}", a.media_type, bytes_text(a.bytes)));
  }
  std::string out = facts_html(facts);
  if (!m.info.metadata.empty()) {
    out += "<h3>Metadata</h3>\n" + settings_html(m.info.metadata);
  }
  if (m.info.training) {
    const TrainingInfo& t = *m.info.training;
    out += "<h3>Checkpoint</h3>\n" +
           facts_html({{"Step", grouped(t.step)}, {"Epoch", grouped(t.epoch)}}) +
           settings_html(t.run) + settings_html(t.config);
  }
  return out;
}

// "f32[8,256,64]"
std::string operand_text(const OperandInfo& o) {
  return fmt::format("{}{}{}", std::string(name_of(o.dtype)), shape_text(o.shape),
                     o.slot == OperandInfo::Slot::storage ? fmt::format(" of storage {}", o.number)
                     : o.slot == OperandInfo::Slot::table ? " of the iteration"
                                                          : "");
}

// The records with their shapes.
std::string records_html(const SegmentInfo& segment) {
  Table t{.caption = fmt::format("Records of \"{}\", in the order of execution", segment.name),
          .head = {"record", "node", "reads", "writes"},
          .numbers = {0}};
  uint64_t number = 0;
  for (const RecordInfo& r : segment.records) {
    if (t.rows.size() == kMostRecords) {
      t.rows.push_back(
          {"", fmt::format("and {} more", segment.records.size() - kMostRecords), "", ""});
      break;
    }
    if (r.kind == RecordInfo::Kind::op) {
      t.rows.push_back({std::to_string(++number), r.node, joined(r.inputs, operand_text),
                        joined(r.outputs, operand_text)});
    } else {
      const bool begins = r.kind == RecordInfo::Kind::repeat_begin;
      t.rows.push_back(
          {"", begins ? fmt::format("{} times:", r.count) : "end of the iteration", "", ""});
    }
  }
  return folded_html(t.caption, table_html(t));
}

// For a training: one batch and the update.
std::vector<std::string_view> segments_of(const PlannedRun& run) {
  return run.name == "training" ? std::vector<std::string_view>{"accumulate", "update"}
                                : std::vector<std::string_view>{run.plan.segments[0].name};
}

// `data` gets the sizes of each run.
std::string runs_html(const InspectedModel& m, json& data) {
  if (m.runs.empty()) {
    return paragraph_html(fmt::format(
        "The memory depends on the dims {}: give each with --dim name=number, --batch or --seq.",
        joined(m.info.dims, &DimInfo::name)));
  }
  const std::string dims =
      joined(m.dims, [](const BoundDim& d) { return fmt::format("{} = {}", d.name, d.value); });
  std::string out = paragraph_html(
      fmt::format("Planned on {}{}{}.", m.device, dims.empty() ? "" : " with ", dims));
  for (const PlannedRun& run : m.runs) {
    const std::optional<MemoryCurve> curve = memory_curve(run.plan, segments_of(run));
    json& sizes = data[run.name] = {{"predicted_bytes", run.memory.predicted_bytes},
                                    {"arena_bytes", run.memory.arena_bytes},
                                    {"lower_bound_bytes", run.memory.lower_bound_bytes}};
    if (curve && !curve->live.empty()) {
      sizes["peak_bytes"] = curve->live[curve->peak];
      sizes["peak_node"] = curve->node_at(curve->peak);
    }
    out += fmt::format("<h3>{}</h3>\n", html_text(run.name)) +
           memory_html(fmt::format("m{}", data.size()),
                       run.name == "training" ? "one batch and the update" : "one run", run.memory,
                       run.model, curve);
    for (const SegmentInfo& segment : run.plan.segments) {
      out += records_html(segment);
    }
  }
  return out;
}

}  // namespace

std::string inspect_page(const InspectedModel& m) {
  const std::string path = m.all["file"].get<std::string>();
  const json& sizes = m.all["sizes"];
  const auto size = [&](const char* key) { return sizes[key].get<uint64_t>(); };
  const uint64_t saved = m.all["saved_bytes"].get<uint64_t>();
  Page page(std::filesystem::path(path).filename().string(),
            fmt::format("What this {} holds: its graphs, parameters, ties and memory.",
                        m.all["kind"].get<std::string>()));
  page.set_headline({{"Numbers", grouped(size("elements"))},
                     {"Trainable", grouped(size("trainable_elements"))},
                     {"Parameters", grouped(m.info.parameters.size())},
                     {"Storages", grouped(size("storages"))},
                     {"Weights", bytes_text(size("bytes"))},
                     {"Ties save", bytes_text(saved)}});
  page.add("graph", "Graph", graph_html(m.info));
  page.add("ties", "Ties", ties_html(m.info, saved));
  page.add("parameters", "Parameters", storages_html(m.info, false));
  page.add("storages", "Storages", forms_html(m.info));
  json memory = json::object();
  page.add("memory", "Memory plan", runs_html(m, memory));
  page.add("file", "File", file_html(m));
  page.set_data({{"page", "bowline inspect 1"},
                 {"sha256", m.all["sha256"]},
                 {"sizes", sizes},
                 {"ties", m.all["ties"]},
                 {"saved_bytes", saved},
                 {"memory", memory}});
  return page.html();
}

}  // namespace bowline::command
