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

constexpr size_t kMostOpenTies = 24;
constexpr size_t kMostOpenNames = 12;
constexpr size_t kMostOpenRows = 100;
constexpr size_t kMostValue = 400;
constexpr size_t kMostRecords = 4000;  // rows of a plan

std::string code_html(std::string_view text) {
  return fmt::format("<code>{}</code>", html_text(text));
}

std::string storage_text(const StorageInfo& s) {
  return fmt::format("{} {}{}", std::string(name_of(s.dtype)), shape_text(s.shape),
                     s.encoding == "plain" ? "" : ", " + s.encoding);
}

std::string list_html(const std::vector<std::string>& items) {
  std::string out = "<ul>\n";
  for (const std::string& item : items) {
    out += "<li>" + item + "</li>\n";
  }
  return out + "</ul>\n";
}

// Shows the first items and folds the others.
std::string folded_list(const std::vector<std::string>& items, size_t most) {
  if (items.size() <= most) {
    return list_html(items);
  }
  const auto middle = items.begin() + static_cast<ptrdiff_t>(most);
  return list_html({items.begin(), middle}) +
         folded_html(fmt::format("and {} more", grouped(items.size() - most)),
                     list_html({middle, items.end()}));
}

// Shows a storage as a node, with the names of its parameters on the left.
std::string tie_html(const ModelInfo& info, const TieInfo& tie) {
  const StorageInfo& s = info.storages[tie.tie];
  std::vector<std::string> names;
  for (const uint32_t p : tie.parameters) {
    const ParameterInfo& parameter = info.parameters[p];
    std::string name = code_html(parameter.name);
    if (parameter.view.transpose) {
      name += " transposed";
    }
    if (parameter.shape != s.shape && !parameter.view.transpose) {
      name += " as " + html_text(shape_text(parameter.shape));
    }
    names.push_back(std::move(name));
  }
  return fmt::format(
      "<div class=\"tie\" id=\"t{0}\"><div class=\"names\">{1}</div><div class=\"shared\"><a "
      "href=\"#s{0}\">storage {0}</a><br/>{2}<br/>{3}<br/><strong>saves {4}</strong></div></div>\n",
      tie.tie, folded_list(names, kMostOpenNames), html_text(storage_text(s)),
      bytes_text(tie.bytes), bytes_text(tie.saved_bytes));
}

std::string ties_html(const ModelInfo& info, uint64_t saved) {
  if (info.ties.empty()) {
    return paragraph_html("No two parameters share a storage.");
  }
  std::string out = paragraph_html(fmt::format(
      "{} storages have more than one name. Without these ties the model would take {} more.",
      grouped(info.ties.size()), bytes_text(saved)));
  std::string rest;
  for (size_t i = 0; i < info.ties.size(); ++i) {
    (i < kMostOpenTies ? out : rest) += tie_html(info, info.ties[i]);
  }
  return rest.empty()
             ? out
             : out +
                   folded_html(
                       fmt::format("and {} more", grouped(info.ties.size() - kMostOpenTies)), rest);
}

constexpr std::string_view kStorageHead =
    "<thead><tr><th scope=\"col\" class=\"number\">storage</th><th "
    "scope=\"col\">parameters</th><th "
    "scope=\"col\">values</th><th scope=\"col\">role</th><th scope=\"col\" "
    "class=\"number\">bytes</th></tr></thead>";

class Parameters {
 public:
  explicit Parameters(const ModelInfo& info) : info_(info), names_(info.storages.size()) {
    for (const ParameterInfo& p : info.parameters) {
      names_[p.tie].push_back(&p);
    }
  }

  std::string html() const {
    std::map<std::string, std::vector<uint32_t>> groups;
    for (uint32_t tie = 0; tie < names_.size(); ++tie) {
      if (!info_.storages[tie].empty && !names_[tie].empty()) {
        groups[numbered_pattern(names_[tie].front()->name)].push_back(tie);
      }
    }
    std::vector<uint32_t> single;
    std::string folded;
    for (const auto& [pattern, ties] : groups) {
      if (ties.size() == 1) {
        single.push_back(ties[0]);
        continue;
      }
      uint64_t bytes = 0;
      for (const uint32_t tie : ties) {
        bytes += info_.storages[tie].bytes;
      }
      folded += fmt::format("<details><summary>{}: {} storages, {}, {}</summary>\n{}</details>\n",
                            html_text(pattern), grouped(ties.size()),
                            html_text(storage_text(info_.storages[ties[0]])), bytes_text(bytes),
                            table(ties));
    }
    std::ranges::sort(single);
    std::string out;
    if (!single.empty()) {
      out =
          single.size() <= kMostOpenRows
              ? table(single)
              : fmt::format("<details><summary>{} storages of their own</summary>\n{}</details>\n",
                            grouped(single.size()), table(single));
    }
    return out + (folded.empty() ? "" : "<h3>Lists: names that differ in a number</h3>\n" + folded);
  }

 private:
  std::string table(const std::vector<uint32_t>& ties) const {
    std::string out =
        "<div class=\"scroll tall\" tabindex=\"0\" role=\"region\" "
        "aria-label=\"Parameters\">\n<table>";
    out += kStorageHead;
    out += "<tbody>\n";
    for (const uint32_t tie : ties) {
      const StorageInfo& s = info_.storages[tie];
      const std::string names = joined(
          names_[tie], [](const ParameterInfo* p) { return code_html(p->name); }, "<br/>");
      const std::string tied =
          names_[tie].size() < 2
              ? ""
              : fmt::format("<br/><a href=\"#t{}\">tied: {} names</a>", tie, names_[tie].size());
      out += fmt::format(
          "<tr id=\"s{0}\"><td "
          "class=\"number\">{0}</td><td>{1}{2}</td><td>{3}</td><td>{4}{5}</td><td "
          "class=\"number\">{6}</td></tr>\n",
          tie, names, tied, html_text(storage_text(s)), html_text(name_of(s.role)),
          s.trainable ? "" : ", frozen", bytes_text(s.bytes));
    }
    return out + "</tbody></table>\n</div>\n";
  }

  const ModelInfo& info_;
  std::vector<std::vector<const ParameterInfo*>> names_;  // by tie index
};

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
  Table t;
  t.caption = "Storages by role, dtype and encoding";
  t.head = {"role", "dtype", "encoding", "storages", "numbers", "bytes"};
  t.numbers = {3, 4, 5};
  for (const auto& [key, form] : forms) {
    t.rows.push_back({key[0], key[1], key[2], grouped(form.storages), grouped(form.elements),
                      bytes_text(form.bytes)});
  }
  return table_html(t);
}

Facts shortened(const Settings& settings) {
  Facts facts;
  for (const auto& [name, value] : settings) {
    facts.emplace_back(name, value.size() <= kMostValue
                                 ? value
                                 : fmt::format("{}... ({} bytes)", value.substr(0, kMostValue),
                                               grouped(value.size())));
  }
  return facts;
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
    out += "<h3>Metadata</h3>\n" + facts_html(shortened(m.info.metadata));
  }
  if (m.info.training) {
    const TrainingInfo& t = *m.info.training;
    out += "<h3>Checkpoint</h3>\n" +
           facts_html({{"Step", grouped(t.step)}, {"Epoch", grouped(t.epoch)}}) +
           facts_html(shortened(t.run)) + facts_html(shortened(t.config));
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
  Table t;
  t.caption = fmt::format("Records of \"{}\", in the order of execution", segment.name);
  t.head = {"record", "node", "reads", "writes"};
  t.numbers = {0};
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

std::string runs_html(const InspectedModel& m) {
  if (m.runs.empty()) {
    return paragraph_html(fmt::format(
        "The memory depends on the dims {}: give each with --dim name=number, --batch or --seq.",
        joined(m.info.dims, &DimInfo::name)));
  }
  const std::string dims =
      joined(m.dims, [](const BoundDim& d) { return fmt::format("{} = {}", d.name, d.value); });
  std::string out = paragraph_html(
      fmt::format("Planned on {}{}{}.", m.device, dims.empty() ? "" : " with ", dims));
  size_t number = 0;
  for (const PlannedRun& run : m.runs) {
    const bool training = run.name == "training";
    out +=
        fmt::format("<h3>{}</h3>\n", html_text(run.name)) +
        memory_html(fmt::format("m{}", number++), training ? "one batch and the update" : "one run",
                    run.memory, run.model, memory_curve(run.plan, segments_of(run)));
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
  page.add("parameters", "Parameters", Parameters(m.info).html());
  page.add("storages", "Storages", forms_html(m.info));
  page.add("memory", "Memory plan", runs_html(m));
  page.add("file", "File", file_html(m));
  json memory = json::object();
  for (const PlannedRun& run : m.runs) {
    const std::optional<MemoryCurve> curve = memory_curve(run.plan, segments_of(run));
    memory[run.name] = {{"predicted_bytes", run.memory.predicted_bytes},
                        {"arena_bytes", run.memory.arena_bytes},
                        {"lower_bound_bytes", run.memory.lower_bound_bytes}};
    if (curve && !curve->live.empty()) {
      memory[run.name]["peak_bytes"] = curve->live[curve->peak];
      memory[run.name]["peak_node"] = curve->node_at(curve->peak);
    }
  }
  page.set_data({{"page", "bowline inspect 1"},
                 {"sha256", m.all["sha256"]},
                 {"sizes", sizes},
                 {"ties", m.all["ties"]},
                 {"saved_bytes", saved},
                 {"memory", memory}});
  return page.html();
}

}  // namespace bowline::command
