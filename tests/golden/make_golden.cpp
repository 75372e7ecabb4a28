// Writes a golden file of this version: make_golden tied_lm|decoder PATH. Released files are never
// written again.
#include <cstdio>
#include <cstring>

#include "core/encoding.h"
#include "golden/golden.h"
#include "model/encoding.h"
#include "model/write.h"

namespace bowline::test {
namespace {

// A storage that no operator reads yet. Its description and its quantized values must be kept.
void add_codes(file::ModelT& tables, std::vector<model::Payload>& payloads,
               std::vector<std::byte>& codes) {
  const Encoding int8{find_encoding_form("int8"), 4, -1, DType::f16, true};
  const Shape shape{3, 8};
  std::vector<float> numbers;
  for (int i = 0; i < 24; ++i) {
    numbers.push_back(static_cast<float>(i * i % 17) / 4 - 2);
  }
  codes.resize(int8.bytes(DType::f32, shape));
  int8.encode(numbers, DType::f32, shape, codes);
  auto row = std::make_unique<file::StorageT>();
  row->shape = {3, 8};
  row->encoding = model::table_of(int8);
  row->role = file::Role::constant;
  row->trainable = false;
  row->range = std::make_unique<file::RangeT>();
  payloads.push_back(
      {row->range.get(), codes.size(), [&codes](uint64_t first, uint64_t count, auto&) {
         return std::span<const std::byte>(codes).subspan(first, count);
       }});
  auto parameter = std::make_unique<file::ParameterT>();
  parameter->name = "codes";
  parameter->tie = static_cast<uint32_t>(tables.storages.size());
  tables.storages.push_back(std::move(row));
  tables.parameters.push_back(std::move(parameter));
}

void add_tensors(std::vector<std::unique_ptr<file::TensorT>>& to,
                 std::vector<model::Payload>& payloads, std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors) {
    auto tensor = std::make_unique<file::TensorT>();
    tensor->name = t.name;
    tensor->dtype = static_cast<file::DType>(t.dtype);
    tensor->shape.assign(t.shape.begin(), t.shape.end());
    tensor->range = std::make_unique<file::RangeT>();
    const std::span bytes(static_cast<const std::byte*>(t.data),
                          static_cast<uint64_t>(Shape(t.shape).elements()) * size_of(t.dtype));
    payloads.push_back(
        {tensor->range.get(), bytes.size(),
         [bytes](uint64_t first, uint64_t count, auto&) { return bytes.subspan(first, count); }});
    to.push_back(std::move(tensor));
  }
}

// Writes the saved tables again, with the cases of `golden` as self tests.
Status make(GoldenModel golden, const std::string& path) {
  BOWLINE_TRY(golden.model.save(path));
  BOWLINE_TRY_ASSIGN(const Device device, Device::open("cpu"));
  BOWLINE_TRY(golden.model.to(device));
  BOWLINE_TRY_ASSIGN(const auto file, model::VerifiedFile::open(path));
  const std::unique_ptr<file::ModelT> tables(file->tables().UnPack());
  std::vector<model::Payload> payloads;
  for (auto& row : tables->storages) {
    if (row->range) {
      const auto bytes = file->range(*row->range);
      payloads.push_back(
          {row->range.get(), bytes->length, [bytes](uint64_t first, uint64_t count, auto& scratch) {
             return bytes->read(first, count, scratch);
           }});
    }
  }
  std::vector<std::byte> codes;
  if (golden.with_codes) {
    add_codes(*tables, payloads, codes);
  }
  for (GoldenCase& c : golden.cases) {
    BOWLINE_TRY_ASSIGN(Session session,
                       Session::create(golden.model, device, c.entry_point, c.dims));
    BOWLINE_TRY(session.run(c.inputs, c.outputs));
    auto test = std::make_unique<file::SelfTestT>();
    test->graph = c.entry_point;
    test->relative_tolerance = 1e-5f;
    add_tensors(test->inputs, payloads, c.inputs);
    add_tensors(test->outputs, payloads, c.outputs);
    tables->self_tests.push_back(std::move(test));
  }
  return model::write_file(path, *tables, payloads, [](const auto&) { return Status(); });
}

}  // namespace
}  // namespace bowline::test

int main(int argc, char** argv) {
  const bool tied = argc == 3 && std::strcmp(argv[1], "tied_lm") == 0;
  if (!tied && !(argc == 3 && std::strcmp(argv[1], "decoder") == 0)) {
    std::puts("make_golden tied_lm|decoder PATH");
    return 2;
  }
  const bowline::Status status = bowline::test::make(
      tied ? bowline::test::golden_tied_lm() : bowline::test::golden_decoder(), argv[2]);
  std::puts(status.ok() ? "written" : status.message().c_str());
  return status.ok() ? 0 : 1;
}
