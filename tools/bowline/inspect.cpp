// bowline inspect: shows the content of a model file, its ties, and the memory that it needs.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/escape.h"
#include "base/status.h"
#include "common/find.h"
#include "common/flag_uses.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/page.h"
#include "common/report.h"
#include "common/strings.h"
#include "inspect/describe.h"
#include "inspect/page.h"
#include "verb.h"

namespace bowline::command {
namespace {

using nlohmann::json;

// Rows of each kind in the summary; flags show all rows.
constexpr size_t kMostRows = 8;
constexpr size_t kMostCharacters = 80;

struct InspectOptions {
  std::string model;
  std::string device = "cpu";
  std::string listing;
  std::string entry;
  std::string format = "text";
  std::string html;
  DimFlags dims;
  bool parameters = false;
  bool storages = false;
  bool ties = false;
  bool columns = false;
  bool force = false;
  FlagUses uses;
};

std::string join(const json& items) {
  const auto text = [](const json& item) {
    return item.is_string() ? listed_name(item.get<std::string>()) : item.dump();
  };
  return "[" + joined(items, text) + "]";
}

uint64_t number(const json& all, const char* key) { return all.at(key).get<uint64_t>(); }

class Inspection {
 public:
  explicit Inspection(const InspectOptions& options) : o_(options) {}

  Result<int> run() {
    if (!o_.html.empty()) {
      BOWLINE_TRY_FLAGS(check_page("--html", o_.html, o_.force));
    }
    BOWLINE_TRY_ASSIGN(Model model, open_model(o_.model));
    // Planning a training adds storages to the model, so the file is described first.
    BOWLINE_TRY_ASSIGN(info_, model.describe());
    model_.emplace(std::move(model));
    Result<std::vector<BoundDim>> dims = dims_of(o_.dims, info_);
    if (!dims.ok()) {
      return fail_flags(dims.status());
    }
    dims_ = std::move(dims).value();
    BOWLINE_TRY_FLAGS(check_uses());
    if (!o_.listing.empty()) {
      BOWLINE_TRY(print_listing());
    } else {
      BOWLINE_TRY(print_description());
    }
    return kOk;
  }

 private:
  Status print_description() {
    const std::string parameters = model_->parameters();
    const std::string storages = model_->storages();
    BOWLINE_TRY_ASSIGN(json all, describe_model(info_, o_.model));
    const bool rows_only = o_.parameters || o_.storages || o_.ties;
    std::vector<PlannedRun> runs;
    if (!dims_.empty()) {
      BOWLINE_TRY_ASSIGN(runs, plan_runs());
      for (const PlannedRun& run : runs) {
        all["memory"][run.name] = describe_memory(run.memory);
      }
    }
    if (!o_.html.empty()) {
      BOWLINE_TRY(
          write_text(o_.html, inspect_page({all, info_, o_.device, dims_, std::move(runs)})));
    }
    if (o_.format == "json") {
      print_json(all);
      return {};
    }
    if (o_.parameters) {
      print("{}", Lines{parameters});
    }
    if (o_.storages) {
      print("{}", Lines{storages});
    }
    if (o_.ties) {
      print_ties(all, SIZE_MAX);
    }
    if (!rows_only) {
      print_summary(all);
    }
    return {};
  }

  // Moves the model to the device. A model without values uses a device that only plans.
  Result<Device> place_model() {
    BOWLINE_TRY_ASSIGN(Device device,
                       open_device(is_skeleton(info_) ? "planning:" + o_.device : o_.device));
    BOWLINE_TRY(model_->to(device));
    return device;
  }

  Result<Trainer> trainer() {
    BOWLINE_TRY_ASSIGN(const Device device, place_model());
    TrainOptions t;
    t.dims = dims_;
    return Trainer::create(*model_, device, t);
  }

  // Errors  bad_argument: a flag has no effect on what is printed, or a plan lacks dims.
  Status check_uses() const {
    const bool rows_only = o_.parameters || o_.storages || o_.ties;
    for (const char* flag : {"--dim", "--batch", "--seq", "--device"}) {
      BOWLINE_TRY(o_.uses.check(flag, !rows_only,
                                "--parameters, --storages and --ties print no memory plan"));
    }
    for (const char* flag : {"--parameters", "--storages", "--ties"}) {
      BOWLINE_TRY(o_.uses.check(flag, o_.format != "json", "-o json holds all rows"));
    }
    const bool plans = !dims_.empty() || !o_.listing.empty();
    BOWLINE_TRY(o_.uses.check("--device", plans,
                              "nothing is planned. Add --dim, --batch or --seq for the memory "
                              "plan, or --listing for the nodes"));
    const std::string missing = missing_dims(info_, dims_);
    BOWLINE_REQUIRE(!plans || missing.empty(),
                    "A plan needs the size of each named dimension, but {} not given. Use --dim "
                    "NAME=N, --batch or --seq.",
                    missing + (missing.find(',') == std::string::npos ? " is" : " are"));
    return {};
  }

  Status print_listing() {
    std::string text;
    if (o_.entry.empty() || o_.entry == "loss") {
      BOWLINE_TRY_ASSIGN(Trainer trainer, this->trainer());
      BOWLINE_TRY_ASSIGN(text, trainer.listing(o_.listing, o_.columns));
    } else {
      BOWLINE_TRY_ASSIGN(const Device device, place_model());
      BOWLINE_TRY_ASSIGN(Session session, Session::create(*model_, device, o_.entry, dims_));
      BOWLINE_TRY_ASSIGN(text, session.listing(o_.listing, o_.columns));
    }
    if (o_.format == "json") {
      print_json({{"listing", o_.listing}, {"text", text}});
    } else {
      print("{}", Lines{text});
    }
    return {};
  }

  Result<std::vector<PlannedRun>> plan_runs() {
    BOWLINE_TRY_ASSIGN(const Device device, place_model());
    std::vector<PlannedRun> runs;
    for (const EntryPointInfo& e : info_.entry_points) {
      BOWLINE_TRY_ASSIGN(Session session, Session::create(*model_, device, e.name, dims_));
      PlannedRun& run = runs.emplace_back(PlannedRun{e.name, session.memory(), {}, {}});
      BOWLINE_TRY_ASSIGN(run.plan, session.describe());
      BOWLINE_TRY_ASSIGN(run.model, model_->describe());
    }
    if (find_named(info_.entry_points, "loss") != nullptr) {
      BOWLINE_TRY_ASSIGN(Trainer trainer, this->trainer());
      PlannedRun& run = runs.emplace_back(PlannedRun{"training", trainer.memory(), {}, {}});
      BOWLINE_TRY_ASSIGN(run.plan, trainer.describe());
      BOWLINE_TRY_ASSIGN(run.model, model_->describe());
    }
    return runs;
  }

  static void print_ties(const json& all, size_t most) {
    const json& ties = all["ties"];
    print("ties        {}, saving {}\n", ties.size(), bytes_text(number(all, "saved_bytes")));
    for (size_t i = 0; i < ties.size() && i < most; ++i) {
      print("  tie {}: {} share {}, {} saved\n", number(ties[i], "tie"),
            join(ties[i]["parameters"]), bytes_text(number(ties[i], "bytes")),
            bytes_text(number(ties[i], "saved_bytes")));
    }
    print_more(ties.size(), most, "--ties");
  }

  static void print_more(size_t count, size_t most, const char* flag) {
    if (count > most) {
      print("  and {} more ({} shows all)\n", count - most, flag);
    }
  }

  static void print_training(const json& t) {
    print("checkpoint  of step {}{}, {}\n", number(t, "step"),
          number(t, "micro_step") == 0
              ? ""
              : fmt::format(" and {} micro-batches", number(t, "micro_step")),
          t["run"].value("optimizer", "an optimizer that is not known"));
    std::string settings;
    for (const auto& [key, value] : t["settings"].items()) {
      settings += fmt::format(" {}={}", key, value.get<std::string>());
    }
    if (!settings.empty()) {
      print("run        {}\n", settings);
    }
  }

  static void print_sizes(const json& all) {
    const json& s = all["sizes"];
    print("parameters  {} values, {} of them trainable: {} names, {} storages, {}\n",
          grouped(number(s, "elements")), grouped(number(s, "trainable_elements")),
          all["parameters"].size(), number(s, "storages"), bytes_text(number(s, "bytes")));
    if (number(s, "training_bytes") != 0) {
      print("training    {} of optimizer state and gradients\n",
            bytes_text(number(s, "training_bytes")));
    }
  }

  static void print_entry_points(const json& all) {
    print("entry points\n");
    size_t shown = 0;
    for (const json& e : all["entry_points"]) {
      if (++shown > kMostRows) {
        break;
      }
      const std::string inputs = joined(e["inputs"], [](const json& i) {
        return fmt::format("{} {}{}", listed_name(i["name"].get<std::string>()),
                           i["dtype"].get<std::string>(), join(i["shape"]));
      });
      print("  {}({}) -> {}, {} nodes\n", listed_name(e["name"].get<std::string>()), inputs,
            join(e["outputs"]), number(e, "nodes"));
    }
    print_more(all["entry_points"].size(), kMostRows, "-o json");
    if (!all["dynamic_dims"].empty()) {
      print("dynamic     {}: --dim sets the maximum size\n", join(all["dynamic_dims"]));
    }
  }

  void print_memory(const json& all) const {
    if (!all.contains("memory")) {
      if (!all["dims"].empty()) {
        print("memory plan needs a --dim NAME=N for each of {}\n", join(all["dims"]));
      }
      return;
    }
    print("memory plan on {}\n", o_.device);
    for (const auto& [name, m] : all["memory"].items()) {
      print(
          "  {:<10} {} predicted: storages {}, arena {} (lower bound {}), inputs and outputs {}, "
          "backend {}\n",
          name, bytes_text(number(m, "predicted_bytes")), bytes_text(number(m, "storage_bytes")),
          bytes_text(number(m, "arena_bytes")), bytes_text(number(m, "arena_lower_bound_bytes")),
          bytes_text(number(m, "io_bytes")),
          bytes_text(number(m, "backend_bytes") + number(m, "staging_bytes")));
    }
  }

  void print_summary(const json& all) const {
    print("{}: a {}, {}\n", o_.model, all["kind"].get<std::string>(),
          bytes_text(number(all, "file_bytes")));
    print("sha256      {}\n", all["sha256"].get<std::string>());
    if (all.contains("training")) {
      print_training(all["training"]);
    }
    print_sizes(all);
    print_ties(all, kMostRows);
    size_t shown = 0;
    for (const auto& [key, value] : all["metadata"].items()) {
      if (++shown <= kMostRows) {
        print("metadata    {} = {}\n", listed_name(key),
              shortened(value.get<std::string>(), kMostCharacters));
      }
    }
    print_more(shown, kMostRows, "-o json");
    print_entry_points(all);
    print_memory(all);
  }

  const InspectOptions& o_;
  std::vector<BoundDim> dims_;
  std::optional<Model> model_;
  ModelInfo info_;
};

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  CLI::App* verb =
      add_verb(app, "inspect", "Shows sizes, tied weights, entry points and memory of a model file",
               "bowline inspect base.bowline\n"
               "# The memory of each entry point and of training, with 8 rows of 256 tokens\n"
               "bowline inspect base.bowline --batch 8 --seq 256\n"
               "# The submissions and copies of a training step\n"
               "bowline inspect base.bowline --batch 8 --seq 256 --listing build");
  auto o = std::make_shared<InspectOptions>();
  verb->add_option("model", o->model, "Model file or checkpoint")->required();
  add_dims(verb, o->dims);
  add_device(verb, o->device);
  CLI::Option* parameters =
      verb->add_flag("--parameters", o->parameters, "Print one line per parameter");
  CLI::Option* storages = verb->add_flag("--storages", o->storages, "Print one line per storage");
  CLI::Option* ties = verb->add_flag("--ties", o->ties, "Print which parameters share a weight");
  CLI::Option* html =
      add_text(verb, "--html", o->html, "Write an HTML page: graph, ties and memory plan", "FILE");
  verb->add_flag("--force", o->force, "Replace an existing --html")->needs(html);
  add_format(verb, o->format);
  const AdvancedFlags advanced(verb);
  CLI::Option* listing = verb->add_option("--listing", o->listing, "List part of a plan")
                             ->check(CLI::IsMember({"build", "forward", "backward", "update"}))
                             ->excludes(parameters)
                             ->excludes(storages)
                             ->excludes(ties)
                             ->excludes(html);
  add_text(verb, "--entry", o->entry, "Entry point to list; loss: training step [loss]", "NAME")
      ->needs(listing);
  verb->add_flag("--columns", o->columns, "Add node names and memory offsets to --listing")
      ->needs(listing);
  o->uses = FlagUses(verb);
  on_run(verb, context, [o] { return Inspection(*o).run(); });
}

}  // namespace bowline::command
