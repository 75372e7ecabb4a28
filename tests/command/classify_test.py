#!/usr/bin/env python3
"""Tests texts with labels: finetune, eval and predict of an encoder with a head. Invalid input
comes first.
"""

import csv
import json
import os
import pathlib
import random
import re
import shutil
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, USAGE, run

LABELS = ["animals", "colours", "numbers"]
WORDS = {"animals": "cat dog owl bee fox hen".split(), "colours": "red blue grey pink teal gold".split(),
         "numbers": "one two six ten four nine".split()}


def make_rows(count, seed=1):
    pick = random.Random(seed)
    rows = []
    for _ in range(count):
        label = pick.choice(LABELS)
        rows.append((" ".join(pick.choice(WORDS[label]) for _ in range(pick.randint(1, 9))), label))
    return rows


class Classify(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model, cls.several = cls.shared / "encoder.bowline", cls.shared / "several.bowline"
        for arguments in ([cls.model], [cls.several, "several=true"]):
            made = run(*arguments, program=os.environ["ENCODER_MODEL"])
            if made.returncode != 0:
                raise AssertionError(made.stderr)
        cls.train, cls.test = cls.shared / "train.csv", cls.shared / "test.csv"
        for path, count, seed in ((cls.train, 240, 1), (cls.test, 60, 2)):
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *make_rows(count, seed)])

    def finetune(self, *arguments, model=None, **options):
        flags = {"--data": self.train, "--batch": 8, "--device": "cpu", "--learning-rate": "0.01"}
        given = [word for flag, value in flags.items() if flag not in arguments for word in (flag, value)]
        return run("finetune", model or self.model, *given, *arguments, **options)

    def evaluate(self, model, *arguments):
        done = run("eval", model, "--device", "cpu", "-o", "json", *arguments)
        return json.loads(self.expect(done, OK).stdout)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    # Invalid input.

    def refused(self, name, text, *messages, code=BAD_FILE, more=()):
        done = self.finetune("--data", self.write(name, text), "--steps", 1, "--out", self.folder / "out.bowline", *more)
        self.expect(done, code, *messages)
        self.assertFalse((self.folder / "out.bowline").exists())

    def test_bad_rows(self):
        self.refused("a.csv", "text,label\nx,animals\ny\n", "a.csv:3: The row has 1 fields, the header 2.")
        self.refused("b.csv", "text,label\nx,animals\ny,plants\nz,colours\nz,numbers\n",
                     "has 4 labels, but the classification head of the model has 3 classes")
        self.refused("c.csv", "text,label\n", "holds no rows")
        self.refused("d.csv", "".join(["text,label\n"] + ["x,animals\n"] * 20), "has the label \"animals\". Training needs at least two labels")
        self.refused("e.csv", "text,label\n\"x,animals\n", "e.csv:2: A quote is opened")
        self.refused("f.jsonl", '{"text": "x", "label": "a"}\n{"text": }\n', "f.jsonl:2:10: The line is not valid JSON")
        self.refused("g.csv", "body,label\nx,a\n", "no column \"text\" (--text-field); there are \"body\", \"label\"")
        self.refused("k.csv", "text,label,label\nx,animals,colours\ny,numbers,numbers\n", "k.csv:1: There are several columns \"label\"")
        self.refused("h.txt", "x\n", "must end in .csv, .tsv, .jsonl or .ndjson")
        self.refused("i.csv", "text,label\nx\0,a\n", "i.csv:2:2: There is a NUL byte")
        self.refused("j.csv", "text,label\n,animals\nx,colours\ny,numbers\n", "j.csv:2: The text is empty")

    def test_unknown_label(self):
        labels = self.write("labels.txt", "animals\ncolours\nnumbers\n")
        self.refused("a.csv", "text,label\nx,animals\ny,plants\nz,colours\n", "a.csv:3: The model has no label \"plants\"; it has",
                     more=("--labels", labels))
        self.refused("a.csv", "text,label\nx,animals\ny,colours\nz,numbers\n", "labels.txt:2: Label \"a\" is already in line 1",
                     more=("--labels", self.write("labels.txt", "a\na\n")))

    def test_flags_of_others(self):
        self.expect(self.finetune("--train-on", "all", "--steps", 0), USAGE, "--train-on has no effect on texts with labels")
        done = run("finetune", self.shared / "tiny.bowline", "--data", self.text, "--labels", self.text, "--steps", 0)
        self.expect(done, USAGE, "--labels has no effect on plain text")
        self.expect(self.finetune("--epochs", 1, "--steps", 1), USAGE, "--epochs")
        self.expect(self.finetune("--freeze", "nothing.*", "--steps", 0), FAILED, "--freeze \"nothing.*\" matches no parameter")

    def test_bad_class_weights(self):
        for text, message in (("[1]", "holds no JSON object"), ('{"animals": 1}', 'no number for the label "colours"'),
                              ('{"animals": 1, "colours": -1, "numbers": 1}', "must be finite and at least 0"),
                              ('{"animals": 1, "colours": 1, "numbers": 1, "more": 1}', "has 4 labels, the model 3"),
                              ('{"animals": 1, "colours": 1, "animals": 2, "numbers": 1}', "has a label twice")):
            done = self.finetune("--class-weights", self.write("w.json", text), "--steps", 0)
            self.expect(done, BAD_FILE, message)

    # Valid input.

    def test_learns(self):
        out = self.folder / "out.bowline"
        done = self.finetune("--epochs", 6, "--out", out, "-o", "json")
        result = json.loads(self.expect(done, OK).stdout)
        # 6 epochs of 216 rows in batches of 8; every tenth row is held out
        self.assertEqual(result["steps"], 162)
        self.assertLess(result["nats_per_text_after"], result["nats_per_text_before"] / 2)
        before, after = self.evaluate(self.model, "--data", self.test), self.evaluate(out, "--data", self.test)
        self.assertGreater(after["accuracy"], 0.9)
        self.assertGreater(after["accuracy"], before["accuracy"])
        self.assertEqual(after["labels"], LABELS)
        confusion = after["confusion"]
        self.assertEqual(sum(map(sum, confusion)), 60)
        self.assertAlmostEqual(sum(confusion[i][i] for i in range(3)) / 60, after["accuracy"], places=9)
        with self.test.open() as file:
            truth = [row["label"] for row in csv.DictReader(file)]
        self.assertEqual([sum(row) for row in confusion], [truth.count(label) for label in LABELS])
        f1 = [2 * confusion[i][i] / (sum(confusion[i]) + sum(row[i] for row in confusion)) for i in range(3)]
        self.assertAlmostEqual(after["macro_f1"], sum(f1) / 3, places=9)
        text = self.expect(run("eval", out, "--data", self.test, "--device", "cpu"), OK).stdout
        self.assertIn(f"accuracy    {after['accuracy']:.4f}\nmacro F1    {after['macro_f1']:.4f}\n", text)
        self.assertIn("texts are cut at 64 tokens (the model's max_tokens)", text)

    def test_every_form_of_rows(self):
        rows = make_rows(40, 3)
        tsv = self.write("rows.tsv", "label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows))
        lines = self.write("rows.jsonl", "".join(json.dumps({"body": text, "kind": label}) + "\n" for text, label in rows))
        windows = self.write("rows.csv", "")
        windows.write_bytes(b"\xef\xbb\xbftext,label\r\n" + b"".join(f'"{text}",{label}\r\n'.encode() for text, label in rows))
        expected = self.evaluate(self.model, "--data", tsv)
        self.assertEqual(self.evaluate(self.model, "--data", windows), expected)
        self.assertEqual(self.evaluate(self.model, "--data", lines, "--text-field", "body", "--label-field", "kind"), expected)

    def test_batch_does_not_matter(self):
        """Padding and missing rows do not change the metrics."""
        a = self.evaluate(self.model, "--data", self.test, "--batch", 7)
        b = self.evaluate(self.model, "--data", self.test, "--batch", 60)
        self.assertAlmostEqual(a["nats_per_text"], b["nats_per_text"], places=6)
        self.assertEqual(a["confusion"], b["confusion"])

    def test_cut(self):
        long = self.write("long.csv", "text,label\n" + f"{'cat ' * 40},animals\nred,colours\none,numbers\n")
        out = self.expect(run("eval", self.model, "--data", long, "--device", "cpu"), OK).stdout
        self.assertIn("texts are cut at 64 tokens (the model's max_tokens): 1 of 3 are longer", out)
        out = self.expect(run("eval", self.model, "--data", long, "--device", "cpu", "--max-seq-length", 3), OK).stdout
        self.assertIn("texts are cut at 3 tokens (--max-seq-length): 1 of 3 are longer", out)

    def test_an_epoch_shows_every_row_once(self):
        """With a learning rate of 0, the loss of a batch of one identifies the row."""
        picked = random.Random(3)
        texts = set()
        while len(texts) < 75:  # more than one block of batches, and no multiple of a block
            texts.add(" ".join(picked.choice(WORDS[picked.choice(LABELS)]) for _ in range(12)))
        rows = [(text, LABELS[i % 3]) for i, text in enumerate(sorted(texts))]
        data = self.folder / "rows.csv"
        with data.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        log = self.folder / "log.csv"
        self.expect(self.finetune("--data", data, "--valid", self.test, "--batch", 1, "--epochs", 2, "--learning-rate", 0, "--schedule",
                                  "constant", "--log", log, "--out", self.folder / "out.bowline"), OK)
        losses = [line.split()[1] for line in log.read_text().splitlines() if line[:1].isdigit()]
        self.assertEqual(len(losses), 150)
        self.assertGreaterEqual(len(set(losses[:75])), 70)  # a few rows have equal losses
        self.assertEqual(sorted(losses[:75]), sorted(losses[75:]))

    def test_resume(self):
        """A resumed run has the same bits, also within an epoch and within an accumulation."""
        whole, parts = self.folder / "whole.bowline", self.folder / "parts.bowline"
        flags = ("--accumulate", 2, "--class-weights", "balanced", "--schedule", "constant")
        logs = [self.folder / name for name in ("whole.log", "parts.log")]
        self.expect(self.finetune(*flags, "--steps", 30, "--out", whole, "--log", logs[0]), OK)
        checkpoints = self.folder / "c"
        for steps in (13, 30):
            self.expect(self.finetune(*flags, "--steps", steps, "--out", parts, "--log", logs[1], "--checkpoint", checkpoints,
                                      "--resume", "auto", "--extend"), OK)
        self.assertEqual(logs[0].read_text(), logs[1].read_text())
        self.assertIn("loss in nats per text", logs[0].read_text().splitlines()[0])
        self.assertEqual(whole.read_bytes(), parts.read_bytes())
        other = self.finetune("--accumulate", 2, "--class-weights", "none", "--schedule", "constant", "--steps", 30, "--out",
                              parts, "--checkpoint", checkpoints, "--resume", "auto")
        self.expect(other, BAD_FILE, "belongs to a run with --class-weights balanced, now none")

    def test_freeze_and_head(self):
        """If all parameters except the head are frozen and the learning rate of the head is 0,
        nothing changes. With --head-learning-rate the head learns.
        """
        flags = ("--freeze", "{embeddings,encoder}.*", "--epochs", 3)
        still = json.loads(self.expect(self.finetune(*flags, "--head-learning-rate", 0, "--weight-decay", 0, "--out",
                                                     self.folder / "a.bowline", "-o", "json"), OK).stdout)
        self.assertEqual(still["nats_per_text_after"], still["nats_per_text_before"])
        moved = json.loads(self.expect(self.finetune(*flags, "--learning-rate", "1e-6", "--head-learning-rate", "0.02", "--out",
                                                     self.folder / "b.bowline", "-o", "json"), OK).stdout)
        self.assertLess(moved["nats_per_text_after"], moved["nats_per_text_before"])

    def test_class_weights(self):
        """With weights of 0 for two classes, the model predicts the third class for every text."""
        weights = self.write("w.json", '{"animals": 0, "colours": 1, "numbers": 0}')
        checkpoints = self.folder / "c"
        self.finetune("--steps", 150, "--class-weights", weights, "--checkpoint", checkpoints)
        result = self.evaluate(checkpoints / "step-00000150.bowline", "--data", self.test)
        self.assertEqual([row[0] + row[2] for row in result["confusion"]], [0, 0, 0])
        # The run compares the weights, not the name of their file.
        goes_on = ("--steps", 150, "--checkpoint", checkpoints, "--resume", "auto", "--dry-run", "--class-weights")
        shutil.copy(weights, self.folder / "same.json")
        self.expect(self.finetune(*goes_on, self.folder / "same.json"), OK)
        self.write("w.json", '{"animals": 0, "colours": 1, "numbers": 0.5}')
        self.expect(self.finetune(*goes_on, weights), BAD_FILE, "animals=0 colours=1 numbers=0, now animals=0 colours=1 numbers=0.5")

    def test_sixteen_bits(self):
        """A model with weights, logits and targets in 16 bits classifies and learns like one in
        f32.
        """
        rows = [(text, label) for text, label in make_rows(60, 4)]
        several = self.write("rows.jsonl", "".join(json.dumps({"text": text, "label": [label]}) + "\n" for text, label in rows))
        for dtype in ("f16", "bf16"):
            for model, data, flags in ((self.model, self.train, ("--class-weights", "balanced")), (self.several, several, ())):
                with self.subTest(dtype=dtype, model=model.name):
                    short, out = self.folder / "short.bowline", self.folder / "out.bowline"
                    self.expect(run("export", model, "--dtype", dtype, "--out", short, "--force"), OK)
                    ways = [json.loads(self.expect(run("predict", m, "cat dog", "-o", "json"), OK).stdout) for m in (model, short)]
                    for long, rounded in zip(*(way["probabilities"].values() for way in ways), strict=True):
                        self.assertAlmostEqual(long, rounded, delta=0.02)
                    self.expect(self.finetune("--data", data, "--epochs", 20, *flags, "--out", out, "--force", model=short), OK)
                    self.assertGreater(self.evaluate(out, "--data", data)["macro_f1"], 0.9)

    def test_several_labels(self):
        rows = [(f"{a} {b}", sorted({la, lb})) for (a, la), (b, lb) in zip(make_rows(120, 4), make_rows(120, 5))]
        data = self.write("rows.jsonl", "".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in rows))
        out = self.folder / "out.bowline"
        self.expect(self.finetune("--data", data, "--epochs", 12, "--out", out, model=self.several), OK)
        before, after = self.evaluate(self.several, "--data", data), self.evaluate(out, "--data", data)
        self.assertGreater(after["macro_f1"], before["macro_f1"])
        self.assertGreater(after["macro_f1"], 0.9)
        self.assertNotIn("confusion", after)

    def test_an_adapter_that_leaves_the_head(self):
        """A warning names a target that also trains the head. With this target there is no warning,
        and the loss is smaller.
        """
        flags = ("--lora-rank", 2, "--steps", 20, "--force", "--out", self.folder / "a.bowline", "-o", "json")
        left = self.expect(self.finetune(*flags, "--lora-target", "encoder.{query,value}.weight"), OK)
        self.assertIn("does not train the classification head", left.stderr)
        way_out = re.search(r'- --lora-target "(.*)" trains it, too\.', left.stderr).group(1)
        info = json.loads(run("inspect", self.folder / "a.bowline", "-o", "json").stdout)
        self.assertFalse(any(p["name"].startswith("classifier.") for p in info["parameters"]))
        trained = self.expect(self.finetune(*flags, "--lora-target", way_out), OK)
        self.assertNotIn("leaves the head", trained.stderr)
        info = json.loads(run("inspect", self.folder / "a.bowline", "-o", "json").stdout)
        self.assertTrue(any(p["name"].startswith("classifier.") for p in info["parameters"]))
        self.assertLess(*(json.loads(done.stdout)["nats_per_text_after"] for done in (trained, left)))
        self.assertNotIn("leaves the head", self.expect(self.finetune(*flags), OK).stderr)

    def test_an_adapter_of_the_whole_head(self):
        """"!" in the target trains the weight with full rank, and also the bias. The file has the
        same loss as the run.
        """
        adapter, nats = self.folder / "a.bowline", {}
        for head in ("classifier.weight", "!classifier.weight", "!classifier.*"):
            done = self.finetune("--lora-rank", 2, "--steps", 20, "--force", "--out", adapter, "-o", "json", "--valid", self.test,
                                 "--lora-target", f"{{encoder.query.weight,{head}}}")
            nats[head] = json.loads(self.expect(done, OK).stdout)["nats_per_text_after"]
        self.assertEqual(len(set(nats.values())), 3)
        shapes = {p["name"]: p["shape"] for p in json.loads(run("inspect", adapter, "-o", "json").stdout)["parameters"]}
        self.assertEqual([shapes[f"{name}.lora.lora_{part}"] for name in ("encoder.query.weight", "classifier.weight", "classifier.bias")
                          for part in "ab"], [[2, 16], [16, 2], [3, 16], [3, 3], [1, 3], [1, 1]])
        result = self.evaluate(self.model, "--data", self.test, "--adapter", adapter)
        self.assertAlmostEqual(result["nats_per_text"], nats["!classifier.*"], 5)
        wrong = self.finetune("--lora-rank", 2, "--steps", 1, "--out", self.folder / "b.bowline", "--lora-target", "{encoder.query.weight,!class_weights}")
        self.expect(wrong, FAILED, "\"class_weights\" cannot be changed with full rank by adapter \"lora\"")

    # Predictions.

    def predict(self, model, *arguments, **options):
        done = self.expect(run("predict", model, "--device", "cpu", *arguments, **options), OK)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_predictions_are_those_that_eval_counts(self):
        out = self.folder / "out.bowline"
        self.expect(self.finetune("--epochs", 1, "--out", out), OK)
        rows = make_rows(60, seed=2)
        given = self.predict(out, "--file", self.test)
        right = sum(row["label"] == label for row, (_, label) in zip(given, rows, strict=True))
        self.assertAlmostEqual(right / len(rows), self.evaluate(out, "--data", self.test)["accuracy"], 6)
        for row in given:
            self.assertEqual(sorted(row["probabilities"]), LABELS)
            self.assertAlmostEqual(sum(row["probabilities"].values()), 1, 5)
            self.assertEqual(row["label"], max(row["probabilities"], key=row["probabilities"].get))
        # The same texts from the command line, from the lines of a file, and from stdin, with any
        # batch size.
        texts = [text for text, _ in rows[:5]]
        lines = "".join(text + "\n" for text in texts)
        for other in (self.predict(out, *texts), self.predict(out, "--file", self.write("lines.txt", lines)),
                      self.predict(out, input=lines), self.predict(out, *texts, "--batch", 2)):
            self.assertEqual([row["label"] for row in other], [row["label"] for row in given[:5]])
            for row, first in zip(other, given):
                for label in LABELS:
                    self.assertAlmostEqual(row["probabilities"][label], first["probabilities"][label], 5)
        plain = self.expect(run("predict", out, "--device", "cpu", "-o", "text", texts[0]), OK).stdout
        self.assertEqual(plain, f'{given[0]["label"]} {given[0]["probabilities"][given[0]["label"]]:.4f}\n')

    def test_what_cannot_be_predicted(self):
        self.expect(run("predict", self.folder / "no.bowline", "x", "--device", "cpu"), BAD_FILE, "no.bowline")
        self.expect(run("predict", self.model, "--file", self.folder / "no.txt", "--device", "cpu"), BAD_FILE, "no.txt")
        self.expect(run("predict", self.model, "x", "--file", self.test, "--device", "cpu"), USAGE, "--file")
        self.expect(run("predict", self.model, "x", "--device", "nosuch"), 4, "nosuch")
        self.assertEqual(self.predict(self.model, input=""), [])
        for name in ("rows.CSV", "rows.json", "rows.JSONL", "rows.parquet"):
            self.expect(run("predict", self.model, "--file", self.write(name, "text,label\nthe cat,0\n"), "--device", "cpu"), FAILED,
                        name, "in lower case")

    def test_memory(self):
        done = self.finetune("--steps", 2, "--out", self.folder / "out.bowline", "-o", "json")
        result = json.loads(self.expect(done, OK).stdout)
        self.assertLess(abs(result["predicted_bytes"] / result["counted_bytes"] - 1), 0.02)


if __name__ == "__main__":
    unittest.main()
