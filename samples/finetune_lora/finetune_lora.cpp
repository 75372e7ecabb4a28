// Fine-tunes a frozen language model on a text with a LoRA adapter, then disables the adapter.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "bowline.h"
using namespace bowline;
void must(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "finetune_lora: %s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

constexpr int64_t kBatch = 4, kSeq = 64;

// Windows of a text; the label of a byte is the next one.
struct Batch {
  int64_t shape[2] = {kBatch, kSeq};
  std::vector<int32_t> tokens, labels;
  std::vector<Tensor> tensors;
  Batch(const std::string& text, size_t first) {
    for (size_t i = 0; i < kBatch * kSeq; ++i) {
      const size_t at = (first + i) % (text.size() - 1);
      tokens.push_back(static_cast<unsigned char>(text[at]));
      labels.push_back(static_cast<unsigned char>(text[at + 1]));
    }
    tensors = {{"tokens", DType::i32, shape, tokens.data()},
               {"labels", DType::i32, shape, labels.data()}};
  }
};

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: finetune_lora MODEL TEXT [DEVICE]\n");
    return 2;
  }
  std::ifstream file(argv[2]);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Device device = must(Device::open(argc > 3 ? argv[3] : "best"));
  Model model = must(Model::open(argv[1]));
  const AdapterReport added =
      must(add_adapter(model, "kjv", {.rank = 8, .target = "blocks.*.attention.{q,v}.weight"}));
  must(model.to(device));

  TrainOptions options;
  options.dims = {{"batch", kBatch}, {"seq", kSeq}};
  options.schedule.learning_rate = 0.01f;
  Trainer trainer = must(Trainer::create(model, device, options));
  const Batch held_out(text, text.size() - kBatch * kSeq - 1);
  const float before = must(trainer.evaluate(held_out.tensors));
  for (size_t step = 0; step < 40; ++step) {
    must(trainer.micro_step(Batch(text, step * kBatch * kSeq).tensors));
  }
  const float tuned = must(trainer.evaluate(held_out.tensors));
  must(set_adapter_weight(model, "kjv", 0));
  const float off = must(trainer.evaluate(held_out.tensors));
  std::printf("%s: %zu matrices, %llu bytes of adapter: loss %.4f -> %.4f, turned off %.4f\n",
              device.info().name.c_str(), added.targets.size(),
              static_cast<unsigned long long>(added.bytes), before, tuned, off);
  return tuned < before && off == before ? 0 : 1;
}
