// Reads safetensors files: a header length of 8 bytes, a JSON header, and the values. The values
// are read on demand.
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
  std::vector<import::SourceTensor> tensors;  // in file order
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads the header. Two tensors with the same bytes share their values.
// Errors  bad_file: the header is truncated, too long or not valid JSON; a tensor occurs twice, has
//         an unknown dtype or a size that does not match its shape, is outside of the file, or
//         overlaps another tensor partly. unsupported: Bowline lacks a dtype.
Result<Safetensors> read_safetensors(const std::string& path);

}  // namespace bowline::huggingface
