#!/usr/bin/env python3
"""Tests finetune --lora-rank: the base does not change, the file is small, and a resumed run has
the same bits. Also tests eval --adapter.
"""

import json
import shutil
import unittest

import harness
from harness import FAILED, OK, USAGE, run

LORA = ["--lora-rank", 4, "--lora-target", "blocks.*.attention.{q,v}.weight"]


class Adapter(harness.Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "adapter.bowline"

    def train(self, *more):
        return self.finetune("--learning-rate", "0.01", "--schedule", "constant", "--eval-batches", 4, "--out", self.out,
                             *([] if "--lora-rank" in more else LORA), *more)

    def bits(self, *more, model=None):
        done = run("eval", model or self.model, "--data", self.text, "--batch", 2, "--seq", 16, "--batches", 4, "-o", "json", *more)
        return json.loads(self.expect(done, OK).stdout)["bits_per_byte"]

    def test_every_device_trains_the_adapter_alone(self):
        before = self.model.read_bytes()
        for device in harness.real_devices():
            with self.subTest(device):
                self.expect(self.train("--steps", 8, "--device", device, "--force"), OK, "written")
                on = ["--device", device]
                base, tuned = self.bits(*on), self.bits(*on, "--adapter", self.out)
                self.assertLess(tuned, base)
                self.assertEqual(self.bits(*on, "--adapter", f"{self.out}=0"), base, "weight 0 turns it off")
                half = self.bits(*on, "--adapter", f"{self.out}=0.5")
                self.assertNotIn(half, (base, tuned))
        self.assertEqual(self.model.read_bytes(), before)

    def test_over_codes(self):
        for device in harness.real_devices():
            for encoding in ("int8 block row", "int4"):
                with self.subTest(device=device, encoding=encoding):
                    codes = ["--quantize", encoding]
                    checkpoints = ["--checkpoint", self.folder / f"c {device} {encoding}".replace(":", "")]
                    self.expect(self.train("--steps", 8, "--device", device, "--force", *codes, *checkpoints), OK, "written")
                    on = ["--device", device, *codes]
                    base, tuned = self.bits(*on), self.bits(*on, "--adapter", self.out)
                    self.assertLess(tuned, base)
                    self.assertEqual(self.bits(*on, "--adapter", f"{self.out}=0"), base, "weight 0 turns it off")
                    # Training quantizes the base to the same values as 'bowline quantize'.
                    quantized = self.folder / "quantized.bowline"
                    self.expect(run("quantize", self.model, "--out", quantized, "--encoding", encoding, "--force"), OK)
                    self.assertEqual(self.bits("--device", device, model=quantized), base)
                    self.assertEqual(self.bits("--device", device, "--adapter", self.out, model=quantized), tuned)
                    # The adapter stores the encoding of its base, so a plain base is quantized in
                    # the same way.
                    self.assertEqual(self.bits("--device", device, "--adapter", self.out), tuned)
                    done = run("eval", self.model, "--data", self.text, "--seq", 16, "--device", device, "--quantize", "q8_0",
                               "--adapter", self.out)
                    self.expect(done, FAILED, "was trained on the base", "digest")

    def test_merged_into_quantized_weights(self):
        """Export dequantizes the weights, changes them, and quantizes them again if the file has
        them quantized. It reports which part of the change survives.
        """
        self.expect(self.train("--steps", 8, "--quantize", "int8 block row"), OK)
        base, tuned = self.bits("--quantize", "int8 block row"), self.bits("--adapter", self.out)
        merged = self.folder / "merged.bowline"
        done = self.expect(run("export", self.model, "--adapter", self.out, "--out", merged), OK)
        self.assertIn("decoded for it and written as f32: 100 percent of its change survives.\n", done.stdout)
        self.assertAlmostEqual(self.bits(model=merged), tuned, places=4)
        info = json.loads(run("inspect", merged, "-o", "json").stdout)
        self.assertEqual({s["encoding"] for s in info["storages"]}, {"plain"})
        self.assertTrue(all(p["trainable"] for p in info["parameters"]))
        quantized = self.folder / "quantized.bowline"
        self.expect(run("quantize", self.model, "--out", quantized, "--encoding", "int8 block row"), OK)
        done = self.expect(run("export", quantized, "--adapter", self.out, "--out", merged, "--force", "-o", "json"), OK)
        percent = float(json.loads(done.stdout)["notes"][-1].split(": ")[1].split(" percent")[0])
        self.assertGreater(percent, 80)
        encodings = [[s.get("encoding") for s in json.loads(run("inspect", m, "-o", "json").stdout)["storages"]] for m in (quantized, merged)]
        self.assertEqual(*encodings)
        self.assertLess(abs(self.bits(model=merged) - tuned), 0.3 * abs(base - tuned))

    def test_an_adapter_of_another_encoding_says_which_it_needs(self):
        self.expect(self.train("--steps", 2, "--quantize", "int8 block row"), OK)
        done = run("eval", self.model, "--data", self.text, "--seq", 16, "--quantize", "int4", "--adapter", self.out)
        self.expect(done, FAILED, "was trained on the base", "trained on weights in int8 block row")

    def test_the_file_holds_the_adapter_alone(self):
        self.expect(self.train("--steps", 2), OK)
        info = json.loads(self.expect(run("inspect", self.out, "-o", "json"), OK).stdout)
        names = [p["name"] for p in info["parameters"]]
        self.assertIn("blocks.1.attention.v.weight.lora.lora_b", names)
        self.assertEqual(len(names), 2 * 2 * 2 + 3)
        self.assertLess(self.out.stat().st_size, self.model.stat().st_size)

    def test_resumed_runs_give_the_same_bits(self):
        checkpoints = ["--checkpoint", self.folder / "c"]
        self.expect(self.train("--steps", 6, *checkpoints), OK)
        whole = self.out.read_bytes()
        self.out.unlink()
        shutil.rmtree(self.folder / "c")
        self.expect(self.train("--steps", 3, *checkpoints), OK)
        self.expect(self.train("--steps", 6, *checkpoints, "--resume", "auto", "--force"), OK, "resumed at step 3")
        self.assertEqual(self.out.read_bytes(), whole)
        done = self.train("--steps", 7, *checkpoints, "--resume", "auto", "--force", "--lora-rank", 2)
        self.assertNotEqual(done.returncode, OK)

    def test_adapters_of_two_runs_add_up(self):
        other = self.folder / "other.bowline"
        self.expect(self.train("--steps", 8), OK)
        shutil.move(self.out, other)
        self.expect(self.train("--steps", 4, "--seed", 3), OK)
        both = ["--adapter", self.out, "--adapter", other]
        one, two = self.bits("--adapter", self.out), self.bits("--adapter", other)
        self.assertNotIn(self.bits(*both), (one, two))
        self.assertEqual(self.bits("--adapter", self.out, "--adapter", f"{other}=0"), one)
        self.assertEqual(self.bits("--adapter", f"{self.out}=0", "--adapter", other), two)
        again = run("eval", self.model, "--data", self.text, "--seq", 16, "--adapter", self.out, "--adapter", f"{self.out}=0.5")
        self.expect(again, FAILED, "twice", "FILE=2")

    def test_the_model_may_follow_the_flag(self):
        self.expect(self.train("--steps", 1), OK)
        done = run("eval", "--adapter", self.out, self.model, "--data", self.text, "--seq", 16, "--batches", 1)
        self.expect(done, OK)

    def test_another_base_is_refused(self):
        self.expect(self.train("--steps", 2), OK)
        other = self.folder / "other.bowline"
        self.assertEqual(run("--seed", 9, *harness.TINY, other, program=harness.MAKE_MODEL).returncode, OK)
        done = run("eval", other, "--data", self.text, "--seq", 16, "--device", "cpu", "--adapter", self.out)
        self.expect(done, FAILED, "was trained on the base", "digest")
        done = run("eval", self.model, "--data", self.text, "--seq", 16, "--device", "cpu", "--adapter", self.model)
        self.expect(done, FAILED, "is not an adapter file")

    def test_a_plan_needs_no_values(self):
        self.expect(self.train("--steps", 2, "--lora-dropout", 0.1, "--dry-run"), OK, "predicted")
        self.assertFalse(self.out.exists())

    def test_flags(self):
        self.expect(self.finetune("--out", self.out, "--quantize", "int8"), USAGE, "--lora-rank")
        self.expect(self.train("--steps", 1, "--quantize", "int9"), FAILED, "int9")
        self.expect(self.finetune("--lora-alpha", 3), USAGE, "--lora-rank")
        self.expect(self.train("--steps", 1, "--with-training-state"), USAGE, "--with-training-state")
        self.expect(self.finetune("--steps", 1, "--out", self.out, "--lora-rank", 2, "--lora-target", "none*"), FAILED,
                    'The pattern "none*" matches none')


if __name__ == "__main__":
    unittest.main()
