// Qwen3: norms for q and k.
#include "gguf/terms.h"

namespace bowline::gguf {

Terms terms_of_qwen3();
Terms terms_of_qwen3() {
  return llama_terms("qwen3", "Qwen3ForCausalLM",
                     {
                         {"blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
                         {"blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
                     });
}

}  // namespace bowline::gguf
