// Builds a model from a source. Each architecture has its own file, which the build finds.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "bowline_import.h"
#include "source/finite.h"
#include "source/keys.h"
#include "source/source.h"

namespace bowline::import {

struct Built {
  Model model;
  ImportTask task = ImportTask::generate;
  std::vector<ImportedTensor> tensors;
  std::vector<std::string> notes;  // sentences
  FiniteCheck finite;              // counts the non-finite values that saving the model reads
};

struct Architecture {
  std::string_view type;  // "llama": model_type in config.json
  Result<Built> (*build)(const Source& source, const TextImportOptions& options);
  // Keys of config.json for the architecture and for its family. build_model() adds the keys that
  // all configs share.
  std::array<std::span<const KeyRule>, 2> keys = {};
};

// All architectures. Each file of architectures/ defines `std::span<const Architecture>
// architectures_of_<file>()`.
std::vector<Architecture> architectures();

// Builds the model of the source's architecture, with assets and metadata.
// Errors  bad_file: the config contradicts the tensors, a tensor is missing or unexpected, or tied
//         tensors differ.
//         unsupported: the architecture or a setting is not supported (the message lists what is),
//         or a skeleton is not a decoder.
Result<Built> build_model(const Source& source, const TextImportOptions& options);

}  // namespace bowline::import
