// Writes the golden file of this version: make_golden PATH. Released ones are never written again.
#include <cstdio>

#include "golden/golden.h"
#include "model/tied_model.h"
#include "model/write.h"

namespace bowline::test {
namespace {

void add_tensor(std::vector<std::unique_ptr<file::TensorT>>& to,
                std::vector<model::Payload>& payloads, const char* name, file::DType dtype,
                std::vector<int64_t> shape, std::span<const std::byte> bytes) {
  auto tensor = std::make_unique<file::TensorT>();
  tensor->name = name;
  tensor->dtype = dtype;
  tensor->shape = std::move(shape);
  tensor->range = std::make_unique<file::RangeT>();
  payloads.push_back({tensor->range.get(), bytes.size(), [bytes](auto&) { return bytes; }});
  to.push_back(std::move(tensor));
}

Status make(const std::string& path) {
  Model model = make_golden_model();
  BOWLINE_TRY(model.save(path));
  BOWLINE_ASSIGN(const Device device, Device::open("cpu"));
  BOWLINE_TRY(model.to(device));
  GoldenCase golden;
  const BoundDim dims[] = {{"batch", 3}, {"seq", 4}};
  const int64_t in_shape[] = {3, 4}, out_shape[] = {3, 4, 11};
  const Tensor in{"tokens", DType::i32, in_shape, golden.tokens.data()};
  const Tensor out{"logits", DType::f32, out_shape, golden.logits.data()};
  BOWLINE_ASSIGN(Session session, Session::create(model, device, "forward", dims));
  BOWLINE_TRY(session.run({&in, 1}, {&out, 1}));

  // The saved tables again, with the case as a self test.
  BOWLINE_ASSIGN(const auto file, model::VerifiedFile::open(path));
  const std::unique_ptr<file::ModelT> tables(file->tables().UnPack());
  std::vector<model::Payload> payloads;
  for (auto& row : tables->storages) {
    if (row->range) {
      const auto bytes = file->range(*row->range);
      payloads.push_back(
          {row->range.get(), bytes->length, [bytes](auto&) { return bytes->bytes(); }});
    }
  }
  auto test = std::make_unique<file::SelfTestT>();
  test->graph = "forward";
  test->relative_tolerance = 1e-5f;
  add_tensor(test->inputs, payloads, "tokens", file::DType::i32, {3, 4},
             std::as_bytes(std::span(golden.tokens)));
  add_tensor(test->outputs, payloads, "logits", file::DType::f32, {3, 4, 11},
             std::as_bytes(std::span(golden.logits)));
  tables->self_tests.push_back(std::move(test));
  return model::write_file(path, *tables, payloads, [](const auto&) { return Status(); });
}

}  // namespace
}  // namespace bowline::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::puts("make_golden PATH");
    return 2;
  }
  const bowline::Status status = bowline::test::make(argv[1]);
  std::puts(status.ok() ? "written" : status.message().c_str());
  return status.ok() ? 0 : 1;
}
