// bowline inspect: what is in a model file, who is tied to whom, and the memory that it takes.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/report.h"
#include "common/sha256.h"
#include "core/status.h"
#include "graph/model_state.h"
#include "verb.h"

namespace bowline::command {
namespace {

using graph::Graph;
using nlohmann::json;

struct InspectOptions {
  std::string model;
  std::string device = "cpu";
  std::string listing;
  std::string entry_point;
  std::string export_weights;
  std::vector<std::string> dims;
  int64_t batch = 0;
  int64_t seq = 0;
  bool json = false;
  bool ties = false;
  bool columns = false;
};

json shape_of(const graph::ValueInfo& value) {
  json out = json::array();
  if (value.dims.empty()) {
    for (int i = 0; i < value.shape.rank(); ++i) {
      out.push_back(value.shape[i]);
    }
  }
  for (const GraphDim& dim : value.dims) {
    out.push_back(dim.name.empty() ? json(dim.value) : json(dim.name));
  }
  return out;
}

std::string join(const json& items) {
  std::string out;
  for (const json& item : items) {
    out += (out.empty() ? "" : ", ") +
           (item.is_string() ? listed_name(item.get<std::string>()) : item.dump());
  }
  return "[" + out + "]";
}

void count_nodes(const Graph& g, uint64_t times, std::map<std::string, uint64_t>& counts) {
  for (const graph::Node& node : g.nodes) {
    if (node.repeat) {
      count_nodes(*node.repeat->body, times, counts);
    }
    counts[op_def(node.op).name] += times;
  }
}

json entry_point(const Graph& g) {
  json inputs = json::array();
  for (const graph::ValueId v : g.inputs) {
    inputs.push_back(
        {{"name", g[v].name}, {"dtype", format("{}", g[v].dtype)}, {"shape", shape_of(g[v])}});
  }
  std::map<std::string, uint64_t> counts;
  count_nodes(g, 1, counts);
  uint64_t nodes = 0;
  for (const auto& [name, count] : counts) {
    nodes += count;
  }
  return {{"name", g.name},
          {"inputs", inputs},
          {"outputs", g.output_names},
          {"nodes", nodes},
          {"operators", counts}};
}

// Every storage with more than one parameter, and what its parameters would cost without the tie.
json ties_of(const params::Table& table) {
  json out = json::array();
  for (size_t tie = 0; tie < table.storages.size(); ++tie) {
    const params::Storage& storage = table.storages[tie];
    json names = json::array();
    uint64_t untied = 0;
    for (const params::ParameterRow& p : table.parameters) {
      if (p.tie == tie) {
        const Result<Shape> shape = params::view_shape(p.view, storage.shape);
        names.push_back(p.name);
        untied +=
            storage.encoding->bytes(storage.dtype, shape.ok() ? shape.value() : storage.shape);
      }
    }
    if (names.size() > 1) {
      const uint64_t bytes = storage.bytes();
      out.push_back({{"tie", tie},
                     {"parameters", names},
                     {"bytes", bytes},
                     {"saved_bytes", untied > bytes ? untied - bytes : 0}});
    }
  }
  return out;
}

json storages_of(const params::Table& table) {
  json out = json::array();
  for (size_t tie = 0; tie < table.storages.size(); ++tie) {
    const params::Storage& s = table.storages[tie];
    json row = {{"tie", tie}, {"empty", s.empty}};
    if (!s.empty) {
      row.update({{"dtype", format("{}", s.dtype)},
                  {"shape", std::vector<int64_t>(s.shape.dims().begin(), s.shape.dims().end())},
                  {"bytes", s.bytes()},
                  {"role", std::string(params::name_of(s.role))},
                  {"trainable", s.trainable}});
    }
    out.push_back(row);
  }
  return out;
}

json parameters_of(const params::Table& table) {
  json out = json::array();
  for (const params::ParameterRow& p : table.parameters) {
    const params::Storage& s = table.storages[p.tie];
    const Result<Shape> view = params::view_shape(p.view, s.shape);
    const Shape shape = view.ok() ? view.value() : s.shape;
    out.push_back({{"name", p.name},
                   {"tie", p.tie},
                   {"dtype", format("{}", s.dtype)},
                   {"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())},
                   {"view", !(p.view == View{})},
                   {"trainable", s.trainable}});
  }
  return out;
}

json memory_json(const MemoryReport& m) {
  return {{"predicted_bytes", m.predicted_bytes},
          {"storage_bytes", m.storage_bytes},
          {"arena_bytes", m.arena_bytes},
          {"arena_lower_bound_bytes", m.lower_bound_bytes},
          {"io_bytes", m.io_bytes},
          {"backend_bytes", m.backend_bytes}};
}

class Inspection {
 public:
  explicit Inspection(const InspectOptions& options) : o_(options) {}

  Result<int> run() {
    BOWLINE_TRY(parse_dims());
    Result<Model> opened = Model::open(o_.model);
    if (!opened.ok()) {
      return std::move(opened).status().as(Code::bad_file);
    }
    model_.emplace(std::move(opened).value());
    if (!o_.export_weights.empty()) {
      BOWLINE_TRY(export_weights());
      return static_cast<int>(kOk);
    }
    if (!o_.listing.empty()) {
      BOWLINE_TRY(print_listing());
      return static_cast<int>(kOk);
    }
    BOWLINE_ASSIGN(json all, describe());
    if (o_.ties) {
      print_ties(all);
      return static_cast<int>(kOk);
    }
    if (o_.json) {
      print_json(all);
    } else {
      print_text(all);
    }
    return static_cast<int>(kOk);
  }

 private:
  Status parse_dims() {
    for (const std::string& text : o_.dims) {
      const size_t equals = text.find('=');
      const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
      const bool digits = !number.empty() && number.size() < 12 &&
                          number.find_first_not_of("0123456789") == std::string::npos;
      BOWLINE_REQUIRE(digits && equals > 0, "--dim \"{}\" is not of the form name=number.", text);
      dims_.push_back({text.substr(0, equals), std::stoll(number)});
    }
    for (const auto& [name, value] : {std::pair("batch", o_.batch), std::pair("seq", o_.seq)}) {
      if (value != 0) {
        dims_.push_back({name, value});
      }
    }
    return {};
  }

  // Every named dim of the model has a number.
  bool all_bound() const {
    return std::ranges::all_of(model_->state()->dims, [&](const graph::NamedDim& d) {
      return std::ranges::any_of(dims_, [&](const BoundDim& b) { return b.name == d.name; });
    });
  }

  std::string missing_dims() const {
    std::string names;
    for (const graph::NamedDim& d : model_->state()->dims) {
      names += (names.empty() ? "" : ", ") + d.name;
    }
    return names;
  }

  Result<Trainer> trainer() {
    BOWLINE_ASSIGN(Device device, open_device(o_.device));
    BOWLINE_TRY(model_->to(device));
    TrainOptions t;
    t.dims = dims_;
    return Trainer::create(*model_, device, t);
  }

  Status print_listing() {
    BOWLINE_REQUIRE(
        all_bound(),
        "The model has the named dims {}: give each with --dim name=number, --batch or --seq.",
        missing_dims());
    std::string text;
    if (o_.entry_point.empty() || o_.entry_point == "loss") {
      BOWLINE_ASSIGN(Trainer trainer, this->trainer());
      BOWLINE_ASSIGN(text, trainer.listing(o_.listing, o_.columns));
    } else {
      BOWLINE_ASSIGN(Device device, open_device(o_.device));
      BOWLINE_TRY(model_->to(device));
      BOWLINE_ASSIGN(Session session, Session::create(*model_, device, o_.entry_point, dims_));
      BOWLINE_ASSIGN(text, session.listing(o_.listing, o_.columns));
    }
    print("{}", Lines{text});
    return {};
  }

  // storage_<tie>.bin with the bytes of each storage that holds weights, and parameters.json.
  Status export_weights() {
    const std::filesystem::path folder = o_.export_weights;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    BOWLINE_REQUIRE_CODE(!error, Code::io_error, "Folder \"{}\" cannot be made: {}.",
                         o_.export_weights, error.message());
    const params::Table& table = model_->state()->table;
    json rows = json::array();
    for (const params::ParameterRow& p : table.parameters) {
      const params::Storage& s = table.storages[p.tie];
      rows.push_back(
          {{"name", p.name},
           {"tie", p.tie},
           {"dtype", format("{}", s.dtype)},
           {"shape", std::vector<int64_t>(s.shape.dims().begin(), s.shape.dims().end())}});
      BOWLINE_ASSIGN(const std::vector<std::byte> bytes, params::read_bytes(s));
      std::ofstream file(folder / format("storage_{}.bin", p.tie), std::ios::binary);
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
      file.close();
      BOWLINE_REQUIRE_CODE(file.good(), Code::io_error, "Storage {} cannot be written to \"{}\".",
                           p.tie, o_.export_weights);
    }
    std::ofstream file(folder / "parameters.json");
    file << rows.dump(2) << '\n';
    file.close();
    BOWLINE_REQUIRE_CODE(file.good(), Code::io_error, "\"{}/parameters.json\" cannot be written.",
                         o_.export_weights);
    return {};
  }

  Result<json> describe() {
    const graph::ModelState& state = *model_->state();
    json all;
    BOWLINE_ASSIGN(all["sha256"], sha256_of_file(o_.model));
    all["file"] = o_.model;
    all["file_bytes"] = std::filesystem::file_size(o_.model);
    all["metadata"] = json::object();
    for (const auto& entry : state.metadata) {
      all["metadata"][entry->key] = entry->value;
    }
    all["dims"] = json::array();
    for (const graph::NamedDim& d : state.dims) {
      all["dims"].push_back(d.name);
    }
    all["entry_points"] = json::array();
    for (const Graph& g : state.graphs) {
      all["entry_points"].push_back(entry_point(g));
    }
    all["parameters"] = parameters_of(state.table);
    all["storages"] = storages_of(state.table);
    all["ties"] = ties_of(state.table);
    listings_ = format("parameters\n{}\nstorages\n{}", model_->parameters(), model_->storages());
    uint64_t saved = 0;
    for (const json& tie : all["ties"]) {
      saved += tie["saved_bytes"].get<uint64_t>();
    }
    all["saved_bytes"] = saved;
    if (all_bound() && !state.dims.empty()) {
      BOWLINE_ASSIGN(all["memory"], memory());
    }
    return all;
  }

  Result<json> memory() {
    BOWLINE_ASSIGN(Device device, open_device(o_.device));
    BOWLINE_TRY(model_->to(device));
    json out;
    for (const Graph& g : model_->state()->graphs) {
      BOWLINE_ASSIGN(Session session, Session::create(*model_, device, g.name, dims_));
      out[g.name] = memory_json(session.memory());
    }
    if (model_->state()->find_graph("loss") != nullptr) {
      BOWLINE_ASSIGN(Trainer trainer, this->trainer());
      out["training"] = memory_json(trainer.memory());
    }
    return out;
  }

  static void print_ties(const json& all) {
    for (const json& t : all["ties"]) {
      print("{}: {} share {}, {} saved\n", t["tie"].get<uint64_t>(), join(t["parameters"]),
            bytes_text(t["bytes"]), bytes_text(t["saved_bytes"]));
    }
    print("{} ties save {}\n", all["ties"].size(), bytes_text(all["saved_bytes"]));
  }

  void print_text(const json& all) const {
    print("file      {} ({})\nsha256    {}\n", o_.model, bytes_text(all["file_bytes"]),
          all["sha256"].get<std::string>());
    for (const auto& [key, value] : all["metadata"].items()) {
      print("metadata  {} = {}\n", key, value.get<std::string>());
    }
    print("\nentry points\n");
    for (const json& e : all["entry_points"]) {
      std::string inputs;
      for (const json& i : e["inputs"]) {
        inputs += fmt::format("{}{} {}{}", inputs.empty() ? "" : ", ", i["name"].get<std::string>(),
                              i["dtype"].get<std::string>(), join(i["shape"]));
      }
      print("  {}({}) -> {}, {} nodes\n", e["name"].get<std::string>(), inputs, join(e["outputs"]),
            e["nodes"].get<uint64_t>());
    }
    print("\n{}\nties\n", Lines{listings_});
    print_ties(all);
    if (!all.contains("memory")) {
      if (!all["dims"].empty()) {
        print("\nmemory plan: give the dims {} with --dim name=number\n", join(all["dims"]));
      }
      return;
    }
    print("\nmemory plan on {}\n", o_.device);
    for (const auto& [name, m] : all["memory"].items()) {
      print(
          "  {:<10} {} predicted: storages {}, arena {} (lower bound {}), inputs and outputs {}, "
          "backend {}\n",
          name, bytes_text(m["predicted_bytes"]), bytes_text(m["storage_bytes"]),
          bytes_text(m["arena_bytes"]), bytes_text(m["arena_lower_bound_bytes"]),
          bytes_text(m["io_bytes"]), bytes_text(m["backend_bytes"]));
    }
  }

  const InspectOptions& o_;
  std::vector<BoundDim> dims_;
  std::optional<Model> model_;
  std::string listings_;  // of the file; planning a training adds rows
};

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(app, "inspect",
                            "Shows entry points, parameters, ties, and the memory plan of a model",
                            "bowline inspect base.bowline --batch 8 --seq 256");
  auto o = std::make_shared<InspectOptions>();
  verb->add_option("model", o->model, "Model file")->required();
  verb->add_option("--dim", o->dims,
                   "name=number of a named dim; with all of them the memory plan is made");
  verb->add_option("--batch", o->batch, "Short for --dim batch=N")->check(CLI::Range(1, 1 << 30));
  verb->add_option("--seq", o->seq, "Short for --dim seq=N")->check(CLI::Range(1, 1 << 30));
  verb->add_option("--device", o->device, "Device that the plan is made for")
      ->capture_default_str();
  verb->add_option("--listing", o->listing, "Print a plan as numbered lines")
      ->check(CLI::IsMember({"build", "forward", "backward", "update"}));
  verb->add_option("--entry-point", o->entry_point,
                   "Entry point of --listing (default: training of 'loss')");
  verb->add_flag("--columns", o->columns, "Add names of nodes and launches to --listing");
  verb->add_option("--export-weights", o->export_weights,
                   "Write the bytes of each storage, and parameters.json, to a folder");
  verb->add_flag("--ties", o->ties, "Print who is tied to whom, and nothing else");
  verb->add_flag("--json", o->json, "Print JSON");
  on_run(verb, context, [o] {
    const Result<int> code = Inspection(*o).run();
    return code.ok() ? code.value() : fail(code.status());
  });
}

}  // namespace bowline::command
