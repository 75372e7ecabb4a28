#!/usr/bin/env python3
"""Tests bowline export --to hf and --to gguf: the export of an imported model equals its source,
byte for byte. An export that is not possible is refused and leaves no file.
"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

import harness
from forms import Gguf, read_safetensors
from harness import BAD_FILE, FAILED, OK, USAGE, run

DATA = pathlib.Path(__file__).resolve().parents[1] / "gguf/data"
ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/import/fixtures"


class Interchange(harness.Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def imported(self, name):
        model = self.shared / f"{pathlib.Path(name).name}.bowline"
        if not model.exists():
            self.expect(run("import", DATA / name if isinstance(name, str) else name, "--out", model), OK)
        return model

    def export(self, model, to, *more, **options):
        return run("export", model, "--to", to, "--out", self.out, *more, **options)

    def weights(self, model):
        """Returns the ties as tuples of names, with shape and bytes of each storage."""
        folder = self.folder / ("weights_" + model.name)
        self.expect(run("export", model, "--weights", folder, "--force"), OK)
        ties = {}
        for row in json.loads((folder / "parameters.json").read_text()):
            ties.setdefault(row["tie"], []).append(row)
        return {tuple(row["name"] for row in rows): (rows[0]["shape"], (folder / f"storage_{tie}.bin").read_bytes())
                for tie, rows in ties.items() if not rows[0]["name"].startswith("cache.")}

    def nothing_is_left(self, *kept):
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), sorted(kept))

    # Invalid input.

    def test_flags(self):
        self.expect(run("export", self.model, "--to", "gguf"), USAGE, "--out")
        self.expect(self.export(self.model, "onnx"), USAGE, "--to")
        self.expect(self.export(self.model, "hf", "--strip"), USAGE, "--strip")
        self.expect(self.export(self.model, "hf", "--encoding", "q8_0"), USAGE, "--encoding", "--to gguf")
        self.expect(run("export", self.model, "--strip", "--out", self.out, "--encoding", "q8_0"), USAGE, "--to")
        self.expect(self.export(self.text, "hf"), BAD_FILE, "a text file")
        self.nothing_is_left()

    def test_a_model_that_was_not_imported_is_refused(self):
        for to in ("hf", "gguf"):
            self.expect(self.export(self.model, to), FAILED, "no asset \"config.json\"")
            self.nothing_is_left()

    def test_nothing_is_replaced_unasked(self):
        model = self.imported("llama_q8_0.gguf")
        for to in ("hf", "gguf"):
            self.out.write_text("mine")
            self.expect(self.export(model, to), USAGE, "exists already", "--force")
            self.assertEqual(self.out.read_text(), "mine")
            self.expect(self.export(model, to, "--force", *(["--dtype", "f32"] if to == "hf" else [])), OK)
            self.assertEqual(self.out.is_dir(), to == "hf")
            self.nothing_is_left("out")
            if to == "hf":
                self.expect(self.export(model, to, "--dtype", "f16", "--force"), OK)
                self.assertEqual(read_safetensors(self.out / "model.safetensors")["model.norm.weight"][0], "F16")
                self.nothing_is_left("out")
                for path in self.out.iterdir():
                    path.unlink()
                self.out.rmdir()

    def test_a_folder_of_other_things_is_not_replaced(self):
        model = self.imported("llama_f32.gguf")
        (self.out / "photos").mkdir(parents=True)
        (self.out / "model.safetensors").write_text("")
        for to in ("hf", "gguf"):
            self.expect(self.export(model, to, "--force"), FAILED, "is not replaced")
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["model.safetensors", "photos"])
        self.nothing_is_left("out")

    def test_codes_are_refused_where_the_form_has_none(self):
        self.expect(self.export(self.imported("llama_q4_0.gguf"), "hf"), FAILED, "model.embed_tokens.weight", "q4_0", "--dtype")
        self.nothing_is_left()
        other = self.folder / "int8.bowline"
        self.expect(run("quantize", self.imported("llama_f32.gguf"), "--encoding", "int8 block row", "--out", other), OK)
        for to in ("hf", "gguf"):
            self.expect(self.export(other, to), FAILED, "int8 block 32", "--dtype")
            self.assertFalse(self.out.exists())
            written = self.folder / to
            self.expect(run("export", other, "--to", to, "--dtype", "f32", "--out", written), OK)
            self.assertTrue(written.exists())
        self.nothing_is_left("gguf", "hf", "int8.bowline")

    def test_an_architecture_without_a_form_is_refused(self):
        self.expect(self.export(self.imported("names_bert.gguf"), "gguf"), FAILED, "bert", "cannot be exported to GGUF")
        self.nothing_is_left()

    def test_folders_that_cannot_be_written(self):
        model = self.imported("llama_f32.gguf")
        self.expect(run("export", model, "--to", "hf", "--out", self.folder / "none" / "out"), FAILED, "cannot be written")
        self.expect(run("export", model, "--to", "gguf", "--out", self.text / "out"), FAILED, "cannot be written")

    def test_what_a_killed_export_left_goes(self):
        left = self.folder / ".out.bowline_export"
        left.mkdir()
        (left / "model.safetensors").write_text("half")
        (left / "other").write_text("half")
        self.expect(self.export(self.imported("llama_f32.gguf"), "hf"), OK)
        self.assertNotIn("other", [p.name for p in self.out.iterdir()])
        self.nothing_is_left("out")

    # Valid input.

    def test_logits_are_those_of_transformers(self):
        """The logits use the values of the file. Models with 16 bits are widened, because their
        graphs would compute in 16 bits.
        """
        tokens, logits = self.folder / "tokens.npy", self.folder / "logits.npy"
        tokens.write_bytes(harness.npy("<i4", (2, 12), struct.pack("<24i", *(5 * i % 64 for i in range(24)))))
        for name in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "rope", "gpt2_f32", "gpt2_q8_0"):
            with self.subTest(name):
                model = self.folder / f"{name}.bowline"
                widened = ["--dtype", "f32"] if name in ("f16", "bf16") else []
                self.expect(run("import", DATA / f"{'' if name.startswith('gpt2') else 'llama_'}{name}.gguf", "--out", model, *widened), OK)
                self.expect(run("run", model, "--device", "cpu", "--entry", "forward", "--input", f"tokens=@{tokens}",
                                "--output", f"logits=@{logits}", "--force"), OK)
                ours = struct.unpack("<1536f", harness.read_npy(logits)[2])
                theirs = struct.unpack("<1536f", (DATA / f"logits_{name}.f32").read_bytes())
                self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs)), 1e-4)

    def test_a_folder_of_hugging_face(self):
        model = self.imported("llama_f32.gguf")
        done = self.expect(self.export(model, "hf", "-o", "json"), OK)
        tensors = read_safetensors(self.out / "model.safetensors")
        self.assertEqual(json.loads(done.stdout), {
            "file": str(model), "out": str(self.out), "to": "hf", "tensors": 20, "bytes": sum(len(t[2]) for t in tensors.values()),
            "notes": ["The tokenizer is one of GGUF, and is not written: Merge 0 (\"t\" and \"h\") names \"t\", which is not in the vocabulary."]})
        self.assertEqual(len(tensors), 20)
        self.assertNotIn("lm_head.weight", tensors)  # config.json says that the weight is tied
        self.assertEqual(tensors["model.layers.1.self_attn.k_proj.weight"][:2], ("F32", [16, 32]))
        config = json.loads((self.out / "config.json").read_text())
        self.assertEqual((config["architectures"], config["tie_word_embeddings"], config["torch_dtype"], config["vocab_size"]),
                         (["LlamaForCausalLM"], True, "float32", 64))
        self.assertEqual((self.out / "chat_template.jinja").read_text(), Gguf(DATA / "llama_f32.gguf").keys["tokenizer.chat_template"])
        self.assertEqual(sorted(p.name for p in self.out.iterdir()), ["chat_template.jinja", "config.json", "model.safetensors"])

    def test_a_round_trip_gives_the_same_partition_and_bytes(self):
        for name in ("llama_f32.gguf", "llama_f16.gguf", "llama_bf16.gguf", "names_gpt2.gguf", "names_qwen2.gguf", "names_qwen3.gguf",
                     "names_bert.gguf", "names_gemma2.gguf", "gemma2_bf16.gguf"):
            with self.subTest(name):
                model = self.imported(name)
                self.expect(self.export(model, "hf", "--force"), OK)
                again = self.folder / "again.bowline"
                self.expect(run("import", self.out, "--out", again, "--force"), OK)
                self.assertEqual(self.weights(again), self.weights(model))

    def test_a_classifier_is_the_one_that_was_imported(self):
        for name in ("bert_classes", "roberta_classes", "distilbert_classes", "albert_classes", "electra_classes",
                     "modernbert_classes", "modernbert_mean", "eurobert_classes", "eurobert_first", "gte_classes", "nomic_bert_classes"):
            with self.subTest(name):
                model = self.imported(FIXTURES / name)
                self.expect(self.export(model, "hf", "--force"), OK)
                self.assertEqual(read_safetensors(self.out / "model.safetensors"), read_safetensors(FIXTURES / name / "model.safetensors"))
                written, source = (json.loads((f / "config.json").read_text()) for f in (self.out, FIXTURES / name))
                self.assertEqual(written.pop("problem_type"), "single_label_classification")
                source["id2label"], source["label2id"] = {"0": "admin", "1": "libs", "2": "net"}, {"admin": 0, "libs": 1, "net": 2}
                self.assertEqual(written, source)
                again = self.folder / "again.bowline"
                pooling = source.get("classifier_pooling", "cls")
                self.expect(run("import", self.out, "--out", again, "--force"), OK, "task classify",
                            f"pooling = {({'late': 'mean', 'bos': 'cls'}).get(pooling, pooling)}")
                self.assertEqual(self.weights(again), self.weights(model))

    def test_a_camembert_is_a_roberta_of_another_name(self):
        copy, model = self.folder / "copy", self.folder / "camembert.bowline"
        shutil.copytree(FIXTURES / "roberta_classes", copy)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps(config | {"model_type": "camembert"}))
        self.expect(run("import", copy, "--out", model), OK)
        self.expect(self.export(model, "hf"), OK)
        self.assertEqual(read_safetensors(self.out / "model.safetensors"), read_safetensors(copy / "model.safetensors"))
        self.assertEqual(json.loads((self.out / "config.json").read_text())["architectures"], ["CamembertForSequenceClassification"])

    def test_a_decoder_is_the_one_that_was_imported(self):
        """All decoders, but those in several files and those of texts and images."""
        decoders = [path.parent.name for path in sorted(FIXTURES.glob("*/model.safetensors"))
                    if json.loads((path.parent / "config.json").read_text())["architectures"][0].endswith(("CausalLM", "LMHeadModel"))
                    and not (path.parent / "modules.json").exists()]
        self.assertGreater(len(decoders), 50)
        for name in decoders:
            with self.subTest(name):
                self.expect(self.export(self.imported(FIXTURES / name), "hf", "--force"), OK)
                self.assertEqual(read_safetensors(self.out / "model.safetensors"), read_safetensors(FIXTURES / name / "model.safetensors"))
                written, source = (json.loads((f / "config.json").read_text()) for f in (self.out, FIXTURES / name))
                self.assertEqual({**written, **source}, written)

    def test_a_decoder_that_embeds(self):
        """GGUF says how the tokens are pooled."""
        model, again = self.folder / "model.bowline", self.folder / "again.bowline"
        for pooling in ("mean", "last"):
            self.expect(run("import", DATA / "llama_q8_0.gguf", "--task", "embed", "--pooling", pooling, "--out", model, "--force"), OK)
            self.expect(self.export(model, "gguf", "--force"), OK)
            self.expect(run("import", self.out, "--out", again, "--force"), OK, "task embed", f"pooling = {pooling}")
            self.assertEqual(self.weights(again), self.weights(model))
        self.expect(run("import", self.out, "--task", "generate", "--out", again, "--force"), OK, "entry point decode")
        self.expect(run("import", DATA / "llama_q8_0.gguf", "--task", "embed", "--pooling", "max", "--out", model, "--force"), OK)
        self.expect(self.export(model, "gguf", "--force"), FAILED, "The pooling max cannot be exported")

    def test_a_gemma_that_llama_cpp_would_compute_otherwise_is_refused(self):
        model = self.imported(FIXTURES / "gemma2_biased")
        self.expect(self.export(model, "gguf"), FAILED, "self_attn.q_proj.bias", "no name in gemma2 of GGUF")
        copy = self.folder / "copy"
        shutil.copytree(FIXTURES / "gemma2", copy)
        config = json.loads((copy / "config.json").read_text())
        for key, value in (("query_pre_attn_scalar", 5), ("layer_types", ["full_attention"] * 4), ("hidden_activation", "silu")):
            (copy / "config.json").write_text(json.dumps(config | {key: value}))
            self.expect(run("import", copy, "--out", self.folder / "changed.bowline", "--force"), OK)
            self.expect(self.export(self.folder / "changed.bowline", "gguf"), FAILED, f"\"{key}\"", "GGUF architecture gemma2 allows only")
        (copy / "config.json").write_text(json.dumps(config | {"final_logit_softcapping": None}))
        self.expect(run("import", copy, "--out", self.folder / "changed.bowline", "--force"), OK)
        self.expect(self.export(self.folder / "changed.bowline", "gguf"), FAILED, "no \"final_logit_softcapping\"")
        self.nothing_is_left("copy", "changed.bowline")

    def test_the_text_model_of_a_model_of_images_is_a_folder_of_its_own(self):
        for name, kind in (("gemma3_images", "Gemma3ForCausalLM"), ("ministral3_images", "Ministral3ForCausalLM")):
            with self.subTest(name):
                self.expect(self.export(self.imported(FIXTURES / name), "hf", "--force"), OK)
                source = read_safetensors(FIXTURES / name / "model.safetensors")
                texts = {n.removeprefix("language_model."): t for n, t in source.items() if n.startswith("language_model.")}
                self.assertLess(len(texts), len(source))
                self.assertEqual(read_safetensors(self.out / "model.safetensors"), texts)
                self.assertEqual(json.loads((self.out / "config.json").read_text())["architectures"], [kind])
                again = self.folder / "again.bowline"
                self.expect(run("import", self.out, "--out", again, "--force"), OK)
                self.assertEqual(self.weights(again), self.weights(self.imported(FIXTURES / name)))

    def test_a_yarn_rotation_that_gguf_has_not_is_refused(self):
        copy, model = self.folder / "copy", self.folder / "changed.bowline"
        shutil.copytree(FIXTURES / "llama_yarn", copy)
        config = json.loads((copy / "config.json").read_text())
        whole, others = config["rope_parameters"], ("beta_fast", "mscale", "mscale_all_dim")
        plain = {key: value for key, value in whole.items() if key not in others}
        for key, value in [(key, whole[key]) for key in others] + [("attention_factor", 1.5), ("truncate", False), ("beta_slow", 2.0)]:
            (copy / "config.json").write_text(json.dumps(config | {"rope_parameters": plain | {key: value}}))
            self.expect(run("import", copy, "--out", model, "--force"), OK)
            self.expect(self.export(model, "gguf"), FAILED, f'"{key}"', "GGUF has no key")
        (copy / "config.json").write_text(json.dumps(config | {"rope_parameters": plain}))
        self.expect(run("import", copy, "--out", model, "--force"), OK)
        gguf = self.folder / "yarn.gguf"
        self.expect(run("export", model, "--to", "gguf", "--out", gguf), OK)
        self.expect(run("import", gguf, "--out", model, "--force"), OK)
        self.expect(self.export(model, "hf"), OK)
        self.assertEqual(json.loads((self.out / "config.json").read_text())["rope_scaling"],
                         {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 80})

    def test_a_window_that_gguf_has_not_is_refused(self):
        for name in ("mistral_window", "qwen2_window", "qwen3_window"):
            self.expect(self.export(self.imported(FIXTURES / name), "gguf"), FAILED, "a sliding window", "which the GGUF architecture")
        copy, model = self.folder / "copy", self.folder / "changed.bowline"
        shutil.copytree(FIXTURES / "mistral_window", copy)
        config = json.loads((copy / "config.json").read_text())
        for context, window in ((8192, {}), (8192, {"sliding_window": 4096}), (4096, {}), (320, {"sliding_window": 320}),
                                (8192, {"sliding_window": None})):
            with self.subTest(context=context, window=window):
                changed = {k: v for k, v in config.items() if k != "sliding_window"} | {"max_position_embeddings": context} | window
                (copy / "config.json").write_text(json.dumps(changed))
                self.expect(run("import", copy, "--out", model, "--force"), OK)
                said = ["a sliding window (4096)"] if context == 8192 and window != {"sliding_window": None} else []
                self.expect(self.export(model, "gguf", "--force"), FAILED if said else OK, *said)

    def test_a_window_that_is_not_used_is_none(self):
        copy, model = self.folder / "copy", self.folder / "changed.bowline"
        shutil.copytree(FIXTURES / "qwen2_window", copy)
        config = json.loads((copy / "config.json").read_text())
        for used, code in ((True, FAILED), (False, OK), (None, OK)):
            with self.subTest(used=used):
                changed = {k: v for k, v in config.items() if k not in ("use_sliding_window", "layer_types")}
                (copy / "config.json").write_text(json.dumps(changed | ({} if used is None else {"use_sliding_window": used})))
                self.expect(run("import", copy, "--out", model, "--force"), OK)
                self.expect(self.export(model, "gguf", "--force"), code)

    def test_a_new_head_of_classes(self):
        labels = self.folder / "labels.txt"
        labels.write_text("red\nblue\n")
        for more, kind in (([], "single_label_classification"), (["--multi-label"], "multi_label_classification")):
            model, again = self.folder / "new.bowline", self.folder / "again.bowline"
            self.expect(run("import", FIXTURES / "bert", "--task", "classify", "--labels", labels, "--out", model, "--force", *more), OK,
                        "The classification head of 2 classes is new")
            self.expect(self.export(model, "hf", "--force"), OK)
            config = json.loads((self.out / "config.json").read_text())
            self.assertEqual((config["architectures"], config["id2label"], config["problem_type"]),
                             (["BertForSequenceClassification"], {"0": "red", "1": "blue"}, kind))
            self.expect(run("import", self.out, "--out", again, "--force"), OK, "task classify")
            self.assertEqual(self.weights(again), self.weights(model))
        self.expect(run("import", FIXTURES / "bert_sentences", "--task", "classify", "--labels", labels, "--out", model, "--force"), OK)
        self.expect(run("export", model, "--to", "hf", "--out", self.folder / "none"), FAILED, "reads the mean of the tokens", "no class of bert")
        self.assertFalse((self.folder / "none").exists())

    def test_the_dtype_that_is_asked_for(self):
        wide = read_safetensors(self.exported("llama_q8_0.gguf", "hf", "--dtype", "f32") / "model.safetensors")
        for dtype, code in (("bf16", "BF16"), ("f16", "F16")):
            tensors = read_safetensors(self.exported("llama_q8_0.gguf", "hf", "--dtype", dtype, "--force") / "model.safetensors")
            self.assertEqual({t[0] for t in tensors.values()}, {code})
            for name, (_, shape, numbers) in tensors.items():
                self.assertEqual(shape, wide[name][1])
                for i in range(0, len(numbers), 2):
                    x = struct.unpack_from("<f", wide[name][2], 2 * i)[0]
                    y = struct.unpack_from("<e", numbers, i)[0] if dtype == "f16" else struct.unpack("<f", b"\0\0" + numbers[i:i + 2])[0]
                    self.assertLessEqual(abs(x - y), abs(x) * 2.0 ** (-11 if dtype == "f16" else -8) + 2.0 ** -25, name)
        self.assertEqual(json.loads((self.out / "config.json").read_text())["torch_dtype"], "float16")

    def exported(self, name, to, *more):
        self.expect(self.export(self.imported(name), to, *more), OK)
        return self.out

    def test_a_file_of_gguf_is_the_one_that_was_imported(self):
        for name in ("llama_f32", "llama_f16", "llama_bf16", "llama_q8_0", "llama_q4_0", "llama_q4_1", "llama_q4_k", "llama_q6_k", "llama_rope",
                     "gpt2_f32", "names_gpt2", "names_qwen2", "names_qwen3", "names_llama", "names_gemma2", "gemma2_f32", "gemma2_bf16", "gemma2_q8_0"):
            with self.subTest(name):
                written, source = Gguf(self.exported(f"{name}.gguf", "gguf", "--force")), Gguf(DATA / f"{name}.gguf")
                if name == "llama_rope":
                    divisors = [struct.unpack("<16f", f.tensors.pop("rope_freqs.weight")[2]) for f in (written, source)]
                    for a, b in zip(*divisors):
                        self.assertLess(abs(a / b - 1), 1e-6)
                self.assertEqual(written.tensors, source.tensors)
                for key, value in source.keys.items():
                    self.assertEqual(written.keys.get(key), value, key)
        self.nothing_is_left("out")

    def test_a_model_without_a_tokenizer_says_so(self):
        model = self.imported(FIXTURES / "llama")
        self.expect(self.export(model, "gguf"), OK, "The file has no tokenizer")
        self.assertEqual(Gguf(self.out).keys["tokenizer.ggml.model"], "none")
        again = self.folder / "again.bowline"
        self.expect(run("import", self.out, "--out", again), OK, "no tokenizer")
        self.expect(run("tokenize", again, "a"), BAD_FILE, "The model has no tokenizer")

    def test_codes_are_those_of_the_package(self):
        for encoding in ("q8_0", "q4_0"):
            with self.subTest(encoding):
                written = Gguf(self.exported("llama_f32.gguf", "gguf", "--encoding", encoding, "--force"))
                self.assertEqual(written.tensors, Gguf(DATA / f"llama_{encoding}.gguf").tensors)
        halves = Gguf(self.exported("llama_f32.gguf", "gguf", "--dtype", "f16", "--force"))
        self.assertEqual(halves.tensors, Gguf(DATA / "llama_f16.gguf").tensors)

    def test_a_mixture_of_formats_stays(self):
        """Layers have different formats. Import and export keep every byte, and the model runs."""
        plain = self.folder / "plain"
        subprocess.run([sys.executable, ROOT / "tools/scale/make_shape", "tiny-256", plain], check=True)
        model, mixed, again = (self.folder / f"{name}.bowline" for name in ("plain", "mixed", "again"))
        self.expect(run("import", plain, "--dtype", "f32", "--out", model), OK)
        self.expect(run("quantize", model, "--encoding", "q4_k_m", "--out", mixed), OK)
        written = Gguf(self.written(mixed, "first.gguf"))
        down = [written.tensors[f"blk.{i}.ffn_down.weight"][0] for i in range(2)]
        self.assertEqual(len(set(down)), 2)
        self.expect(run("import", self.folder / "first.gguf", "--out", again), OK)
        self.assertEqual(self.weights(mixed), self.weights(again))
        self.assertEqual(Gguf(self.written(again, "second.gguf")).tensors, written.tensors)
        self.expect(run("generate", again, "a", "--max-tokens", "2", "--device", "cpu"), OK)

    def written(self, model, name):
        self.expect(run("export", model, "--to", "gguf", "--out", self.folder / name), OK)
        return self.folder / name

    def test_a_tokenizer_of_hugging_face_becomes_keys_of_gguf(self):
        source = Gguf(DATA / "llama_f32.gguf").keys
        folder = self.exported("llama_f32.gguf", "hf")
        tokens = source["tokenizer.ggml.tokens"]
        special = [i for i, kind in enumerate(source["tokenizer.ggml.token_type"]) if kind == 3]
        tokenizer = {
            "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in special],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens) if i not in special},
                      "merges": [m.split(" ") for m in source["tokenizer.ggml.merges"]]}}
        self.assertEqual(len(special), 3)
        for splitting, change in (("smollm", {}), ("gpt-2", {"pre_tokenizer": tokenizer["pre_tokenizer"]["pretokenizers"][1]})):
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer | change))
            model = self.folder / "model.bowline"
            self.expect(run("import", folder, "--out", model, "--force"), OK)
            path = self.folder / "model.gguf"
            self.expect(run("export", model, "--to", "gguf", "--out", path, "--force"), OK)
            written = Gguf(path).keys
            expected = source | {"tokenizer.ggml.pre": splitting}
            self.assertEqual({k: v for k, v in written.items() if k.startswith("tokenizer.")},
                             {k: v for k, v in expected.items() if k.startswith("tokenizer.")})
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"pre_tokenizer": {"type": "Whitespace"}}))
        self.expect(run("import", folder, "--out", model, "--force"), OK)
        self.expect(run("export", model, "--to", "gguf", "--out", path, "--force"), OK, "no tokenizer", "no name for how it changes and splits text")


if __name__ == "__main__":
    unittest.main()
