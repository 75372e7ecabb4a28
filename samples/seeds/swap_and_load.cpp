// A weight gets other contents while others hold it: by a swap, by an assignment behind the back of an optimizer, by a cast, and by a
// load that transforms what it reads.
//
// The story: a tutorial on extension points of modules needed a flag, private functions and a warning about optimizers that go on
// with the old weight ("Extension points in nn.Module for load_state_dict and tensor subclasses", PyTorch recipes).
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

// L = sum(x Wᵀ) of Linear(2, 1) without a bias.
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
  options.optimizer = Optimizer::of(Optimizer::Kind::sgd);
  options.optimizer.weight_decay = 0;
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

void cast_keeps_identity(const Device& device) {
  std::printf("3. a cast\n");
  Model m = linear();
  must(m.tied_parameter("tied", must(m.find("weight"))));
  must(m.to(device));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    must(m.cast(dtype));
    const ParameterInfo weight = info_of(m, "weight"), tied = info_of(m, "tied");
    std::printf("   weight %s of storage %u, tied %s of storage %u\n",
                std::string(name_of(weight.dtype)).c_str(), weight.tie,
                std::string(name_of(tied.dtype)).c_str(), tied.tie);
  }
}

void load_with_a_hook(const Device& device) {
  std::printf("4. a load into shapes, with other names and a hook\n");
  const std::string path =
      (std::filesystem::temp_directory_path() / "bowline_swap_and_load.bowline").string();
  must(linear().save(path));
  Model m;
  const Parameter w = must(m.parameter("fc.weight", {1, 2}, Init::zeros()));
  must(m.tied_parameter("tied", w));
  must(m.to(device));
  std::printf("   before %s", m.parameters().c_str());
  LoadOptions options;
  options.aliases = {{"weight", "fc.weight"}};
  options.hook = [](const LoadedParameter& of,
                    const Tensor& value) -> Result<std::optional<LoadedValue>> {
    std::printf("   the hook sees %s in the file, %s here, on %s\n", of.file.name.c_str(),
                of.here.name.c_str(), of.storage_here.where.c_str());
    LoadedValue half{DType::f32, value.shape, std::vector<std::byte>(2 * sizeof(float))};
    for (int i = 0; i < 2; ++i) {
      const float number = static_cast<const float*>(value.data)[i] / 2;
      *reinterpret_cast<float*>(half.bytes.data() + static_cast<size_t>(i) * sizeof(float)) =
          number;
    }
    return std::optional(std::move(half));
  };
  must(m.load(path, options));
  std::printf("   after  %s, tied %s\n", text(values(m, "fc.weight")).c_str(),
              text(values(m, "tied")).c_str());
  std::filesystem::remove(path);
}

int main(int argc, char** argv) {
  const Device device = must(Device::open(argc > 1 ? argv[1] : "best"));
  swap_contents();
  assign_under_an_optimizer(device);
  cast_keeps_identity(device);
  load_with_a_hook(device);
}
