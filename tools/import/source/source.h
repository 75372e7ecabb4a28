// A parsed model of another format: its tensors, settings and texts. Readers of formats create a
// Source, and architectures build a Model from it. Tensor values stay in the file.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bowline.h"
#include "source/progress.h"

namespace bowline::import {

struct SourceTensor {
  std::string name;  // the Hugging Face name: "model.layers.0.self_attn.q_proj.weight"
  // The format of the bytes that `read` returns: "plain" values of `dtype`, or a block
  // format (base/formats.h, "q4_k") along the last axis.
  DType dtype = DType::f32;
  std::string encoding = "plain";
  std::vector<int64_t> shape;  // row-major: the last dim is contiguous
  uint64_t bytes = 0;
  // Reads any range of the bytes, any number of times, from any thread. Keeps the file open.
  ValueSource read;
  std::string stored;  // storage type in the file, for the report: "F16", "Q4_K"
  // Identifies the bytes in the file. Tensors with equal places have the same values. Empty:
  // unknown.
  std::string place;
};

// Named as in the model ("tokenizer", "chat_template", "labels"), or as the Hugging Face file
// ("config.json").
struct SourceAsset {
  std::string name;
  std::string media_type;
  std::vector<std::byte> bytes;
};

// Names of the special tokens in tokenizer_config.json and GGUF.
struct SpecialToken {
  const char* name;            // in tokenizer_config.json, in chat templates and in the metadata
  std::string_view gguf_part;  // "tokenizer.ggml.<part>_token_id"
};
// Source  transformers, tokenization_utils_base.py (SPECIAL_TOKENS_ATTRIBUTES); gguf, constants.py
//         (Keys.Tokenizer), which spells "seperator".
inline constexpr SpecialToken kSpecialTokens[] = {
    {"bos_token", "bos"},     {"eos_token", "eos"},       {"unk_token", "unknown"},
    {"pad_token", "padding"}, {"sep_token", "seperator"}, {"cls_token", "cls"},
    {"mask_token", "mask"},
};

struct Source {
  std::string path;
  std::string format;     // "Hugging Face", "GGUF"
  nlohmann::json config;  // an object with the keys of config.json, for every format
  std::vector<SourceTensor> tensors;
  std::vector<SourceAsset> assets;
  // Patterns of names of tensors that are not of the text model ("*": any characters). They are
  // dropped.
  std::vector<std::string> other_parts;
  // Model metadata beside the config: the texts of kSpecialTokens, "eos_token_ids", "pooling",
  // "normalize", "max_tokens", and "prompt" (prepended to each text that is embedded).
  Settings metadata;
  // Sentences for the report, for example about dequantized tensors.
  std::vector<std::string> notes;
  Progress progress = {};
};

}  // namespace bowline::import
