// A module c = a x + b x whose parameters a and b share a weight. It is moved to every device and
// trained there for a step.
//
// The story: on some devices a move kept the sharing as a side effect. On others each parameter
// silently got a separate tensor ("Weight sharing on cuda", a forum thread of PyTorch;
// pytorch/xla#1245).
#include "seeds.h"

Model module() {
  Model mod;
  const Parameter a = must(mod.parameter("a", {1}, Init::ones()));
  must(mod.parameter("b", {1}, Init::ones()));
  GraphBuilder g(mod, "loss");
  const Value x = g.input("x", DType::f32, {1});
  const Value ax = g.op("Mul", {g.parameter(a), x});
  const Value bx = g.op("Mul", {g.parameter(must(mod.find("b"))), x});
  const Value c = g.op("Add", {ax, bx});
  g.output("c", c);
  g.output("loss", g.op("ReduceSum", {c}));
  must(g.finish());
  must(mod.materialize(1));
  return mod;
}

void run(const Device& device) {
  Model mod = module();
  std::printf("%s\n", device.info().name.c_str());
  std::printf("  before mod.a = mod.b: equal values %s, one storage %s\n",
              values(mod, "a") == values(mod, "b") ? "yes" : "no",
              must(mod.same_storage("a", "b")) ? "yes" : "no");
  must(mod.tie("b", "a"));
  must(mod.to(device));
  std::printf("  after the move:       equal values %s, one storage %s; ties %s",
              values(mod, "a") == values(mod, "b") ? "yes" : "no",
              must(mod.same_storage("a", "b")) ? "yes" : "no", mod.ties().c_str());
  // Programs for other runtimes tie again after a move. Here it changes nothing.
  must(mod.tie("b", "a"));
  TrainOptions options;
  options.optimizer = {"sgd"};
  options.schedule.learning_rate = 0.1f;
  Trainer trainer = must(Trainer::create(mod, device, options));
  Floats x = {3}, gradient = {0};
  const Tensor batch[] = {tensor("x", {1}, x)};
  const float before = step(trainer, batch);
  must(trainer.gradient("a", tensor("", {1}, gradient)));
  const float after = must(trainer.evaluate(batch));
  std::printf("  c = %g, gradient %g, a = b = %g, then c = %g\n", static_cast<double>(before),
              static_cast<double>(gradient[0]), static_cast<double>(values(mod, "b")[0]),
              static_cast<double>(after));
  std::printf("  (4.2: untied; 5.1: one side is stale; -1.2: updated twice)\n");
}

int main() {
  for (const DeviceInfo& info : Device::list()) {
    if (info.unusable.empty() && info.computes) {
      run(must(Device::open(info.name)));
    }
  }
}
