// `bowline bench table`: time of operations on a table of many storages.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/status.h"
#include "bench/verbs.h"
#include "common/flags.h"
#include "common/report.h"
#include "common/temporary_folder.h"
#include "common/timing.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct BenchTableOptions {
  std::string device = "cpu";
  std::string format = "text";
  int parameters = 100'000;
};

struct Timed {
  std::string what;
  double ms = 0;
};

std::string name_of(int number) { return fmt::format("layers.{}.weight", number); }

// Returns a model that adds all parameters to an input. Its Repeats read one parameter per
// iteration.
Result<Model> sum_of(int parameters) {
  constexpr size_t kMostIterations = 1 << 16;
  Model model;
  BOWLINE_TRY_ASSIGN(const ParameterList all,
                     model.parameters("layers.{}.weight", parameters, {4}, Init::ones()));
  GraphBuilder g(model, "loss");
  Value sum = g.input("x", DType::f32, {4});
  for (size_t begin = 0; begin < all.items.size(); begin += kMostIterations) {
    const size_t end = std::min(all.items.size(), begin + kMostIterations);
    const ParameterList some{{all.items.data() + begin, all.items.data() + end}};
    const auto last =
        g.repeat(static_cast<int>(end - begin), {sum},
                 [&](GraphBuilder& body, const std::vector<Value>& carried) {
                   return std::vector<Value>{body.op("Add", {carried[0], body.parameter(some)})};
                 });
    sum = last.empty() ? Value{} : last[0];
  }
  g.output("loss", g.op("ReduceSum", {sum}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(model.materialize(1));
  return model;
}

class TableBench {
 public:
  explicit TableBench(const BenchTableOptions& options) : o_(options) {}

  Result<std::vector<Timed>> run(const Device& device) {
    BOWLINE_TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make());
    Model model;
    BOWLINE_TRY(timed("build", [&] { return assign(model, sum_of(o_.parameters)); }));
    BOWLINE_TRY(timed("save", [&] { return model.save(folder.file("untied")); }));
    BOWLINE_TRY(timed("open", [&] { return assign(model, Model::open(folder.file("untied"))); }));
    BOWLINE_TRY(timed("to the device", [&] { return model.to(device); }));
    BOWLINE_TRY(timed("plan to run", [&] {
      return Session::create(model, device, "loss", {}, no_limit()).status();
    }));
    BOWLINE_TRY(timed("plan to train", [&] {
      TrainOptions options;
      options.budget = no_limit();
      return Trainer::create(model, device, options).status();
    }));
    BOWLINE_TRY(timed("clone", [&] { return model.clone().status(); }));
    BOWLINE_TRY(timed("untie none", [&] { return each(model, &TableBench::untie); }));
    BOWLINE_TRY(timed("tie each", [&] { return each(model, &TableBench::tie); }));
    BOWLINE_TRY(timed("save tied", [&] { return model.save(folder.file("tied")); }));
    BOWLINE_TRY(timed("untie each", [&] { return each(model, &TableBench::untie); }));
    return std::move(times_);
  }

 private:
  static Budget no_limit() { return {}; }

  static Status assign(Model& to, Result<Model> from) {
    BOWLINE_TRY_ASSIGN(to, std::move(from));
    return {};
  }
  static Status tie(Model& model, int i) { return model.tie(name_of(i - 1), name_of(i)).status(); }
  static Status untie(Model& model, int i) { return model.untie(name_of(i)).status(); }

  // Calls `verb` for each parameter except the first.
  Status each(Model& model, Status (*verb)(Model&, int)) const {
    for (int i = 1; i < o_.parameters; ++i) {
      BOWLINE_TRY(verb(model, i));
    }
    return {};
  }

  template <class Call>
  Status timed(const char* what, const Call& call) {
    const Clock::time_point start = Clock::now();
    BOWLINE_TRY(call().at(fmt::format("While timing \"{}\".", what)));
    times_.push_back({what, 1e3 * seconds_since(start)});
    return {};
  }

  const BenchTableOptions& o_;
  std::vector<Timed> times_;
};

Result<int> bench_table(const BenchTableOptions& o) {
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY_ASSIGN(const std::vector<Timed> times, TableBench(o).run(device));
  if (o.format == "json") {
    nlohmann::json rows = nlohmann::json::object();
    for (const Timed& t : times) {
      rows[t.what] = t.ms;
    }
    print_json({{"device", device.info().name},
                {"parameters", o.parameters},
                {"time_ms", rows},
                {"peak_rss_bytes", peak_resident_bytes()}});
    return kOk;
  }
  print("table of {} parameters, on {}\n", o.parameters, device.info().name);
  for (const Timed& t : times) {
    print("{:<14} {:>10.3f} ms, {:.3f} us each\n", t.what, t.ms, 1e3 * t.ms / o.parameters);
  }
  return kOk;
}

}  // namespace

void add_bench_table(CLI::App& bench, Context& context) {
  const auto [verb, o] =
      add_verb<BenchTableOptions>(bench, context, bench_table, "table",
                                  "Times opening, planning and saving a model with many parameters",
                                  "bowline bench table --parameters 100000");
  add_number(verb, "--parameters", o->parameters, "Number of parameters, each of 4 values", 1,
             10'000'000);
  add_device(verb, o->device);
  add_format(verb, o->format);
}

}  // namespace bowline::command
