// Writes a folder for transformers: model.safetensors, config.json and the tokenizer files.
#pragma once

#include <optional>
#include <string>

#include "bowline.h"
#include "export/tensors.h"

namespace bowline::command {

// The result of an export.
struct ExportReport {
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> notes;  // sentences
};

// Keeps one tensor in memory at a time.
// `dtype`: dtype of the float weights. Empty: they keep their dtype.
// Errors  as exported(). bad_argument: weights are quantized and `dtype` is empty, or transformers
//         does not support the head of the model. io_error: the folder cannot be written; no
//         partial folder remains.
Result<ExportReport> export_huggingface(const Model& model, const std::string& folder,
                                        std::optional<DType> dtype, bool replace);

}  // namespace bowline::command
