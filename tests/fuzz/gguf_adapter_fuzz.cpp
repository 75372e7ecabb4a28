// Any bytes as a GGUF file of an adapter, for a Llama or a GPT-2: refused with a status, and the model is as it was; or an adapter that
// runs, is written and read again, and is removed.
//
// An input is a byte (odd: GPT-2; from 128 on: it runs) and the file.
#include "fuzz/imported_model.h"
#include "peft/gguf_adapter.h"

namespace {

using namespace bowline;
using test::accepted;

bool reached_the_end = false;

void use(Model& model, const test::Base& base, bool runs) {
  static const test::Folder folder;
  const bool ran = runs && test::runs(model);
  const std::string path = folder.path("adapter.gguf");
  const bool is_written = accepted(peft::write_gguf_adapter(model, "ad", path).status());
  Model again = base.model.clone().value();
  const bool is_read = is_written && accepted(peft::read_gguf_adapter(again, path, "ad").status());
  const bool is_removed = accepted(model.remove_adapter("ad")) &&
                          test::parameters(model) == test::parameters(base.model);
  reached_the_end = reached_the_end || (ran && is_read && is_removed);
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::Base bases[] = {test::Base("llama"), test::Base("gpt2")};
  const test::MemoryFile file;
  if (size < 1 || !file.write(std::as_bytes(std::span(data, size)).subspan(1))) {
    return 0;
  }
  const test::Base& base = bases[data[0] & 1];
  Model model = base.model.clone().value();
  if (accepted(peft::read_gguf_adapter(model, file.path(), "ad").status())) {
    use(model, base, data[0] >= 128);
  } else if (test::listing(model) != base.before) {
    __builtin_trap();
  }
  return 0;
}
