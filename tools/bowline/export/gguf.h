// Writes a model as GGUF, with the names, row orders and keys of llama.cpp.
#pragma once

#include <optional>
#include <string>

#include "bowline.h"
#include "export/huggingface.h"

namespace bowline::command {

// Keeps one tensor in memory at a time.
// `dtype`: dtype of all matrices; quantized matrices are dequantized. Empty: matrices keep their
// dtype, and block formats such as q4_k keep their bytes. Vectors become F32, as llama.cpp expects.
// Errors  as exported(). bad_argument: GGUF does not support the architecture, a setting or an
//         encoding. io_error: the file cannot be written; no partial file remains.
Result<ExportReport> export_gguf(const Model& model, const std::string& path,
                                 std::optional<DType> dtype, bool replace);

}  // namespace bowline::command
