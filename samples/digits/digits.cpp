// A small convolutional network learns to read handwritten digits (samples/data/digits.txt). Every
// fifth digit is held out.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "bowline.h"
using namespace bowline;
template <class T>
T must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "digits: %s\n", result.status().message().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void must(const Status& status) { must(status.ok() ? Result<int>(0) : Result<int>(status)); }
constexpr int64_t kBatch = 72;
// A 3 x 3 convolution, a norm of its channels, and half as many pixels along each axis.
Value layer(Model& m, GraphBuilder& g, Value x, std::string name, int64_t in, int64_t out) {
  const auto add = [&](const char* part, TensorShape shape, Init init, StorageRole role) {
    return g.parameter(must(m.parameter(name + part, shape, init, role)));
  };
  const auto weight = StorageRole::weight, running = StorageRole::running_statistic;
  const Value window = add("", {out, in, 3, 3}, Init::uniform(in == 1 ? 0.8f : 0.2f), weight);
  x = g.op("Conv", {x, window}, {{"pads", {1, 1, 1, 1}}});
  const Value scale = add(".scale", {out}, Init::ones(), weight);
  const Value bias = add(".bias", {out}, Init::zeros(), weight);
  const Value mean = add(".mean", {out}, Init::zeros(), running);
  const Value variance = add(".variance", {out}, Init::ones(), running);
  x = g.op("Relu", {g.op("BatchNorm", {x, scale, bias, mean, variance})});
  return g.op("MaxPool", {x}, {{"window", {2, 2}}, {"strides", {2, 2}}});
}
int main(int argc, char** argv) {
  std::vector<float> images[2];  // training, held out
  std::vector<int32_t> labels[2];
  std::ifstream file(argc > 1 ? argv[1] : "samples/data/digits.txt");
  for (std::string line; std::getline(file, line) && line.size() == 65;) {
    const int to = (labels[0].size() + labels[1].size()) % 5 == 0 ? 1 : 0;
    labels[to].push_back(line[64] - '0');
    for (size_t p = 0; p < 64; ++p) {
      images[to].push_back(static_cast<float>(line[p] - 'A') / 16);
    }
  }
  const Device device = must(Device::open(argc > 2 ? argv[2] : "best"));
  Model model;
  GraphBuilder g(model, "loss");
  Value x = g.input("images", DType::f32, {"batch", 1, 8, 8});
  x = layer(model, g, layer(model, g, x, "first", 1, 16), "second", 16, 32);
  const Parameter head = must(model.parameter("head", {10, 128}, Init::uniform(0.1f)));
  x = g.op("Linear", {g.op("Reshape", {x}, {{"dims", {-1, 128}}}), g.parameter(head)});
  g.output("logits", x);
  g.output("loss", g.op("CrossEntropy", {x, g.input("labels", DType::i32, {"batch"})}));
  must(g.finish());
  must(model.materialize(1));
  must(model.to(device));
  TrainOptions options;
  options.dims = {{"batch", kBatch}};
  options.schedule.learning_rate = 0.01f;
  Trainer trainer = must(Trainer::create(model, device, options));
  const auto batch = [&](int of, size_t at) {
    return std::vector<Tensor>{
        {"images", DType::f32, {kBatch, 1, 8, 8}, images[of].data() + 64 * at},
        {"labels", DType::i32, {kBatch}, labels[of].data() + at}};
  };
  for (size_t step = 0; step < 200; ++step) {  // ten epochs
    must(trainer.micro_step(batch(0, step * 505 % (labels[0].size() - kBatch + 1))));
  }
  size_t right = 0;
  for (size_t at = 0; at < labels[1].size(); at += kBatch) {
    float logits[kBatch][10];
    const Tensor out[] = {{"logits", DType::f32, {kBatch, 10}, logits}};
    must(trainer.evaluate(batch(1, at), out));
    for (size_t i = 0; i < kBatch; ++i) {
      right += std::max_element(logits[i], logits[i] + 10) - logits[i] == labels[1][at + i];
    }
  }
  std::printf("%s: %zu of %zu digits\n", device.info().name.c_str(), right, labels[1].size());
  return 100 * right >= 97 * labels[1].size() ? 0 : 1;
}
