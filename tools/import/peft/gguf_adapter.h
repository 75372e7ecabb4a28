// Reads and writes adapters of llama.cpp: a GGUF file with general.type "adapter", and
// <tensor>.lora_a and <tensor>.lora_b for each changed tensor.
//
// Source  convert_lora_to_gguf.py and src/llama-adapter.cpp of llama.cpp.
#pragma once

#include <string>
#include <string_view>

#include "bowline.h"
#include "peft/adapter.h"

namespace bowline::peft {

// True if the path is a GGUF file with an adapter. Errors  as gguf::File::open().
Result<bool> is_gguf_adapter(const std::string& path);

// As read_adapter(). The model must be imported, because its config.json has the number of heads.
// All factors have the same rank.
Result<AdapterReport> read_gguf_adapter(Model& model, const std::string& path,
                                        std::string_view name);

struct WrittenAdapter {
  size_t tensors = 0;
  uint64_t bytes = 0;
};
// Writes an adapter of a model to a GGUF file. The file appears whole or not at all.
// Errors  as adapter_folder(); bad_argument: the architecture is not supported in GGUF; io_error.
Result<WrittenAdapter> write_gguf_adapter(const Model& model, std::string_view name,
                                          const std::string& path);

}  // namespace bowline::peft
