#!/usr/bin/env python3
"""bowline export: a checkpoint becomes a model of the same weights; inspect tells one from the other."""

import json
import unittest

import harness
from harness import BAD_FILE, OK, USAGE, run


class Export(harness.Case):
    def setUp(self):
        super().setUp()
        self.expect(self.finetune("--steps", 3, "--checkpoint", self.folder / "run"), OK)
        self.checkpoint = sorted((self.folder / "run").glob("step-*.bowline"))[-1]
        self.out = self.folder / "out.bowline"

    def inspect(self, path):
        return json.loads(self.expect(run("inspect", path, "-o", "json"), OK).stdout)

    def weights(self, path):
        folder = self.folder / ("weights_" + path.name)
        self.expect(run("inspect", path, "--export-weights", folder), OK)
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    def test_a_checkpoint_says_what_it_is(self):
        text = self.expect(run("inspect", self.checkpoint), OK).stdout
        self.assertTrue(text.startswith(f"{self.checkpoint}: a checkpoint, "), text)
        self.assertIn("\ncheckpoint  of step 3, adamw\n", text)
        info = self.inspect(self.checkpoint)
        self.assertEqual((info["kind"], info["training"]["step"]), ("checkpoint", 3))
        self.assertEqual(info["sizes"]["elements"], self.inspect(self.model)["sizes"]["elements"])
        self.assertEqual(info["sizes"]["training_bytes"], 2 * info["sizes"]["bytes"])

    def test_strip(self):
        self.expect(run("export", self.checkpoint, "--strip", "--out", self.out), OK)
        info, whole = self.inspect(self.out), self.inspect(self.checkpoint)
        self.assertEqual((info["kind"], info["sizes"]["training_bytes"]), ("model", 0))
        self.assertEqual(info["sizes"]["bytes"], whole["sizes"]["bytes"])
        self.assertEqual(info["ties"], whole["ties"])
        self.assertEqual(self.weights(self.out), self.weights(self.checkpoint))
        self.assertLess(self.out.stat().st_size, self.checkpoint.stat().st_size - whole["sizes"]["bytes"])
        self.expect(run("verify", self.out), OK)
        self.expect(run("eval", self.out, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu"), OK)

    def test_nothing_is_overwritten_unasked(self):
        self.out.write_text("mine")
        self.expect(run("export", self.checkpoint, "--strip", "--out", self.out), USAGE, "--force")
        self.assertEqual(self.out.read_text(), "mine")
        self.expect(run("export", self.checkpoint, "--strip", "--out", self.out, "--force"), OK)
        self.assertEqual(self.inspect(self.out)["kind"], "model")
        self.expect(run("export", self.checkpoint, "--out", self.folder / "other"), USAGE, "--strip")
        self.expect(run("export", self.text, "--strip", "--out", self.folder / "other"), BAD_FILE, "a text file")


if __name__ == "__main__":
    unittest.main()
