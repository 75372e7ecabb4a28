// Suite ties: two factors of a product that are one weight, trained on the device, give the numbers
// that follow by hand; untied they give others. More, through every verb, stands in tests/ties.
//
//   loss = sum(a * x * b) with a = b = w, x = 2: dloss/dw = 4 w; with a learning rate of 1/8 each
//   step halves w. Untied: dloss/da = 2 b; each step takes a quarter away. All of these numbers are
//   exact in f32.
#include "api/internals.h"
#include "bowline.h"
#include "conformance/suite.h"

namespace bowline::conformance {
namespace {

constexpr int kSteps = 5;
constexpr float kStart = 3;

Result<Model> product(bool tied) {
  Model m;
  const std::vector<int64_t> one = {1};
  BOWLINE_ASSIGN(const Parameter a, m.parameter("a", one, Init::zeros()));
  Result<Parameter> b = tied ? m.tied_parameter("b", a) : m.parameter("b", one, Init::zeros());
  BOWLINE_TRY(Status(b.status()));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {1});
  const Value ax = g.op("Mul", {g.parameter(a), x});
  g.output("loss", g.op("ReduceSum", {g.op("Mul", {ax, g.parameter(b.value())})}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(m.materialize(1));
  float start = kStart;
  for (const char* name : {"a", "b"}) {
    BOWLINE_TRY(m.set_value(name, {name, DType::f32, one, &start}));
  }
  return m;
}

// The value of `a` and `b` after kSteps, moved to the device before the first one.
Result<std::string> trained(const Device& device, bool tied) {
  BOWLINE_ASSIGN(Model m, product(tied));
  BOWLINE_TRY(m.to(device));
  BOWLINE_REQUIRE_CODE(m.same_storage("a", "b").value() == tied, Code::internal,
                       "The move has changed the tie.");
  TrainOptions o;
  o.optimizer.kind = Optimizer::Kind::sgd;
  o.optimizer.weight_decay = 0;
  o.schedule.learning_rate = 0.125f;
  BOWLINE_ASSIGN(Trainer trainer, Trainer::create(m, device, o));
  const std::vector<int64_t> one = {1};
  float x = 2;
  float wanted = kStart;
  for (int s = 0; s < kSteps; ++s) {
    const Tensor batch{"x", DType::f32, one, &x};
    BOWLINE_ASSIGN(const std::optional<StepReport> report, trainer.micro_step({&batch, 1}));
    const float loss = wanted * 2 * wanted;
    if (!report || report->loss != loss) {
      return format("step {}: the loss is {} instead of {}", s + 1, report ? report->loss : 0,
                    loss);
    }
    wanted *= tied ? 0.5f : 0.75f;
  }
  for (const char* name : {"a", "b"}) {
    float value = 0;
    BOWLINE_TRY(m.get_value(name, {name, DType::f32, one, &value}));
    if (value != wanted) {
      return format("{} is {} instead of {} after {} steps", name, value, wanted, kSteps);
    }
  }
  return std::string();
}

}  // namespace

Status run_ties(Run& run) {
  const Device device = Internals::device(run.device);
  for (const bool tied : {true, false}) {
    const std::string name = tied ? "tied product" : "untied product";
    if (!matches(run.options.filter, name)) {
      continue;
    }
    run.one(name, name, [&] {
      const Result<std::string> problem = trained(device, tied);
      return problem.ok() ? problem.value() : problem.status().message();
    });
  }
  return {};
}

}  // namespace bowline::conformance
