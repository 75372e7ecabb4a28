// Llama 2 and 3, Mistral, SmolLM2, TinyLlama: GGUF reorders the rows of q and k. Some have biases.
#include "gguf/terms.h"

namespace bowline::gguf {

Terms terms_of_llama();
Terms terms_of_llama() {
  Terms terms =
      llama_terms("llama", "LlamaForCausalLM",
                  {
                      {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
                      {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
                      {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
                      {"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
                      {"blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias"},
                      {"blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias"},
                      {"blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias"},
                  });
  for (TensorTerm& tensor : terms.tensors) {
    if (tensor.gguf.starts_with("blk.{}.attn_q.")) {
      tensor.order = Order::query_heads;
    } else if (tensor.gguf.starts_with("blk.{}.attn_k.")) {
      tensor.order = Order::key_heads;
    }
  }
  terms.present = {{"blk.0.attn_q.bias", "attention_bias"}, {"blk.0.ffn_up.bias", "mlp_bias"}};
  return terms;
}

}  // namespace bowline::gguf
