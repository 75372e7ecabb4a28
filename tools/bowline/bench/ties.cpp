// `bowline bench ties`: time of shared weights, compared with the same work without ties.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "bench/verbs.h"
#include "common/flags.h"
#include "common/report.h"
#include "common/temporary_folder.h"
#include "common/timing.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct BenchTiesOptions {
  std::string device = "cpu";
  std::string format = "text";
  int repeats = 16;
  int runs = 41;
  int ties = 1000;
};

constexpr int64_t kWidth = 64, kHidden = 256, kRows = 64;

// A block x + W2 gelu(W1 x + b1) + b2 that runs `repeats` times. If `nested`, each iteration has
// its own parameters, which are tied to those of the previous iteration. Otherwise all iterations
// read the same parameters.
Result<Model> universal(int repeats, bool nested) {
  constexpr const char* kNames[] = {"layer_1.weight", "layer_1.bias", "layer_2.weight",
                                    "layer_2.bias"};
  const TensorShape shapes[] = {{kHidden, kWidth}, {kHidden}, {kWidth, kHidden}, {kWidth}};
  Model model;
  ParameterList lists[4];
  for (int k = 0; k < 4; ++k) {
    const auto name = [&](int i) { return fmt::format("repeats.{}.{}", i, kNames[k]); };
    const Init init = Init::normal(1 / std::sqrt(static_cast<float>(kHidden)));
    for (int i = 0; i < repeats; ++i) {
      if (i > 0 && !nested) {
        lists[k].items.push_back(lists[k].items[0]);
        continue;
      }
      BOWLINE_TRY_ASSIGN(const Parameter p, model.parameter(name(i), shapes[k], init));
      lists[k].items.push_back(p);
    }
    for (int i = 1; i < repeats && nested; ++i) {
      BOWLINE_TRY(model.tie(name(i - 1), name(i)).status());
    }
  }
  GraphBuilder g(model, "loss");
  const Value x = g.input("x", DType::f32, {kRows, kWidth});
  const auto y = g.repeat(repeats, {x}, [&](GraphBuilder& body, const std::vector<Value>& carried) {
    const auto p = [&](int k) { return body.parameter(lists[k]); };
    const Value h = body.op("Gelu", {body.op("Linear", {carried[0], p(0), p(1)})});
    return std::vector<Value>{body.op("Add", {carried[0], body.op("Linear", {h, p(2), p(3)})})};
  });
  g.output("loss", g.op("ReduceMean", {y.empty() ? x : y[0]}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(model.materialize(1));
  return model;
}

// The sum of an input and 2 * `pairs` parameters. If `tied`, the two parameters of each pair are
// tied.
Result<Model> sum_of(int pairs, bool tied) {
  Model model;
  ParameterList all;
  for (int i = 0; i < pairs; ++i) {
    BOWLINE_TRY_ASSIGN(const Parameter a,
                       model.parameter(fmt::format("a.{}", i), {kWidth}, Init::ones()));
    Result<Parameter> b = tied ? model.tied_parameter(fmt::format("b.{}", i), a)
                               : model.parameter(fmt::format("b.{}", i), {kWidth}, Init::ones());
    BOWLINE_TRY(Status(b.status()));
    all.items.push_back(a);
    all.items.push_back(b.value());
  }
  GraphBuilder g(model, "forward");
  const Value x = g.input("x", DType::f32, {kWidth});
  const auto sum = g.repeat(2 * pairs, {x}, [&](GraphBuilder& body, const std::vector<Value>& c) {
    return std::vector<Value>{body.op("Add", {c[0], body.parameter(all)})};
  });
  g.output("y", sum.empty() ? x : sum[0]);
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(model.materialize(1));
  return model;
}

// Median times of the same work with ties and without. The two variants run alternately.
struct Comparison {
  std::string what;
  double tied_ms = 0;
  double plain_ms = 0;
  double ratio() const { return tied_ms / plain_ms; }
};

template <class Tied, class Plain>
Result<Comparison> by_turns(std::string what, int runs, const Tied& tied, const Plain& plain) {
  std::vector<double> with, without;
  for (int i = 0; i < runs; ++i) {
    BOWLINE_TRY_ASSIGN(const double t, seconds_of(tied));
    BOWLINE_TRY_ASSIGN(const double p, seconds_of(plain));
    with.push_back(t);
    without.push_back(p);
  }
  return Comparison{std::move(what), 1e3 * median(with), 1e3 * median(without)};
}

// A model on the device, with its session and trainer.
struct Placed {
  Model model;
  std::optional<Session> session;
  std::optional<Trainer> trainer;

  static Result<Placed> make(Result<Model> built, const Device& device) {
    BOWLINE_TRY_ASSIGN(Model model, std::move(built));
    BOWLINE_TRY(model.to(device));
    BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "loss", {}));
    BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, {}));
    return Placed{std::move(model), std::move(session), std::move(trainer)};
  }
};

Result<std::vector<Comparison>> compare(const BenchTiesOptions& o, const Device& device) {
  std::vector<Comparison> out;
  BOWLINE_TRY_ASSIGN(Placed tied, Placed::make(universal(o.repeats, true), device));
  BOWLINE_TRY_ASSIGN(Placed plain, Placed::make(universal(o.repeats, false), device));
  std::vector<float> numbers(kRows * kWidth, 0.01f);
  const Tensor batch[] = {{"x", DType::f32, {kRows, kWidth}, numbers.data()}};
  const auto run = [&](Placed& p) { return [&] { return p.session->run(batch, {}); }; };
  const auto step = [&](Placed& p) {
    return [&] { return p.trainer->micro_step(batch).status(); };
  };
  BOWLINE_TRY_ASSIGN(Comparison one, by_turns("run", o.runs, run(tied), run(plain)));
  out.push_back(std::move(one));
  BOWLINE_TRY_ASSIGN(one, by_turns("training step", o.runs, step(tied), step(plain)));
  out.push_back(std::move(one));

  BOWLINE_TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make());
  for (const bool with : {true, false}) {
    BOWLINE_TRY_ASSIGN(const Model model, sum_of(o.ties, with));
    BOWLINE_TRY(model.save(folder.file(with ? "tied" : "plain")));
  }
  const auto load = [&](const char* name) {
    return [&, path = folder.file(name)]() -> Status {
      BOWLINE_TRY_ASSIGN(Model model, Model::open(path));
      BOWLINE_TRY(model.to(device));
      return Session::create(model, device, "forward", {}).status();
    };
  };
  BOWLINE_TRY_ASSIGN(one, by_turns("open and plan", o.runs, load("tied"), load("plain")));
  out.push_back(std::move(one));
  return out;
}

Result<int> bench_ties(const BenchTiesOptions& o) {
  BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
  BOWLINE_TRY_ASSIGN(const std::vector<Comparison> rows, compare(o, device));
  if (o.format == "json") {
    nlohmann::json out = nlohmann::json::object();
    for (const Comparison& r : rows) {
      out[r.what] = {{"tied_ms", r.tied_ms}, {"plain_ms", r.plain_ms}, {"ratio", r.ratio()}};
    }
    print_json(
        {{"device", device.info().name}, {"repeats", o.repeats}, {"ties", o.ties}, {"times", out}});
    return kOk;
  }
  print("time with ties, time without, and their ratio; {} repeats, {} ties, on {}\n", o.repeats,
        o.ties, device.info().name);
  for (const Comparison& r : rows) {
    print("{:<14} {:>9.3f} ms, {:>9.3f} ms: {:.3f}\n", r.what, r.tied_ms, r.plain_ms, r.ratio());
  }
  return kOk;
}

}  // namespace

void add_bench_ties(CLI::App& bench, Context& context) {
  const auto [verb, o] = add_verb<BenchTiesOptions>(
      bench, context, bench_ties, "ties", "Compares the speed with and without tied weights",
      "bowline bench ties --repeats 16");
  add_number(verb, "--repeats", o->repeats, "Blocks of the model; all share their weights", 2,
             4096);
  add_number(verb, "--runs", o->runs, "Timed runs of each side; the median is shown", 1, 100'000);
  add_number(verb, "--ties", o->ties, "Ties of a second model, to time planning", 1, 1'000'000);
  add_device(verb, o->device);
  add_format(verb, o->format);
}

}  // namespace bowline::command
