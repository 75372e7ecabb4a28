#!/usr/bin/env python3
"""Makes the fixtures of peft_test.cpp: random transformers models, peft adapters and their results.

    python -m venv venv
    venv/bin/pip install torch==2.13.0 transformers==5.23.0 peft==0.21.2
    venv/bin/python tests/peft/make_peft_fixtures.py tests/peft/fixtures

Some adapters are for models of tests/import/fixtures.

With --check FOLDER NAME: opens an adapter that Bowline wrote for the model of the adapter NAME, and
prints the largest difference of its logits from those of the adapter NAME."""
import argparse
import json
import os
import shutil

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY = 48
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=32, tie_word_embeddings=False, initializer_range=0.2, bos_token_id=1, eos_token_id=2)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=16, initializer_range=0.2, bos_token_id=1, eos_token_id=2,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
}
# name: model, config
ADAPTERS = {
    "llama_qv": ("llama", dict(r=4, lora_alpha=10, target_modules=["q_proj", "v_proj", "down_proj"])),
    "llama_some_layers": ("llama", dict(r=2, lora_alpha=8, target_modules=["o_proj", "up_proj"], layers_to_transform=[1])),
    "llama_tables": ("llama", dict(r=3, lora_alpha=6, target_modules=["embed_tokens", "lm_head", "gate_proj"], use_rslora=True)),
    "gpt2_conv1d": ("gpt2", dict(r=4, lora_alpha=4, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    # For a model of tests/import/fixtures: every product of its layers.
    "gemma2_all": ("gemma2", dict(r=2, lora_alpha=6, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                                    "down_proj"])),
}

IMPORTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import", "fixtures")
# Adapters of classifiers, for models of tests/import/fixtures. peft saves the whole head, with
# weights that differ from the model's.
CLASSES = {
    "bert_head": ("bert_classes", dict(r=4, lora_alpha=2, target_modules=["query", "value"])),
    "roberta_head": ("roberta_classes", dict(r=32, lora_alpha=8, target_modules=["key"])),
    "distilbert_head": ("distilbert_classes", dict(r=32, lora_alpha=16, target_modules=["q_lin"])),
    "bert_bias": ("bert_classes", dict(r=2, lora_alpha=4, target_modules=["query"])),
    "roberta_bias": ("roberta_classes", dict(r=2, lora_alpha=3, target_modules=["key"])),
    "llama_score": ("llama_classes", dict(r=4, lora_alpha=2, target_modules=["q_proj", "down_proj"])),
}
# Their biases differ, too, and their rank is smaller than the number of classes.
BIASES = ("bert_bias", "roberta_bias")


def folder_of(model, out):
    return os.path.join(out if model in MODELS else IMPORTED, model)


def with_base(folder, model):
    """Replaces the path of the base model by its name."""
    config = os.path.join(folder, "adapter_config.json")
    with open(config, encoding="utf-8") as f:
        settings = json.load(f) | {"base_model_name_or_path": model}
    with open(config, "w", encoding="utf-8") as f:
        json.dump(settings, f, indent=2, sort_keys=True)


def tokens(seed):
    return torch.randint(0, VOCABULARY, (2, 8), generator=torch.Generator().manual_seed(seed))


def randomize(model, seed, zero_b=False):
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if "lora_" in name:
            is_b = "lora_B" in name or "embedding_B" in name
            p.data = torch.zeros_like(p) if zero_b and is_b else torch.randn(p.shape, generator=generator) * 0.2


def rounded(values):
    return [float(f"{v:.7g}") for v in values.reshape(-1).tolist()]


def logits_of(model, ids):
    model.eval()
    with torch.no_grad():
        return model(ids).logits


def losses_of(model, ids, labels):
    """20 AdamW steps on one batch, as in `Trainer`: the labels are already shifted."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    out = []
    model.train()
    for _ in range(20):
        logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1))
        out.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return out


def make_classes(out, expected):
    expected["classes"] = {}
    for number, (name, (model, settings)) in enumerate(CLASSES.items()):
        base = AutoModelForSequenceClassification.from_pretrained(folder_of(model, out))
        adapted = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", **settings))
        randomize(adapted, number + 20)
        generator = torch.Generator().manual_seed(number + 30)
        for key, p in adapted.named_parameters():
            if "modules_to_save" in key and (p.dim() == 2 or name in BIASES):
                p.data = p.data + torch.randn(p.shape, generator=generator) * 0.3
        folder = os.path.join(out, name)
        adapted.save_pretrained(folder)
        with_base(folder, model)
        ids = tokens(1).clamp(min=3)
        expected["classes"][name] = {"model": model, "tokens": ids.reshape(-1).tolist(), "logits": rounded(logits_of(adapted, ids))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--check", nargs=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        folder, name = args.check
        with open(os.path.join(args.out, "expected.json"), encoding="utf-8") as f:
            expected = json.load(f)
        is_head = name in CLASSES
        expected = expected["classes" if is_head else "adapters"][name]
        kind = AutoModelForSequenceClassification if is_head else AutoModelForCausalLM
        base = kind.from_pretrained(folder_of(expected["model"], args.out))
        ids = tokens(1).clamp(min=3 if is_head else 0)
        logits = logits_of(PeftModel.from_pretrained(base, folder), ids).reshape(-1)
        print(float((logits - torch.tensor(expected["logits"])).abs().max()))
        return
    shutil.rmtree(args.out, ignore_errors=True)
    expected = {"tokens": tokens(1).reshape(-1).tolist(), "labels": tokens(2).reshape(-1).tolist(), "adapters": {}}
    for number, (name, make) in enumerate(MODELS.items()):
        torch.manual_seed(number + 1)
        make().save_pretrained(os.path.join(args.out, name))
    for number, (name, (model, settings)) in enumerate(ADAPTERS.items()):
        base = AutoModelForCausalLM.from_pretrained(folder_of(model, args.out))
        adapted = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
        randomize(adapted, number + 10)
        folder = os.path.join(args.out, name)
        adapted.save_pretrained(folder)
        if model not in MODELS:
            with_base(folder, model)
        expected["adapters"][name] = {"model": model, "logits": rounded(logits_of(adapted, tokens(1)))}
    base = AutoModelForCausalLM.from_pretrained(os.path.join(args.out, "llama"))
    trained = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "up_proj"]))
    randomize(trained, 99, zero_b=True)
    trained.save_pretrained(os.path.join(args.out, "llama_begin"))
    expected["losses"] = losses_of(trained, tokens(1), tokens(2))
    make_classes(args.out, expected)
    for folder, _, files in os.walk(args.out):
        for file in files:
            if file in ("README.md", "generation_config.json"):
                os.remove(os.path.join(folder, file))
    with open(os.path.join(args.out, "expected.json"), "w", encoding="utf-8") as f:
        json.dump(expected, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
