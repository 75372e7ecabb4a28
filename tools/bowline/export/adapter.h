// Exports adapters in formats of other tools.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "export/huggingface.h"

namespace bowline::command {

// "peft" (a folder) and "gguf-lora" (a file).
std::span<const std::string_view> adapter_forms();
bool is_adapter_form(std::string_view form);

// Writes the only adapter of the model to `path`.
// Errors  as peft::adapter_folder(), peft::write_gguf_adapter() and Output::begin(). bad_argument:
//         the model has no adapter or several.
Result<ExportReport> export_adapter(const Model& model, std::string_view form,
                                    const std::string& path, bool replace);

}  // namespace bowline::command
