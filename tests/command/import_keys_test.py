#!/usr/bin/env python3
"""Readers of text models account for every key: a value that is not the usual one changes the model or is refused, and a key that a table
calls harmless changes no byte. The folders are those that transformers saved, with every key of their config class."""

import json
import pathlib
import re
import shutil
import unittest

import harness
from forms import Gguf
from harness import BAD_FILE, OK, run

TESTS = pathlib.Path(__file__).resolve().parents[1]
FIXTURES, IMPORT = TESTS / "import/fixtures", TESTS.parent / "tools/import"
HARMLESS = re.compile(r'\{"([^"]+)",\s*KeyUse::harmless\}')
# What a folder of the architecture is that a key means something in.
FOLDERS = {"llama": ["llama", "llama_biased"], "mistral": ["mistral_window"], "qwen2": ["qwen2_window", "qwen2"],
           "qwen3": ["qwen3_window"], "gemma2": ["gemma2"], "gpt2": ["gpt2"], "bert": ["bert_classes"], "roberta": ["roberta_classes"],
           "distilbert": ["distilbert_classes"], "albert": ["albert_classes"]}
FAMILIES = {"llama": "llama_family", "mistral": "llama_family", "qwen2": "llama_family", "qwen3": "llama_family", "gemma2": "llama_family",
            "bert": "bert_family", "roberta": "bert_family"}
SIZE = 8192  # of config.json, so that models differ in its text alone


def harmless_keys(*files):
    return [key for file in files for key in HARMLESS.findall((IMPORT / file).read_text())]


def others(key, value):
    """Values that are not the one that stands there."""
    if "act" in key and isinstance(value, str):
        return ["relu" if value != "relu" else "gelu"]
    if isinstance(value, bool):
        return [not value]
    if key == "max_window_layers":
        return [1 if value != 1 else 2]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value * 2 + 0.125]
    if isinstance(value, str):
        return ["another"]
    if isinstance(value, list):
        return [value[::-1] if value[::-1] != value else ["another"] if all(isinstance(v, str) for v in value) else [63]]
    if isinstance(value, dict):
        return [{k: other for k, v in value.items() for other in others(k, v)[:1]}]
    return [True, 3]


class ImportKeys(harness.Case):
    def setUp(self):
        super().setUp()
        self.source, self.out, self.digests = self.folder / "source", self.folder / "m.bowline", None

    def imported(self, config, *flags):
        """The bytes of the model without config.json and its digest; nothing: it was refused."""
        text = json.dumps(config, sort_keys=True)
        text += " " * (SIZE - len(text))
        (self.source / "config.json").write_text(text)
        done = run("import", self.source, "--out", self.out, "--force", "--dropout", *flags)
        self.assertIn(done.returncode, (OK, BAD_FILE, harness.USAGE), done.stderr)
        if done.returncode != OK:
            return None
        content = self.out.read_bytes()
        self.assertEqual(content.count(text.encode()), 1)
        content = bytearray(content.replace(text.encode(), b""))
        digests = self.digests if self.digests is not None else []
        for at in digests:
            content[at:at + 8] = bytes(8)
        return bytes(content)

    def find_digests(self, config, *flags):
        """Where a model changes with a key that is a note of its writer."""
        self.digests = None
        first, second = (self.imported(config | {"_note": n}, *flags) for n in range(2))
        self.digests = sorted({i // 8 * 8 for i, (a, b) in enumerate(zip(first, second)) if a != b})
        self.assertEqual(len(first), len(second))
        self.assertLessEqual(len(self.digests), 8)

    def folder_of(self, name):
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(FIXTURES / name, self.source)
        return json.loads((self.source / "config.json").read_text())

    def test_each_key_of_each_config(self):
        common = harmless_keys("blocks/build_model.cpp")
        for kind, folders in FOLDERS.items():
            own = harmless_keys(f"architectures/{kind}.cpp", *([f"blocks/{FAMILIES[kind]}.h"] if kind in FAMILIES else []))
            effects = {}
            for name in folders:
                config = self.folder_of(name)
                for key, value in config.items():
                    base = {k: v for k, v in config.items() if key != "max_window_layers" or k != "layer_types"}
                    flags = ["--skeleton"] if key in ("dtype", "torch_dtype") and kind not in ("bert", "roberta", "distilbert", "albert") else []
                    self.find_digests(base, *flags)
                    right = self.imported(base, *flags)
                    self.assertIsNotNone(right, name)
                    for other in others(key, value) if key not in ("dtype", "torch_dtype") else ["bfloat16"]:
                        made = self.imported(base | {key: other}, *flags)
                        effects.setdefault(key, set()).add("refused" if made is None else "same" if made == right else "changed")
            for key, seen in effects.items():
                with self.subTest(kind, key=key):
                    if key in own or key in common:
                        self.assertEqual(seen, {"same"})
                    elif key not in ("dtype", "torch_dtype") or kind not in ("bert", "roberta", "distilbert", "albert"):
                        self.assertTrue(seen - {"same"}, "The key changes nothing, is not refused, and no table says that it is harmless.")

    def test_what_a_table_calls_harmless(self):
        common = harmless_keys("blocks/build_model.cpp")
        for kind, folders in FOLDERS.items():
            own = harmless_keys(f"architectures/{kind}.cpp", *([f"blocks/{FAMILIES[kind]}.h"] if kind in FAMILIES else []))
            config = self.folder_of(folders[0])
            self.find_digests(config)
            right = self.imported(config)
            keys = {key: 3 for key in own + (common if kind == "llama" else []) if key not in config}
            self.assertEqual(self.imported(config | keys | {"_note": 3}), right, keys)

    def test_keys_that_are_not_known(self):
        """Of an architecture that transformers has under another name, of quantized weights, of attention that is not causal."""
        for name, changes in (("llama", {"no_rope_layers": [1, 0]}), ("llama", {"is_causal": False}), ("llama", {"partial_rotary_factor": 0.5}),
                              ("llama", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0,
                                                             "partial_rotary_factor": 0.5}}),
                              ("llama", {"quantization_config": {"bits": 4}}), ("llama", {"sliding_window": 4}),
                              ("mistral_window", {"layer_types": ["full_attention", "sliding_attention"]}),
                              ("mistral_window", {"use_sliding_window": False}), ("gpt2", {"scale_attn_weights": None}),
                              ("gpt2", {"hidden_size": 16}), ("bert", {"add_cross_attention": True})):
            with self.subTest(name, **changes):
                config = self.folder_of(name)
                (self.source / "config.json").write_text(json.dumps(config | changes))
                key = "partial_rotary_factor" if "rope_parameters" in changes else next(iter(changes))
                self.expect(run("import", self.source, "--out", self.out), BAD_FILE, f'"{key}"')

    def test_keys_of_gguf(self):
        path, data = self.folder / "m.gguf", TESTS / "gguf/data/llama_f32.gguf"

        def made(**keys):
            path.write_bytes(Gguf(data).with_values(keys))
            done = run("import", path, "--out", self.out, "--force")
            return done, done.returncode == OK and self.out.read_bytes()
        _, right = made()
        for key, value in (("attention.causal", False), ("attention.scale", 0.5), ("logit_scale", 2.0), ("expert_count", 4),
                           ("attention.sliding_window", 4), ("rope.scaling.attn_factor", 2.0),
                           ("attention.key_length_swa", 4), ("tensor_data_layout", "another")):
            with self.subTest(key):
                self.expect(made(**{f"llama.{key}": value})[0], BAD_FILE, key)
        for key, value in (("tokenizer.ggml.another", 3), ("split.count", 2), ("general.type", "adapter")):
            with self.subTest(key):
                self.expect(made(**{key: value})[0], BAD_FILE, key)
        for keys in ({"llama.rope.scale_linear": 2.0}, {"llama.rope.scaling.factor": 2.0}, {"tokenizer.ggml.eot_token_id": 5}):
            with self.subTest(**keys):
                self.assertNotIn(made(**keys)[1], (right, False))
        neutral = {"llama.attention.causal": True, "llama.expert_count": 0, "llama.logit_scale": 1.0, "llama.pooling_type": 1,
                   "llama.rope.scale_linear": 1.0, "general.name": "a", "general.file_type": 7, "split.count": 1, "someone.note": 3}
        self.assertEqual(made(**neutral)[1], right)


if __name__ == "__main__":
    unittest.main()
