#!/usr/bin/env python3
"""Decoders and related encoders that classify or embed texts: the numbers of transformers, new
heads, and exports.
"""

import json
import math
import pathlib
import shutil
import struct
import unittest

import harness
from forms import read_safetensors, write_gguf
from harness import BAD_FILE, FAILED, OK, USAGE, run

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "import/fixtures"
LABELS = ("admin", "libs", "net")


def numbers(name):
    """Returns the rows of each tensor of a fixture."""
    out = {}
    for key, (dtype, shape, content) in read_safetensors(FIXTURES / f"{name}.expected.safetensors", of_model=False).items():
        values = struct.unpack(f"<{len(content) // 4}{'i' if dtype == 'I32' else 'f'}", content)
        out[key] = [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])] if len(shape) == 2 else list(values)
    return out


def texts_of(expected):
    return [" ".join(map(str, row[:length])) for row, length in zip(expected["tokens"], expected["lengths"])]


class TextDecoders(harness.Case):
    def setUp(self):
        super().setUp()
        self.source, self.out, self.model = self.folder / "source", self.folder / "out", self.folder / "model.bowline"

    def imported(self, name, *flags):
        """Imports a fixture with a tokenizer whose words are the numbers of the tokens."""
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(FIXTURES / name, self.source)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(FIXTURES / "llama" / file, self.source)
        return run("import", self.source, "--out", self.model, "--force", *flags)

    def predicted(self, texts, *flags):
        path = self.folder / "texts.txt"
        path.write_text("\n".join(texts) + "\n")
        done = self.expect(run("predict", self.model, "--file", path, "--device", "cpu", "--batch", 2, "-o", "json", *flags), OK)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def exported_config(self):
        self.expect(run("export", self.model, "--to", "hf", "--out", self.out, "--force"), OK)
        return json.loads((self.out / "config.json").read_text())

    def test_the_head_of_a_classifier(self):
        for name in ("llama_classes", "gpt2_classes"):
            with self.subTest(name):
                self.expect(self.imported(name), OK, "task classify", "pooling = last")
                expected = numbers(name)
                for row, logits in zip(self.predicted(texts_of(expected)), expected["logits"]):
                    scale = sum(map(math.exp, logits))
                    for label, x in zip(LABELS, logits):
                        self.assertAlmostEqual(row["probabilities"][label], math.exp(x) / scale, places=5)
                config = self.exported_config()
                self.assertEqual(read_safetensors(self.out / "model.safetensors"), read_safetensors(FIXTURES / name / "model.safetensors"))
                source = json.loads((FIXTURES / name / "config.json").read_text())
                self.assertEqual({**config, **source}, config)
        self.expect(self.imported("llama_classes", "--task", "generate"), BAD_FILE, "score.weight", "cannot generate text")
        self.expect(self.imported("llama_classes", "--pooling", "mean"), USAGE, "reads the last token: --pooling mean contradicts it")

    # Keys of the config of nomic-embed-text-v1.5, which the library of its authors reads.
    def test_the_published_config_of_nomic(self):
        self.expect(self.imported("nomic_bert"), OK)
        texts = texts_of(numbers("nomic_bert"))
        expected = self.predicted(texts)
        config = dict(
            activation_function="swiglu", architectures=["NomicBertModel"], attn_pdrop=0.0, auto_map={}, causal=False,
            dense_seq_output=True, embd_pdrop=0.0, fused_bias_fc=True, fused_dropout_add_ln=True, initializer_range=0.02,
            layer_norm_epsilon=1e-12, max_trained_positions=40, mlp_fc1_bias=False, mlp_fc2_bias=False, model_type="nomic_bert", n_embd=32,
            n_head=4, n_inner=48, n_layer=2, n_positions=160, pad_vocab_size_multiple=64, parallel_block=False,
            parallel_block_tied_norm=False, prenorm=False, qkv_proj_bias=False, reorder_and_upcast_attn=False, resid_pdrop=0.0,
            rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=2,
            scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, summary_activation=None, summary_first_dropout=0.0,
            summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True, torch_dtype="float32", type_vocab_size=2,
            use_cache=True, use_flash_attn=True, use_rms_norm=False, use_xentropy=True, vocab_size=64)

        def rewritten(**changes):
            (self.source / "config.json").write_text(json.dumps(config | changes))
            return run("import", self.source, "--out", self.model, "--force")
        self.expect(rewritten(), OK, "context_length = 40")
        self.assertEqual(self.predicted(texts), expected)
        self.expect(rewritten(rotary_emb_base=20), OK)
        self.assertNotEqual(self.predicted(texts), expected)
        for key, value in dict(prenorm=True, use_rms_norm=True, rotary_emb_fraction=0.5, qkv_proj_bias=True, activation_function="gelu",
                               rotary_emb_interleaved=True).items():
            self.expect(rewritten(**{key: value}), BAD_FILE, f'"{key}"')

    def test_nomic_of_gguf(self):
        """The names are those of gguf.get_tensor_name_map() for the names of Hugging Face."""
        parts = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm", "mlp.fc11": "ffn_up",
                 "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down", "norm2": "layer_output_norm"}
        names = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types", "emb_ln": "token_embd_norm",
                 **{f"encoder.layers.{i}.{k}": f"blk.{i}.{v}" for i in range(2) for k, v in parts.items()}}
        tensors = {}
        for name, (_, shape, content) in read_safetensors(FIXTURES / "nomic_bert/model.safetensors").items():
            module, kind = name.rsplit(".", 1)
            tensors[f"{names[module]}.{kind}"] = (shape, content)
        keys = {"general.architecture": "nomic-bert"} | {f"nomic-bert.{k}": v for k, v in {
            "block_count": 2, "context_length": 40, "embedding_length": 32, "feed_forward_length": 48, "attention.head_count": 4,
            "attention.layer_norm_epsilon": 1e-12, "attention.causal": False, "rope.freq_base": 1000.0, "pooling_type": 1}.items()}
        path, other = self.folder / "nomic.gguf", self.folder / "other.bowline"
        write_gguf(path, keys, tensors)
        self.expect(run("import", path, "--out", self.model), OK, "nomic_bert from GGUF", "pooling = mean")
        self.expect(run("import", FIXTURES / "nomic_bert", "--out", other), OK)
        expected, values = numbers("nomic_bert"), self.folder / "embedding.txt"
        ids, count = ",".join(map(str, expected["tokens"][0])), expected["lengths"][0]
        embed = ("--entry", "embed", "--device", "cpu", "--input", f"tokens={ids}", "--input", f"lengths={count}", "--batch", 1,
                 "--seq", len(expected["tokens"][0]), "--output", f"embedding=@{values}", "--force")
        texts = []
        for model in (self.model, other):
            self.expect(run("run", model, *embed), OK)
            texts.append(values.read_text())
        self.assertEqual(*texts)
        for given, right in zip(map(float, texts[0].split()), expected["mean"][0], strict=True):
            self.assertAlmostEqual(given, right, places=4)
        write_gguf(path, keys | {"nomic-bert.attention.causal": True}, tensors)
        self.expect(run("import", path, "--out", self.model, "--force"), BAD_FILE, "a nomic-bert, has \"attention.causal\": true")

    def test_sentence_transformers(self):
        self.expect(self.imported("qwen3_sentences"), OK, "task embed", "pooling = last", "normalize = true")
        expected = numbers("qwen3_sentences")
        for row, last in zip(self.predicted(texts_of(expected)), expected["last"]):
            length = math.sqrt(sum(x * x for x in last))
            for given, x in zip(row["embedding"], last):
                self.assertAlmostEqual(given, x / length, places=5)
        self.assertEqual(self.exported_config()["architectures"], ["Qwen3Model"])
        self.expect(self.imported("qwen3_sentences", "--task", "generate"), OK, "task generate", "entry point decode")

    def test_a_language_model_gets_a_head(self):
        """The label depends on the first number, which only attention carries to the last."""
        labels, rows = self.folder / "labels.txt", self.folder / "rows.csv"
        labels.write_text("low\nhigh\n")
        rows.write_text("text,label\n" + "".join(
            f"{60 - i % 2 * 50 - i % 7} {i % 61} {i * 5 % 59} {'1 ' * (i % 3)},{'low' if i % 2 else 'high'}\n" for i in range(120)))
        self.expect(self.imported("llama", "--task", "classify", "--labels", labels), OK,
                    "The classification head of 2 classes is new", "dropped lm_head.weight", "pooling = last")
        before = self.model
        self.model = self.folder / "trained.bowline"
        done = self.expect(run("finetune", before, "--data", rows, "--device", "cpu", "--epochs", 12, "--batch", 8, "--learning-rate", 3e-3,
                               "--out", self.model, "-o", "json"), OK)
        report = json.loads(done.stdout)
        self.assertLess(report["nats_per_text_after"], 0.5 * report["nats_per_text_before"])
        config = self.exported_config()
        self.assertEqual((config["architectures"], config["id2label"]), (["LlamaForSequenceClassification"], {"0": "low", "1": "high"}))
        tensors = read_safetensors(self.out / "model.safetensors")
        self.assertIn("score.weight", tensors)
        self.assertNotIn("lm_head.weight", tensors)
        again = self.folder / "again.bowline"
        shutil.copy(self.source / "tokenizer.json", self.out)
        self.expect(run("import", self.out, "--out", again), OK, "task classify")

    def test_any_pooling(self):
        """An encoder that reads the last token is no decoder, and a decoder may read the mean."""
        for name, pooling, kind in (("bert", "last", "BertModel"), ("llama", "mean", "LlamaModel"), ("llama", "last", "LlamaModel")):
            with self.subTest(name, pooling=pooling):
                self.expect(self.imported(name, "--task", "embed", "--pooling", pooling), OK, f"pooling = {pooling}")
                self.assertEqual(self.exported_config()["architectures"], [kind])
        labels = self.folder / "labels.txt"
        labels.write_text("low\nhigh\n")
        self.expect(self.imported("llama", "--task", "classify", "--labels", labels, "--pooling", "mean"), OK)
        self.expect(run("export", self.model, "--to", "hf", "--out", self.out, "--force"), FAILED, "Its head reads the mean of the tokens")

    def test_a_class_that_transformers_lacks(self):
        labels = self.folder / "labels.txt"
        labels.write_text("low\nhigh\n")
        self.expect(self.imported("granite", "--task", "classify", "--labels", labels), OK, "task classify")
        self.expect(run("export", self.model, "--to", "hf", "--out", self.out), FAILED, "transformers has no class of granite")

    def test_adapters(self):
        """Of the new head and of a layer; peft calls the head "score"."""
        self.expect(self.imported("llama_classes"), OK)
        rows, adapter = self.folder / "rows.csv", self.folder / "adapter.bowline"
        rows.write_text("text,label\n" + "".join(f"{i % 60 + 3} {i % 7},{LABELS[i % 3]}\n" for i in range(60)))
        self.expect(run("finetune", self.model, "--data", rows, "--device", "cpu", "--steps", 3, "--lora-rank", 2,
                        "--lora-target", "{*.q_proj.weight,classifier.*}", "--out", adapter), OK)
        self.expect(run("export", self.model, "--to", "peft", "--adapter", adapter, "--out", self.out), OK)
        config = json.loads((self.out / "adapter_config.json").read_text())
        self.assertEqual((config["modules_to_save"], config["task_type"]), (["score"], "SEQ_CLS"))
        names = set(read_safetensors(self.out / "adapter_model.safetensors"))
        self.assertIn("base_model.model.score.weight", names)
        self.assertIn("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", names)
        self.expect(run("import", self.out, "--base", self.model, "--out", self.folder / "again.bowline"), OK)

    def test_adapters_of_modules_that_transformers_splits(self):
        rows, adapter = self.folder / "rows.csv", self.folder / "adapter.bowline"
        rows.write_text("text,label\n" + "".join(f"{i % 3 + 3} {i % 3 + 3},{LABELS[i % 3]}\n" for i in range(60)))
        for name in ("gte_classes", "nomic_bert_classes"):
            self.expect(self.imported(name), OK)
            self.expect(run("finetune", self.model, "--data", rows, "--device", "cpu", "--steps", 10, "--lora-rank", 2, "--out", adapter,
                            "--force"), OK)
            self.expect(run("export", self.model, "--to", "peft", "--adapter", adapter, "--out", self.out, "--force"), FAILED,
                        "peft cannot load an adapter for them", "--to hf")

    def test_heads_for_other_tasks(self):
        self.imported("llama_classes")
        config = json.loads((self.source / "config.json").read_text())
        (self.source / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForQuestionAnswering"]}))
        command = ("import", self.source, "--out", self.model, "--force")
        self.expect(run(*command), BAD_FILE, "a head (score.weight) for another task", "--task embed")
        self.expect(run(*command, "--task", "embed"), OK, "dropped score.weight", "task embed")
        self.expect(run("import", FIXTURES / "llama", "--skeleton", "--task", "classify", "--out", self.model, "--force"), BAD_FILE,
                    "A skeleton of a decoder generates text and cannot classify.")


if __name__ == "__main__":
    unittest.main()
