// Adapters as llama.cpp has them: a GGUF file of general.type "adapter" with <tensor>.lora_a and
// <tensor>.lora_b for each tensor of the base.
//
// Source  convert_lora_to_gguf.py and src/llama-adapter.cpp of llama.cpp.
#pragma once

#include <string>
#include <string_view>

#include "bowline.h"
#include "peft/adapter.h"

namespace bowline::peft {

// Whether a path is a GGUF file of an adapter. Errors  as gguf::File::open().
Result<bool> is_gguf_adapter(const std::string& path);

// As read_adapter(), of a model that was imported: its config.json says how many heads it has. The
// file has one rank.
Result<AdapterReport> read_gguf_adapter(Model& model, const std::string& path,
                                        std::string_view name);

struct WrittenAdapter {
  size_t tensors = 0;
  uint64_t bytes = 0;
};
// An adapter of a model as such a file, which appears whole or not at all. Errors  as
// adapter_folder(); bad_argument: the architecture has
// no names in GGUF; io_error.
Result<WrittenAdapter> write_gguf_adapter(const Model& model, std::string_view name,
                                          const std::string& path);

}  // namespace bowline::peft
