#!/usr/bin/env python3
"""Tests bowline quantize: each storage is quantized once, the file shrinks by the size in the
report, and the model still runs and trains.
"""

import json
import unittest

import harness
from harness import OK, USAGE, run


class Quantize(harness.Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "codes.bowline"

    def inspect(self, path):
        return json.loads(self.expect(run("inspect", path, "-o", "json"), OK).stdout)

    def bits_per_byte(self, path):
        result = self.expect(run("eval", path, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "-o", "json"), OK)
        return json.loads(result.stdout)["bits_per_byte"]

    def test_what_was_kept_stands_in_lines(self):
        lines = self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "int4"), OK).stdout.splitlines()
        self.assertRegex(lines[0], r"storages converted: \d+ bytes before, \d+ after$")
        self.assertTrue(lines[1].startswith("kept "), lines)
        self.assertRegex(lines[-1], r"MiB|KiB")

    def test_the_file_shrinks_and_the_model_stays(self):
        whole = self.inspect(self.model)
        plain = self.bits_per_byte(self.model)
        for encoding, most, difference in (("int8 block row", 0.35, 0.05), ("int4", 0.2, 0.5)):
            with self.subTest(encoding=encoding):
                result = self.expect(run("quantize", self.model, "--out", self.out, "--encoding", encoding, "--force", "-o", "json"), OK)
                report = json.loads(result.stdout)
                self.assertGreater(report["storages"], 0)
                self.assertLess(report["storage_bytes"], most * report["storage_bytes_before"])
                info = self.inspect(self.out)
                self.assertEqual([t["parameters"] for t in info["ties"]], [t["parameters"] for t in whole["ties"]])
                self.assertEqual(whole["sizes"]["bytes"] - info["sizes"]["bytes"], report["storage_bytes_before"] - report["storage_bytes"])
                self.assertEqual(self.out.stat().st_size, report["bytes"])
                self.assertLess(abs(self.bits_per_byte(self.out) - plain), difference)

    def test_a_quantized_base_is_finetuned_around_and_stays(self):
        self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "int8", "--pattern", "blocks.*.mlp.*"), OK, " storages converted: ")
        tuned = self.folder / "tuned.bowline"
        self.expect(run("finetune", self.out, *self.with_defaults(("--steps", 3, "--out", tuned))), OK)
        before, after = (self.weights(p) for p in (self.out, tuned))
        changed = {name for name in before if before[name] != after[name]}
        self.assertTrue(changed)
        self.assertTrue(self.codes(self.out))
        self.assertFalse(changed & self.codes(self.out))

    def test_a_base_whose_matrices_are_all_quantized_is_not_trained(self):
        self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "int8"), OK)
        tuned, plain = self.folder / "tuned.bowline", self.folder / "plain.bowline"
        train = ["--steps", 2, "--out", tuned]
        done = run("finetune", self.out, *self.with_defaults(train))
        self.expect(done, harness.FAILED, "Almost nothing would be trained", "--lora-rank 8 trains an adapter", "--encoding plain")
        self.assertFalse(tuned.exists())
        done = run("finetune", self.out, *self.with_defaults([*train, "--lora-rank", 2]))
        self.assertRegex(self.expect(done, OK).stdout, r"(?m)^trains [\d,]+ of [\d,]+ values \(the adapter\)$")
        # Dequantized weights can be trained again.
        self.expect(run("quantize", self.out, "--out", plain, "--encoding", "plain"), OK)
        self.assertEqual(self.inspect(plain)["sizes"]["trainable_elements"], self.inspect(self.model)["sizes"]["trainable_elements"])
        self.expect(run("finetune", plain, *self.with_defaults([*train, "--force"])), OK)

    def test_it_is_said_how_many_values_train(self):
        sizes = self.inspect(self.model)["sizes"]
        done = self.expect(self.finetune("--steps", 1, "--out", self.out), OK)
        self.assertIn(f"trains {sizes['trainable_elements']:,} of {sizes['elements']:,} values\n", done.stdout)
        plan = self.expect(self.finetune("--steps", 1, "--dry-run", "-o", "json"), OK)
        self.assertEqual(json.loads(plan.stdout)["trained_values"], sizes["trainable_elements"])

    def codes(self, path):
        """Returns the files of the quantized storages."""
        listing = self.inspect(path)["storages"]
        return {f"storage_{s['tie']}.bin" for s in listing if s.get("encoding", "plain") != "plain"}

    def weights(self, path):
        folder = self.folder / ("weights_" + path.name)
        self.expect(run("export", path, "--weights", folder), OK)
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    def test_numbers_again(self):
        self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "int8"), OK)
        again = self.folder / "again.bowline"
        self.expect(run("quantize", self.out, "--out", again, "--encoding", "plain"), OK)
        self.assertEqual(self.inspect(again)["sizes"]["bytes"], self.inspect(self.model)["sizes"]["bytes"])
        self.assertEqual(self.bits_per_byte(again), self.bits_per_byte(self.out))

    def test_what_is_wrong_writes_nothing(self):
        self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "q9"), USAGE, 'There is no encoding "q9"')
        self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "int8", "--pattern", "none"), USAGE, '"none" matches none')
        self.assertFalse(self.out.exists())
        self.out.write_text("mine")
        self.expect(run("quantize", self.model, "--out", self.out, "--encoding", "int8"), USAGE, "--force")
        self.assertEqual(self.out.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
