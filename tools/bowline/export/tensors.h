// The parts of an imported model for an export: weights by their Hugging Face names, and
// config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct ExportedTensor {
  std::string name;       // Hugging Face name
  std::string parameter;  // name in the model
  uint32_t tie = 0;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::string encoding;  // "plain", "q8_0"
  bool whole = true;     // the view is the whole storage
};

struct ExportedModel {
  nlohmann::json config;
  std::vector<ExportedTensor> tensors;
  std::vector<std::string> notes;  // sentences
};

// Lists the weights of a model. A head that is tied to the embedding table is left out, and
// "tie_word_embeddings" is set in the config. Other tied weights are listed under each name.
// Errors  bad_argument: the model has no config.json (it was not imported), or has adapters.
//         bad_file: the config.json is damaged.
Result<ExportedModel> exported(const Model& model);

// Returns the value of a key. Null if there is no such key or `object` is not an object.
const nlohmann::json& value_at(const nlohmann::json& object, std::string_view key);
std::string text_at(const nlohmann::json& object, std::string_view key);
int64_t integer_at(const nlohmann::json& object, std::string_view key, int64_t otherwise);
bool flag_at(const nlohmann::json& object, std::string_view key, bool otherwise);

// Returns an asset as text. Empty: there is no such asset.
Result<std::optional<std::string>> text_asset(const Model& model, std::string_view name);
// Returns the media type of an asset. Empty: there is no such asset.
Result<std::string> media_type_of(const Model& model, std::string_view name);

uint64_t elements_of(const ExportedTensor& tensor);
// Returns the values of a tensor in a float dtype. Quantized values are dequantized. Integers stay
// unchanged.
// Errors  as Model::get_value(). bad_argument: a finite value overflows the dtype.
Result<std::vector<std::byte>> numbers_of(const Model& model, const ExportedTensor& tensor,
                                          DType dtype);
// Returns the values of a float tensor, rounded to a float dtype. Errors  as numbers_of().
Result<std::vector<float>> floats_of(const Model& model, const ExportedTensor& tensor, DType dtype);
// "bfloat16"
std::string_view torch_name_of(DType dtype);

}  // namespace bowline::command
