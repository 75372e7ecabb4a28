#!/usr/bin/env python3
"""Tests bowline tokenize and bench tokenize: tokens, ids and bytes of a text, and errors."""

import json
import pathlib
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, USAGE, run

DATA = pathlib.Path(__file__).resolve().parents[1] / "text" / "data"
BERT, GPT2, LLAMA2 = (DATA / f"{name}.json" for name in ("bert", "gpt2", "llama2"))


class Tokenize(harness.Case):
    def test_a_row_for_each_piece(self):
        rows = [r.split() for r in self.expect(run("tokenize", LLAMA2, "Hé"), OK).stdout.splitlines()]
        self.assertEqual([r[1:] for r in rows], [["added", "<s>", "(special)"], ["0-1", "▁"], ["0-1", "H"], ["1-3", "é"]])
        self.assertTrue(all(r[0].isdigit() for r in rows))

    def test_pieces_do_not_act_on_a_terminal(self):
        piece = self.folder / "tokenizer.json"
        piece.write_text(json.dumps({"model": {"type": "WordLevel", "vocab": {"\x1b[31m": 0, "<unk>": 1}, "unk_token": "<unk>"}}))
        shown = self.expect(run("tokenize", piece, "\x1b[31m"), OK).stdout
        self.assertNotIn("\x1b", shown)
        self.assertIn("\\x1b[31m", shown)

    def test_a_line_of_json_for_each_text(self):
        texts = self.folder / "texts"
        texts.write_bytes("the sea\n\n<s>\xff".encode("latin-1"))
        rows = [json.loads(r) for r in self.expect(run("tokenize", GPT2, "--file", texts, "--lines", "-o", "json"), OK).stdout.splitlines()]
        # a special token has no text
        self.assertEqual([r["text"] for r in rows], ["the sea", "", "\ufffd"])
        self.assertEqual(rows[2]["pieces"][0], "<s>")
        self.assertEqual(rows[2]["offsets"], [[0, 3], [3, 4], [3, 4], [3, 4]])
        texts.write_bytes(b"the\nsea\0a\0")
        rows = self.expect(run("tokenize", GPT2, "--file", texts, "--null", "-o", "json"), OK).stdout.splitlines()
        self.assertEqual([json.loads(r)["text"] for r in rows], ["the\nsea", "a"])

    def test_standard_input(self):
        shown = self.expect(run("tokenize", GPT2, "--file", "-", "-o", "json", input="ab"), OK).stdout
        self.assertEqual(json.loads(shown)["text"], "ab")

    def test_special_tokens(self):
        def ids(*flags):
            return json.loads(self.expect(run("tokenize", BERT, "a [SEP]", "-o", "json", *flags), OK).stdout)["ids"]

        self.assertEqual(ids()[-2:], [3, 3])
        self.assertEqual(ids("--no-special"), ids()[1:-1])
        self.assertGreater(len(ids("--plain-special")), len(ids()))
        self.assertEqual(ids("--max-tokens", 2), [2, 3])

    def test_gguf_and_a_folder_and_a_model(self):
        wanted = self.expect(run("tokenize", DATA / "smollm.json", "the sea"), OK).stdout
        self.assertEqual(self.expect(run("tokenize", DATA / "smollm.gguf", "the sea"), OK).stdout, wanted)
        (self.folder / "tokenizer.json").write_bytes((DATA / "smollm.json").read_bytes())
        self.assertEqual(self.expect(run("tokenize", self.folder, "the sea"), OK).stdout, wanted)
        # a model that reads bytes
        rows = self.expect(run("tokenize", self.model, "the"), OK).stdout.splitlines()
        self.assertEqual([r.split()[0] for r in rows], ["116", "104", "101"])

    def test_wrong_usage(self):
        self.expect(run("tokenize", GPT2), USAGE, "Give either TEXT or --file.")
        self.expect(run("tokenize", GPT2, "a", "--file", self.text), USAGE, "Give either TEXT or --file.")
        self.expect(run("tokenize", GPT2, "a", "--lines", "--null"), USAGE)
        self.expect(run("tokenize", BERT, "a", "--max-tokens", 1), FAILED, "max_tokens is 1, but the tokenizer adds 2 special tokens")

    def test_bad_files(self):
        bad = self.folder / "bad.json"
        good = GPT2.read_text()
        for text, says in (("", "cannot be opened"), ("{", "not valid JSON"), (good[:-20], "not valid JSON"),
                           (good.replace('"type":"BPE"', '"type":"Other"'), 'The model "Other" is not supported'),
                           ("[" * 100000, "cannot be opened"), ('{"a":' * 100000, "not valid JSON"), ("GGUF", "The file ends")):
            bad.write_text(text)
            found = run("tokenize", bad, "a")
            self.assertIn(found.returncode, (BAD_FILE, FAILED), found.stderr)
            self.assertTrue(says in found.stderr or text in ("", "[" * 100000), found.stderr)
            self.assertIn("bowline:", found.stderr)
        self.expect(run("tokenize", self.folder / "none.json", "a"), BAD_FILE, "none.json")
        self.expect(run("tokenize", GPT2, "--file", self.folder / "none"), BAD_FILE, "none")

    def test_bench(self):
        shown = json.loads(self.expect(run("bench", "tokenize", GPT2, "--text", self.text, "--runs", 3, "-o", "json"), OK).stdout)
        self.assertEqual(shown["bytes"], self.text.stat().st_size)
        self.assertGreater(shown["encode_mb_per_s"], 0)
        self.expect(run("bench", "tokenize", GPT2, "--text", self.text, "--runs", 1), OK, "encode")
        self.expect(run("bench", "tokenize", GPT2, "--text", self.folder / "none"), BAD_FILE)


if __name__ == "__main__":
    unittest.main()
