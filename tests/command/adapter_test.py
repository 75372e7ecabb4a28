#!/usr/bin/env python3
"""finetune --lora-rank: the base stays, the file is small, a run that is resumed gives the same bits; eval --adapter."""

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
                    # The codes under the trained adapter are those of the untrained model.
                    quantized = self.folder / "quantized.bowline"
                    self.expect(run("quantize", self.model, "--out", quantized, "--encoding", encoding, "--force"), OK)
                    self.assertEqual(self.bits("--device", device, model=quantized), base)
                    self.assertEqual(self.bits("--device", device, "--adapter", self.out, model=quantized), tuned)
                    done = run("eval", self.model, "--data", self.text, "--seq", 16, "--device", device, "--adapter", self.out)
                    self.expect(done, FAILED, "is of the base", "digest")

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

    def test_another_base_is_refused(self):
        self.expect(self.train("--steps", 2), OK)
        other = self.folder / "other.bowline"
        self.assertEqual(run("--seed", 9, *harness.TINY, other, program=harness.MAKE_MODEL).returncode, OK)
        done = run("eval", other, "--data", self.text, "--seq", 16, "--device", "cpu", "--adapter", self.out)
        self.expect(done, FAILED, "is of the base", "digest")
        done = run("eval", self.model, "--data", self.text, "--seq", 16, "--device", "cpu", "--adapter", self.model)
        self.expect(done, FAILED, "holds no adapter")

    def test_flags(self):
        self.expect(self.finetune("--out", self.out, "--quantize", "int8"), USAGE, "--lora-rank")
        self.expect(self.train("--steps", 1, "--quantize", "int9"), FAILED, "int9")
        self.expect(self.finetune("--lora-alpha", 3), USAGE, "--lora-rank")
        self.expect(self.train("--steps", 1, "--with-training-state"), USAGE, "--with-training-state")
        self.expect(self.finetune("--steps", 1, "--out", self.out, "--lora-rank", 2, "--lora-target", "none*"), FAILED,
                    'The pattern "none*" matches none')


if __name__ == "__main__":
    unittest.main()
