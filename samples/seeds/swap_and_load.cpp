// Replaces the values of a weight that is in use: by a swap, by an assignment after the optimizer
// was created, by a cast of a quantized weight, and by a load that quantizes.
//
// The story: a tutorial on extension points of modules needed a flag, private functions, and a
// warning about optimizers that keep the old weight ("Extension points in nn.Module for
// load_state_dict and tensor subclasses", PyTorch recipes).
#include <filesystem>

#include "seeds.h"

void swap_contents() {
  std::printf("1. swap\n");
  Model m;
  must(m.parameter("t1", {2}, Init::zeros()));
  must(m.parameter("t2", {3}, Init::zeros()));
  must(m.tied_parameter("holder of t1", must(m.find("t1"))));
  must(m.materialize(1));
  set(m, "t1", {0, 1});
  set(m, "t2", {0, 1, 2});
  for (int i = 0; i < 2; ++i) {
    std::printf("   t1 %s, t2 %s, holder of t1 %s\n", text(values(m, "t1")).c_str(),
                text(values(m, "t2")).c_str(), text(values(m, "holder of t1")).c_str());
    must(m.swap("t1", "t2"));
  }
}

// L = sum(x Wᵀ) for Linear(2, 1) without a bias.
Model linear() {
  Model m;
  const Parameter w = must(m.parameter("weight", {1, 2}, Init::zeros()));
  GraphBuilder g(m, "loss");
  const Value y = g.op("Linear", {g.input("x", DType::f32, {1, 2}), g.parameter(w)});
  g.output("loss", g.op("ReduceSum", {y}));
  must(g.finish());
  must(m.materialize(1));
  set(m, "weight", {1, 2});
  return m;
}

void assign_under_an_optimizer(const Device& device) {
  std::printf("2. mod.weight = 2 * mod.weight, after the optimizer was made\n");
  Model m = linear();
  must(m.to(device));
  TrainOptions options;
  options.optimizer = {"sgd"};
  options.schedule.learning_rate = 0.1f;
  Trainer optimizer = must(Trainer::create(m, device, options));
  Floats twice = values(m, "weight"), ones = {1, 1};
  for (float& w : twice) {
    w *= 2;
  }
  must(m.assign("weight", tensor("", {1, 2}, twice)));
  std::printf("   before the step %s\n", text(values(m, "weight")).c_str());
  const Tensor batch[] = {tensor("x", {1, 2}, ones)};
  step(optimizer, batch);
  std::printf("   after the step  %s   ([2, 4]: the optimizer steps a weight that is no more)\n",
              text(values(m, "weight")).c_str());
}

// A weight [3, 2] with two names.
Model tied_linear() {
  Model m;
  const Parameter w = must(m.parameter("weight", {3, 2}, Init::zeros()));
  must(m.tied_parameter("tied", w));
  GraphBuilder g(m, "forward");
  g.output("y", g.op("Linear", {g.input("x", DType::f32, {1, 2}), g.parameter(w)}));
  must(g.finish());
  return m;
}

void print_weight(const char* when, const Model& m) {
  const ModelInfo info = must(m.describe());
  const StorageInfo& storage = info.storages.at(0);
  std::printf(
      "   %s: \"weight\" and \"tied\" are storage %u and %u: %s, stored as %s, %llu bytes\n", when,
      info.parameters[0].tie, info.parameters[1].tie, std::string(name_of(storage.dtype)).c_str(),
      storage.encoding.c_str(), static_cast<unsigned long long>(storage.bytes));
}

void cast_quantized(const Device& device) {
  std::printf("3. a quantized weight is cast\n");
  Model m = tied_linear();
  must(m.materialize(1));
  set(m, "weight", {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f});
  must(m.to(device));
  must(quantize(m, "int8"));
  print_weight("quantized", m);
  must(m.cast(DType::bf16));
  print_weight("cast", m);
  must(m.cast(DType::f32));
  std::printf("   it shows %s\n", text(values(m, "tied")).c_str());
}

void quantize_on_load(const Device& device) {
  std::printf("4. a load into shapes, with another name and a hook that quantizes\n");
  const std::string path =
      (std::filesystem::temp_directory_path() / "bowline_swap_and_load.bowline").string();
  Model other;
  must(other.parameter("fc.weight", {3, 2}, Init::zeros()));
  must(other.materialize(1));
  set(other, "fc.weight", {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f});
  must(other.save(path));
  Model m = tied_linear();
  must(m.freeze_storage("weight"));  // quantized weights are not trained
  must(m.to(device));
  std::printf("   before: %s", m.ties().c_str());
  LoadOptions options;
  options.mode = LoadMode::assign;
  options.aliases = {{"fc.weight", "weight"}};
  options.hook = [](const LoadedParameter& of,
                    const Tensor& value) -> Result<std::optional<LoadedValue>> {
    std::printf("   the hook sees \"%s\" in the file, for \"%s\" on %s\n", of.file.name.c_str(),
                of.here.name.c_str(), of.storage_here.where.c_str());
    const auto* const bytes = static_cast<const std::byte*>(value.data);
    return std::optional(LoadedValue{value.dtype, value.shape, {bytes, bytes + 24}, "int8"});
  };
  must(m.load(path, options));
  print_weight("after", m);
  std::printf("   it shows %s\n", text(values(m, "tied")).c_str());
  std::filesystem::remove(path);
}

int main(int argc, char** argv) {
  const Device device = must(Device::open(argc > 1 ? argv[1] : "best"));
  swap_contents();
  assign_under_an_optimizer(device);
  cast_quantized(device);
  quantize_on_load(device);
}
