// Adapters as the package peft writes them: a folder with adapter_config.json and
// adapter_model.safetensors.
//
// Source  Hugging Face, PEFT, "LoRA" and "PEFT checkpoint format".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::peft {

// Whether a path is a folder with an adapter_config.json.
bool is_folder(const std::string& path);

// Adds the adapter of a folder to the model that it is for, whose parameters have the names of
// Hugging Face. The model is unchanged
// after a failure. Errors  bad_file: the files contradict each other, are damaged, or are of
// another model: names and shapes are in the
// message. unsupported: the config asks for what an adapter of Bowline has not (DoRA, rank_pattern,
// modules_to_save but for the head of a classifier, ...), by name. bad_argument: as
// add_adapter().
Result<AdapterReport> read_adapter(Model& model, const std::string& folder, std::string_view name);

// The file of such a folder that has the factors.
inline constexpr std::string_view kWeightsFile = "adapter_model.safetensors";

struct FolderFile {
  std::string name;
  std::vector<std::vector<std::byte>> pieces;  // one behind the other
};
struct AdapterFolder {
  size_t tensors = 0;
  uint64_t bytes = 0;              // of the tensors
  std::vector<FolderFile> files;   // the config is the last one
  std::vector<std::string> notes;  // sentences: what the folder does not mean to peft
};
// An adapter of a model as such a folder. What the adapter is multiplied by is in its lora_alpha.
// The head of a classifier is in
// modules_to_save, with what the adapter adds to it, as peft wants it. Errors  bad_argument: there
// is no such adapter; it changes what peft
// has no module for, something but the head wholly, or such a head alone.
Result<AdapterFolder> adapter_folder(const Model& model, std::string_view name);

}  // namespace bowline::peft
