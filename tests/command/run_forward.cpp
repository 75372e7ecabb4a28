// Runs the entry point "forward" of a model on raw i32 tokens [2, 16] with the public API, and
// writes the raw logits.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "bowline.h"

using namespace bowline;

namespace {

Status run(const char* path, const char* tokens_path, const char* out_path) {
  const Result<Device> device = Device::open("cpu");
  if (!device.ok()) {
    return device.status();
  }
  Result<Model> model = Model::open(path);
  if (!model.ok()) {
    return model.status();
  }
  if (Status s = model.value().to(device.value()); !s.ok()) {
    return s;
  }
  const BoundDim dims[] = {{"batch", 2}, {"seq", 16}};
  Result<Session> session = Session::create(model.value(), device.value(), "forward", dims);
  if (!session.ok()) {
    return session.status();
  }
  std::ifstream in(tokens_path, std::ios::binary);
  std::vector<char> tokens(std::istreambuf_iterator<char>(in), {});
  std::vector<char> logits(2 * 16 * 256 * sizeof(float));
  const std::vector<int64_t> tokens_shape = {2, 16};
  const std::vector<int64_t> logits_shape = {2, 16, 256};
  const Tensor inputs[] = {{"tokens", DType::i32, tokens_shape, tokens.data()}};
  const Tensor outputs[] = {{"logits", DType::f32, logits_shape, logits.data()}};
  if (Status s = session.value().run(inputs, outputs); !s.ok()) {
    return s;
  }
  std::ofstream(out_path, std::ios::binary)
      .write(logits.data(), static_cast<std::streamsize>(logits.size()));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const Status s = argc == 4 ? run(argv[1], argv[2], argv[3])
                             : Status(Code::bad_argument, "Three paths, please.");
  if (!s.ok()) {
    std::fprintf(stderr, "%s\n", s.message().c_str());
  }
  return s.ok() ? 0 : 1;
}
