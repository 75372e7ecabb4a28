// A model of another format before it is one of Bowline: its tensors, its settings, its texts.
// Readers of formats make one, architectures read it. Nothing of a tensor is in memory but where
// its bytes are.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::import {

struct SourceTensor {
  std::string name;  // in the terms of Hugging Face: "model.layers.0.self_attn.q_proj.weight"
  // What the numbers are, and how `read` gives them: "plain", or an encoding as quantize()
  // has it ("q8_0", "q4_0"), along the last axis.
  DType dtype = DType::f32;
  std::string encoding = "plain";
  std::vector<int64_t> shape;  // last dim fastest
  uint64_t bytes = 0;
  // Any run of the bytes, any number of times, from any thread; it keeps the file open.
  ValueSource read;
  std::string stored;  // how the file has it: "F16", "Q4_K"; for the report
  // Tensors with equal ones are made of the same bytes of the same file in the same way. Empty: it
  // is not known.
  std::string place;
};

// As the model has it: "tokenizer", "chat_template", "labels", or the name of a file of Hugging
// Face ("config.json").
struct SourceAsset {
  std::string name;
  std::string media_type;
  std::vector<std::byte> bytes;
};

struct Source {
  std::string path;
  std::string format;     // "Hugging Face", "GGUF"
  nlohmann::json config;  // an object in the terms of config.json, whatever the format
  std::vector<SourceTensor> tensors;
  std::vector<SourceAsset> assets;
  // Entries of the model's metadata that the format knows beside its config: the texts of
  // kSpecialTokens, "eos_token_ids", "pooling", "normalize", "max_tokens", "prompt" (in front of
  // each text that is embedded).
  Settings metadata;
  std::vector<std::string> notes;  // sentences for the report, such as what was dequantized
};

}  // namespace bowline::import
