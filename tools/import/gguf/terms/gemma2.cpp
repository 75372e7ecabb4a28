// Gemma 2. GGUF stores the gammas of norms, Hugging Face stores gamma - 1. Reading subtracts 1 and
// writing adds 1, in f32. A gamma of at least 0.5 is restored exactly; a smaller gamma has an error
// of at most 2^-25.
#include <algorithm>

#include "gguf/terms.h"

namespace bowline::gguf {
namespace {

using nlohmann::json;

// llama.cpp divides the scores by the root of this value. For the 27B model, which it detects by
// the layer count, the value is the width divided by the heads.
json score_divisor(const json& config) {
  constexpr int64_t kLayersOf27B = 46;
  const bool is_27b = config["num_hidden_layers"] == kLayersOf27B;
  return is_27b ? json(config["hidden_size"].get<int64_t>() /
                       config["num_attention_heads"].get<int64_t>())
                : config["head_dim"];
}

json layer_types(const json& config) {
  constexpr int64_t kMostLayers = 4096;  // a limit for damaged files
  const auto layers = std::min(config["num_hidden_layers"].get<int64_t>(), kMostLayers);
  json out = json::array();
  for (int64_t i = 0; i < layers; ++i) {
    out.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  return out;
}

}  // namespace

Terms terms_of_gemma2();
Terms terms_of_gemma2() {
  Terms terms = llama_terms(
      "gemma2", "Gemma2ForCausalLM",
      {
          {"blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
          {"blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight"},
      });
  for (TensorTerm& tensor : terms.tensors) {
    if (tensor.gguf == "blk.{}.ffn_norm.weight") {
      tensor.hugging_face = "model.layers.{}.pre_feedforward_layernorm.weight";
    }
    if (tensor.gguf.ends_with("norm.weight")) {
      tensor.order = Order::one_less;
    }
  }
  terms.keys.push_back({"attention.sliding_window", "sliding_window", KeyTerm::Kind::whole, false});
  terms.keys.push_back({"attn_logit_softcapping", "attn_logit_softcapping", KeyTerm::Kind::real});
  terms.keys.push_back({"final_logit_softcapping", "final_logit_softcapping", KeyTerm::Kind::real});
  terms.fixed = json::object();
  terms.implied = {
      {"query_pre_attn_scalar", score_divisor},
      {"layer_types", layer_types},
      {"hidden_activation", [](const json&) { return json("gelu_pytorch_tanh"); }},
  };
  return terms;
}

}  // namespace bowline::gguf
