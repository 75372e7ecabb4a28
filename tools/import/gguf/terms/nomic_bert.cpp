// Nomic BERT as an encoder without a head.
#include "gguf/terms.h"

namespace bowline::gguf {

Terms terms_of_nomic_bert();
Terms terms_of_nomic_bert() {
  using enum Order;
  return {
      .architecture = "nomic-bert",
      .class_name = "NomicBertModel",
      .tensors =
          {
              {"token_embd.weight", "embeddings.word_embeddings.weight"},
              {"token_types.weight", "embeddings.token_type_embeddings.weight", numbers},
              {"token_embd_norm.weight", "emb_ln.weight"},
              {"token_embd_norm.bias", "emb_ln.bias"},
              {"blk.{}.attn_qkv.weight", "encoder.layers.{}.attn.Wqkv.weight"},
              {"blk.{}.attn_output.weight", "encoder.layers.{}.attn.out_proj.weight"},
              {"blk.{}.attn_output_norm.weight", "encoder.layers.{}.norm1.weight"},
              {"blk.{}.attn_output_norm.bias", "encoder.layers.{}.norm1.bias"},
              {"blk.{}.ffn_up.weight", "encoder.layers.{}.mlp.fc11.weight"},
              {"blk.{}.ffn_gate.weight", "encoder.layers.{}.mlp.fc12.weight"},
              {"blk.{}.ffn_down.weight", "encoder.layers.{}.mlp.fc2.weight"},
              {"blk.{}.layer_output_norm.weight", "encoder.layers.{}.norm2.weight"},
              {"blk.{}.layer_output_norm.bias", "encoder.layers.{}.norm2.bias"},
          },
      .keys =
          {
              {"block_count", "num_hidden_layers"},
              {"context_length", "max_position_embeddings"},
              {"embedding_length", "hidden_size"},
              {"feed_forward_length", "intermediate_size"},
              {"attention.head_count", "num_attention_heads"},
              {"attention.layer_norm_epsilon", "layer_norm_eps", KeyTerm::Kind::real},
              {"rope.freq_base", "rope_theta", KeyTerm::Kind::real},
          },
      .fixed = {{"hidden_act", "silu"}},
      .rotary = true,
      .rows = {{"token_embd.weight", "vocab_size"}, {"token_types.weight", "type_vocab_size"}},
      .more_keys = {{"attention.causal", import::KeyUse::fixed, "[false]"}, {"pooling_type"}},
      .model_type = "nomic_bert",
  };
}

}  // namespace bowline::gguf
