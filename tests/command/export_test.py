#!/usr/bin/env python3
"""Tests bowline export: a checkpoint becomes a model with the same weights, or files with their
bytes. inspect distinguishes the two.
"""

import json
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, USAGE, run


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
        self.expect(run("export", path, "--weights", folder), OK)
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

    def test_dtype(self):
        for dtype in ("bf16", "f16"):
            with self.subTest(dtype=dtype):
                self.expect(run("export", self.checkpoint, "--dtype", dtype, "--out", self.out, "--force"), OK, "18 storages")
                info, whole = self.inspect(self.out), self.inspect(self.checkpoint)
                self.assertEqual(2 * info["sizes"]["bytes"], whole["sizes"]["bytes"])
                self.assertEqual((info["kind"], info["sizes"]["training_bytes"]), ("model", 0))
                self.assertEqual([tie["parameters"] for tie in info["ties"]], [tie["parameters"] for tie in whole["ties"]])
                self.expect(run("eval", self.out, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu"), OK)

    def test_nothing_is_overwritten_unasked(self):
        self.out.write_text("mine")
        self.expect(run("export", self.checkpoint, "--strip", "--out", self.out), USAGE, "--force")
        self.assertEqual(self.out.read_text(), "mine")
        self.expect(run("export", self.checkpoint, "--strip", "--out", self.out, "--force"), OK)
        self.assertEqual(self.inspect(self.out)["kind"], "model")
        self.expect(run("export", self.checkpoint, "--out", self.folder / "other"), USAGE, "--strip", "--dtype")
        self.expect(run("export", self.checkpoint, "--strip"), USAGE, "--out")
        self.expect(run("export", self.checkpoint), USAGE, "--out", "--weights")
        self.expect(run("export", self.text, "--strip", "--out", self.folder / "other"), BAD_FILE, "a text file")

    def test_weights(self):
        folder = self.folder / "weights"
        done = self.expect(run("export", self.checkpoint, "--weights", folder, "-o", "json"), OK)
        whole = self.inspect(self.checkpoint)["sizes"]
        self.assertEqual(json.loads(done.stdout), {"file": str(self.checkpoint), "weights": str(folder), "parameters": 19,
                                                   "storages": 18, "bytes": whole["bytes"]})
        rows = {row["name"]: row for row in json.loads((folder / "parameters.json").read_text())}
        self.assertEqual(len(rows), 19)
        self.assertEqual(rows["embedding.weight"]["tie"], rows["head.weight"]["tie"])
        self.assertEqual((rows["embedding.weight"]["shape"], rows["embedding.weight"]["dtype"]), ([256, 16], "f32"))
        files = {f"storage_{row['tie']}.bin" for row in rows.values()}
        self.assertEqual({f.name for f in folder.iterdir()}, files | {"parameters.json"})
        self.assertEqual((folder / f"storage_{rows['embedding.weight']['tie']}.bin").stat().st_size, 256 * 16 * 4)
        self.assertEqual(sum((folder / name).stat().st_size for name in files), whole["bytes"])

    def test_weights_replace_nothing_unasked(self):
        folder = self.folder / "weights"
        folder.mkdir()
        (folder / "parameters.json").write_text("mine")
        self.expect(run("export", self.model, "--weights", folder), USAGE, "exists already", "--force")
        self.assertEqual([(f.name, f.read_text()) for f in folder.iterdir()], [("parameters.json", "mine")])
        self.expect(run("export", self.model, "--weights", folder, "--strip", "--out", self.out), USAGE, "--weights")
        self.expect(run("export", self.model, "--weights", folder, "--force"), OK)
        self.expect(run("export", self.model, "--weights", self.text / "x"), FAILED, "cannot be written", "making the folder")


if __name__ == "__main__":
    unittest.main()
