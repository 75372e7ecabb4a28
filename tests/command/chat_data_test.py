#!/usr/bin/env python3
"""Conversations in JSON lines: finetune and eval of a model that reads bytes, from a folder; the bad input first."""

import json
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, run


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def make_rows(count):
    rows = []
    for i in range(count):
        question, answer = f"{i % 5}+{i % 3}", str(i % 5 + i % 3)
        rows.append([{"text": f"the sum {question} is {answer}"}, {"prompt": question, "completion": answer},
                     {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}][i % 3])
    return rows


class Chat(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.data.mkdir()
        (self.data / "train.jsonl").write_text(lines(make_rows(60)))
        (self.data / "valid.jsonl").write_text(lines(make_rows(12)))

    def finetune(self, *arguments, **options):
        flags = {"--data": self.data, "--batch": 4, "--device": "cpu", "--chat-format": "chatml"}
        given = [word for flag, value in flags.items() if flag not in arguments for word in (flag, value)]
        return run("finetune", self.model, *given, *arguments, **options)

    def evaluate(self, model, *arguments):
        done = run("eval", model, "--data", self.data, "--device", "cpu", "--chat-format", "chatml", "-o", "json", *arguments)
        return json.loads(self.expect(done, OK).stdout)

    def refused(self, text, *messages):
        (self.data / "train.jsonl").write_text(text)
        self.expect(self.finetune("--steps", 1, "--out", self.folder / "out.bowline"), BAD_FILE, *messages)
        self.assertFalse((self.folder / "out.bowline").exists())

    def test_bad_rows(self):
        self.refused('{"text": "x"}\n{"text": "y"\n', "train.jsonl:2:13: The line is broken JSON from here on: it ends")
        self.refused('{"messages": [{"role": "robot", "content": "x"}]}\n', "train.jsonl:1: A message has the unknown role \"robot\"")
        self.refused('{"question": "x"}\n', "train.jsonl:1: The row has neither \"messages\"")
        self.refused("", "train.jsonl")
        self.refused("once upon a time\n", "train.jsonl:1:1: The line is broken JSON")

    def test_json_is_no_plain_text(self):
        done = run("finetune", self.model, "--data", self.data / "train.jsonl", "--device", "cpu", "--steps", 0)
        self.expect(done, BAD_FILE, "holds JSON lines. Only plain text can be trained on")

    def test_flags(self):
        self.expect(self.finetune("--labels", self.text, "--steps", 0), FAILED, "--labels says nothing of conversations")
        done = self.expect(run("finetune", self.model, "--data", self.data, "--device", "cpu", "--steps", 0), FAILED)
        self.assertIn("--chat-format", done.stderr)
        self.expect(self.finetune("--chat-format", "morse", "--steps", 0), FAILED, "morse")

    def test_learns(self):
        out = self.folder / "out.bowline"
        done = self.finetune("--epochs", 4, "--learning-rate", "0.003", "--out", out)
        self.expect(done, OK, "60 steps of 4 rows of at most", "every loss is in nats per token")
        before, after = self.evaluate(self.model), self.evaluate(out)
        self.assertLess(after["nats_per_token"], before["nats_per_token"] - 0.5)
        self.assertEqual(after["rows"], 12)

    def test_mask_prompt(self):
        """Only the answers are counted: of "text" all of it, of a message the answer and what ends it."""
        (self.data / "valid.jsonl").write_text(lines([{"prompt": "abc", "completion": "xy"}]))
        whole, masked = self.evaluate(self.model), self.evaluate(self.model, "--mask-prompt")
        before = "<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n"
        text = before + "xy<|im_end|>\n"
        self.assertEqual(whole["tokens"], len(text) - 1)  # one id per byte
        self.assertEqual(masked["tokens"], len(text) - len(before))

    def test_cut(self):
        (self.data / "valid.jsonl").write_text(lines([{"text": "x" * 50}, {"text": "y" * 10}]))
        out = self.expect(run("eval", self.model, "--data", self.data, "--device", "cpu", "--max-seq-length", 20), OK).stdout
        self.assertIn("rows are cut at 20 tokens (--max-seq-length): 1 of 2 are longer", out)
        self.assertEqual(self.evaluate(self.model, "--max-seq-length", 20)["tokens"], 19 + 9)

    def test_batch_does_not_matter(self):
        a, b = self.evaluate(self.model, "--batch", 1), self.evaluate(self.model, "--batch", 12)
        self.assertEqual(a["tokens"], b["tokens"])
        self.assertAlmostEqual(a["nats_per_token"], b["nats_per_token"], places=5)

    def test_resume(self):
        whole, parts = self.folder / "whole.bowline", self.folder / "parts.bowline"
        flags = ("--accumulate", 2, "--mask-prompt", "--schedule", "constant")
        logs = [self.folder / name for name in ("whole.log", "parts.log")]
        self.expect(self.finetune(*flags, "--iters", 14, "--out", whole, "--log", logs[0]), OK)
        for steps in (5, 14):
            self.expect(self.finetune(*flags, "--iters", steps, "--out", parts, "--log", logs[1], "--checkpoint",
                                      self.folder / "c", "--resume", "auto", "--extend"), OK)
        self.assertEqual(logs[0].read_text(), logs[1].read_text())
        self.assertEqual(whole.read_bytes(), parts.read_bytes())

    def test_adapter(self):
        out = self.folder / "adapter.bowline"
        self.expect(self.finetune("--iters", 30, "--lora-rank", 4, "--quantize", "int8", "--learning-rate", "0.01", "--out", out), OK)
        before, after = self.evaluate(self.model, "--quantize", "int8"), self.evaluate(self.model, "--quantize", "int8", "--adapter", out)
        self.assertLess(after["nats_per_token"], before["nats_per_token"])


if __name__ == "__main__":
    unittest.main()
