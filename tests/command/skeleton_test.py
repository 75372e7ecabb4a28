#!/usr/bin/env python3
"""Tests models without values: their reports equal those of the model with values, and the largest
model takes no memory.
"""

import json
import math
import pathlib
import subprocess
import sys
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, SANITIZED, USAGE, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAYS = {"full": [], "lora": ["--lora-rank", 8], "int8": ["--lora-rank", 8, "--quantize", "int8"]}


class Skeleton(harness.Case):
    def make(self, shape, *flags):
        """Makes a folder of Hugging Face, and imports it as a model."""
        name = "-".join([shape, *(flag.strip("-") for flag in flags)])
        folder, model = self.folder / name, self.folder / f"{name}.bowline"
        subprocess.run([sys.executable, ROOT / "tools/scale/make_shape", shape, folder, *flags], check=True)
        made = run("import", folder, "--out", model, "-o", "json", *(["--skeleton"] if flags else []))
        return folder, model, json.loads(self.expect(made, OK).stdout)

    def train(self, model, *flags):
        return run("finetune", model, "--data", self.text, "--batch", 2, "--seq", 16, "--steps", 1, "--device", "cpu", "-o", "json", *flags)

    def plan(self, model, *flags):
        return json.loads(self.expect(self.train(model, "--dry-run", *flags), OK).stdout)

    def test_it_says_what_the_model_with_its_values_takes(self):
        _, real, of_real = self.make("tiny")
        _, shapes, of_shapes = self.make("tiny", "--config-only")
        self.assertEqual((of_shapes["bytes"], of_shapes["skeleton"]), (of_real["bytes"], True))
        self.assertEqual(of_shapes["ties"], of_real["ties"])
        self.assertEqual(of_shapes["entries"], of_real["entries"])
        for way, flags in WAYS.items():
            with self.subTest(way):
                plan = self.plan(shapes, *flags)
                trained = json.loads(self.expect(self.train(real, *flags, "--out", self.folder / f"{way}.bowline"), OK).stdout)
                self.assertEqual(plan["predicted_bytes"], trained["predicted_bytes"])
                self.assertEqual(self.plan(real, *flags)["predicted_bytes"], trained["predicted_bytes"])
                self.assertLessEqual(abs(trained["counted_bytes"] / trained["predicted_bytes"] - 1), 0.02)
        dims = ["--batch", 2, "--seq", 16, "--dim", "rows=4", "--dim", "kv_length=4", "--device", "cpu", "-o", "json"]
        described = [json.loads(self.expect(run("inspect", m, *dims), OK).stdout) for m in (real, shapes)]
        self.assertEqual(described[0]["memory"], described[1]["memory"])
        self.assertEqual([d["kind"] for d in described], ["model", "skeleton"])

    def test_the_largest_takes_no_memory(self):
        folder, shapes, report = self.make("llama3.1-8b", "--config-only")
        self.assertEqual(sum(f.stat().st_size for f in folder.iterdir()) // 10000, 0)
        self.assertGreater(report["bytes"], 16_000_000_000)
        self.assertLess(shapes.stat().st_size, 1_000_000)
        for way, flags in WAYS.items():
            plan = self.plan(shapes, *flags)
            self.assertGreater(plan["predicted_bytes"], 8_000_000_000, way)
            if not SANITIZED:
                self.assertLess(plan["peak_rss_bytes"], 256 << 20, way)

    def test_what_needs_values_says_so(self):
        _, shapes, _ = self.make("tiny", "--config-only")
        out = self.folder / "out"
        self.expect(self.train(shapes, "--out", out), FAILED, "has no values")
        self.expect(run("generate", shapes, "a", "--device", "cpu"), FAILED, "has no values")
        self.expect(run("export", shapes, "--to", "hf", "--out", out), FAILED, "no values")
        self.assertFalse(out.exists())

    def test_bench_draws_values(self):
        _, shapes, _ = self.make("tiny", "--config-only")
        losses = self.folder / "losses.txt"
        done = run("bench", "train", shapes, "--batch", 1, "--seq", 8, "--steps", 1, "--device", "cpu", "--no-floor", "--dump-losses", losses)
        self.expect(done, OK)
        loss, uniform = float(losses.read_text()), math.log(300)
        self.assertAlmostEqual(loss, uniform, delta=0.5)
        self.assertNotAlmostEqual(loss, uniform, places=6)  # all zeros: every logit is 0
        self.expect(run("bench", "decode", shapes, "--tokens", 2, "--device", "cpu", "--no-floor"), OK, "tokens/s")

    def test_what_makes_none(self):
        out = self.folder / "out.bowline"
        self.expect(run("import", self.text, "--skeleton", "--out", out), USAGE, "--skeleton", "text.txt")
        bert = ROOT / "tests/import/fixtures/bert"
        self.expect(run("import", bert, "--skeleton", "--out", out), BAD_FILE, "encoder")
        folder, _, _ = self.make("tiny", "--config-only")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"dtype": "int8"}))
        self.expect(run("import", folder, "--skeleton", "--out", out), BAD_FILE, "dtype")
        self.expect(run("import", folder, "--out", out), BAD_FILE, "model.safetensors")
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
