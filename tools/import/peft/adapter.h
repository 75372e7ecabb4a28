// Reads and writes adapters of the peft package: a folder with adapter_config.json and
// adapter_model.safetensors.
//
// Source  Hugging Face, PEFT, "LoRA" and "PEFT checkpoint format".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::peft {

// True if the path is a folder with an adapter_config.json.
bool is_folder(const std::string& path);

// Adds the adapter of a folder to its base model. The parameters must have their Hugging Face
// names. After a failure the model is unchanged.
// Errors  bad_file: the files are inconsistent or damaged, or belong to another model; the message
//         has the names and shapes.
//         unsupported: a setting that Bowline adapters do not support (DoRA, rank_pattern,
//         modules_to_save except for a classification head, ...); the message names it.
//         bad_argument: as add_adapter().
Result<AdapterReport> read_adapter(Model& model, const std::string& folder, std::string_view name);

// The file with the factors.
inline constexpr std::string_view kWeightsFile = "adapter_model.safetensors";

struct FolderFile {
  std::string name;
  std::vector<std::vector<std::byte>> pieces;  // consecutive parts of the content
};
struct AdapterFolder {
  size_t tensors = 0;
  uint64_t bytes = 0;              // of the tensors
  std::vector<FolderFile> files;   // the config is the last file
  std::vector<std::string> notes;  // sentences about differences in peft
};
// Converts an adapter of a model to a peft folder. The scale of the adapter becomes lora_alpha. A
// changed classification head is written whole, with the change, to modules_to_save.
// Errors  bad_argument: the model has no such adapter; peft knows the modules of the model by other
//         names; or the adapter changes a parameter that is not a module in peft, has a full-rank
//         change outside of the head, or changes only the head.
Result<AdapterFolder> adapter_folder(const Model& model, std::string_view name);

}  // namespace bowline::peft
