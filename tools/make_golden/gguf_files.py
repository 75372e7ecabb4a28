#!/usr/bin/env python3
"""Makes the files of tests/gguf/data with PyPI's gguf, and the logits of the models in them with
transformers.

usage: gguf_files.py FOLDER [SEEDS]

  types.gguf        a matrix of each type of numbers that is read, and beside it ("*.expected", F32)
                    what gguf.quants makes of it
  names_*.gguf      an architecture with one or two tiny layers; element i of tensor n, in the order
                    of the names of Hugging Face, is 1000 n + i
  llama_*.gguf      small random models of Llama; logits_*.f32 are those of transformers with the
                    numbers that the file says
  gpt2_*.gguf       the same of GPT-2, with logits_gpt2_*.f32
  gemma2_*.gguf     the same of Gemma 2, with logits_gemma2_*.f32

SEEDS gets files of a few kB, from which the fuzz target begins.

All is made with numpy's and torch's generators of fixed seeds: nothing is of other origin, and the
licence is that of this repository.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as T

VOCABULARY = 64


def new_writer(path, architecture):
    return gguf.GGUFWriter(path, architecture, use_temp_file=False)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer, name, values, kind):
    if kind == T.F32:
        writer.add_tensor(name, values.astype(np.float32))
    elif kind == T.F16:
        writer.add_tensor(name, values.astype(np.float16))
    else:
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)


def quantize(values, kind):
    """gguf.quants has no encoder for the K types. Their bits are random, because every pattern of
    bits is
    a legal block.
    """
    if kind not in (T.Q4_K, T.Q5_K, T.Q6_K):
        return gguf.quants.quantize(values.astype(np.float32), kind)
    return drawn_blocks(values, kind)


def drawn_blocks(values, kind):
    rows, columns = values.shape
    draw = np.random.default_rng(7 + rows + columns + int(kind))
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    scale = draw.uniform(0.0001, 0.0003, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    if kind in (T.Q4_K, T.Q5_K):
        blocks[:, 0:2] = scale
        blocks[:, 2:4] = (8 * scale.view(np.float16)).astype(np.float16).view(np.uint8)
    else:
        blocks[:, 208:210] = (scale.view(np.float16) / 16).astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, columns // block * size)


def numbers_of(values, kind):
    """Returns the values of the file in f32."""
    if kind == T.F32:
        return values.astype(np.float32)
    if kind == T.F16:
        return values.astype(np.float16).astype(np.float32)
    return gguf.quants.dequantize(quantize(values, kind), kind)


def make_types(folder):
    writer = new_writer(folder / "types.gguf", "llama")
    draw = np.random.default_rng(1)
    for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q4_K, T.Q6_K, T.Q5_0, T.Q5_1, T.Q5_K):
        values = draw.normal(0, 1, (2, 256)).astype(np.float32)
        add(writer, kind.name, values, kind)
        writer.add_tensor(f"{kind.name}.expected", numbers_of(values, kind))
    writer.add_array("test.mixed", [1, -2, 3])
    writer.add_array("test.texts", ["", "a", "\u00e9\u4e16"])
    writer.add_float64("test.f64", 0.1)
    writer.add_int8("test.i8", -5)
    writer.add_uint64("test.u64", 2**63)
    writer.add_bool("test.bool", True)
    finish(writer)


def make_seeds(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for architecture in ARCHITECTURES:
        make_names(folder / architecture, architecture, 4, 2, 1, 2)
    for kind in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q4_K, T.Q6_K):
        make_seed(folder / kind.name.lower(), kind)


def make_seed(path, kind):
    """Returns a table, a matrix with rows of heads, and the divisors of RoPE."""
    writer = new_writer(path, "llama")
    columns = max(32, gguf.GGML_QUANT_SIZES[kind][0])
    config = tiny_config("llama", hidden_size=columns, num_hidden_layers=1, head_dim=2)
    add_config(writer, "llama", config)
    add_tokenizer(writer)
    values = np.random.default_rng(5).normal(0, 1, (4, columns)).astype(np.float32)
    add(writer, "token_embd.weight", values[:1], kind)
    add(writer, "blk.0.attn_k.weight", values, kind)
    writer.add_tensor("rope_freqs.weight", np.ones(1, dtype=np.float32))
    finish(writer)


def permuted(values, heads, halves=2):
    """Orders the rows of a head as llama.cpp's convert_hf_to_gguf.py does. With half as many
    `halves` as a head has rows, the other way round."""
    shape = values.shape
    return values.reshape(heads, halves, shape[0] // heads // halves, *shape[1:]).swapaxes(1, 2).reshape(shape)


HEADS, KV_HEADS = 4, 2


def gguf_values(config, name, values, back=False):
    """Converts a Hugging Face tensor to the layout of GGUF, or back."""
    architecture, part = config.model_type, name.split(".")[-2]
    if architecture == "llama" and part in ("attn_q", "attn_k"):
        heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
        return permuted(values, heads, values.shape[0] // heads // 2 if back else 2)
    if architecture == "gpt2" and values.ndim == 2 and part in ("attn_qkv", "attn_output", "ffn_up", "ffn_down"):
        return values.T.copy()
    if architecture == "gemma2" and name.endswith("norm.weight"):
        return values + np.float32(-1 if back else 1)
    return values


ARCHITECTURES = {
    "llama": (gguf.MODEL_ARCH.LLAMA, transformers.LlamaForCausalLM, transformers.LlamaConfig,
              {"attention_bias": True, "mlp_bias": True, "head_dim": 8}),
    "qwen2": (gguf.MODEL_ARCH.QWEN2, transformers.Qwen2ForCausalLM, transformers.Qwen2Config, {}),
    "qwen3": (gguf.MODEL_ARCH.QWEN3, transformers.Qwen3ForCausalLM, transformers.Qwen3Config, {"head_dim": 16}),
    "gemma2": (gguf.MODEL_ARCH.GEMMA2, transformers.Gemma2ForCausalLM, transformers.Gemma2Config,
               {"head_dim": 16, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 4.0, "sliding_window": 5}),
    "gpt2": (gguf.MODEL_ARCH.GPT2, transformers.GPT2LMHeadModel, transformers.GPT2Config, {}),
    "bert": (gguf.MODEL_ARCH.BERT, transformers.BertModel, transformers.BertConfig, {}),
}


def tiny_config(architecture, **changes):
    kind = ARCHITECTURES[architecture][2]
    if architecture == "gpt2":
        return kind(**({"n_embd": 32, "n_layer": 2, "n_head": HEADS, "n_inner": 48, "n_positions": 16, "vocab_size": VOCABULARY} | changes))
    settings = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": HEADS,
                "max_position_embeddings": 16, "vocab_size": VOCABULARY, **ARCHITECTURES[architecture][3]}
    if architecture != "bert":
        settings |= {"num_key_value_heads": KV_HEADS, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
    return kind(**(settings | changes))


def add_config(writer, architecture, config):
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.n_inner if architecture == "gpt2" else config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if architecture == "gpt2":
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    elif architecture == "bert":
        writer.add_layer_norm_eps(config.layer_norm_eps)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        if getattr(config, "head_dim", None):
            writer.add_key_length(config.head_dim)
            writer.add_value_length(config.head_dim)
        if architecture == "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
            writer.add_sliding_window(config.sliding_window)


def add_tokenizer(writer):
    """A byte-level BPE with the first bytes and a few merges; control tokens at the end."""
    alphabet = [chr(c) for c in range(33, 33 + VOCABULARY - 6)]
    tokens = [*alphabet, "th", "the", "<s>", "</s>", "<pad>", "\u0120"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (VOCABULARY - 4) + [3, 3, 3, 1])
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(VOCABULARY - 4)
    writer.add_eos_token_id(VOCABULARY - 3)
    writer.add_pad_token_id(VOCABULARY - 2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def state_of(model):
    """Returns the tensors by name; of tied tensors only the first."""
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    skipped = (".attn.bias", ".attn.masked_bias", "position_ids", "pooler.dense.weight", "pooler.dense.bias")
    return {name: value.float().numpy() for name, value in model.state_dict().items()
            if name not in tied and not name.endswith(skipped)}


def make_names(path, architecture, width, inner, layers, vocabulary):
    arch, model_class, _, _ = ARCHITECTURES[architecture]
    small = {"n_embd": width, "n_inner": inner, "n_layer": layers} if architecture == "gpt2" else \
        {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    if "head_dim" in ARCHITECTURES[architecture][3] and width < 16:
        small["head_dim"] = 2
        small |= {"query_pre_attn_scalar": 2} if architecture == "gemma2" else {}
    model = model_class(tiny_config(architecture, vocab_size=vocabulary, **small))
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    writer = new_writer(path, architecture)
    add_config(writer, architecture, model.config)
    for number, (name, value) in enumerate(sorted(state_of(model).items())):
        values = (1000 * number + np.arange(value.size)).reshape(value.shape).astype(np.float32)
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(to, gguf_values(model.config, to, values))
    finish(writer)


def draw_weights(model, seed):
    torch.manual_seed(seed)
    middle = 0 if model.config.model_type == "gemma2" else 1
    for name, value in model.state_dict().items():
        drawn = torch.randn_like(value)
        # 16 bits represent the norms exactly, as in released models
        value.copy_((drawn * 8).round() / 64 + middle if "norm" in name else drawn * 0.2)


def make_model(folder, kind, config, seed, rope=None):
    """A model whose matrices are of `kind` where their rows are whole blocks, else Q8_0 in files of
    K types, else F16, as llama.cpp chooses.
    """
    architecture = config.model_type
    arch, model_class, _, _ = ARCHITECTURES[architecture]
    model = model_class(config).eval()
    draw_weights(model, seed)
    name_map = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    label = kind.name.lower() if rope is None else "rope"
    path = folder / f"{architecture}_{label}.gguf"
    writer = new_writer(path, architecture)
    add_config(writer, architecture, config)
    add_tokenizer(writer)
    state = dict(model.state_dict())
    for name, value in state_of(model).items():
        to = name_map.get_name(name, try_suffixes=(".weight", ".bias"))
        values = gguf_values(config, to, value)
        kinds = [kind, T.Q8_0, T.F16] if kind in (T.Q4_K, T.Q6_K) else [kind, T.F16]
        used = T.F32 if value.ndim == 1 else next(k for k in kinds if values.shape[1] % gguf.GGML_QUANT_SIZES[k][0] == 0)
        add(writer, to, values, used)
        state[name].copy_(torch.from_numpy(gguf_values(config, to, numbers_of(values, used), back=True).copy()))
    if rope is not None:
        writer.add_tensor("rope_freqs.weight", rope)
    finish(writer)
    tokens, logits = write_logits(model, folder / f"logits_{label if architecture == 'llama' else path.stem}.f32")
    # For Llama it supports no other head_dim and no divisors.
    if architecture != "llama" or (config.head_dim * config.num_attention_heads == config.hidden_size and rope is None):
        check(path, tokens, logits, config)


def write_logits(model, path):
    tokens = torch.arange(0, 24).reshape(2, 12) * 5 % VOCABULARY
    with torch.no_grad():
        logits = model(tokens).logits
    path.write_bytes(logits.numpy().astype("<f4").tobytes())
    return tokens, logits


def check(path, tokens, logits, config):
    """Loads the file with the GGUF reader of transformers, which ignores some settings of GPT-2."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, config=config)
    with torch.no_grad():
        difference = (model(tokens).logits - logits).abs().max().item()
    print(f"{path.name}: transformers' reader of GGUF differs by {difference:.2e}")


def llama3_frequencies(config):
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1 / (config.rope_parameters["rope_theta"] ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim))
    return (plain / scaled).numpy().astype(np.float32)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    make_types(folder)
    for architecture in ARCHITECTURES:
        make_names(folder / f"names_{architecture}.gguf", architecture, 16, 24, 2, 16)
    small = {"attention_bias": False, "mlp_bias": False, "intermediate_size": 32}
    for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1):
        make_model(folder, kind, tiny_config("llama", **small), 3)
    for kind in (T.Q4_K, T.Q6_K):
        make_model(folder, kind, tiny_config("llama", **small | {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
                                                                "num_key_value_heads": 1, "head_dim": 16}), 3)
    for architecture, kinds in (("gpt2", (T.F32, T.Q8_0)), ("gemma2", (T.F32, T.BF16, T.Q8_0))):
        for kind in kinds:
            make_model(folder, kind, tiny_config(architecture), 4)
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192, "rope_theta": 10000.0}
    config = tiny_config("llama", **small | {"head_dim": 32, "num_hidden_layers": 1, "rope_parameters": scaling,
                                             "max_position_embeddings": 16384})
    make_model(folder, T.Q8_0, config, 3, llama3_frequencies(config))
    if len(sys.argv) > 2:
        make_seeds(pathlib.Path(sys.argv[2]))
    (folder / "rope.json").write_text(json.dumps(scaling) + "\n")


if __name__ == "__main__":
    main()
