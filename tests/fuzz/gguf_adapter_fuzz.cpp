// Arbitrary bytes as a GGUF adapter file for a Llama or a GPT-2. The file is rejected with a status
// and the model stays unchanged, or the adapter runs, is written, read again and removed.
//
// An input is a byte (odd: GPT-2; from 128 on: it runs) and the file.
#include "bowline_import.h"
#include "fuzz/imported_model.h"
#include "peft/gguf_adapter.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

Status write_and_read(const Model& model, Model& again) {
  static const test::Folder folder;
  const std::string path = folder.path("adapter.gguf");
  const Status written = peft::write_gguf_adapter(model, "ad", path).status();
  return written.ok() ? import_adapter(again, path, "ad").status() : written;
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static test::Base bases[] = {test::Base("llama"), test::Base("gpt2")};
  const test::MemoryFile file;
  if (size < 1 || !file.write(std::as_bytes(std::span(data, size)).subspan(1))) {
    return 0;
  }
  const bool passed = test::takes_adapter(
      bases[data[0] & 1], data[0] >= 128,
      [&](Model& model) { return import_adapter(model, file.path(), "ad").status(); },
      write_and_read);
  reached_the_end = reached_the_end || passed;
  return 0;
}
