#!/usr/bin/env python3
"""Mistyped verbs, flags, values and devices; --help of every verb; devices."""

import unittest

import harness
from harness import BAD_DEVICE, OK, USAGE, run


class Usage(harness.Case):
    def test_no_verb(self):
        self.expect(run(), USAGE)

    def test_unknown_verb(self):
        self.expect(run("fintune"), USAGE, "'fintune'", "'finetune'", "--help")
        self.expect(run("bench", "matmull"), USAGE, "'matmull'", "'matmul'")

    def test_unknown_flag(self):
        self.expect(run("finetune", self.model, "--data", self.text, "--lerning-rate", "1"), USAGE,
                    "'--lerning-rate'", "'--learning-rate'", "bowline finetune --help")
        self.expect(run("bench", "matmul", "--layuot", "nt"), USAGE, "'--layuot'", "'--layout'")
        self.expect(run("devices", "-x"), USAGE, "'-x'")

    def test_bad_value(self):
        self.expect(self.finetune("--batch", "many"), USAGE, "--batch")
        self.expect(self.finetune("--schedule", "square"), USAGE, "square")
        self.expect(self.finetune("--seq", "0"), USAGE, "--seq")
        self.expect(run("bench", "matmul", "--layout", "xx"), USAGE, "xx")

    def test_numbers(self):
        """A number is a whole word, finite and in range; the message is short, and nothing is written."""
        out = self.folder / "out.bowline"
        whole = ("-1", "", "1e3", "0x10", "1.5", "9223372036854775808", "1" * 400, " 1", "many")
        for flag in ("--steps", "--warmup", "--eval-every", "--eval-batches", "--save-every", "--patience", "--batch"):
            for word in whole:
                self.expect(self.finetune(flag, word, "--out", out), USAGE, flag, f'"{word[:40]}" is not a whole number from')
        real = ("-1", "", "nan", "-nan", "inf", "-inf", "1e39", "0x1p3", "1e", "many")
        for flag in ("--learning-rate", "--weight-decay", "--clip", "--beta2", "--momentum", "--final-fraction"):
            for word in real:
                done = self.expect(self.finetune(flag, word, "--out", out), USAGE, flag, f'"{word}" is not a finite number from')
                self.assertLess(len(done.stderr), 200)
        for flag in ("--beta2", "--momentum"):
            for word in ("1", "0.99999999999"):
                self.expect(self.finetune(flag, word, "--out", out), USAGE, f'"{word}" is not a finite number from 0 on and below 1')
        self.expect(self.finetune("--seed", 2**64 - 1, "--steps", 0), OK)
        self.expect(self.finetune("--seed", 2**64, "--steps", 0), USAGE, "from 0 on")
        self.assertFalse(out.exists())

    def test_missing_argument(self):
        self.expect(run("inspect"), USAGE, "model")
        self.expect(run("finetune", self.model), USAGE, "--data")

    def test_unknown_device(self):
        out = self.folder / "out.bowline"
        self.expect(self.finetune("--device", "vulcan:0", "--out", out), BAD_DEVICE, "vulcan:0", "Did you mean")
        self.expect(run("bench", "matmul", "--device", "cpuu"), BAD_DEVICE, "cpuu", "'cpu'")
        self.assertFalse(out.exists())

    def test_device_without_number(self):
        self.expect(run("bench", "matmul", "--device", "vulkan:99"), BAD_DEVICE, "vulkan:99")

    def test_help(self):
        top = self.expect(run("--help"), OK)
        for code in ("0 ", "1 ", "2 ", "3 ", "4 ", "75 ", "130 "):
            self.assertIn("\n  " + code, top.stdout)
        for verb in ("devices", "inspect", "verify", "finetune", "eval", "bench", "conform"):
            self.assertIn(verb, top.stdout)
            self.assertIn(f"example: bowline {verb}", self.expect(run(verb, "--help"), OK).stdout)

    def test_version(self):
        self.assertIn("bowline ", self.expect(run("--version"), OK).stdout)

    def test_devices(self):
        rows = {d["name"]: d for d in harness.devices()}
        self.assertTrue(rows["cpu"]["usable"])
        self.assertTrue(any(d["best"] for d in rows.values()))
        for row in rows.values():
            self.assertEqual(row["usable"], row["reason"] == "")
        self.assertIn("cpu", self.expect(run("devices"), OK).stdout)


if __name__ == "__main__":
    unittest.main()
