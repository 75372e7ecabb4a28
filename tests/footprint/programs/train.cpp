// The smallest program that trains a model, and saves it: samples/finetune_text/base.bowline.
#include <bowline.h>

using namespace bowline;

static Status train(const char* path, const char* device_name, const char* out) {
  constexpr int64_t kShape[] = {2, 32};
  BOWLINE_TRY_ASSIGN(Model model, Model::open(path));
  BOWLINE_TRY_ASSIGN(const Device device, Device::open(device_name));
  BOWLINE_TRY(model.to(device));
  TrainOptions options;
  options.dims = {{"batch", kShape[0]}, {"seq", kShape[1]}};
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
  static int32_t tokens[64];
  static int32_t labels[64];
  for (int32_t i = 0; i < 64; ++i) {
    tokens[i] = 'a' + i % 26;
    labels[i] = 'a' + (i + 1) % 26;
  }
  const Tensor batch[] = {{"tokens", DType::i32, kShape, tokens},
                          {"labels", DType::i32, kShape, labels}};
  for (int step = 0; step < 20; ++step) {
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report, trainer.micro_step(batch));
    if (step % 19 == 0) {
      std::printf("loss %.4f\n", static_cast<double>(report->loss));
    }
  }
  return model.save(out);
}

int main(int argc, char** argv) {
  const Status status = argc == 4 ? train(argv[1], argv[2], argv[3])
                                  : Status(Code::bad_argument, "usage: train MODEL DEVICE OUT");
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
