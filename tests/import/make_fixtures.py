#!/usr/bin/env python3
"""Makes fixtures/: small random models of every architecture, and the results of transformers.

  make_fixtures.py [NAME...]       (torch, transformers, sentence-transformers, safetensors)

Each model is a Hugging Face folder. <name>.expected.safetensors beside the folder has the results:

  decoders   tokens, labels [2, n], logits, loss
             greedy [1, 256]: tokens that follow the first 8 tokens of row 0
             in STEPPED: step.<tensor>, weights of the first layer after an SGD step at rate RATE
  encoders   tokens, lengths, hidden; mean, cls, max: pooled hidden rows
             of decoders, also last: the last row of each text
             of sentence-transformers: second_tokens and the like, scores, the losses of
             sentence-transformers (matryoshka.<loss>: with two shorter widths), and step.<tensor>
             of its loss without negatives
             with a head: labels, logits, loss; of tags: the first token, and tokens behind the
             text, have the label -100
             in STEPPED_CLASSES: step.<tensor>, weights after an SGD step at rate RATE

defaults.json has what transformers assumes for each key of each config.json that is missing.

All values are random, so the files are under the licence of the project. Weights have a wide range,
no bias is zero and no scale is one, so that a missing operation changes the results.
"""

import json
import pathlib
import re
import shutil
import sys

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import save_file
from sentence_transformers.sentence_transformer import losses

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"
VOCABULARY, WIDTH, LAYERS, HEADS, INNER = 64, 32, 2, 4, 48
RATE = 0.25
MARGIN = 0.01  # by which the logit of a greedy token exceeds others, more than rounding errors

DECODER = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=INNER,
               max_position_embeddings=320, bos_token_id=1, eos_token_id=2, pad_token_id=None)
ENCODER = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=INNER,
               max_position_embeddings=40, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
THREE = dict(num_labels=3, id2label={0: "admin", 1: "libs", 2: "net"}, label2id={"admin": 0, "libs": 1, "net": 2})
TAGS = dict(num_labels=3, id2label={0: "O", 1: "B-knot", 2: "I-knot"}, label2id={"O": 0, "B-knot": 1, "I-knot": 2})
MODERN_BERT = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=HEADS, intermediate_size=INNER,
                   max_position_embeddings=40, local_attention=7, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
                   rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=5000.0),
                                        sliding_attention=dict(rope_type="default", rope_theta=50.0)))
EURO_BERT = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=2,
                 intermediate_size=INNER, max_position_embeddings=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, mask_token_id=3,
                 rope_parameters=dict(rope_type="default", rope_theta=100.0))
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=4.0, mscale=1.0, mscale_all_dim=0.5)
# All texts are in the part of the context in which queries are not scaled.
MINISTRAL3 = DECODER | dict(num_key_value_heads=2, head_dim=16, rope_parameters=YARN | dict(
    original_max_position_embeddings=640, llama_4_scaling_beta=0.5))
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
# Caps that change most scores and logits, and a window much shorter than the sequence.
GEMMA2 = DECODER | dict(num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16, attn_logit_softcapping=1.5, final_logit_softcapping=4.0,
                        sliding_window=5)
GEMMA3 = DECODER | dict(num_hidden_layers=4, num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=5, sliding_window=5,
                        layer_types=["sliding_attention", "full_attention"] * 2)

GPT = dict(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=320, n_inner=INNER, bos_token_id=1, eos_token_id=2)
FALCON = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, ffn_hidden_size=INNER,
              max_position_embeddings=320, bos_token_id=1, eos_token_id=2)

t = transformers
MODELS = {
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**DECODER, num_key_value_heads=2, rms_norm_eps=1e-5)),
    "llama_biased": lambda: t.LlamaForCausalLM(t.LlamaConfig(**DECODER, attention_bias=True, mlp_bias=True, hidden_act="gelu_new")),
    "llama3": lambda: t.LlamaForCausalLM(t.LlamaConfig(**DECODER, num_key_value_heads=1, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    # Two frequencies are divided, others are not or in part. The factor of the rotation is not 1.
    "llama_yarn": lambda: t.LlamaForCausalLM(t.LlamaConfig(**DECODER, num_key_value_heads=2, head_dim=16, rope_parameters=dict(
        **YARN, original_max_position_embeddings=80))),
    "llama_proportional": lambda: t.LlamaForCausalLM(t.LlamaConfig(**DECODER, num_key_value_heads=2, rope_parameters=dict(
        rope_type="proportional", rope_theta=100.0, factor=2.0, partial_rotary_factor=0.5))),
    "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**DECODER, num_key_value_heads=2, sliding_window=None, head_dim=16)),
    # Windows shorter than the sequence; in Qwen 2 and 3 only in some layers.
    "mistral_window": lambda: t.MistralForCausalLM(t.MistralConfig(**DECODER, num_key_value_heads=2, sliding_window=4)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**DECODER, num_key_value_heads=2)),
    "qwen2_window": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**DECODER | dict(num_hidden_layers=3), num_key_value_heads=2,
                                                             use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**DECODER, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True)),
    "qwen3_window": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(
        **DECODER | dict(num_hidden_layers=3), num_key_value_heads=1, head_dim=16, use_sliding_window=True, sliding_window=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**GEMMA2 | dict(num_hidden_layers=4))),
    # An odd layer count, biases, no cap on logits, and scores that are not divided by the root of
    # head_dim.
    "gemma2_biased": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**GEMMA2 | dict(
        num_hidden_layers=3, attention_bias=True, final_logit_softcapping=None, query_pre_attn_scalar=5))),
    "gemma": lambda: t.GemmaForCausalLM(t.GemmaConfig(**DECODER, num_key_value_heads=1, head_dim=16)),
    # Two bases, a scaling of layers without a window, and scores that are not divided by the root
    # of head_dim.
    "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**GEMMA3, rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=4.0, rope_theta=5000.0), sliding_attention=dict(rope_type="default", rope_theta=50.0)))),
    "gemma3_older": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**GEMMA3 | dict(
        num_hidden_layers=3, layer_types=None, sliding_window_pattern=2, attention_bias=True, final_logit_softcapping=4.0))),
    "granite": lambda: t.GraniteForCausalLM(t.GraniteConfig(
        **DECODER, num_key_value_heads=2, embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.6, attention_multiplier=0.5)),
    "granite_biased": lambda: t.GraniteForCausalLM(t.GraniteConfig(
        **DECODER, attention_bias=True, mlp_bias=True, attention_multiplier=0.25, tie_word_embeddings=True)),
    "smollm3": lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
        **DECODER | dict(num_hidden_layers=4), num_key_value_heads=2, no_rope_layer_interval=2, rope_parameters=dict(
            rope_type="default", rope_theta=100.0))),
    # Windows in the layers without rotary positions.
    "smollm3_window": lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
        **DECODER | dict(num_hidden_layers=3), num_key_value_heads=2, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=5,
        attention_bias=True, mlp_bias=True, tie_word_embeddings=False)),
    "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**DECODER, num_key_value_heads=2, sliding_window=5)),
    "phi3_part": lambda: t.Phi3ForCausalLM(t.Phi3Config(
        **DECODER, num_key_value_heads=1, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.75))),
    # As Phi-4-mini: a part of each head rotates, and the factor of the rotation is not 1.
    "phi3_long": lambda: t.Phi3ForCausalLM(t.Phi3Config(
        **DECODER | dict(max_position_embeddings=640), num_key_value_heads=2, original_max_position_embeddings=320, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.5, 3.0],
                             long_factor=[1.0, 8.0, 20.0]))),
    "olmo": lambda: t.OlmoForCausalLM(t.OlmoConfig(**DECODER, num_key_value_heads=2)),
    "olmo2": lambda: t.Olmo2ForCausalLM(t.Olmo2Config(**DECODER | dict(num_hidden_layers=3), num_key_value_heads=2)),
    "olmo3": lambda: t.Olmo3ForCausalLM(t.Olmo3Config(**DECODER | dict(num_hidden_layers=4), num_key_value_heads=2, sliding_window=5,
                                                      attention_bias=True)),
    "stablelm": lambda: t.StableLmForCausalLM(t.StableLmConfig(**DECODER, num_key_value_heads=2, rope_parameters=dict(
        rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))),
    "stablelm_parallel": lambda: t.StableLmForCausalLM(t.StableLmConfig(
        **DECODER, num_key_value_heads=4, use_qkv_bias=True, use_parallel_residual=True)),
    "ministral": lambda: t.MinistralForCausalLM(t.MinistralConfig(
        **DECODER | dict(num_hidden_layers=4), num_key_value_heads=2, head_dim=16, sliding_window=5,
        layer_types=["sliding_attention", "full_attention"] * 2)),
    "ministral3": lambda: t.Ministral3ForCausalLM(t.Ministral3Config(**MINISTRAL3, sliding_window=5)),
    "cohere": lambda: t.CohereForCausalLM(t.CohereConfig(**DECODER, num_key_value_heads=2, logit_scale=0.75, attention_bias=True)),
    "cohere2": lambda: t.Cohere2ForCausalLM(t.Cohere2Config(
        **DECODER, num_key_value_heads=2, logit_scale=1.5, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "helium": lambda: t.HeliumForCausalLM(t.HeliumConfig(**DECODER, num_key_value_heads=2, head_dim=8, attention_bias=True)),
    "ernie4_5": lambda: t.Ernie4_5ForCausalLM(t.Ernie4_5Config(**DECODER, num_key_value_heads=2, head_dim=16, use_bias=True)),
    "seed_oss": lambda: t.SeedOssForCausalLM(t.SeedOssConfig(**DECODER, num_key_value_heads=2, head_dim=16)),
    "arcee": lambda: t.ArceeForCausalLM(t.ArceeConfig(**DECODER, num_key_value_heads=2, mlp_bias=True)),
    "nemotron": lambda: t.NemotronForCausalLM(t.NemotronConfig(**DECODER, num_key_value_heads=2, attention_bias=True)),
    "exaone4": lambda: t.Exaone4ForCausalLM(t.Exaone4Config(
        **DECODER, num_key_value_heads=2, sliding_window=5, sliding_window_pattern=2)),
    "glm": lambda: t.GlmForCausalLM(t.GlmConfig(**DECODER, num_key_value_heads=2, head_dim=16)),
    "glm4": lambda: t.Glm4ForCausalLM(t.Glm4Config(**DECODER, num_key_value_heads=2, head_dim=16)),
    "starcoder2": lambda: t.Starcoder2ForCausalLM(t.Starcoder2Config(**DECODER, num_key_value_heads=2, sliding_window=5)),
    "phi": lambda: t.PhiForCausalLM(t.PhiConfig(**DECODER, num_key_value_heads=2)),
    # Text models within models of texts and images. The images have the least possible sizes.
    "gemma3_images": lambda: t.Gemma3ForConditionalGeneration(t.Gemma3Config(
        text_config=GEMMA3 | dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]),
        vision_config=VISION, mm_tokens_per_image=4, image_token_index=VOCABULARY, boi_token_index=3, eoi_token_index=4)),
    "ministral3_images": lambda: t.Mistral3ForConditionalGeneration(t.Mistral3Config(
        text_config=MINISTRAL3 | dict(model_type="ministral3", max_position_embeddings=5120),
        vision_config=VISION | dict(model_type="pixtral"), image_token_index=VOCABULARY, tie_word_embeddings=False)),
    # Of Pythia: a part of each head rotates, and both parts of a layer read the same rows.
    "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**DECODER, rope_parameters=dict(
        rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))),
    "gpt_neox_sequential": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**DECODER, use_parallel_residual=False, attention_bias=False)),
    "gpt_neo": lambda: t.GPTNeoForCausalLM(t.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_layers=3, num_heads=HEADS, max_position_embeddings=320, window_size=5,
        attention_types=[[["global", "local"], 1], [["local"], 1]], bos_token_id=1, eos_token_id=2)),
    "gptj": lambda: t.GPTJForCausalLM(t.GPTJConfig(**GPT, rotary_dim=6)),
    "codegen": lambda: t.CodeGenForCausalLM(t.CodeGenConfig(**GPT | dict(n_head=8), rotary_dim=2)),
    "gpt_bigcode": lambda: t.GPTBigCodeForCausalLM(t.GPTBigCodeConfig(**GPT)),
    "gpt_bigcode_heads": lambda: t.GPTBigCodeForCausalLM(t.GPTBigCodeConfig(**GPT, multi_query=False)),
    "opt": lambda: t.OPTForCausalLM(t.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, ffn_dim=INNER,
        max_position_embeddings=320, word_embed_proj_dim=WIDTH, bos_token_id=1, eos_token_id=2, pad_token_id=None)),
    # Of 7B, 40B, 11B and RW: one head of keys, groups, one norm for both parts, and one after the
    # other.
    "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(**FALCON)),
    "falcon_groups": lambda: t.FalconForCausalLM(t.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    "falcon_one_norm": lambda: t.FalconForCausalLM(t.FalconConfig(
        **FALCON, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, bias=True)),
    "falcon_sequential": lambda: t.FalconForCausalLM(t.FalconConfig(
        **FALCON, multi_query=False, parallel_attn=False, bias=True, tie_word_embeddings=False)),
    # Of the published models: norms behind the rotation, and a base that depends on the factor.
    "hunyuan": lambda: t.HunYuanDenseV1ForCausalLM(t.HunYuanDenseV1Config(**DECODER, num_key_value_heads=2, head_dim=16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=100.0, factor=1.0, alpha=5.0))),
    "xglm": lambda: t.XGLMForCausalLM(t.XGLMConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, num_layers=LAYERS, attention_heads=HEADS, ffn_dim=INNER, max_position_embeddings=320,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "persimmon": lambda: t.PersimmonForCausalLM(t.PersimmonConfig(**DECODER)),
    "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=320,
                                                   bos_token_id=1, eos_token_id=2)),
    # Decoders whose last token represents the text.
    "llama_classes": lambda: t.LlamaForSequenceClassification(t.LlamaConfig(**DECODER | dict(pad_token_id=0), num_key_value_heads=2, **THREE)),
    "gpt2_classes": lambda: t.GPT2ForSequenceClassification(t.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=40, bos_token_id=1, eos_token_id=2, pad_token_id=0, **THREE)),
    "qwen3_sentences": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**DECODER | dict(pad_token_id=0), num_key_value_heads=2, head_dim=16,
                                                                tie_word_embeddings=True)),
    "bert": lambda: t.BertModel(t.BertConfig(**ENCODER)),
    "bert_classes": lambda: t.BertForSequenceClassification(t.BertConfig(**ENCODER, **THREE)),
    "bert_tags": lambda: t.BertForTokenClassification(t.BertConfig(**ENCODER, **TAGS)),
    "modernbert_tags": lambda: t.ModernBertForTokenClassification(t.ModernBertConfig(**MODERN_BERT | dict(num_hidden_layers=2), **TAGS)),
    "roberta_tags": lambda: t.RobertaForTokenClassification(t.RobertaConfig(**ENCODER | dict(num_hidden_layers=1), **TAGS, pad_token_id=1)),
    "llama_tags": lambda: t.LlamaForTokenClassification(t.LlamaConfig(
        **DECODER | dict(pad_token_id=0, num_hidden_layers=1), num_key_value_heads=2, **TAGS)),
    "bert_sentences": lambda: t.BertModel(t.BertConfig(**ENCODER, hidden_act="gelu_new")),
    # Three layers behind the first: a window that is shorter than the texts, and another base.
    "modernbert": lambda: t.ModernBertModel(t.ModernBertConfig(**MODERN_BERT, norm_bias=True, attention_bias=True, mlp_bias=True)),
    "modernbert_classes": lambda: t.ModernBertForSequenceClassification(t.ModernBertConfig(
        **MODERN_BERT, **THREE, classifier_bias=True, classifier_activation="relu")),
    "modernbert_mean": lambda: t.ModernBertForSequenceClassification(t.ModernBertConfig(
        **MODERN_BERT | dict(num_hidden_layers=1), **THREE, classifier_pooling="mean")),
    "eurobert": lambda: t.EuroBertModel(t.EuroBertConfig(**EURO_BERT, attention_bias=True, mlp_bias=True)),
    "eurobert_classes": lambda: t.EuroBertForSequenceClassification(t.EuroBertConfig(**EURO_BERT, **THREE)),
    "eurobert_first": lambda: t.EuroBertForSequenceClassification(t.EuroBertConfig(
        **EURO_BERT | dict(num_hidden_layers=1), **THREE, classifier_pooling="bos")),
    "gte": lambda: t.GteModel(t.GteConfig(**ENCODER | dict(type_vocab_size=0), pad_token_id=1)),
    "gte_classes": lambda: t.GteForSequenceClassification(t.GteConfig(**ENCODER, **THREE, pad_token_id=1, rope_parameters=dict(
        rope_type="default", rope_theta=100.0))),
    "nomic_bert": lambda: t.NomicBertModel(t.NomicBertConfig(**ENCODER)),
    "nomic_bert_classes": lambda: t.NomicBertForSequenceClassification(t.NomicBertConfig(**ENCODER, **THREE)),
    "roberta": lambda: t.RobertaModel(t.RobertaConfig(**ENCODER, pad_token_id=1)),
    "roberta_classes": lambda: t.RobertaForSequenceClassification(t.RobertaConfig(**ENCODER, **THREE, pad_token_id=1)),
    "electra": lambda: t.ElectraModel(t.ElectraConfig(**ENCODER, embedding_size=WIDTH)),
    "electra_classes": lambda: t.ElectraForSequenceClassification(t.ElectraConfig(**ENCODER, **THREE, embedding_size=16)),
    # Layers that share weights, in groups of one or two layers.
    "albert": lambda: t.AlbertModel(t.AlbertConfig(**ENCODER | dict(num_hidden_layers=4), embedding_size=16)),
    "albert_classes": lambda: t.AlbertForSequenceClassification(t.AlbertConfig(
        **ENCODER | dict(num_hidden_layers=3), embedding_size=16, num_hidden_groups=2, inner_group_num=2, classifier_dropout_prob=0.0, **THREE)),
    "distilbert_classes": lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(
        vocab_size=VOCABULARY, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, hidden_dim=INNER, max_position_embeddings=40, dropout=0.0,
        attention_dropout=0.0, seq_classif_dropout=0.0, **THREE)),
}


# Decoders with weights after a step.
# Decoders of one file each.
FAMILIES = ("arcee", "codegen", "cohere", "cohere2", "ernie4_5", "exaone4", "falcon", "falcon_groups", "falcon_one_norm",
            "falcon_sequential", "glm", "glm4", "gpt_bigcode", "gpt_bigcode_heads", "gpt_neo", "gpt_neox", "gpt_neox_sequential", "gptj",
            "helium", "hunyuan", "nemotron", "olmo", "opt", "persimmon", "phi", "seed_oss", "starcoder2", "xglm")
STEPPED = (*FAMILIES, "llama_yarn", "phi3_long", "gemma", "gemma3", "granite", "smollm3", "phi3_part", "olmo2", "olmo3", "stablelm", "stablelm_parallel", "ministral")


# Classifiers with weights after a step: of shared layers, and of decoders.
STEPPED_CLASSES = {
    "albert": ("encoder.albert_layer_groups.0.albert_layers.0.ffn.weight",
               "encoder.albert_layer_groups.0.albert_layers.1.attention.query.bias"),
    "modernbert": ("embeddings.norm.weight", "layers.0.attn.Wqkv.weight"),
    "eurobert": ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight"),
    "gte": ("embeddings.token_type_embeddings.weight", "layers.0.post_attention_layernorm.weight", "layers.1.mlp.down_proj.bias"),
    "nomic_bert": ("embeddings.word_embeddings.weight", "layers.0.post_mlp_layernorm.bias", "layers.0.mlp.gate_proj.weight"),
    "llama": ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight", "layers.1.input_layernorm.weight"),
    "gpt2": ("wpe.weight", "h.0.attn.c_attn.weight", "h.1.ln_2.bias")}


# Names in files that differ from those of modules.
FILE_NAMES = {
    "gte": {"layers.0.post_attention_layernorm": "encoder.layer.0.attn_ln", "layers.1": "encoder.layer.1"},
    "nomic_bert": {"layers.0.post_mlp_layernorm": "encoder.layers.0.norm2", "layers.0.mlp.gate_proj": "encoder.layers.0.mlp.fc12"}}


def randomize(model, generator):
    """Wide weights, biases around 0, scales around 1 (around 0 if the architecture adds 1)."""
    middle = 0.0 if model.config.model_type.startswith(("gemma", "nemotron")) else 1.0
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.copy_(0.2 * noise + (middle if ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight") else 0.0))
            else:
                p.copy_(noise * (0.5 if "emb" in name or "wte" in name or "wpe" in name else 1.0 / p.shape[-1] ** 0.5))


def decoder_numbers(model, generator, seq):
    tokens = torch.randint(0, VOCABULARY, (2, seq), generator=generator)
    labels = torch.randint(0, VOCABULARY, (2, seq), generator=generator)
    labels[0, :3] = -100
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1))
    ids, cache, feed, margin = [], None, tokens[:1, :8], 1e9
    for _ in range(256):
        out = model(feed, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = out.logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        if margin <= MARGIN:
            return {}, margin
        ids.append(best.indices[0].item())
        feed = torch.tensor([[ids[-1]]])
    model.generation_config.eos_token_id = None
    generated = model.generate(tokens[:1, :8], attention_mask=torch.ones(1, 8), max_new_tokens=256, do_sample=False)
    assert generated[0, 8:].tolist() == ids
    return dict(tokens=tokens, labels=labels, logits=logits, loss=loss, greedy=torch.tensor([ids])), margin


def stepped_decoder(model, tokens, labels):
    """Weights of the attention and of the norms of the first layer after a step. The model is not
    changed.
    """
    logits = model(tokens).logits
    torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1)).backward()
    def is_wanted(name, weight):
        part = name.split(".0.")[1] if re.search(r"\.(layers|h)\.0\.", name) else ""
        is_output = any(output in part for output in ("o_proj", "out_proj", "c_proj", "attention.dense"))
        return part != "" and ("att" in part and not is_output or weight.dim() == 1)
    return {f"step.{name}": w.data - RATE * w.grad for name, w in model.named_parameters() if is_wanted(name, w)}


def sentence_numbers(model, first, generator, pools_last):
    """Losses of sentence-transformers for groups of three texts, and weights after a step."""
    def drawn(lengths):
        lengths = torch.tensor(lengths)
        tokens = torch.randint(3, VOCABULARY, (3, 12), generator=generator)
        tokens[torch.arange(12)[None, :] >= lengths[:, None]] = model.config.pad_token_id
        return tokens, lengths

    def embedded(tokens, lengths):
        mask = torch.arange(12)[None, :] < lengths[:, None]
        hidden = model(tokens, attention_mask=mask.long()).last_hidden_state
        pooled = hidden[torch.arange(3), lengths - 1] if pools_last else (hidden * mask[:, :, None]).sum(1) / lengths[:, None]
        return torch.nn.functional.normalize(pooled)
    second, third, scores = drawn([5, 12, 9]), drawn([8, 3, 12]), torch.tensor([0.9, -0.3, 0.4])
    with torch.enable_grad():
        vectors = [embedded(*texts) for texts in (first, second, third)]
        ranking = losses.MultipleNegativesRankingLoss(None)
        loss = ranking.compute_loss_from_embeddings(vectors[:2], None)
        loss.backward()
        # Shortened to 12 and 20 values.
        matryoshka = {}
        for name, own, count in (("loss", ranking, 2), ("triplet_loss", losses.TripletLoss(None), 3),
                                 ("score_loss", losses.CosineSimilarityLoss(None), 2)):
            cut = [[torch.nn.functional.normalize(v[:, :width]) for v in vectors[:count]] for width in (WIDTH, 12, 20)]
            matryoshka[f"matryoshka.{name}"] = sum(own.compute_loss_from_embeddings(rows, scores) for rows in cut)
    names = ("layers.0.self_attn.k_proj.weight", "layers.1.mlp.up_proj.weight") if pools_last else (
        "embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.value.bias")
    steps = {("step.model." if pools_last else "step.") + n: (w := model.get_parameter(n)).data - RATE * w.grad for n in names}
    return dict(second_tokens=second[0], second_lengths=second[1], third_tokens=third[0], third_lengths=third[1], scores=scores, loss=loss,
                loss_with_negatives=ranking.compute_loss_from_embeddings(vectors, None),
                triplet_loss=losses.TripletLoss(None).compute_loss_from_embeddings(vectors, None),
                score_loss=losses.CosineSimilarityLoss(None).compute_loss_from_embeddings(vectors[:2], scores), **steps, **matryoshka)


def encoder_numbers(model, generator, has_head):
    lengths = torch.tensor([12, 7, 1])
    tokens = torch.randint(3, VOCABULARY, (3, 12), generator=generator)
    mask = torch.arange(12)[None, :] < lengths[:, None]
    tokens[~mask] = model.config.pad_token_id
    # padding within a text has its own position and is not counted
    if "roberta" in model.config.model_type:
        tokens[0, 4] = tokens[0, 7] = model.config.pad_token_id
    base = getattr(model, model.base_model_prefix) if has_head else model
    hidden = base(tokens, attention_mask=mask.long()).last_hidden_state
    rows = mask[:, :, None]
    out = dict(tokens=tokens, lengths=lengths, hidden=hidden * rows, mean=(hidden * rows).sum(1) / lengths[:, None], cls=hidden[:, 0],
               max=hidden.masked_fill(~rows, -1e9).max(1).values)
    if "TokenClassification" in type(model).__name__:
        labels = torch.randint(0, 3, tokens.shape, generator=generator)
        labels[~mask] = labels[:, 0] = -100
        with torch.enable_grad():
            result = model(tokens, attention_mask=mask.long(), labels=labels)
            result.loss.backward()
        out.update(labels=labels, logits=result.logits * rows, loss=result.loss)
        head = model.score if "Llama" in type(model).__name__ else model.classifier
        out.update({f"step.classifier.{n}": p.data - RATE * p.grad for n, p in head.named_parameters()})
    elif has_head:
        labels = torch.tensor([2, 0, 1])
        logits = model(tokens, attention_mask=mask.long()).logits
        out.update(labels=labels, logits=logits, loss=torch.nn.functional.cross_entropy(logits, labels))
        if model.config.model_type in STEPPED_CLASSES:
            out.update(stepped(model, tokens, mask.long(), labels))
    if model.config.model_type in ("llama", "gpt2", "qwen3"):
        out.update(last=hidden[torch.arange(3), lengths - 1])
    return out


def stepped(model, tokens, mask, labels):
    """Weights after a step. The model is not changed."""
    with torch.enable_grad():
        torch.nn.functional.cross_entropy(model(tokens, attention_mask=mask).logits, labels).backward()
    base = getattr(model, model.base_model_prefix)
    kind = model.config.model_type
    prefix = "" if kind in ("albert", *FILE_NAMES) else model.base_model_prefix + "."

    def name_of(module):
        for begin, other in FILE_NAMES.get(kind, {}).items():
            module = other + module.removeprefix(begin) if module.startswith(begin) else module
        return prefix + module
    weights = {name_of(name): base.get_parameter(name) for name in STEPPED_CLASSES[kind]}
    return {f"step.{name}": w.data - RATE * w.grad for name, w in weights.items()}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def as_transformers_4(folder):
    """Rewrites config.json to the older form with max_window_layers in place of layer_types."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    if "sliding_attention" in rope:  # Gemma 3
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    config["rope_theta"] = rope["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    write_json(folder / "config.json", config)


def with_tokenizer(folder):
    """Adds a tokenizer whose words are numbers, a chat template, and several end tokens."""
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {str(i): i for i in range(VOCABULARY)}, "unk_token": "0"}})
    write_json(folder / "tokenizer_config.json", {
        "bos_token": {"content": "<s>", "special": True}, "eos_token": "</s>",
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})
    write_json(folder / "generation_config.json", {"eos_token_id": [2, 7]})


def as_sentences(folder, pooling):
    """Adds the files of sentence-transformers."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write_json(folder / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                         for i, (kind, path) in enumerate(kinds)])
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False,
                                                      f"pooling_mode_{pooling}": True})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})


def make(name):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seq = 40 if name == "llama3" else 12
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        model = MODELS[name]().eval().float()
        model.set_attn_implementation("eager")
        randomize(model, generator)
        with torch.no_grad():
            kind = type(model).__name__
            if name == "qwen3_sentences" or not any(name in kind for name in ("CausalLM", "LMHead", "Generation")):
                numbers = encoder_numbers(model.model if "CausalLM" in kind else model, generator, "Classification" in kind)
                break
            numbers, margin = decoder_numbers(model, generator, seq)
        if margin > MARGIN:
            if name in STEPPED:
                numbers.update(stepped_decoder(model, numbers["tokens"], numbers["labels"]))
            break
    else:
        sys.exit(f"{name}: no seed has greedy tokens with a margin of {MARGIN}")
    model.save_pretrained(folder, **({"max_shard_size": "40KB"} if name == "qwen2" else {}))
    if name.endswith("_sentences"):
        numbers.update(sentence_numbers(model.model if "CausalLM" in kind else model, (numbers["tokens"], numbers["lengths"]), generator,
                                        name == "qwen3_sentences"))
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    if name in ("mistral", "mistral_window", "qwen2_window", "gemma3_older"):
        as_transformers_4(folder)
    if name == "llama":
        with_tokenizer(folder)
    if name.endswith("_sentences"):
        as_sentences(folder, "mean_tokens" if name == "bert_sentences" else "lasttoken")
    numbers = {k: (v.detach().to(torch.int32) if v.dtype == torch.int64 else v.detach().float()).contiguous() for k, v in numbers.items()}
    save_file(numbers, HERE / f"{name}.expected.safetensors")
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert size <= 300_000, (name, size)
    print(f"{name}: seed {seed}, {size} bytes")


def write_defaults():
    rows = {}
    for path in sorted(HERE.glob("*/config.json")):
        config = json.loads(path.read_text())
        kind = type(transformers.AutoConfig.for_model(config["model_type"]))
        row = rows[path.parent.name] = {}
        for key in sorted(config):
            try:
                assumed = kind.from_dict({k: v for k, v in config.items() if k != key}).to_dict()
            except StrictDataclassError:  # the key must be there
                continue
            if key in assumed and key not in ("model_type", "architectures", "transformers_version", "dtype"):
                row[key] = assumed[key]
    lines = [f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in rows.items()]
    (HERE.parent / "defaults.json").write_text("{" + ",\n ".join(lines) + "}\n")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        make(name)
    write_defaults()


if __name__ == "__main__":
    main()
