#!/usr/bin/env python3
"""Tags of words: training, measures, predictions, exports and adapters."""

import json
import math
import pathlib
import random
import shutil
import unittest

import harness
from forms import read_safetensors
from harness import BAD_FILE, FAILED, OK, USAGE, run

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "import/fixtures"
TAGS = ["O", "B-knot", "I-knot"]


class Tags(harness.Case):
    def setUp(self):
        super().setUp()
        self.model, self.data, self.out = (self.folder / name for name in ("model.bowline", "rows.jsonl", "tuned.bowline"))
        self.random = random.Random(5)

    def imported(self, name, *flags):
        source = self.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(FIXTURES / name, source)
        # Words are the numbers of the tokens.
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(FIXTURES / "llama" / file, source)
        return self.expect(run("import", source, "--out", self.model, "--force", *flags), OK, "task tag")

    def new_head(self, name="bert", tags=TAGS):
        labels = self.folder / "labels.txt"
        labels.write_text("\n".join(tags) + "\n")
        return self.imported(name, "--task", "tag", "--labels", labels)

    def sentences(self, count):
        """Words below 12, and the word 61 behind them, are an entity."""
        rows = []
        for _ in range(count):
            words, tags = [], []
            while len(words) < 8:
                word = self.random.randint(3, 60)
                words += [str(word)] + ["61"] * (word < 12)
                tags += ["B-knot", "I-knot"] if word < 12 else ["O"]
            rows.append({"tokens": words, "tags": tags})
        return rows

    def write(self, rows, path=None):
        (path or self.data).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def finetune(self, *flags, code=OK, texts=()):
        return self.expect(run("finetune", self.model, "--data", self.data, "--device", "cpu", "--learning-rate", 3e-3, "--out", self.out,
                               "--force", *flags), code, *texts)

    def measure(self, model, *flags):
        return json.loads(self.expect(run("eval", model, "--data", self.data, "--device", "cpu", "-o", "json", *flags), OK).stdout)

    def predicted(self, *texts, model=None):
        done = self.expect(run("predict", model or self.out, "--device", "cpu", *texts), OK)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_training_finds_the_entities(self):
        for name in ("bert", "llama"):  # a decoder has no lengths of texts
            with self.subTest(name):
                self.new_head(name)
                self.write(self.sentences(200))
                self.finetune("--steps", 200, texts=("nats per word", "f1"))
                found = self.predicted("20 5 61 30", "20 30")
                self.assertEqual([(e["label"], e["start"], e["end"], e["text"]) for e in found[0]["entities"]], [("knot", 3, 7, "5 61")])
                self.assertEqual(found[1], {"text": "20 30", "entities": []})
                self.write(self.sentences(50))
                self.assertGreater(self.measure(self.out)["f1"], 0.9)

    def test_measures(self):
        """Against the tags and probabilities that predict gives, and by the rules of seqeval."""
        self.imported("bert_tags")
        rows = self.sentences(30)
        self.write(rows)
        measured = self.measure(self.model, "--batch", 7)
        truth = right = found = words = same = 0
        for row, line in zip(rows, self.predicted(*(" ".join(row["tokens"]) for row in rows), model=self.model)):
            own, at = set(), 0
            for word, tag in zip(row["tokens"], row["tags"]):
                if tag == "B-knot":
                    own.add((at, at + len(f"{word} 61")))
                at += len(word) + 1
            given = {(e["start"], e["end"]) for e in line["entities"]}
            truth, found, right, words = truth + len(own), found + len(given), right + len(own & given), words + len(row["tokens"])
        self.assertGreater(found, 20)
        for name, value in (("precision", right / found), ("recall", right / truth), ("f1", 2 * right / (found + truth))):
            self.assertAlmostEqual(measured[name], value, places=6)
        self.assertEqual(measured["sentences"], 30)
        log = self.folder / "log"
        self.finetune("--valid", self.data, "--steps", 1, "--batch", 30, "--in-order", "--log", log)
        self.assertAlmostEqual(float(log.read_text().splitlines()[-1].split()[1]), measured["nats_per_word"], places=4)

    def test_single_words(self):
        """Tags that mark no entities."""
        self.new_head(tags=["low", "high"])
        self.write([{"words": (words := [str(self.random.randint(3, 60)) for _ in range(6)]), "labels": ["low" if int(w) < 30 else "high" for w in words]}
                    for _ in range(120)])
        self.finetune("--steps", 150, texts=("macro_f1",))
        line, = self.predicted("4 55")
        self.assertEqual([(w["label"], w["text"], w["start"], w["end"]) for w in line["words"]], [("low", "4", 0, 1), ("high", "55", 2, 4)])

    def test_words_of_a_plain_text(self):
        """Of a tokenizer with pieces of words, and of a text with characters of several bytes."""
        self.new_head(tags=["low", "high"])
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "\u6771", "\u4eac", "-", ",", "\u00e9", "##\u00e9", "\u2026"]
        source = self.folder / "source"
        (source / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": False, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {piece: i for i, piece in enumerate(pieces)}}}))
        labels = self.folder / "labels.txt"
        self.expect(run("import", source, "--task", "tag", "--labels", labels, "--out", self.model, "--force"), OK)
        text = "ab\u00e9 \u6771\u4eac,a-b\u2026 \u00e9"
        line, = self.predicted(text, model=self.model)
        self.assertEqual([w["text"] for w in line["words"]], ["ab\u00e9", "\u6771", "\u4eac", ",", "a", "-", "b", "\u2026", "\u00e9"])
        for word in line["words"]:
            self.assertEqual(text[word["start"]:word["end"]], word["text"])

    def test_columns(self):
        self.imported("bert_tags")
        rows = self.sentences(3)
        self.write(rows)
        expected = self.measure(self.model)
        self.data = self.folder / "rows.conll"
        self.data.write_text("-DOCSTART- -X- O O\n\n" + "\n\n".join(
            "\n".join(f"{word}\tNN  {tag}" for word, tag in zip(row["tokens"], row["tags"])) for row in rows) + "\n")
        self.assertEqual(self.measure(self.model), expected)

    def test_wrong_rows(self):
        self.imported("bert_tags")
        for row, text in (({"tokens": ["3", "4"], "tags": ["O"]}, "rows.jsonl:2: There are 2 words, but 1 tags."),
                          ({"tokens": ["3"]}, 'rows.jsonl:2: There is no list "tags"'),
                          ({"tokens": ["3"], "tags": [1]}, 'rows.jsonl:2: The list "tags" has an item that is number'),
                          ({"tokens": ["3 4"], "tags": ["O"]}, 'rows.jsonl:2: The word "3 4" is empty or has white space'),
                          ({"tokens": [], "tags": []}, "rows.jsonl:2: There are no words"),
                          ({"tokens": ["3"], "tags": ["B-rope"]}, 'rows.jsonl:2: The model has no tag "B-rope" (of the word "3")')):
            self.write([{"tokens": ["3"], "tags": ["O"]}, row])
            self.finetune("--steps", 1, code=BAD_FILE, texts=(text,))
        self.new_head(tags=["O", "B-knot", "rope"])
        self.write([{"tokens": ["3", "4"], "tags": ["B-knot", "rope"]}] * 4)
        self.finetune("--steps", 1, code=BAD_FILE, texts=('The tag "B-knot" marks an entity, but "rope" does not.',))
        self.data = self.folder / "rows.conll"
        self.data.write_text("3 O\n4\n")
        self.finetune("--steps", 1, code=BAD_FILE, texts=('rows.conll:2: The line "4" has no tag behind its word.',))
        self.finetune("--steps", 1, "--class-weights", "none", code=USAGE, texts=("--class-weights has no effect on words with tags",))
        self.expect(run("import", FIXTURES / "bert_tags", "--pooling", "cls", "--out", self.out), USAGE, "--pooling has no effect")

    def test_exports_are_what_was_imported(self):
        for name in ("bert_tags", "modernbert_tags", "roberta_tags", "llama_tags"):
            with self.subTest(name):
                self.imported(name)
                self.expect(run("export", self.model, "--to", "hf", "--out", self.folder / "hf", "--force"), OK)
                self.assertEqual(read_safetensors(self.folder / "hf/model.safetensors"), read_safetensors(FIXTURES / name / "model.safetensors"))
                written, source = (json.loads((f / "config.json").read_text()) for f in (self.folder / "hf", FIXTURES / name))
                self.assertEqual({**written, **source}, written)

    def test_exports_of_new_heads(self):
        """Their names in transformers. It has no such class of some decoders, or one with another
        head.
        """
        for name, module in (("qwen3", "score"), ("gpt2", "classifier"), ("gpt_neox", "classifier")):
            self.new_head(name)
            self.expect(run("export", self.model, "--to", "hf", "--out", self.folder / "hf", "--force"), OK)
            config = json.loads((self.folder / "hf/config.json").read_text())
            self.assertTrue(config["architectures"][0].endswith("ForTokenClassification"), config["architectures"])
            self.assertLessEqual({f"{module}.weight", f"{module}.bias"}, set(read_safetensors(self.folder / "hf/model.safetensors")))
        self.new_head("modernbert")
        self.expect(run("export", self.model, "--to", "hf", "--out", self.folder / "hf", "--force"), FAILED, "has no layer of its own")
        self.new_head("granite")
        self.expect(run("export", self.model, "--to", "hf", "--out", self.folder / "hf", "--force"), FAILED,
                    "transformers has no class of granite that tags words.")

    def test_other_heads(self):
        """A head of whole texts is not one of words, and the other way round."""
        self.assertIn("new: random weights", self.new_head("bert_classes").stdout)
        labels = self.folder / "labels.txt"
        done = self.expect(run("import", FIXTURES / "bert_tags", "--task", "classify", "--labels", labels, "--out", self.model, "--force"), OK)
        self.assertIn("new: random weights", done.stdout)
        self.expect(run("import", FIXTURES / "bert_tags", "--task", "embed", "--out", self.model, "--force"), OK, "dropped classifier.weight")

    def test_an_adapter(self):
        self.imported("bert_tags")
        self.write(self.sentences(60))
        self.finetune("--steps", 10, "--lora-rank", 2, "--lora-target", "{*.query.weight,classifier.*}")
        self.expect(run("export", self.model, "--to", "peft", "--adapter", self.out, "--out", self.folder / "peft"), OK)
        config = json.loads((self.folder / "peft/adapter_config.json").read_text())
        self.assertEqual((config["modules_to_save"], config["task_type"]), (["classifier"], "TOKEN_CLS"))
        names = set(read_safetensors(self.folder / "peft/adapter_model.safetensors"))
        self.assertIn("base_model.model.classifier.weight", names)
        self.assertIn("base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight", names)
        again = self.folder / "again.bowline"
        self.expect(run("import", self.folder / "peft", "--base", self.model, "--out", again), OK)
        texts = [" ".join(row["tokens"]) for row in self.sentences(5)]
        first, second = (self.expect(run("predict", self.model, "--adapter", adapter, "--device", "cpu", *texts), OK).stdout for adapter in (self.out, again))
        for a, b in zip(first.splitlines(), second.splitlines()):
            for x, y in zip(json.loads(a)["entities"], json.loads(b)["entities"]):
                self.assertEqual((x["start"], x["end"]), (y["start"], y["end"]))
                self.assertTrue(math.isclose(x["score"], y["score"], rel_tol=1e-4))


if __name__ == "__main__":
    unittest.main()
