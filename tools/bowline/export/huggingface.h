// Writes a folder as transformers does: model.safetensors, config.json and the files of the
// tokenizer.
#pragma once

#include <optional>
#include <string>

#include "bowline.h"
#include "export/tensors.h"

namespace bowline::command {

// What is said of an export.
struct ExportReport {
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> notes;  // sentences
};

// One tensor is in memory at a time. `dtype`: of the float weights; none: as the model has them.
// Errors  bad_argument: weights are encoded
// and no dtype says what they become; the model has a head that transformers has not; as
// exported(). io_error: nothing is left.
Result<ExportReport> export_huggingface(const Model& model, const std::string& folder,
                                        std::optional<DType> dtype, bool replace);

}  // namespace bowline::command
