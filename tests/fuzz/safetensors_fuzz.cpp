// Arbitrary text as config.json and arbitrary bytes as a safetensors file: rejected with a status,
// or a model that can be saved. Never a crash, and no allocation beyond a small multiple of the
// file size.
//
// An input is the length of the config (two bytes, little endian), the config, and the file.
#include <cstring>

#include "architectures/architecture.h"
#include "fuzz/files.h"
#include "huggingface/safetensors.h"
#include "source/json.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

bool succeeded(const Status& status) {
  if (status.code() == Code::internal) {
    __builtin_trap();
  }
  return status.ok();
}

// Every parameter has all of its bytes.
void read_all(const Model& model) {
  const auto info = model.describe();
  if (!succeeded(info.status())) {
    return;
  }
  for (const StorageInfo& s : info.value().storages) {
    if (!s.empty && succeeded(model.storage_bytes(s.tie).status())) {
      reached_the_end = true;
    }
  }
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size < 2) {
    return 0;
  }
  const size_t length = std::min<size_t>(data[0] + 256u * data[1], size - 2);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, length);
  const test::MemoryFile file;
  if (!file.write(bytes.subspan(2 + length))) {
    return 0;
  }
  auto tensors = huggingface::read_safetensors(file.path());
  auto config = import::parse_json("config.json", text);
  if (!succeeded(tensors.status()) || !succeeded(config.status())) {
    return 0;
  }
  import::Source source;
  source.format = "Hugging Face";
  source.config = std::move(config).value();
  source.tensors = std::move(tensors).value().tensors;
  TextImportOptions options;
  const auto built = build_model(source, options);
  if (succeeded(built.status())) {
    read_all(built.value().model);
  }
  options.task = ImportTask::classify;
  options.labels = {"a", "b", "c"};
  options.dtype = DType::bf16;
  (void)succeeded(build_model(source, options).status());
  return 0;
}
