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

// Writes the one adapter of the model. Errors  bad_argument: it has none or several; as peft::write_adapter() and
// peft::write_gguf_adapter().
Result<ExportReport> export_adapter(const Model& model, std::string_view form,
                                    const std::string& path, bool replace);

}  // namespace bowline::command
