#!/usr/bin/env python3
"""The lines of README.md that call the command run, one after the other, on models of test size."""

import json
import pathlib
import re
import shlex
import shutil
import time
import unittest

import harness
from harness import OK, run
from import_test import field, value_info

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/import/fixtures"
SLOW = ("bowline conform ",)  # it has tests of its own


def relu():
    """y = relu(x), x of [2, 3]."""
    graph = field(1, field(1, "x") + field(2, "y") + field(4, "Relu")) + field(11, value_info("x", 2, 3)) + field(12, value_info("y", 2, 3))
    return field(1, 8) + field(8, field(2, 13)) + field(7, graph)


def word_piece(words):
    """A tokenizer.json of an encoder."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: n for n, word in enumerate([*special, *words])}
    frame = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": n, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for n, name in enumerate(special)],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": frame, "pair": frame,
                               "special_tokens": {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": vocabulary}}


def lines_of(heading):
    """The calls in the first block of code below a heading."""
    text = (ROOT / "README.md").read_text()
    block = text[text.index(f"\n{heading}\n"):].split("```")[1]
    return [re.split(r"\s+#", line)[0].strip() for line in block.splitlines() if line.startswith("bowline ")]


class Readme(harness.Case):
    def setUp(self):
        super().setUp()
        (self.folder / "model.onnx").write_bytes(relu())
        shutil.copy(self.model, self.folder / "base.bowline")
        for name in ("notes.txt", "other.txt"):
            (self.folder / name).write_text(harness.make_text(400))
        (self.folder / "x.npy").write_bytes(harness.npy("<i4", (1, 8), bytes(32)))
        for name, fixture in (("minilm", "bert"), ("smollm2", "llama"), ("llama-8b", "llama")):
            shutil.copytree(FIXTURES / fixture, self.folder / name)
        words = "a the library that draws maps plays music".split()
        words += [f"w{n}" for n in range(59 - len(words))]
        (self.folder / "minilm/tokenizer.json").write_text(json.dumps(word_piece(words)))
        config = json.loads((self.folder / "smollm2/config.json").read_text())
        (self.folder / "smollm2/config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
        (self.folder / "llama-8b/model.safetensors").unlink()
        chat = self.folder / "chat"
        chat.mkdir()
        rows = [{"messages": [{"role": "user", "content": f"what is {n}"}, {"role": "assistant", "content": f"the number {n}"}]} for n in range(40)]
        (chat / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (chat / "valid.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:8]))
        labels = ["maps", "music"]
        (self.folder / "labels.txt").write_text("\n".join(labels) + "\n")
        for name in ("train.csv", "test.csv"):
            (self.folder / name).write_text("text,section\n" + "draws the maps,maps\nplays the music,music\n" * 40)

    def test_the_lines_run(self):
        calls = [*lines_of("## The command"), *lines_of("### A model that you have")]
        self.assertGreater(len(calls), 25)
        for call in calls:
            if call.startswith(SLOW):
                continue
            with self.subTest(call):
                words = shlex.split(call)[1:]
                begin = time.monotonic()
                done = run(*words, cwd=self.folder, input="what is 3\n", timeout=300)
                print(f"{time.monotonic() - begin:6.1f} s  {call}")
                self.expect(done, OK)


if __name__ == "__main__":
    unittest.main()
