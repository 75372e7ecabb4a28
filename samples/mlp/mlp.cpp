// A classifier trained from scratch: on which of two interleaved spirals is a point?
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "bowline.h"
using namespace bowline;
void must(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "mlp: %s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

int main(int argc, char** argv) {
  const Device device = must(Device::open(argc > 1 ? argv[1] : "best"));
  Model model;
  GraphBuilder g(model, "loss");
  Value x = g.input("points", DType::f32, {"batch", 2});
  const int64_t widths[] = {2, 64, 64, 2};
  for (int i = 0; i < 3; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const int64_t shape[] = {widths[i + 1], widths[i]};
    const Init init = Init::uniform(std::sqrt(3.0f / static_cast<float>(widths[i])));
    const Parameter weight = must(model.parameter(name + ".weight", shape, init));
    const Parameter bias = must(model.parameter(name + ".bias", {shape, 1}, Init::zeros()));
    x = g.op("Linear", {x, g.parameter(weight), g.parameter(bias)});
    x = i < 2 ? g.op("Tanh", {x}) : x;
  }
  g.output("loss", g.op("CrossEntropy", {x, g.input("spiral", DType::i32, {"batch"})}));
  must(g.finish());
  must(model.materialize(1));
  must(model.to(device));

  const int64_t shape[] = {400, 2};
  std::vector<float> points;
  std::vector<int32_t> spirals;
  for (int i = 0; i < shape[0]; ++i) {
    const float t = 0.5f + 0.0075f * static_cast<float>(i), side = i % 2 == 0 ? 1.0f : -1.0f;
    points.insert(points.end(), {side * t * std::cos(3 * t), side * t * std::sin(3 * t)});
    spirals.push_back(i % 2);
  }
  const Tensor batch[] = {{"points", DType::f32, shape, points.data()},
                          {"spiral", DType::i32, {shape, 1}, spirals.data()}};
  TrainOptions options;
  options.dims = {{"batch", shape[0]}};
  options.schedule.learning_rate = 0.01f;
  Trainer trainer = must(Trainer::create(model, device, options));
  for (int step = 0; step < 500; ++step) {
    must(trainer.micro_step(batch));
  }
  const float loss = must(trainer.evaluate(batch));
  std::printf("%s: loss %.4f after 500 steps\n", device.info().name.c_str(), loss);
  return loss < 0.05f ? 0 : 1;
}
