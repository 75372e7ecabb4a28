#!/usr/bin/env python3
"""Tests adapters of other tools: import --base, export --adapter with --to peft and gguf-lora, and
adapters that --to hf and gguf merge into the model.

peft wrote the models, the adapters and the logits (tests/peft/fixtures, by make_peft_fixtures.py).
"""

import json
import pathlib
import shutil
import struct
import unittest

import harness
from forms import Gguf, read_safetensors, write_safetensors
from harness import BAD_FILE, FAILED, OK, USAGE, run

DATA = pathlib.Path(__file__).resolve().parents[1] / "peft/fixtures"
IMPORTED = DATA.parents[1] / "import/fixtures"
GGUF = DATA.parents[1] / "gguf/data"
EXPECTED = json.loads((DATA / "expected.json").read_text())
ADAPTERS = EXPECTED["adapters"]
# Logits are about 1. f32 sums in another order differ by less.
CLOSE = 2e-5


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


class AdapterForms(harness.Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        self.tokens = self.shared / "tokens.npy"
        self.tokens.write_bytes(harness.npy("<i4", (2, 8), struct.pack("<16i", *EXPECTED["tokens"])))

    def imported_model(self, name, *texts):
        """Imports a model from the fixtures of peft or of tests/import."""
        model, folder = self.shared / f"{name}.bowline", DATA / name
        if not model.exists():
            self.expect(run("import", folder if folder.exists() else IMPORTED / name, "--out", model), OK, *texts)
        return model

    def adapter(self, name):
        """Returns the base model of an adapter of the fixtures, and the adapter as a file of
        Bowline.
        """
        model, adapter = self.imported_model(ADAPTERS[name]["model"]), self.shared / f"{name}.adapter"
        if not adapter.exists():
            self.expect(run("import", DATA / name, "--base", model, "--out", adapter), OK)
        return model, adapter

    def imported(self, source):
        model = self.folder / f"{pathlib.Path(source).name}.again"
        self.expect(run("import", source, "--out", model, "--force"), OK)
        return model

    def logits(self, model, *adapters):
        path = self.folder / "logits.txt"  # holds any dtype
        flags = [word for adapter in adapters for word in ("--adapter", adapter)]
        self.expect(run("run", model, "--device", "cpu", "--entry", "forward", "--input", f"tokens=@{self.tokens}",
                        "--output", f"logits=@{path}", "--force", *flags), OK)
        return [float(number) for number in path.read_text().split()]

    def export(self, model, to, *more):
        return run("export", model, "--to", to, "--out", self.out, *more)

    def nothing_is_left(self, *kept):
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), sorted(kept))

    # Invalid input.

    def test_what_is_no_adapter_of_the_base(self):
        llama, gpt2 = self.imported_model("llama"), self.imported_model("gpt2")
        for source, base, code, *texts in (
                (DATA / "llama", llama, BAD_FILE, "is not a PEFT adapter", "adapter_config.json"),
                (DATA / "llama_qv", gpt2, BAD_FILE, "the adapter is for another model"),
                (DATA / "expected.json", llama, BAD_FILE, "expected.json"),
                (self.folder / "none", llama, BAD_FILE, "none"),
                (DATA / "llama_qv", self.folder / "none.bowline", BAD_FILE, "none.bowline")):
            self.expect(run("import", source, "--base", base, "--out", self.out), code, *texts)
            self.nothing_is_left()

    def test_what_an_adapter_has_not_is_refused_by_name(self):
        copy = self.folder / "copy"
        shutil.copytree(DATA / "llama_qv", copy)
        config = json.loads((copy / "adapter_config.json").read_text())
        for key, value in (("use_dora", True), ("init_lora_weights", "pissa"), ("loftq_config", {"loftq_bits": 4}), ("another_key", 2)):
            with self.subTest(key):
                (copy / "adapter_config.json").write_text(json.dumps(config | {key: value}))
                self.expect(run("import", copy, "--base", self.imported_model("llama"), "--out", self.out), BAD_FILE, f'"{key}"')
        self.nothing_is_left("copy")

    def test_values_that_are_not_finite_are_refused(self):
        copy = self.folder / "copy"
        shutil.copytree(DATA / "llama_qv", copy)
        path = copy / "adapter_model.safetensors"
        tensors = {name: (shape, list(struct.unpack(f"<{len(data) // 4}f", data))) for name, (_, shape, data) in read_safetensors(path).items()}
        for at, (name, (shape, values)) in enumerate(tensors.items()):
            values[at + 1], before = float("nan") if at % 2 else float("-inf"), values[at + 1]
            write_safetensors(path, tensors)
            self.expect(run("import", copy, "--base", self.imported_model("llama"), "--out", self.out), BAD_FILE,
                        f"1 of the {len(values)} values of {name}.", "earlier checkpoint")
            values[at + 1] = before
        for shape, values in tensors.values():
            values[2], values[4] = float("inf"), float("nan")
        write_safetensors(path, tensors)
        refused = run("import", copy, "--base", self.imported_model("llama"), "--out", self.out)
        named = [f"2 of the {len(values)} values of {name}" for name, (_, values) in tensors.items()][:8]
        self.expect(refused, BAD_FILE, *named, "8 values of 4 more tensors")
        self.nothing_is_left("copy")

    def test_links_lead_to_no_file_outside(self):
        copy = self.folder / "copy"
        shutil.copytree(DATA / "llama_qv", copy)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (copy / name).unlink()
            (copy / name).symlink_to(DATA / "llama_qv" / name)
            self.expect(run("import", copy, "--base", self.imported_model("llama"), "--out", self.out), BAD_FILE, name, "outside of the folder")
            (copy / name).unlink()
            shutil.copy(DATA / "llama_qv" / name, copy / name)
        self.nothing_is_left("copy")

    def test_one_adapter_is_written(self):
        model, adapter = self.adapter("llama_qv")
        _, other = self.adapter("llama_tables")
        for to in ("peft", "gguf-lora"):
            self.expect(self.export(model, to), FAILED, f"--to {to} writes one adapter, and --adapter names 0")
            self.expect(self.export(model, to, "--adapter", self.shared / "tiny.bowline"), FAILED, "is not an adapter file")
            self.nothing_is_left()
        self.expect(self.export(model, "peft", "--encoding", "q8_0"), USAGE, "--encoding")
        self.out.write_text("mine")
        self.expect(self.export(model, "gguf-lora", "--adapter", adapter), USAGE, "exists already", "--force")
        self.assertEqual(self.out.read_text(), "mine")
        self.expect(self.export(self.imported_model("gpt2"), "peft", "--adapter", other, "--force"), FAILED, "was trained on the base", "digest")
        self.assertEqual(self.out.read_text(), "mine")
        self.expect(self.export(model, "gguf-lora", "--adapter", adapter, "--force"), OK)
        self.nothing_is_left("out")

    def test_a_head_that_an_adapter_cannot_say(self):
        """Another model, other saved modules than the head, a scale of 0, or only the head."""
        model, folder = self.classifier("bert_classes"), self.folder / "copy"
        shutil.copytree(DATA / "bert_head", folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = read_safetensors(folder / "adapter_model.safetensors")
        tensors = {name: (shape, struct.unpack(f"<{len(data) // 4}f", data)) for name, (_, shape, data) in tensors.items()}
        bias = {"base_model.model.classifier.bias": ([2], [1.0, 2.0])}
        for change, settings, *texts in ((bias, {}, "no head with a classifier.bias [2]"),
                                         ({}, {"modules_to_save": ["classifier", "pooler"]}, "modules_to_save", "pooler"),
                                         ({}, {"lora_alpha": 0}, "a changed \"classifier.weight\"", "its scale is 0")):
            write_safetensors(folder / "adapter_model.safetensors", tensors | change)
            (folder / "adapter_config.json").write_text(json.dumps(config | settings))
            self.expect(run("import", folder, "--base", model, "--out", self.out), BAD_FILE, *texts)
            self.nothing_is_left("copy")
        write_safetensors(folder / "adapter_model.safetensors", {name: t for name, t in tensors.items() if "lora_" not in name})
        (folder / "adapter_config.json").write_text(json.dumps(config))
        self.expect(run("import", folder, "--base", model, "--out", self.out), BAD_FILE, "has no LoRA factors")

    # Valid input.

    def test_an_adapter_of_peft_computes_what_peft_computes(self):
        for name, expected in ADAPTERS.items():
            with self.subTest(name):
                model, adapter = self.adapter(name)
                self.assertLess(difference(self.logits(model, adapter), expected["logits"]), CLOSE)
                self.assertGreater(difference(self.logits(model), expected["logits"]), 0.05)

    def test_a_merged_export_computes_what_the_adapter_did(self):
        for name, expected in ADAPTERS.items():
            model, adapter = self.adapter(name)
            for to in ("hf", "gguf"):
                with self.subTest(name, to=to):
                    self.expect(self.export(model, to, "--adapter", adapter, "--force"), OK)
                    merged = self.logits(self.imported(self.out))
                    self.assertLess(difference(merged, self.logits(model, adapter)), CLOSE)
                    self.assertLess(difference(merged, expected["logits"]), CLOSE)
                    if self.out.is_dir():
                        shutil.rmtree(self.out)
                    self.out.unlink(missing_ok=True)

    def test_weights_and_several_adapters_are_merged(self):
        model, adapter = self.adapter("llama_qv")
        # Has another name, because the adapters of a model must have different names.
        other = self.folder / "other.adapter"
        self.expect(run("import", DATA / "llama_tables", "--base", model, "--name", "tables", "--out", other), OK)
        on = [f"{adapter}=0.5", other]
        for to in ("hf", "gguf"):
            with self.subTest(to):
                self.out = self.folder / to
                self.expect(self.export(model, to, *(word for a in on for word in ("--adapter", a))), OK)
                merged = self.logits(self.imported(self.out))
                self.assertLess(difference(merged, self.logits(model, *on)), CLOSE)
                for less in ([adapter, other], [on[0]], [other]):
                    self.assertGreater(difference(merged, self.logits(model, *less)), 0.01)

    def test_the_dtype_of_a_merged_export(self):
        model, adapter = self.adapter("llama_qv")
        self.expect(self.export(model, "gguf", "--adapter", adapter, "--dtype", "f16"), OK)
        self.assertEqual(Gguf(self.out).tensors["blk.0.attn_q.weight"][0], 1)
        halves = self.logits(self.imported(self.out))
        self.assertLess(difference(halves, self.logits(model, adapter)), 0.01)
        self.assertNotEqual(halves, self.logits(model, adapter))

    def test_the_dtype_of_a_merge_into_a_quantized_model(self):
        model, adapter = self.folder / "q8.bowline", self.folder / "q8.adapter"
        self.expect(run("import", GGUF / "llama_q8_0.gguf", "--out", model), OK)
        self.expect(run("import", self.write_adapter("model.layers.0.self_attn.q_proj", 32, 32), "--base", model, "--out", adapter), OK)
        expected = self.logits(model, adapter)
        self.assertGreater(difference(self.logits(model), expected), 0.05)
        for dtype, close in (("f32", CLOSE), ("f16", 0.03), ("bf16", 0.1)):
            for to in (["--to", "hf"], ["--to", "gguf"], []):
                with self.subTest(dtype=dtype, to=to):
                    self.out = self.folder / "".join([dtype, *to])
                    done = run("export", model, *to, "--adapter", adapter, "--dtype", dtype, "--out", self.out)
                    self.expect(done, OK, f"written as {dtype}: 100 percent of its change survives.")
                    merged = self.imported(self.out) if to else self.out
                    info = json.loads(run("inspect", merged, "-o", "json").stdout)
                    matrices = {s["dtype"] for s in info["storages"] if len(s.get("shape", [])) == 2 and s["role"] == "weight"}
                    self.assertEqual(matrices, {dtype})
                    self.assertLess(difference(self.logits(merged), expected), close)

    def tied_base(self):
        model = self.folder / "tied.bowline"
        self.expect(run("import", IMPORTED / "llama3", "--out", model), OK)
        return model

    def test_a_tied_base_stays_tied(self):
        model, adapter = self.tied_base(), self.folder / "tied.adapter"
        self.expect(run("import", self.write_adapter("model.layers.0.self_attn.q_proj", 32, 32), "--base", model, "--out", adapter), OK)
        self.expect(self.export(model, "hf", "--adapter", adapter), OK)
        self.assertTrue(json.loads((self.out / "config.json").read_text())["tie_word_embeddings"])
        self.assertNotIn("lm_head.weight", read_safetensors(self.out / "model.safetensors"))
        with_adapter = self.logits(model, adapter)
        self.assertLess(difference(self.logits(self.imported(self.out)), with_adapter), 1e-4)
        self.assertGreater(difference(self.logits(model), with_adapter), 0.05)

    def head_adapter(self):
        """Returns a tied model and an adapter of its head only."""
        model, adapter = self.tied_base(), self.folder / "head.adapter"
        self.expect(run("import", self.write_adapter("lm_head", 64, 32), "--base", model, "--out", adapter), OK)
        return model, adapter

    def test_a_change_that_peft_would_merge_twice_is_noted(self):
        model, adapter = self.tied_base(), self.folder / "both.adapter"
        data = self.folder / "digits.txt"
        data.write_text("0 1 2 3 4 5 6 7 8 9 " * 20)  # the vocabulary of the model has 64 tokens
        tables = "{model.embed_tokens,lm_head}.weight"
        self.expect(run("finetune", model, "--data", data, "--seq", 8, "--batch", 1, "--steps", 30, "--lora-rank", 2,
                        "--lora-target", tables, "--out", adapter), OK)
        self.expect(self.export(model, "peft", "--adapter", adapter), OK, "share one weight", "twice", "--to hf")

    def test_a_tie_is_not_broken_in_silence(self):
        model, adapter = self.head_adapter()
        for to in ("hf", "gguf"):
            self.expect(self.export(model, to, "--adapter", adapter), FAILED, "lm_head.weight", "which shares its storage",
                        "- --untie PARAMETER gives a tied parameter its own weight. --to peft and --to gguf-lora write the adapter without the model.")
            self.assertFalse(self.out.exists())
        self.expect(self.export(model, "peft", "--adapter", adapter), OK)

    def test_a_tie_is_broken_where_that_is_asked_for(self):
        model, adapter = self.head_adapter()
        with_adapter = self.logits(model, adapter)
        self.assertGreater(difference(self.logits(model), with_adapter), 0.05)
        for to in ("hf", "gguf"):
            self.out = self.folder / to
            self.expect(self.export(model, to, "--adapter", adapter, "--untie", "lm_head.weight"), OK)
        again = self.imported(self.folder / "hf")
        self.assertLess(difference(self.logits(again), with_adapter), CLOSE)
        ties = {p["name"]: p["tie"] for p in json.loads(run("inspect", again, "-o", "json").stdout)["parameters"]}
        self.assertNotEqual(ties["lm_head.weight"], ties["model.embed_tokens.weight"])
        self.assertFalse(json.loads((self.folder / "hf/config.json").read_text())["tie_word_embeddings"])
        tensors, gguf = read_safetensors(self.folder / "hf/model.safetensors"), Gguf(self.folder / "gguf").tensors
        for ours, theirs in (("lm_head.weight", "output.weight"), ("model.embed_tokens.weight", "token_embd.weight")):
            self.assertEqual(tensors[ours][2], gguf[theirs][2])
        self.out = self.folder / "out"
        self.expect(self.export(model, "peft", "--adapter", adapter, "--untie", "lm_head.weight"), USAGE, "--untie")
        self.expect(run("export", model, "--strip", "--out", self.out, "--untie", "lm_head.weight"), USAGE, "--untie")
        for name, text in (("model.norm.weight", "is not tied to another parameter"), ("head", "\"head\"")):
            self.expect(self.export(model, "hf", "--untie", name), FAILED, text)
        self.assertFalse(self.out.exists())

    def write_adapter(self, module, rows, columns):
        """Writes a folder of rank 1 like peft."""
        folder = self.folder / "peft"
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1}))
        begin = f"base_model.model.{module}"
        write_safetensors(folder / "adapter_model.safetensors", {
            f"{begin}.lora_A.weight": ([1, columns], [0.03 * (i % 7 - 3) for i in range(columns)]),
            f"{begin}.lora_B.weight": ([rows, 1], [0.05 * (i % 5 - 2) for i in range(rows)])})
        return folder

    def test_a_folder_of_peft_is_the_one_that_was_imported(self):
        for name in ADAPTERS:
            with self.subTest(name):
                model, adapter = self.adapter(name)
                done = self.expect(self.export(model, "peft", "--adapter", adapter, "--force", "-o", "json"), OK)
                written = read_safetensors(self.out / "adapter_model.safetensors")
                source = {k: t for k, t in read_safetensors(DATA / name / "adapter_model.safetensors").items() if "base_layer" not in k}
                self.assertEqual(written, source)
                report = json.loads(done.stdout)
                self.assertEqual((report["to"], report["tensors"], report["notes"]), ("peft", len(source), []))
                config, theirs = (json.loads((f / "adapter_config.json").read_text()) for f in (self.out, DATA / name))
                self.assertEqual((config["peft_type"], config["task_type"], config["r"]), ("LORA", "CAUSAL_LM", theirs["r"]))
                scale = theirs["lora_alpha"] / (theirs["r"] ** 0.5 if theirs["use_rslora"] else theirs["r"])
                self.assertAlmostEqual(config["lora_alpha"] / config["r"], scale, 6)
                self.assertEqual(config["fan_in_fan_out"], theirs["fan_in_fan_out"])
                again = self.folder / "again.adapter"
                self.expect(run("import", self.out, "--base", model, "--out", again, "--force"), OK)
                # lora_alpha is stored as f32
                self.assertLess(difference(self.logits(model, again), self.logits(model, adapter)), 1e-6)

    def classifier(self, name):
        return self.imported_model(name, "task classify")

    def classes(self, model, tokens, *adapters):
        """Returns the logits of two texts of 8 tokens."""
        path, file = self.folder / "logits.npy", self.folder / "tokens.npy"
        file.write_bytes(harness.npy("<i4", (2, 8), struct.pack("<16i", *tokens)))
        flags = [word for adapter in adapters for word in ("--adapter", adapter)]
        self.expect(run("run", model, "--device", "cpu", "--entry", "classify", "--input", f"tokens=@{file}", "--input", "lengths=8,8",
                        "--output", f"logits=@{path}", "--force", *flags), OK)
        numbers = harness.read_npy(path)[2]
        return struct.unpack(f"<{len(numbers) // 4}f", numbers)

    def test_the_head_of_a_classifier_goes_along(self):
        """peft stores the whole head with its biases. Bowline stores the change of the head.
        Import, export with the same tensors, weights and merging must agree.
        """
        for name, expected in EXPECTED["classes"].items():
            with self.subTest(name):
                model, adapter = self.classifier(expected["model"]), self.folder / "head.adapter"
                self.expect(run("import", DATA / name, "--base", model, "--out", adapter, "--force"), OK)
                logits = self.classes(model, expected["tokens"], adapter)
                self.assertLess(difference(logits, expected["logits"]), CLOSE)
                self.assertGreater(difference(self.classes(model, expected["tokens"]), expected["logits"]), 0.05)
                self.expect(self.export(model, "peft", "--adapter", adapter, "--force"), OK)
                config = json.loads((self.out / "adapter_config.json").read_text())
                self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score" if name == "llama_score" else "classifier"]))
                written, source = (read_safetensors(f / "adapter_model.safetensors") for f in (self.out, DATA / name))
                self.assertEqual({n: t[:2] for n, t in written.items()}, {n: t[:2] for n, t in source.items()})
                for tensor, (_, _, data) in source.items():
                    numbers = [struct.unpack(f"<{len(d) // 4}f", d) for d in (data, written[tensor][2])]
                    self.assertLess(difference(*numbers), 1e-6, tensor)
                again = self.folder / "again.adapter"
                self.expect(run("import", self.out, "--base", model, "--out", again, "--force"), OK)
                self.assertLess(difference(self.classes(model, expected["tokens"], again), logits), CLOSE)
                merged = self.folder / "merged"
                self.expect(run("export", model, "--adapter", adapter, "--to", "hf", "--out", merged, "--force"), OK)
                self.assertLess(difference(self.classes(self.imported(merged), expected["tokens"]), logits), CLOSE)
                # The values of the head are then halfway between base and adapter.
                self.expect(run("export", model, "--adapter", f"{adapter}=0.5", "--to", "peft", "--out", self.out, "--force"), OK)
                half = read_safetensors(self.out / "adapter_model.safetensors")
                self.expect(run("import", self.out, "--base", model, "--out", again, "--force"), OK)
                self.assertLess(difference(self.classes(model, expected["tokens"], again),
                                           self.classes(model, expected["tokens"], f"{adapter}=0.5")), CLOSE)
                same = {tensor for tensor, data in half.items() if data == source[tensor]}
                self.assertEqual({tensor for tensor in same if "lora_" not in tensor}, self.unchanged(name))

    def unchanged(self, name):
        """Returns the tensors of the head that an adapter of the fixtures does not change."""
        return set() if name.endswith("_bias") else {tensor for tensor in read_safetensors(DATA / name / "adapter_model.safetensors")
                                                     if "lora_" not in tensor and tensor.endswith(".bias")}

    def test_a_gguf_adapter_comes_back(self):
        for name in ADAPTERS:
            with self.subTest(name):
                model, adapter = self.adapter(name)
                self.expect(self.export(model, "gguf-lora", "--adapter", adapter, "--force"), OK)
                file = Gguf(self.out)
                self.assertEqual([file.keys[f"{of}"] for of in ("general.type", "adapter.type", "general.architecture")],
                                 ["adapter", "lora", ADAPTERS[name]["model"]])
                count = len([k for k in read_safetensors(DATA / name / "adapter_model.safetensors") if "base_layer" not in k])
                self.assertEqual(len(file.tensors), count)
                self.assertTrue(all(k.endswith((".weight.lora_a", ".weight.lora_b")) for k in file.tensors))
                again = self.folder / "again.adapter"
                self.expect(run("import", self.out, "--base", model, "--out", again, "--force"), OK, "adapter lora of")
                self.assertLess(difference(self.logits(model, again), self.logits(model, adapter)), 1e-6)

    def test_a_weight_is_written_into_alpha(self):
        model, adapter = self.adapter("llama_qv")
        for to in ("peft", "gguf-lora"):
            with self.subTest(to):
                self.out = self.folder / to
                self.expect(self.export(model, to, "--adapter", f"{adapter}=0.5"), OK)
                again = self.folder / "again.adapter"
                self.expect(run("import", self.out, "--base", model, "--out", again, "--force"), OK)
                half = self.logits(model, f"{adapter}=0.5")
                self.assertLess(difference(self.logits(model, again), half), 1e-6)
                self.assertGreater(difference(self.logits(model, adapter), half), 0.01)


if __name__ == "__main__":
    unittest.main()
