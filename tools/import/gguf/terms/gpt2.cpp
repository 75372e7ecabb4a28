// GPT-2. Hugging Face stores matrices as [in, out], GGUF as [out, in].
#include "gguf/terms.h"

namespace bowline::gguf {

Terms terms_of_gpt2();
Terms terms_of_gpt2() {
  using enum Order;
  return {
      .architecture = "gpt2",
      .class_name = "GPT2LMHeadModel",
      .tensors =
          {
              {"token_embd.weight", "transformer.wte.weight"},
              {"position_embd.weight", "transformer.wpe.weight", numbers},
              {"output_norm.weight", "transformer.ln_f.weight"},
              {"output_norm.bias", "transformer.ln_f.bias"},
              {"output.weight", "lm_head.weight"},
              {"blk.{}.attn_norm.weight", "transformer.h.{}.ln_1.weight"},
              {"blk.{}.attn_norm.bias", "transformer.h.{}.ln_1.bias"},
              {"blk.{}.attn_qkv.weight", "transformer.h.{}.attn.c_attn.weight", transposed},
              {"blk.{}.attn_qkv.bias", "transformer.h.{}.attn.c_attn.bias"},
              {"blk.{}.attn_output.weight", "transformer.h.{}.attn.c_proj.weight", transposed},
              {"blk.{}.attn_output.bias", "transformer.h.{}.attn.c_proj.bias"},
              {"blk.{}.ffn_norm.weight", "transformer.h.{}.ln_2.weight"},
              {"blk.{}.ffn_norm.bias", "transformer.h.{}.ln_2.bias"},
              {"blk.{}.ffn_up.weight", "transformer.h.{}.mlp.c_fc.weight", transposed},
              {"blk.{}.ffn_up.bias", "transformer.h.{}.mlp.c_fc.bias"},
              {"blk.{}.ffn_down.weight", "transformer.h.{}.mlp.c_proj.weight", transposed},
              {"blk.{}.ffn_down.bias", "transformer.h.{}.mlp.c_proj.bias"},
          },
      .keys =
          {
              {"block_count", "n_layer"},
              {"context_length", "n_positions"},
              {"embedding_length", "n_embd"},
              {"feed_forward_length", "n_inner"},
              {"attention.head_count", "n_head"},
              {"attention.layer_norm_epsilon", "layer_norm_epsilon", KeyTerm::Kind::real},
          },
      .fixed = {{"activation_function", "gelu_new"}},
      .rows = {{"token_embd.weight", "vocab_size"}},
      .head = "lm_head.weight",
      .table = "transformer.wte.weight",
  };
}

}  // namespace bowline::gguf
