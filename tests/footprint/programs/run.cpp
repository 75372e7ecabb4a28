// The smallest program that runs a model: logits of samples/finetune_text/base.bowline.
#include <bowline.h>

using namespace bowline;

static Status run(const char* path, const char* device_name) {
  constexpr int64_t kShape[] = {1, 8};
  BOWLINE_TRY_ASSIGN(Model model, Model::open(path));
  BOWLINE_TRY_ASSIGN(const Device device, Device::open(device_name));
  BOWLINE_TRY(model.to(device));
  const BoundDim dims[] = {{"batch", kShape[0]}, {"seq", kShape[1]}};
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "forward", dims));
  static int32_t tokens[8];
  static float logits[8 * 256];
  for (int32_t i = 0; i < 8; ++i) {
    tokens[i] = 'a' + i % 26;
  }
  const Tensor inputs[] = {{"tokens", DType::i32, kShape, tokens}};
  const Tensor outputs[] = {{"logits", DType::f32, {kShape[0], kShape[1], 256}, logits}};
  BOWLINE_TRY(session.run(inputs, outputs));
  double sum = 0;
  for (const float logit : logits) {
    sum += static_cast<double>(logit);
  }
  std::printf("sum of logits %.3f\n", sum);
  return {};
}

int main(int argc, char** argv) {
  const Status status =
      argc == 3 ? run(argv[1], argv[2]) : Status(Code::bad_argument, "usage: run MODEL DEVICE");
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
