// Tensors of safetensors: a length of 8 bytes, a header in JSON, and the bytes, which are read
// where they lie.
//
// Source  Hugging Face, safetensors, "Format".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "source/file.h"
#include "source/source.h"

namespace bowline::huggingface {

struct Safetensors {
  std::vector<import::SourceTensor> tensors;  // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Errors  bad_file: the header is cut or too long, is no JSON, has a tensor twice, or one whose
//         dtype is not known, whose shape does not
// give its bytes, or whose bytes lie outside the file or partly in those of another one. Two
// tensors with the same bytes share them.
Result<Safetensors> read_safetensors(const std::string& path);

}  // namespace bowline::huggingface
