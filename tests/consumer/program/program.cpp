// A consumer outside of the tree: trains a tied model, saves and loads it, and finds the tie again.
#include <bowline.h>

#include <cstdio>
#include <exception>
#include <typeinfo>

using namespace bowline;

static int check(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}

static Status learn(const char* path) {
  Result<Device> device = Device::open("cpu");
  if (!device.ok()) {
    return device.status();
  }
  Model model;
  const int64_t shape[] = {8, 4};
  Result<Parameter> embedding = model.parameter("embedding", shape, Init::normal(0.5f));
  if (!embedding.ok()) {
    return embedding.status();
  }
  Result<Parameter> head = model.tied_parameter("head", embedding.value());
  if (!head.ok()) {
    return head.status();
  }
  GraphBuilder g(model, "loss");
  const Value x =
      g.op("Embedding", {g.parameter(embedding.value()), g.input("tokens", DType::i32, {"batch"})});
  const Value logits = g.op("Linear", {x, g.parameter(head.value())});
  g.output("loss", g.op("CrossEntropy", {logits, g.input("labels", DType::i32, {"batch"})}));
  for (Status s : {g.finish(), model.materialize(1), model.to(device.value())}) {
    if (!s.ok()) {
      return s;
    }
  }
  TrainOptions options;
  options.dims = {{"batch", 8}};
  options.schedule.learning_rate = 0.05f;
  Result<Trainer> trainer = Trainer::create(model, device.value(), options);
  if (!trainer.ok()) {
    return trainer.status();
  }
  int32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7};
  int32_t labels[] = {1, 2, 3, 4, 5, 6, 7, 0};
  const int64_t batch[] = {8};
  const Tensor inputs[] = {{"tokens", DType::i32, batch, tokens},
                           {"labels", DType::i32, batch, labels}};
  float first = 0;
  float last = 0;
  for (int step = 0; step < 100; ++step) {
    Result<std::optional<StepReport>> report = trainer.value().micro_step(inputs);
    if (!report.ok()) {
      return report.status();
    }
    last = report.value()->loss;
    first = step == 0 ? last : first;
  }
  std::printf("loss %.4f -> %.4f\n", first, last);
  if (!(last < first - 0.5f)) {
    return Status(Code::internal, "The loss does not fall.");
  }
  if (Status s = model.save(path); !s.ok()) {
    return s;
  }
  Result<Model> loaded = Model::open(path);
  if (!loaded.ok()) {
    return loaded.status();
  }
  BOWLINE_TRY_ASSIGN(const ModelInfo info, loaded.value().describe());
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, trainer.value().describe());
  if (info.ties.size() != 1 || info.ties[0].parameters.size() != 2 || plan.segments.size() != 3) {
    return Status(Code::internal, "The tie is lost, or a part of the plan.");
  }
  return loaded.value().same_storage("embedding", "head").value()
             ? Status()
             : Status(Code::internal, "The tie is lost.");
}

int main(int, char** argv) {
  // Exceptions and RTTI of the consumer work, although the library is built without them.
  try {
    throw 1;
  } catch (int) {
  }
  return typeid(int) == typeid(int) ? check(learn(argv[1])) : 1;
}
