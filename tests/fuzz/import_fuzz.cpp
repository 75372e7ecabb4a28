// Arbitrary bytes as a file, or as a Hugging Face folder, for import_model(): rejected with a
// status, or a model that can be described and saved. Never a crash, and never an exception.
//
// The first byte of an input selects the options: 1: a folder instead of a file; 2: other ties;
// 4: a classification head; 8: bf16; 16: a skeleton; 32: a dynamic batch. The other bytes are the
// file. Of a folder they are the lengths of config.json and tokenizer.json (two bytes each, little
// endian), both texts, and model.safetensors.
#include "bowline_import.h"
#include "fuzz/files.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

bool succeeded(const Status& status) {
  if (status.code() == Code::internal || (!status.ok() && status.message().empty())) {
    __builtin_trap();
  }
  return status.ok();
}

ImportOptions options_for(ImportFormat format, unsigned bits) {
  ImportOptions out;
  if (format == ImportFormat::onnx) {
    out.onnx.tie_equal = (bits & 2) != 0;
    out.onnx.batch_dim = (bits & 32) != 0 ? "batch" : "";
    return out;
  }
  out.text.skeleton = (bits & 16) != 0;
  out.text.tie_equal = (bits & 2) != 0 && !out.text.skeleton;
  if ((bits & 4) != 0 && !out.text.skeleton) {
    out.text.task = ImportTask::classify;
    out.text.labels = {"a", "b", "c"};
  }
  if ((bits & 8) != 0) {
    out.text.dtype = DType::bf16;
  }
  return out;
}

void import(const std::string& path, unsigned bits) {
  const auto format = import_format(path);
  if (!succeeded(format.status())) {
    return;
  }
  const auto imported = import_model(path, options_for(format.value(), bits));
  if (!succeeded(imported.status())) {
    return;
  }
  const Model& model = imported.value().model;
  const auto info = model.describe();
  if (!succeeded(info.status())) {
    return;
  }
  for (const StorageInfo& s : info.value().storages) {
    if (!s.empty) {
      (void)succeeded(model.storage_bytes(s.tie).status());
    }
  }
  (void)imported.value().not_finite();
  reached_the_end = true;
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const unsigned bits = data[0];
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if ((bits & 1) == 0) {
    const test::MemoryFile file;
    if (file.write(bytes)) {
      import(file.path(), bits);
    }
    return 0;
  }
  if (bytes.size() < 4) {
    return 0;
  }
  static const test::Folder folder;
  const size_t config = std::min<size_t>(data[1] + 256u * data[2], bytes.size() - 4);
  const size_t tokenizer = std::min<size_t>(data[3] + 256u * data[4], bytes.size() - 4 - config);
  folder.write("config.json", bytes.subspan(4, config));
  folder.write("tokenizer.json", bytes.subspan(4 + config, tokenizer));
  folder.write("model.safetensors", bytes.subspan(4 + config + tokenizer));
  import(folder.path(), bits);
  return 0;
}
