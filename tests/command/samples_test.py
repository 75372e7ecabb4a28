#!/usr/bin/env python3
"""Tests the samples, and the output of inspect and bench for a sample model."""

import json
import os
import pathlib
import pty
import re
import unittest

import harness
from harness import OK, USAGE, run


TEXT = pathlib.Path(__file__).resolve().parents[2] / "samples" / "data" / "kjv.txt"


class Samples(harness.Case):
    def test_mlp_learns(self):
        for device in harness.real_devices():
            done = run(device, program=os.environ["MLP"], timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue(done.stdout.startswith(device), done.stdout)

    def test_digits_are_read(self):
        data = pathlib.Path(__file__).resolve().parents[2] / "samples/data/digits.txt"
        lines = data.read_text().splitlines()
        self.assertEqual((len(lines), {len(line) for line in lines}), (1797, {65}))
        # A software Vulkan device takes 100 times as long; the suites of bowline-conform cover it.
        done = run(data, "cpu", program=os.environ["DIGITS"], timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"^cpu: 3[56]\d of 360 digits\n$")

    def test_lstm_text_learns_and_writes(self):
        done = run(TEXT, "cpu", program=os.environ["LSTM_TEXT"], timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        *steps, line = done.stdout.splitlines()
        losses = [float(re.fullmatch(r"cpu: step \d+, loss (\d\.\d+)", step)[1]) for step in steps]
        self.assertEqual(len(losses), 4, done.stdout)
        self.assertLess(losses[-1], losses[0], done.stdout)
        self.assertEqual(len(line), 72, done.stdout)
        self.assertGreater(len(set(line)), 8, done.stdout)

    def seed(self, name, *arguments):
        done = run(*arguments, program=pathlib.Path(os.environ["MLP"]).parent / name, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_seed_share_and_move(self):
        out = self.seed("share_and_move")
        for device in harness.real_devices():
            self.assertIn(f"""{device}
  before mod.a = mod.b: equal values yes, one storage no
  after the move:       equal values yes, one storage yes; ties 1: a, b
  c = 6, gradient 6, a = b = 0.4, then c = 2.4
""", out)

    def test_seed_weight_formats(self):
        for device in harness.real_devices():
            out = self.seed("weight_formats", device)
            for parameters, values in ((4, 2560), (2, 2400)):
                for when, blocks in (("without format", parameters), ("set_weight_format", 1), ("the file", parameters),
                                     ("restore_weight_format", parameters)):
                    self.assertIn(f"  {when:21} parameters() {parameters}, storages().blocks {blocks}, {values} values\n", out)
            self.assertEqual(out.count("  the block holds 2560 values\n"), 2, out)
            self.assertEqual(out.count("packs 1, repacks 0, the live model is unchanged\n"), 2, out)
            self.assertEqual(out.count("the trained values are unchanged, bit for bit\n"), 2, out)

    def test_seed_swap_and_load(self):
        for device in harness.real_devices():
            out = self.seed("swap_and_load", device)
            self.assertIn("   t1 [0, 1], t2 [0, 1, 2], holder of t1 [0, 1]\n"
                          "   t1 [0, 1, 2], t2 [0, 1], holder of t1 [0, 1, 2]\n", out)
            self.assertIn("   before the step [2, 4]\n   after the step  [1.9, 3.9] ", out)
            row = '   {}: "weight" and "tied" are storage 0 and 0: {}, stored as int8 scale {}, {} bytes\n'
            self.assertIn(row.format("quantized", "f32", "f32", 12), out)
            self.assertIn(row.format("cast", "bf16", "f32", 12), out)
            self.assertIn("   the hook sees \"fc.weight\" in the file, for \"weight\" on ", out)
            self.assertIn(row.format("after", "f32", "f32", 12), out)
            self.assertEqual(out.count("   it shows [1, -0.5, 0.25, 0.75, -1.27, 0.63]\n"), 2, out)

    def test_seed_cast_listing(self):
        for device in harness.real_devices():
            out = self.seed("cast_listing", device)
            self.assertIn("cast: 1 storage, 11616 bytes, then 5808\n", out)
            self.assertIn("lines that differ from the model that was built in bf16: 0\n", out)
            self.assertEqual(re.findall(r"= Cast\(.*", out.split("backward\n")[0]), ["= Cast(%2) to=f32"], "the loss alone")

    def test_seed_universal_transformer(self):
        out = self.seed("universal_transformer", "cpu")
        self.assertIn("one call ties 12 parameters", out)
        self.assertIn("one call ties 60 parameters", out)
        line = re.compile(r"n = +(\d+): +(\d+) arrays, +(\d+) views of blocks, (\d+) storages, (\d+) bytes, plan of +(\d+) records")
        rows = [[int(x) for x in m] for m in line.findall(out)]
        self.assertEqual([r[:5] for r in rows[:3]],
                         [[n, 4 * n, 16 * n, 4, 4 * (2 * 65536 + 1024 + 256)] for n in (1, 4, 16)], out)
        self.assertEqual({r[3] for r in rows}, {4}, out)
        for style in (0, 3):
            self.assertEqual(rows[style + 1][5], rows[style + 2][5], out)

    def test_finetune_lora_learns_and_turns_off(self):
        model = TEXT.parents[1] / "finetune_text/base.bowline"
        for device in harness.real_devices():
            done = run(model, TEXT, device, program=os.environ["FINETUNE_LORA"], timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue(done.stdout.startswith(f"{device}: 10 matrices, "), done.stdout)

    def test_make_model_usage(self):
        for call in ([], ["--layers"], ["--layers", 0, "x"], ["--heads", 3, "x"], ["--colour", 1, "x"]):
            self.assertEqual(run(*call, program=harness.MAKE_MODEL).returncode, USAGE)

    def test_make_model_is_repeatable(self):
        paths = [self.folder / "a.bowline", self.folder / "b.bowline"]
        for path in paths:
            self.assertEqual(run("--seed", 4, *harness.TINY, path, program=harness.MAKE_MODEL).returncode, OK)
        self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes())

    def test_inspect(self):
        text = self.expect(run("inspect", self.model), OK).stdout
        self.assertIn("embedding.weight, head.weight", text)
        self.assertIn("parameters  10,320 values, 10,320 of them trainable: 19 names, 18 storages, 40.3 KiB\n", text)
        self.assertTrue(text.startswith(f"{self.model}: a model, "), text)
        self.assertLess(len(text.splitlines()), 24)
        info = json.loads(self.expect(run("inspect", self.model, "-o", "json", "--batch", 2, "--seq", 16), OK).stdout)
        self.assertEqual([e["name"] for e in info["entry_points"]], ["loss", "forward"])
        self.assertEqual(info["saved_bytes"], 256 * 16 * 4)
        self.assertEqual(info["ties"][0]["parameters"], ["embedding.weight", "head.weight"])
        training = info["memory"]["training"]
        self.assertEqual(training["predicted_bytes"], sum(training[k] for k in (
            "storage_bytes", "arena_bytes", "io_bytes", "backend_bytes")))
        self.assertGreaterEqual(training["arena_bytes"], training["arena_lower_bound_bytes"])

    def test_listings(self):
        for part in ("build", "forward", "backward", "update"):
            out = self.expect(run("inspect", self.model, "--listing", part, "--batch", 2, "--seq", 16), OK).stdout
            self.assertTrue(out.strip(), part)

    def test_dry_run_writes_nothing(self):
        done = self.finetune("--steps", 10, "--dry-run", "--out", self.folder / "out.bowline")
        self.expect(done, OK, "memory")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_bench_matmul(self):
        for layout in ("nn", "nt", "tn"):
            out = self.expect(run("bench", "matmul", "--m", 64, "--n", 48, "--k", 32, "--layout", layout, "--device", "cpu",
                                  "-o", "json"), OK).stdout
            self.assertLessEqual({"time_ms", "gflops", "floor_ms", "percent_of_floor"}, set(json.loads(out)))
        for dtype in ("f32", "bf16", "f16"):
            out = self.expect(run("bench", "matmul", "--m", 64, "--n", 48, "--k", 32, "--dtype", dtype, "--device", "cpu"), OK)
            self.assertRegex(out.stdout, rf"matmul nt {dtype} m 64 .*\n.*\n.*\n.*\({dtype} product, (\d+) x \1 x \1\)")

    def test_bench_train(self):
        losses, after = self.folder / "losses", self.folder / "after.bowline"
        out = self.expect(run("bench", "train", self.model, "--batch", 2, "--seq", 16, "--steps", 5, "--device", "cpu",
                              "--dump-losses", losses, "--save-model", after, "-o", "json"), OK).stdout
        self.assertLessEqual({"time_ms", "tokens_per_second", "floor_ms", "percent_of_floor", "peak_rss_bytes"},
                             set(json.loads(out)))
        self.assertEqual(len(losses.read_text().split()), 5)
        self.expect(run("verify", after), OK)

    def test_bench_train_in_16_bits(self):
        results = [json.loads(self.expect(run("bench", "train", self.model, "--batch", 2, "--seq", 16, "--steps", 5, "--device", "cpu",
                                              "--compute", compute, "--no-floor", "-o", "json"), OK).stdout)
                   for compute in ("f32", "bf16", "f16")]
        self.assertEqual([r["compute"] for r in results], ["f32", "bf16", "f16"])
        f32, *others = results
        for other in others:
            self.assertNotEqual(other["losses"], f32["losses"])
            self.assertLess(abs(other["losses"][-1] / f32["losses"][-1] - 1), 0.01)
            self.assertEqual(other["predicted_bytes"], other["counted_bytes"])

    def test_devices_agree(self):
        curves = {}
        for device in harness.real_devices():
            out = self.expect(run("bench", "train", self.model, "--batch", 2, "--seq", 16, "--steps", 20, "--device", device,
                                  "--no-floor", "-o", "json", timeout=300), OK).stdout
            result = json.loads(out)
            self.assertLessEqual(abs(result["predicted_bytes"] / result["counted_bytes"] - 1), 0.02, device)
            curves[device] = result["losses"]
        for device, losses in curves.items():
            for a, b in zip(losses, curves["cpu"]):
                self.assertLessEqual(abs(a - b) / abs(b), 1e-3, device)

    def test_one_live_line_on_a_terminal(self):
        reader, terminal = pty.openpty()
        done = self.finetune("--steps", 30, "--out", self.folder / "out.bowline", stdout=terminal, capture_output=False)
        os.close(terminal)
        output = b""
        try:
            while part := os.read(reader, 1 << 16):
                output += part
        except OSError:  # the terminal is closed
            pass
        self.assertEqual(done.returncode, OK)
        lines = output.decode().split("\n")
        live = [line for line in lines if "tokens/s" in line and "left" in line]
        self.assertEqual(len(live), 1, lines)
        self.assertRegex(live[0], r"^\rstep 1/30  loss \d+\.\d+  \d+ tokens/s  \S+ [KM]iB  \d+:\d\d left")
        plain = self.finetune("--steps", 30, "--out", self.folder / "plain.bowline").stdout
        self.assertGreater(len(re.findall(r"^step ", plain, re.MULTILINE)), 10)
        self.assertNotIn("\r", plain)

    def test_finetune_learns(self):
        out = self.finetune("--steps", 60, "--learning-rate", "0.01", "--out", self.folder / "out.bowline", "-o", "json")
        summary = json.loads(self.expect(out, OK).stdout)
        self.assertLess(summary["bits_per_byte_after"], summary["bits_per_byte_before"] - 1)


if __name__ == "__main__":
    unittest.main()
