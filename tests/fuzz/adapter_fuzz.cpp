// Arbitrary tables as an adapter file: loaded into a small model, run, trained, merged and removed.
// Each step works or returns a status; it never crashes. A rejected file leaves the model
// unchanged.
#include "api/internals.h"
#include "fuzz/files.h"
#include "fuzz/mutator.h"
#include "graph/model_state.h"

namespace {

using namespace bowline;
using test::succeeded;

bool reached_the_end = false;

// The targets of an adapter: a matrix that is read in three ways, and a separate matrix in each
// iteration of a Repeat.
Model make_base(const Device& device) {
  Model model;
  const int64_t table[] = {6, 4}, square[] = {4, 4};
  const Parameter embedding = model.parameter("embedding", table, Init::uniform(0.5f)).value();
  const Parameter head = model.tied_parameter("head", embedding).value();
  const ParameterList weights =
      model.parameters("layers.{}.weight", 2, square, Init::uniform(0.5f)).value();
  GraphBuilder g(model, "forward");
  const Value tokens = g.input("tokens", DType::i32, {3});
  Value x = g.op("Embedding", {g.parameter(embedding), tokens});
  x = g.repeat(2, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    return std::vector<Value>{body.op("Linear", {in[0], body.parameter(weights)})};
  })[0];
  x = g.op("MatMul", {x, g.parameter(head)}, {{"transpose_b", true}});
  g.output("logits", x);
  g.output("loss", g.op("CrossEntropy", {x, tokens}));
  if (!g.finish().ok() || !model.to(device).ok() || !model.materialize(1).ok()) {
    __builtin_trap();
  }
  return model;
}

bool runs(Model& model, const Device& device) {
  const int32_t tokens[] = {0, 1, 5};
  const int64_t three[] = {3}, grid[] = {3, 6};
  float logits[18];
  const Tensor inputs[] = {{"tokens", DType::i32, three, const_cast<int32_t*>(tokens)}};
  const Tensor outputs[] = {{"logits", DType::f32, grid, logits}};
  auto session = Session::create(model, device, "forward", {});
  const bool ran = succeeded(session.status()) && succeeded(session.value().run(inputs, outputs));
  TrainOptions options;
  options.entry_point = "forward";
  options.loss = "loss";
  auto trainer = Trainer::create(model, device, options);
  return succeeded(trainer.status()) && succeeded(trainer.value().micro_step(inputs).status()) &&
         ran;
}

std::string listing(const Model& model) {
  const params::Table& table = Internals::state(model)->table;
  return table.list_parameters() + table.list_storages();
}

void use(Model& model, const Device& device, const std::string& name) {
  const bool ran = runs(model, device);
  const bool weighed = succeeded(set_adapter_weight(model, name, 0.5f));
  if (auto other = model.clone(); succeeded(other.status())) {
    (void)succeeded(merge_adapter(other.value(), name));
  }
  reached_the_end = (ran && weighed && succeeded(remove_adapter(model, name))) || reached_the_end;
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Device device = [] {
    DeviceOptions options;
    options.threads = 1;
    return Device::open("cpu", options).value();
  }();
  static const Model base = make_base(device);
  static const std::string before = listing(base);
  const test::MemoryFile file;
  if (!file.write(test::Frame::read({data, size}).file())) {
    return 0;
  }
  Model model = base.clone().value();
  const auto name = load_adapter(model, file.path());
  if (succeeded(name.status())) {
    use(model, device, name.value());
  } else if (listing(model) != before) {
    __builtin_trap();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return test::mutate(data, size, most, seed);
}
