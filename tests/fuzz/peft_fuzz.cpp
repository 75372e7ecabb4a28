// Arbitrary text as adapter_config.json and arbitrary bytes as adapter_model.safetensors, for a
// Llama, a GPT-2 or a RoBERTa with classes. The input is rejected with a status and the model stays
// unchanged, or the adapter runs, is written, read again and removed.
//
// An input is a byte (seven bits modulo 3: the model; the eighth: it runs), the length of the
// config (two bytes, little endian), the config, and the file.
#include "bowline_import.h"
#include "fuzz/imported_model.h"
#include "peft/adapter.h"

namespace {

using namespace bowline;
using test::accepted;

bool reached_the_end = false;

Status write_and_read(const Model& model, Model& again, const test::Folder& folder) {
  const auto written = peft::adapter_folder(model, "ad");
  if (!accepted(written.status())) {  // every adapter that was read has a module
    __builtin_trap();
  }
  for (const peft::FolderFile& file : written.value().files) {
    std::vector<std::byte> bytes;
    for (const auto& piece : file.pieces) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    folder.write(file.name, bytes);
  }
  return import_adapter(again, folder.path(), "ad").status();
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static test::Base bases[] = {test::Base("llama"), test::Base("gpt2"), test::Base("roberta")};
  static const test::Folder folder;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size < 3) {
    return 0;
  }
  const size_t length = std::min<size_t>(data[1] + 256u * data[2], size - 3);
  folder.write("adapter_config.json", bytes.subspan(3, length));
  folder.write("adapter_model.safetensors", bytes.subspan(3 + length));
  const bool passed = test::takes_adapter(
      bases[data[0] % 128 % 3], data[0] >= 128,
      [&](Model& model) { return import_adapter(model, folder.path(), "ad").status(); },
      [&](const Model& model, Model& again) { return write_and_read(model, again, folder); });
  reached_the_end = reached_the_end || passed;
  return 0;
}
