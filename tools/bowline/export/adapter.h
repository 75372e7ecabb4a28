// Forms that other tools have for an adapter alone.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "export/huggingface.h"

namespace bowline::command {

// "peft", a folder, and "gguf-lora", a file.
std::span<const std::string_view> adapter_forms();
bool is_adapter_form(std::string_view form);

// Writes the one adapter of the model; what was at `path` goes whole. Errors  bad_argument: it has
// none or several; as
// peft::adapter_folder(), peft::write_gguf_adapter() and Output::begin().
Result<ExportReport> export_adapter(const Model& model, std::string_view form,
                                    const std::string& path, bool replace);

}  // namespace bowline::command
