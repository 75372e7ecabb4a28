#!/usr/bin/env python3
"""Tests bowline eval: the same loss as the held-out loss of finetune, its perplexity, and its
flags.
"""

import json
import math
import unittest

import harness
from harness import FAILED, OK, USAGE, run


class Eval(harness.Case):
    def evaluate(self, *more):
        device = [] if "--device" in more else ["--device", "cpu"]
        done = run("eval", self.model, "--data", self.text, "--batch", 2, "--seq", 16, *device, "-o", "json", *more)
        return json.loads(self.expect(done, OK).stdout)

    def test_equals_finetune(self):
        for stride, batches in ((0, 0), (4, 0), (16, 5)):
            done = self.finetune("--valid", self.text, "--steps", 0, "--eval-stride", stride, "--eval-batches", batches, "-o",
                                 "json")
            held_out = json.loads(self.expect(done, OK).stdout)["bits_per_byte_before"]
            result = self.evaluate("--stride", stride, "--batches", batches)
            self.assertEqual(result["bits_per_byte"], held_out)
            self.assertAlmostEqual(result["perplexity"], math.exp2(held_out), places=9)
            self.assertEqual(result["bytes"], self.text.stat().st_size)

    def test_every_device(self):
        expected = self.evaluate()["bits_per_byte"]
        for device in harness.real_devices():
            self.assertAlmostEqual(self.evaluate("--device", device)["bits_per_byte"], expected, places=4)

    def test_text(self):
        out = self.expect(run("eval", self.model, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu"), OK).stdout
        result = self.evaluate()
        self.assertEqual(out, f"loss        {result['bits_per_byte']:.4f} bits per byte\n"
                              f"perplexity  {result['perplexity']:.4f} per byte\n")

    def test_a_model_that_is_not_finite(self):
        checkpoints = self.folder / "c"
        self.expect(self.finetune("--steps", 5, "--learning-rate", "1e6", "--checkpoint", checkpoints), FAILED, "not finite")
        done = run("eval", checkpoints / "step-00000005.bowline", "--data", self.text, "--seq", 16, "--device", "cpu")
        self.expect(done, FAILED, "is not finite")

    def test_flags(self):
        call = ["eval", self.model, "--data", self.text, "--seq", 16]
        self.expect(run(*call, "--stride", 17), USAGE, "--stride 17 is above --seq 16")
        self.expect(run(*call, "--batches", "-1"), USAGE, "--batches", '"-1" is not a whole number')


if __name__ == "__main__":
    unittest.main()
