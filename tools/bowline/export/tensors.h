// What a model has for the tools that it came from: its weights by the names of Hugging Face, and
// its config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct ExportedTensor {
  std::string name;       // of Hugging Face
  std::string parameter;  // of the model
  uint32_t tie = 0;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::string encoding;  // "plain", "q8_0"
  bool whole = true;     // it shows its storage as it is
};

struct ExportedModel {
  nlohmann::json config;
  std::vector<ExportedTensor> tensors;
  std::vector<std::string> notes;  // sentences
};

// A head that shares the storage of the table of tokens is left out, and config says so; what else
// is tied stands under each of its
// names. Caches and constants are no weights. Errors  bad_argument: the model has no config.json
// (it was not imported), or adapters.
Result<ExportedModel> exported(const Model& model);

// A value of an object; null where there is none, or no object.
const nlohmann::json& value_at(const nlohmann::json& object, std::string_view key);
std::string text_at(const nlohmann::json& object, std::string_view key);
int64_t integer_at(const nlohmann::json& object, std::string_view key, int64_t otherwise);
bool flag_at(const nlohmann::json& object, std::string_view key, bool otherwise);

// An asset as text. None: there is no such asset.
Result<std::optional<std::string>> text_asset(const Model& model, std::string_view name);
// The media type of an asset; empty: there is none.
Result<std::string> media_type_of(const Model& model, std::string_view name);

// The numbers of a tensor, codes too, in a float dtype. Integers stay what they are. Errors  those
// of Model::get_value().
Result<std::vector<std::byte>> numbers_of(const Model& model, const ExportedTensor& tensor,
                                          DType dtype);
// The values of a float tensor, rounded to a float dtype. Errors  those of numbers_of().
Result<std::vector<float>> floats_of(const Model& model, const ExportedTensor& tensor, DType dtype);
// "bfloat16"
std::string_view torch_name_of(DType dtype);

}  // namespace bowline::command
