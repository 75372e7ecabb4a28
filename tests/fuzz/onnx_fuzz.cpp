// A byte stream as an ONNX graph (onnx_graphs.h), or as a file: rejected with a status that names
// the reason, or a model. Never a crash. Bits of the first byte: 0 selects a file, 1 a dynamic
// batch, 2 merging equal layers to a Repeat.
#include "fuzz/onnx_graphs.h"
#include "onnx/import.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

bool succeeded(const Status& status) {
  if (status.code() == Code::internal || (!status.ok() && status.message().empty())) {
    __builtin_trap();
  }
  return status.ok();
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::span<const uint8_t> rest(data + 1, size - 1);
  const std::string bytes = data[0] % 2 == 1 ? std::string(rest.begin(), rest.end())
                                             : test::GraphMaker(rest).make().SerializeAsString();
  const auto model = onnx::parse_model(bytes);
  onnx::ImportOptions options;
  options.batch_dim = (data[0] & 2) != 0 ? "batch" : "";
  options.tie_equal = (data[0] & 4) != 0;
  if (succeeded(model.status()) &&
      succeeded(onnx::import_graph(*model.value(), "/nowhere", options).status())) {
    reached_the_end = true;
  }
  return 0;
}
