// Qwen2 and Qwen2.5: biases for q, k and v; rows in the order of Hugging Face.
#include "gguf/terms.h"

namespace bowline::gguf {

Terms terms_of_qwen2();
Terms terms_of_qwen2() {
  return llama_terms("qwen2", "Qwen2ForCausalLM",
                     {
                         {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
                         {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
                         {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
                     });
}

}  // namespace bowline::gguf
