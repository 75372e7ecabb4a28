#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/peft and corpus/gguf_adapter.

The files are small adapters for the models of corpus/safetensors, in the input format of the
targets.
"""

import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus"
W, V, F = 4, 3, 2  # width, vocabulary, feed-forward
SIZES = {"F32": 4, "F16": 2, "BF16": 2}

LAYER, HEAD = "model.layers.0.", "transformer.h.0."
# Of each input: the model (Llama, GPT-2, RoBERTa), rank, settings, dtype, modules with their
# columns (in) and rows (out).
ADAPTERS = {
    "llama": (0, 2, {"lora_alpha": 4}, "F32", {LAYER + "self_attn.q_proj": (W, W), LAYER + "self_attn.k_proj": (W, 2),
                                               LAYER + "mlp.down_proj": (F, W)}),
    "llama_f16": (0, 1, {"lora_alpha": 1, "use_rslora": True, "lora_dropout": 0.25}, "F16", {LAYER + "mlp.up_proj": (W, F)}),
    "llama_bf16": (0, 3, {"lora_alpha": 0.5, "bias": "none", "modules_to_save": None}, "BF16", {LAYER + "self_attn.o_proj": (W, W)}),
    "llama_tables": (0, 2, {"lora_alpha": 2}, "F32", {"model.embed_tokens": (V, W), "lm_head": (W, V)}),
    "gpt2": (1, 2, {"lora_alpha": 2, "fan_in_fan_out": True}, "F32", {HEAD + "attn.c_attn": (W, 3 * W), HEAD + "mlp.c_proj": (F, W)}),
    "roberta_head": (2, 4, {"lora_alpha": 2, "modules_to_save": ["classifier", "score"]}, "F32",
                     {"roberta.encoder.layer.0.attention.self.query": (W, W)}),
    "gpt2_tables": (1, 1, {"lora_alpha": 1}, "F32", {"transformer.wte": (V, W)}),
}
# Tensors of the RoBERTa head of corpus/safetensors. Its biases do not change.
HEAD_SHAPES = {"classifier.dense.weight": [W, W], "classifier.out_proj.weight": [2, W]}
TABLES = ("embed_tokens", "wte")
NAMES = {LAYER + "self_attn.q_proj": "blk.0.attn_q", LAYER + "self_attn.k_proj": "blk.0.attn_k", LAYER + "self_attn.o_proj": "blk.0.attn_output",
         LAYER + "mlp.down_proj": "blk.0.ffn_down", LAYER + "mlp.up_proj": "blk.0.ffn_up", "model.embed_tokens": "token_embd",
         "lm_head": "output", "transformer.wte": "token_embd", HEAD + "attn.c_attn": "blk.0.attn_qkv",
         HEAD + "mlp.c_proj": "blk.0.ffn_down"}


def numbers(count, size, at):
    return bytes((5 * at + 11 * i) % 60 for i in range(count * size))


# Flag of an input whose adapter also runs, which takes most of the time.
RUNS = 128


def peft(model, rank, settings, dtype, modules):
    header, data = {}, b""
    for module, (columns, rows) in modules.items():
        ends = ("lora_embedding_A", "lora_embedding_B") if module.endswith(TABLES) else ("lora_A.weight", "lora_B.weight")
        for end, shape in zip(ends, ([rank, columns], [rows, rank])):
            begin = len(data)
            data += numbers(shape[0] * shape[1], SIZES[dtype], begin)
            header[f"base_model.model.{module}.{end}"] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    for name, shape in HEAD_SHAPES.items() if "modules_to_save" in settings and settings["modules_to_save"] else ():
        begin = len(data)
        data += struct.pack(f"<{shape[0] * shape[1]}f", *(0.25 * (i % 5) for i in range(shape[0] * shape[1])))
        header[f"base_model.model.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    config = json.dumps({"peft_type": "LORA", "r": rank, **settings}).encode()
    head = json.dumps(header, separators=(",", ":")).encode()
    return bytes([model]) + struct.pack("<H", len(config)) + config + struct.pack("<Q", len(head)) + head + data


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(model, rank, settings, dtype, modules):
    keys = [text(key) + struct.pack("<I", 8) + text(value) for key, value in
            (("general.architecture", ("llama", "gpt2")[model]), ("general.type", "adapter"), ("adapter.type", "lora"))]
    keys.append(text("adapter.lora.alpha") + struct.pack("<If", 6, settings["lora_alpha"]))
    infos, data = [], b""
    for module, (columns, rows) in modules.items():
        first = [columns, rank] if module.endswith(TABLES) else [rank, columns]
        for end, shape in (("lora_a", first), ("lora_b", [rows, rank])):
            data += bytes(-len(data) % 32)
            infos.append(text(f"{NAMES[module]}.weight.{end}") +
                         struct.pack("<IQQIQ", 2, shape[1], shape[0], {"F32": 0, "F16": 1, "BF16": 30}[dtype], len(data)))
            data += numbers(shape[0] * shape[1], SIZES[dtype], len(data))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys + infos)
    return bytes([model]) + head + bytes(-len(head) % 32) + data + bytes(-len(data) % 32)


def main():
    for folder, make in (("peft", peft), ("gguf_adapter", gguf)):
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
        for name, adapter in ADAPTERS.items():
            if make is gguf and adapter[0] > 1:  # GGUF has no adapters for encoders
                continue
            content = make(*adapter)
            (FOLDER / folder / name).write_bytes(content)
            (FOLDER / folder / f"{name}_runs").write_bytes(bytes([RUNS + content[0]]) + content[1:])


if __name__ == "__main__":
    main()
