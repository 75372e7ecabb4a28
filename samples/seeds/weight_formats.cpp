// The weights of an LSTM in one allocation, as seen by parameters(), storages(), training and a
// file.
//
// The story: recurrent kernels need all weights in one block. Frameworks copied the block at every
// call, mistook it for the parameters, or lost it in a move (the gist "Weight format proposal";
// pytorch#914, PR#2179).
#include <filesystem>
#include <set>

#include "seeds.h"

constexpr int64_t kInput = 10, kUnits = 20, kSteps = 3;

// LSTM in 10 hidden 20, L = sum of h.
Model lstm(bool bias) {
  Model m;
  const auto weight = [&](const char* name, const TensorShape& shape) {
    return must(m.parameter(name, shape, Init::uniform(0.25f)));
  };
  const Parameter w_ih = weight("lstm.weight_ih", {4 * kUnits, kInput});
  const Parameter w_hh = weight("lstm.weight_hh", {4 * kUnits, kUnits});
  const Parameter zeros =
      must(m.parameter("state", {1, kUnits}, Init::zeros(), StorageRole::constant));
  GraphBuilder g(m, "loss");
  Value gates = g.op("Linear", {g.input("x", DType::f32, {kSteps, 1, kInput}), g.parameter(w_ih)});
  for (const char* name : {"lstm.bias_ih", "lstm.bias_hh"}) {
    gates = bias ? g.op("Add", {gates, g.parameter(weight(name, {4 * kUnits}))}) : gates;
  }
  const Value state = g.parameter(zeros);
  g.output("loss", g.op("ReduceSum", {g.op("Lstm", {gates, g.parameter(w_hh), state, state})}));
  must(g.finish());
  must(m.materialize(5));
  return m;
}

// "parameters() 4, storages().blocks 1, 2560 values"
void print(const char* when, const Model& model) {
  const ModelInfo info = must(model.describe());
  std::set<uint32_t> blocks;
  uint64_t values = 0, parameters = 0;
  for (const StorageInfo& s : info.storages) {
    if (!s.empty && s.role == StorageRole::weight) {
      blocks.insert(s.block);
      values += s.bytes / size_of(s.dtype);
    }
  }
  for (const ParameterInfo& p : info.parameters) {
    parameters += info.storages[p.tie].role == StorageRole::weight;
  }
  std::printf("  %-21s parameters() %llu, storages().blocks %zu, %llu values\n", when,
              static_cast<unsigned long long>(parameters), blocks.size(),
              static_cast<unsigned long long>(values));
}

void run(const Device& device, bool bias) {
  std::printf("LSTM(10, 20)%s on %s\n", bias ? "" : " without bias", device.info().name.c_str());
  Model m = lstm(bias);
  must(m.to(device));
  print("without format", m);
  const FormatReport report = must(set_weight_format(m, "flat", "lstm.*"));
  print("set_weight_format", m);
  std::printf("  the block holds %llu values\n",
              static_cast<unsigned long long>(report.bytes / sizeof(float)));
  Trainer trainer = must(Trainer::create(m, device, {}));
  Floats x(kSteps * kInput, 0.5f);
  const Tensor batch[] = {tensor("x", {kSteps, 1, kInput}, x)};
  for (int i = 0; i < 100; ++i) {
    step(trainer, batch);
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / "bowline_weight_formats.bowline").string();
  const std::string before = m.storages();
  must(m.save(path));
  std::printf("  100 steps and a save: packs %llu, repacks %llu, the live model is %s\n",
              static_cast<unsigned long long>(m.counters().packs),
              static_cast<unsigned long long>(m.counters().repacks),
              m.storages() == before ? "unchanged" : "changed");
  print("the file", must(Model::open(path)));
  std::filesystem::remove(path);
  const Floats learned = values(m, "lstm.weight_hh");
  must(restore_weight_format(m, "lstm.*"));
  print("restore_weight_format", m);
  std::printf("  the trained values are %s\n",
              values(m, "lstm.weight_hh") == learned ? "unchanged, bit for bit" : "lost");
}

int main(int argc, char** argv) {
  const Device device = must(Device::open(argc > 1 ? argv[1] : "best"));
  for (const FormatInfo& f : weight_formats(Model())) {
    std::printf("format \"%s\": %s\n", f.name.c_str(), f.about.c_str());
  }
  run(device, true);
  run(device, false);
}
