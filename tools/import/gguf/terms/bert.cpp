// BERT as an encoder without a head.
#include "gguf/terms.h"

namespace bowline::gguf {

Terms terms_of_bert();
Terms terms_of_bert() {
  using enum Order;
  return {
      .architecture = "bert",
      .class_name = "BertModel",
      .tensors =
          {
              {"token_embd.weight", "embeddings.word_embeddings.weight"},
              {"position_embd.weight", "embeddings.position_embeddings.weight", numbers},
              {"token_types.weight", "embeddings.token_type_embeddings.weight", numbers},
              {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
              {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
              {"blk.{}.attn_q.weight", "encoder.layer.{}.attention.self.query.weight"},
              {"blk.{}.attn_q.bias", "encoder.layer.{}.attention.self.query.bias"},
              {"blk.{}.attn_k.weight", "encoder.layer.{}.attention.self.key.weight"},
              {"blk.{}.attn_k.bias", "encoder.layer.{}.attention.self.key.bias"},
              {"blk.{}.attn_v.weight", "encoder.layer.{}.attention.self.value.weight"},
              {"blk.{}.attn_v.bias", "encoder.layer.{}.attention.self.value.bias"},
              {"blk.{}.attn_output.weight", "encoder.layer.{}.attention.output.dense.weight"},
              {"blk.{}.attn_output.bias", "encoder.layer.{}.attention.output.dense.bias"},
              {"blk.{}.attn_output_norm.weight",
               "encoder.layer.{}.attention.output.LayerNorm.weight"},
              {"blk.{}.attn_output_norm.bias", "encoder.layer.{}.attention.output.LayerNorm.bias"},
              {"blk.{}.ffn_up.weight", "encoder.layer.{}.intermediate.dense.weight"},
              {"blk.{}.ffn_up.bias", "encoder.layer.{}.intermediate.dense.bias"},
              {"blk.{}.ffn_down.weight", "encoder.layer.{}.output.dense.weight"},
              {"blk.{}.ffn_down.bias", "encoder.layer.{}.output.dense.bias"},
              {"blk.{}.layer_output_norm.weight", "encoder.layer.{}.output.LayerNorm.weight"},
              {"blk.{}.layer_output_norm.bias", "encoder.layer.{}.output.LayerNorm.bias"},
          },
      .keys =
          {
              {"block_count", "num_hidden_layers"},
              {"context_length", "max_position_embeddings"},
              {"embedding_length", "hidden_size"},
              {"feed_forward_length", "intermediate_size"},
              {"attention.head_count", "num_attention_heads"},
              {"attention.layer_norm_epsilon", "layer_norm_eps", KeyTerm::Kind::real},
          },
      .fixed = {{"hidden_act", "gelu"}},
      .rows = {{"token_embd.weight", "vocab_size"}, {"token_types.weight", "type_vocab_size"}},
      .more_keys = {{"attention.causal", import::KeyUse::fixed, "[false]"}, {"pooling_type"}},
  };
}

}  // namespace bowline::gguf
