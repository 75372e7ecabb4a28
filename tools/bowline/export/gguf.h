// Writes a model as GGUF: names, orders of rows and keys of llama.cpp.
#pragma once

#include <optional>
#include <string>

#include "bowline.h"
#include "export/huggingface.h"

namespace bowline::command {

// One tensor is in memory at a time. `dtype`: of the matrices, codes too; none: as the model has
// them (codes of q8_0 and q4_0 bit for bit).
// Vectors are F32, as llama.cpp wants them. Errors  bad_argument: an architecture, a setting or an
// encoding that GGUF has not; as exported().
// io_error: nothing is left.
Result<ExportReport> export_gguf(const Model& model, const std::string& path,
                                 std::optional<DType> dtype, bool replace);

}  // namespace bowline::command
