// The flags of `bowline import`, and one function per kind of input.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "architectures/architecture.h"
#include "common/flag_uses.h"
#include "onnx/import.h"

namespace bowline::command {

// Sets of tasks are bit masks.
constexpr unsigned bit_of(import::Task task) { return 1u << static_cast<unsigned>(task); }
constexpr unsigned kGenerates = bit_of(import::Task::generate);
constexpr unsigned kClassifies = bit_of(import::Task::classify);
constexpr unsigned kEmbeds = bit_of(import::Task::embed);
inline constexpr InputKind kTasks[] = {
    {kGenerates, "a model for the task generate"},
    {kClassifies, "a model for the task classify"},
    {kEmbeds, "a model for the task embed"},
};

struct ImportFlags {
  std::string model;
  std::string out;
  std::string format = "text";
  bool force = false;
  // Flags for ONNX.
  onnx::ImportOptions onnx;  // without what import_onnx() reads from the following texts
  std::vector<std::string> dims;
  std::vector<std::string> shapes;
  std::vector<std::string> given;
  std::vector<std::string> trainable;
  std::vector<std::string> freeze;
  // Flags for adapters.
  std::string base;
  std::string name = "lora";
  // Flags for text models.
  import::BuildOptions build;  // without what import_text_model() reads from the following texts
  std::string task;
  std::string labels;
  std::string dtype;
  std::string kv_dtype = "f32";
  FlagUses uses;       // which flags are for which Kind
  FlagUses task_uses;  // and for which tasks
};

// Each function writes --out and prints a report.
Status import_onnx(const ImportFlags& flags);
Status import_text_model(const ImportFlags& flags, const import::Source& source);
Status import_adapter(const ImportFlags& flags);

// Prints the report of a text model, as text or JSON.
void print_report(const ImportFlags& flags, const import::Source& source,
                  const import::Built& built, const ModelInfo& info);

// Return parts of the reports as JSON.
nlohmann::json described(const EntryPointInfo& entry);
nlohmann::json described(const std::vector<import::NotFinite>& tensors);

}  // namespace bowline::command
