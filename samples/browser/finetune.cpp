// Fine-tunes a language model on a text and saves it. The page of this folder runs it in a browser.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bowline.h"
using namespace bowline;

constexpr int64_t kBatch = 4, kSeq = 64;

static std::string read_text(const char* path) {
  std::string text;
  if (std::FILE* const file = std::fopen(path, "rb"); file != nullptr) {
    char piece[4096];
    while (const size_t n = std::fread(piece, 1, sizeof piece, file)) {
      text.append(piece, n);
    }
    (void)std::fclose(file);
  }
  return text;
}

static Status finetune(const char* path, const std::string& text, const char* out, int steps,
                       int threads) {
  DeviceOptions device_options;
  device_options.threads = threads;
  BOWLINE_TRY_ASSIGN(Model model, Model::open(path));
  BOWLINE_TRY_ASSIGN(const Device device, Device::open("cpu", device_options));
  BOWLINE_TRY(model.to(device));
  TrainOptions options;
  options.dims = {{"batch", kBatch}, {"seq", kSeq}};
  options.schedule.learning_rate = 0.001f;
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
  std::printf("device: %s\n", device.info().description.c_str());

  // Windows of the text; the label of a byte is the next one.
  constexpr int64_t kShape[] = {kBatch, kSeq};
  std::vector<int32_t> tokens(kBatch * kSeq), labels(kBatch * kSeq);
  const Tensor batch[] = {{"tokens", DType::i32, kShape, tokens.data()},
                          {"labels", DType::i32, kShape, labels.data()}};
  for (int step = 1; step <= steps; ++step) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const size_t at = (static_cast<size_t>(step) * tokens.size() + i) % (text.size() - 1);
      tokens[i] = static_cast<unsigned char>(text[at]);
      labels[i] = static_cast<unsigned char>(text[at + 1]);
    }
    const auto start = std::chrono::steady_clock::now();
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report, trainer.micro_step(batch));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::printf("step %d loss %.9g ms %.2f\n", step, static_cast<double>(report->loss),
                time.count());
    std::fflush(stdout);
  }
  return model.save(out);
}

int main(int argc, char** argv) {
  const int steps = argc > 4 ? std::atoi(argv[4]) : 40;
  const std::string text = argc > 3 ? read_text(argv[2]) : "";
  if (text.size() < 2 || steps < 1) {
    std::fprintf(stderr, "usage: browser_finetune MODEL TEXT OUT [STEPS [THREADS]]\n");
    return 2;
  }
  const Status status = finetune(argv[1], text, argv[3], steps, argc > 5 ? std::atoi(argv[5]) : 0);
  if (!status.ok()) {
    std::fprintf(stderr, "browser_finetune: %s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
