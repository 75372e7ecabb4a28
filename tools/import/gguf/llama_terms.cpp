#include "gguf/terms.h"

namespace bowline::gguf {

Terms llama_terms(std::string_view architecture, std::string_view class_name,
                  std::initializer_list<TensorTerm> more) {
  Terms terms = {
      .architecture = architecture,
      .class_name = class_name,
      .tensors =
          {
              {"token_embd.weight", "model.embed_tokens.weight"},
              {"output_norm.weight", "model.norm.weight"},
              {"output.weight", "lm_head.weight"},
              {"blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"},
              {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"},
              {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"},
              {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"},
              {"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"},
              {"blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
              {"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"},
              {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"},
              {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"},
          },
      .keys =
          {
              {"block_count", "num_hidden_layers"},
              {"context_length", "max_position_embeddings"},
              {"embedding_length", "hidden_size"},
              {"feed_forward_length", "intermediate_size"},
              {"attention.head_count", "num_attention_heads"},
              {"attention.head_count_kv", "num_key_value_heads", KeyTerm::Kind::whole, false},
              {"attention.key_length", "head_dim", KeyTerm::Kind::whole, false},
              {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KeyTerm::Kind::real},
              {"rope.freq_base", "rope_theta", KeyTerm::Kind::real, false},
          },
      .fixed = {{"hidden_act", "silu"}},
      .rotary = true,
      .rows = {{"token_embd.weight", "vocab_size"}},
      .head = "lm_head.weight",
      .table = "model.embed_tokens.weight",
  };
  terms.tensors.insert(terms.tensors.end(), more.begin(), more.end());
  return terms;
}

}  // namespace bowline::gguf
