#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/safetensors: the smallest models of every architecture, and from them and
other fixtures tests/fuzz/corpus/import.

The files have the input formats of safetensors_fuzz.cpp and import_fuzz.cpp.
"""

import json
import pathlib
import struct

TESTS = pathlib.Path(__file__).resolve().parent.parent
FOLDER = TESTS / "fuzz/corpus/safetensors"
IMPORT = TESTS / "fuzz/corpus/import"
W, V, F, P = 4, 3, 2, 8  # width, vocabulary, feed-forward, positions

ENCODER = {"hidden_size": W, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": F, "vocab_size": V,
           "max_position_embeddings": P}
LLAMA = {"hidden_size": W, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": F,
         "vocab_size": V, "max_position_embeddings": P}


def norm(name):
    return {f"{name}.weight": [W], f"{name}.bias": [W]}


def linear(name, out, of):
    return {f"{name}.weight": [out, of], f"{name}.bias": [out]}


def bert(prefix=""):
    layer = "encoder.layer.0."
    out = {"embeddings.word_embeddings.weight": [V, W], "embeddings.position_embeddings.weight": [P, W],
           "embeddings.token_type_embeddings.weight": [2, W], **norm("embeddings.LayerNorm")}
    for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        out.update(linear(layer + part, W, W))
    out.update(norm(layer + "attention.output.LayerNorm"))
    out.update(linear(layer + "intermediate.dense", F, W))
    out.update(linear(layer + "output.dense", W, F))
    out.update(norm(layer + "output.LayerNorm"))
    return {prefix + k: v for k, v in out.items()}


def distilbert():
    layer = "transformer.layer.0."
    out = {"embeddings.word_embeddings.weight": [V, W], "embeddings.position_embeddings.weight": [P, W], **norm("embeddings.LayerNorm")}
    for part in ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"):
        out.update(linear(layer + part, W, W))
    out.update({**norm(layer + "sa_layer_norm"), **linear(layer + "ffn.lin1", F, W), **linear(layer + "ffn.lin2", W, F),
                **norm(layer + "output_layer_norm")})
    return out


def albert():
    layer = "encoder.albert_layer_groups.0.albert_layers.0."
    out = {"embeddings.word_embeddings.weight": [V, 2], "embeddings.position_embeddings.weight": [P, 2],
           "embeddings.token_type_embeddings.weight": [2, 2], "embeddings.LayerNorm.weight": [2], "embeddings.LayerNorm.bias": [2],
           **linear("encoder.embedding_hidden_mapping_in", W, 2)}
    for part in ("attention.query", "attention.key", "attention.value", "attention.dense"):
        out.update(linear(layer + part, W, W))
    out.update({**norm(layer + "attention.LayerNorm"), **linear(layer + "ffn", F, W), **linear(layer + "ffn_output", W, F),
                **norm(layer + "full_layer_layer_norm")})
    return out


def llama(qkv_bias=False, head_norms=False):
    layer = "model.layers.0."
    out = {"model.embed_tokens.weight": [V, W], "model.norm.weight": [W], layer + "input_layernorm.weight": [W],
           layer + "post_attention_layernorm.weight": [W], layer + "self_attn.q_proj.weight": [W, W],
           layer + "self_attn.k_proj.weight": [2, W], layer + "self_attn.v_proj.weight": [2, W], layer + "self_attn.o_proj.weight": [W, W],
           layer + "mlp.gate_proj.weight": [F, W], layer + "mlp.up_proj.weight": [F, W], layer + "mlp.down_proj.weight": [W, F]}
    if qkv_bias:
        out.update({layer + "self_attn.q_proj.bias": [W], layer + "self_attn.k_proj.bias": [2], layer + "self_attn.v_proj.bias": [2]})
    if head_norms:
        out.update({layer + "self_attn.q_norm.weight": [2], layer + "self_attn.k_norm.weight": [2]})
    return out


def gemma2():
    layer = "model.layers.0."
    return {**llama(), layer + "pre_feedforward_layernorm.weight": [W], layer + "post_feedforward_layernorm.weight": [W]}


def gemma3():
    layer = "model.layers.0.self_attn."
    return {**gemma2(), layer + "q_norm.weight": [2], layer + "k_norm.weight": [2]}


def phi3():
    layer = "model.layers.0."
    parts = {name: shape for name, shape in llama().items() if not name.endswith(tuple(f".{part}_proj.weight" for part in ("q", "k", "v", "gate", "up")))}
    return {**parts, layer + "self_attn.qkv_proj.weight": [3 * W, W], layer + "mlp.gate_up_proj.weight": [2 * F, W]}


def olmo2():
    layer = "model.layers.0."
    out = {**llama(), layer + "post_feedforward_layernorm.weight": [W], layer + "self_attn.q_norm.weight": [W],
           layer + "self_attn.k_norm.weight": [2]}
    del out[layer + "input_layernorm.weight"]
    return out


def gpt2():
    layer = "h.0."
    return {"wte.weight": [V, W], "wpe.weight": [P, W], **norm(layer + "ln_1"), layer + "attn.c_attn.weight": [W, 3 * W],
            layer + "attn.c_attn.bias": [3 * W], layer + "attn.c_proj.weight": [W, W], layer + "attn.c_proj.bias": [W],
            **norm(layer + "ln_2"), layer + "mlp.c_fc.weight": [W, F], layer + "mlp.c_fc.bias": [F], layer + "mlp.c_proj.weight": [F, W],
            layer + "mlp.c_proj.bias": [W], **norm("ln_f")}


MODELS = {
    "bert": ({"model_type": "bert", **ENCODER}, bert(), "F32"),
    "roberta": ({"model_type": "roberta", **ENCODER, "pad_token_id": 1},
                {**bert("roberta."), **linear("classifier.dense", W, W), **linear("classifier.out_proj", 2, W)}, "F32"),
    "distilbert": ({"model_type": "distilbert", "dim": W, "n_layers": 1, "n_heads": 2, "hidden_dim": F, "vocab_size": V,
                    "max_position_embeddings": P}, distilbert(), "F16"),
    "albert": ({"model_type": "albert", **ENCODER, "num_hidden_layers": 2, "embedding_size": 2}, albert(), "F32"),
    "llama": ({"model_type": "llama", **LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}, llama(), "BF16"),
    "qwen2": ({"model_type": "qwen2", **LLAMA, "tie_word_embeddings": True}, llama(qkv_bias=True), "F32"),
    "qwen3": ({"model_type": "qwen3", **LLAMA, "head_dim": 2, "eos_token_id": [1, 2]},
              {**llama(head_norms=True), "lm_head.weight": [V, W]}, "F32"),
    "gemma2": ({"model_type": "gemma2", **LLAMA, "head_dim": 2, "sliding_window": 1, "layer_types": ["sliding_attention"]}, gemma2(), "BF16"),
    "gemma3": ({"model_type": "gemma3_text", **LLAMA, "head_dim": 2, "sliding_window": 1, "layer_types": ["sliding_attention"],
                "rope_parameters": {"sliding_attention": {"rope_theta": 50.0}, "full_attention": {"rope_type": "llama3", "factor": 2.0,
                                    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4}}}, gemma3(), "BF16"),
    "granite": ({"model_type": "granite", **LLAMA, "embedding_multiplier": 2.0, "logits_scaling": 2.0, "residual_multiplier": 0.5,
                 "attention_multiplier": 0.5}, llama(), "F32"),
    "olmo2": ({"model_type": "olmo2", **LLAMA}, olmo2(), "F32"),
    "phi3": ({"model_type": "phi3", **LLAMA, "head_dim": 4, "num_attention_heads": 1, "num_key_value_heads": 1, "partial_rotary_factor": 0.5},
             phi3(), "F32"),
    "smollm3": ({"model_type": "smollm3", **LLAMA, "no_rope_layers": [0], "rope_scaling": {"type": "dynamic", "factor": 2.0}}, llama(), "F16"),
    "gpt2": ({"model_type": "gpt2", "n_embd": W, "n_layer": 1, "n_head": 2, "n_inner": F, "vocab_size": V, "n_positions": P}, gpt2(), "F32"),
}
# The vocabulary of 3 tokens.
TOKENIZER = {"model": {"type": "WordLevel", "vocab": {"knot": 0, "rope": 1, "<unk>": 2}, "unk_token": "<unk>"}}


def make_import_corpus():
    IMPORT.mkdir(parents=True, exist_ok=True)
    tokenizer = json.dumps(TOKENIZER).encode()
    for name, model, bits in (("llama", "llama", 1), ("llama_skeleton", "llama", 1 | 8 | 16), ("bert_classes", "bert", 1 | 2 | 4)):
        data = (FOLDER / model).read_bytes()
        config, rest = data[2:2 + data[0] + 256 * data[1]], data[2 + data[0] + 256 * data[1]:]
        (IMPORT / name).write_bytes(bytes([bits]) + struct.pack("<HH", len(config), len(tokenizer)) + config + tokenizer + rest)
    (IMPORT / "gguf").write_bytes(b"\2" + (TESTS / "gguf/data/llama_q4_0.gguf").read_bytes())
    (IMPORT / "onnx").write_bytes(b"\x22" + (TESTS / "onnx/batch/test_shapes/model.onnx").read_bytes())


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (config, tensors, dtype) in MODELS.items():
        header, data = {}, bytearray()
        for tensor, shape in sorted(tensors.items()):
            count = 1
            for d in shape:
                count *= d
            size = count * (4 if dtype == "F32" else 2)
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
            data += bytes((7 * len(data) + 13 * i) % 60 for i in range(size))
        text, head = json.dumps(config).encode(), json.dumps(header, separators=(",", ":")).encode()
        (FOLDER / name).write_bytes(struct.pack("<H", len(text)) + text + struct.pack("<Q", len(head)) + head + bytes(data))
    make_import_corpus()


if __name__ == "__main__":
    main()
