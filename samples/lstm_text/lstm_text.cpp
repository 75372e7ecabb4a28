// A character-level language model with an LSTM layer. It learns from a text, then generates a
// line.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "bowline.h"
using namespace bowline;
void must(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "lstm_text: %s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}
constexpr int64_t kBytes = 256, kHidden = 64, kBatch = 16, kSeq = 32;

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "samples/data/kjv.txt", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  must(text.size() > kSeq + 1 ? Status() : Status(Code::io_error, "The text cannot be read."));
  const Device device = must(Device::open(argc > 2 ? argv[2] : "best"));
  Model model;
  GraphBuilder g(model, "loss");
  const auto weight = [&](const char* name, int64_t rows) {
    return g.parameter(must(model.parameter(name, {rows, kHidden}, Init::normal(0.1f))));
  };
  Value x = g.input("bytes", DType::i32, {"seq", "batch"});
  x = g.op("Linear",
           {g.op("Embedding", {weight("letters", kBytes), x}), weight("in", 4 * kHidden)});
  const Value h = g.input("h", DType::f32, {"batch", kHidden});
  const Value c = g.input("c", DType::f32, {"batch", kHidden});
  x = g.op("Linear", {g.op("Lstm", {x, weight("w", 4 * kHidden), h, c}), weight("out", kBytes)});
  g.output("logits", x);
  g.output("loss", g.op("CrossEntropy", {x, g.input("next", DType::i32, {"seq", "batch"})}));
  must(g.finish());
  must(model.materialize(1)), must(model.to(device));
  TrainOptions options;
  options.dims = {{"batch", kBatch}, {"seq", kSeq}};
  options.schedule.learning_rate = 0.02f;
  Trainer trainer = must(Trainer::create(model, device, options));
  std::mt19937 random(1);
  std::vector<float> zeros(kBatch * kHidden), logits(kSeq * kBatch * kBytes);
  std::vector<int32_t> bytes((kSeq + 1) * kBatch);  // each sequence is followed by its next byte
  const Tensor batch[] = {{"bytes", DType::i32, {kSeq, kBatch}, bytes.data()},
                          {"next", DType::i32, {kSeq, kBatch}, bytes.data() + kBatch},
                          {"h", DType::f32, {kBatch, kHidden}, zeros.data()},
                          {"c", DType::f32, {kBatch, kHidden}, zeros.data()}};
  for (int step = 1; step <= 200; ++step) {
    for (size_t b = 0; b < kBatch; ++b) {
      const size_t from = random() % (text.size() - kSeq - 1);
      for (size_t t = 0; t <= kSeq; ++t) {
        bytes[t * kBatch + b] = static_cast<uint8_t>(text[from + t]);
      }
    }
    const float loss = must(trainer.micro_step(batch))->loss;
    if (step % 50 == 0) {
      std::printf("%s: step %d, loss %.3f\n", device.info().name.c_str(), step, loss);
    }
  }
  // Continues the first text of the batch.
  const Tensor out[] = {{"logits", DType::f32, {kSeq, kBatch, kBytes}, logits.data()}};
  for (int i = 0; i < 72; ++i) {
    must(trainer.evaluate(batch, out));
    float* const last = &logits[(kSeq - 1) * kBatch * kBytes];
    std::transform(last, last + kBytes, last, [](float v) { return std::exp(v); });
    std::copy(bytes.begin() + kBatch, bytes.end(), bytes.begin());
    bytes[kSeq * kBatch] = 0;
    bytes[(kSeq - 1) * kBatch] = std::discrete_distribution<int32_t>(last, last + kBytes)(random);
    std::putchar(std::max<int>(bytes[(kSeq - 1) * kBatch], ' '));
  }
  std::putchar('\n');
}
