// The flags of `bowline import`, and one function per kind of input.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bowline_import.h"
#include "common/flag_uses.h"

namespace bowline::command {

struct ImportFlags {
  std::string model;
  std::string out;
  std::string format = "text";
  bool force = false;
  ImportOptions options;  // without what options_of() reads from the following texts
  bool tie_equal = false;
  // Flags for ONNX.
  std::vector<std::string> dims;
  std::vector<std::string> shapes;
  std::vector<std::string> given;
  // Flags for adapters.
  std::string base;
  std::string name = "lora";
  // Flags for text models.
  std::string task;
  std::string labels;
  std::string dtype;
  std::string kv_dtype = "f32";
  FlagUses uses;  // which flags are for which kind of input
};

// Returns the options for a source of the format.
// Errors  bad_argument: a flag has another form. Errors of reading --labels.
Result<ImportOptions> options_of(const ImportFlags& flags, ImportFormat kind);

// Each function writes --out and prints a report.
Status import_source(const ImportFlags& flags, ImportFormat kind);
Status import_lora(const ImportFlags& flags);

// Prints the report of a model, as text or JSON.
void print_report(const ImportFlags& flags, const ImportedModel& imported, const ModelInfo& info);
void print_onnx_report(const ImportFlags& flags, const ImportedModel& imported,
                       const ModelInfo& info);

// Return parts of the reports as JSON.
nlohmann::json described(const EntryPointInfo& entry);
nlohmann::json described(const std::vector<NotFiniteTensor>& tensors);

}  // namespace bowline::command
