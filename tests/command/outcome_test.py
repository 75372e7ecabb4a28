#!/usr/bin/env python3
"""The outcomes of a run: worse, not finite, out of patience, with the best step, and on a device
for tests. Also tests how each run continues.
"""

import json
import re
import unittest

import harness
from harness import BAD_DEVICE, BAD_FILE, FAILED, OK, USAGE, run


class Outcome(harness.Case):
    def setUp(self):
        super().setUp()
        self.out, self.checkpoints = self.folder / "out.bowline", self.folder / "checkpoints"

    def train(self, steps, *more, **options):
        return self.finetune("--steps", steps, "--out", self.out, *more, **options)

    def loss_of(self, path):
        """Returns the held-out loss of a model, from a run of zero steps."""
        done = run("finetune", path, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "--steps", 0, "-o",
                   "json")
        return json.loads(self.expect(done, OK).stdout)["bits_per_byte_before"]

    def test_worse_replaces_nothing(self):
        self.out.write_bytes(b"precious")
        done = self.train(5, "--learning-rate", "30", "--force", "-o", "json")
        self.expect(done, FAILED, "worse than before", "Nothing is written", "The best is the model before the first step")
        self.assertEqual(self.out.read_bytes(), b"precious")
        summary = json.loads(done.stdout)
        self.assertIsNone(summary["written"])
        self.assertEqual(summary["bits_per_byte_before"], self.loss_of(self.model))
        after = re.search(r"worse than before: (\S+) bits per byte, before (\S+)\.", done.stderr)
        self.assertEqual(after.group(2), f"{summary['bits_per_byte_before']:.4f}")
        last = self.folder / "out.bowline.checkpoint" / "step-00000005.bowline"
        self.assertIn(f'Step 5 is in "{last}"', done.stderr)
        self.assertEqual(self.loss_of(last), summary["bits_per_byte_after"])
        self.expect(run("verify", last), OK)

    def test_not_finite_replaces_nothing(self):
        self.out.write_bytes(b"precious")
        done = self.train(5, "--learning-rate", "1e6", "--force")
        self.expect(done, FAILED, "The loss of the held-out text is not finite: nan bits per byte, before 8.",
                    "The best is the model before the first step", "Step 5 is in")
        self.assertEqual(self.out.read_bytes(), b"precious")

    def test_worse_names_the_best(self):
        # The learning rate rises until the run diverges.
        done = self.train(120, "--learning-rate", "30", "--warmup", 1000, "--schedule", "constant", "--eval-every", 10,
                          "--checkpoint", self.checkpoints)
        self.expect(done, FAILED, "worse than before", f'The best is "{self.checkpoints / "best.bowline"}", of step ')
        best = re.search(r"of step (\d+), with (\S+)\.\n", done.stderr)
        losses = dict(re.findall(r"held-out at step (\d+): (\S+)", done.stdout))
        self.assertEqual(losses[best.group(1)], best.group(2))
        self.assertEqual(min(map(float, losses.values())), float(best.group(2)))
        self.assertEqual(f"{self.loss_of(self.checkpoints / 'best.bowline'):.4f}", best.group(2))
        self.assertFalse(self.out.exists())

    def steps_to_a_worse_one(self, *flags):
        """Returns a number of steps after which the last evaluation is better than the initial
        model, but not the best. The number depends on rounding and thus on the instruction set, so
        a longer run finds it. With a constant learning rate the shorter run repeats the longer one.
        """
        done = self.expect(self.train(60, *flags), OK)
        losses = [(int(step), float(loss)) for step, loss in re.findall(r"held-out at step (\d+): (\S+)", done.stdout)]
        before = float(re.search(r"held-out before: (\S+)", done.stdout).group(1))
        self.out.unlink()
        for i, (step, loss) in enumerate(losses):
            if i > 0 and loss < before and loss > min(earlier for _, earlier in losses[:i]) + 1e-3:
                return step
        self.fail(f"the rate is too low for this test, each evaluation is the best: {losses}")

    def test_keeps_the_best_step(self):
        flags = ["--learning-rate", "0.5", "--schedule", "constant", "--eval-every", 5]
        steps = self.steps_to_a_worse_one(*flags)
        flags += ["-o", "json"]
        summary = json.loads(self.expect(self.train(steps, "--keep", "best", *flags), OK).stdout)
        self.assertLess(summary["bits_per_byte_best"], summary["bits_per_byte_before"])
        self.assertLess(summary["best_step"], steps)
        self.assertEqual(summary["bits_per_byte_after"], summary["bits_per_byte_best"])
        self.assertEqual(self.loss_of(self.out), summary["bits_per_byte_best"])
        self.assertEqual(sorted(f.name for f in self.folder.iterdir()), ["out.bowline"])

        last = json.loads(self.expect(self.train(steps, "--force", "--checkpoint", self.checkpoints, *flags), OK).stdout)
        self.assertEqual(last["best_step"], summary["best_step"])
        self.assertEqual(self.loss_of(self.out), last["bits_per_byte_after"])
        self.assertGreater(last["bits_per_byte_after"], last["bits_per_byte_best"])
        self.assertEqual(self.loss_of(self.checkpoints / "best.bowline"), summary["bits_per_byte_best"])

    def test_patience(self):
        flags = ["--learning-rate", "0.5", "--schedule", "constant", "--eval-every", 5, "--patience", 2, "--checkpoint",
                 self.checkpoints, "-o", "json"]
        done = self.expect(self.train(500, *flags), OK)
        summary = json.loads(done.stdout)
        self.assertEqual(summary["steps"], summary["best_step"] + 10)
        self.assertIn(f"stopped after step {summary['steps']}: the last 2 evaluations were no better than that of step "
                      f"{summary['best_step']}", done.stderr)
        again = json.loads(self.expect(self.train(500, "--resume", "auto", *flags), OK).stdout)
        self.assertEqual(again["steps"], 0, "a stopped run goes on")

    def test_flags_that_need_evaluations(self):
        for flags in (["--keep", "best"], ["--patience", 1]):
            self.expect(self.train(2, *flags), USAGE, "--eval-every")

    def test_losses_have_one_unit(self):
        log = self.folder / "log"
        done = self.expect(self.train(3, "--learning-rate", 0, "--log", log, "--eval-every", 1), OK)
        self.assertIn("3 steps of 2 x 16 bytes on cpu; every loss is in bits per byte\n", done.stdout)
        header, *lines = log.read_text().splitlines()
        self.assertRegex(header, r"^# bowline finetune log 1, run [0-9a-f]{16}: step, loss in bits per byte, ")
        before = float(re.search(r"held-out before: (\d+\.\d+)", done.stdout).group(1))
        shown = [float(x) for x in re.findall(r"step \d/3  loss (\d+\.\d+) ", done.stdout)]
        for line, loss in zip(lines, shown, strict=True):
            self.assertAlmostEqual(float(line.split("\t")[1]), loss, places=4)
            # Before training a byte has about 8 bits. In nats this would be 5.5.
            self.assertLess(abs(loss - before), 1)
            self.assertGreater(loss, 7)

    def test_defaults_are_those_of_inspect(self):
        """Without flags, a training has the same plan as inspect with the defaults of the library.
        """
        dims = ["--batch", 2, "--seq", 16]
        plan = json.loads(self.expect(run("inspect", self.model, "-o", "json", *dims, "--device", "cpu"), OK).stdout)
        summary = json.loads(self.expect(self.train(1, "-o", "json"), OK).stdout)
        self.assertEqual(plan["memory"]["training"]["predicted_bytes"], summary["predicted_bytes"])
        help_text = self.expect(run("finetune", "--help"), OK).stdout
        for flag, value in (("weight-decay", "0.01"), ("clip", "0"), ("learning-rate", "0.001"), ("seed", "0")):
            self.assertRegex(help_text, rf"--{flag} .*\[{value}\]\n")

    def test_a_memory_budget(self):
        """A budget of the predicted size is sufficient. With one byte less the run recomputes
        activations. A budget that is too small is refused, and no file is written.
        """
        needed = json.loads(self.expect(self.train(1, "-o", "json"), OK).stdout)["predicted_bytes"]
        again = self.train(1, "--force", "--memory-budget", needed, "-o", "json")
        self.assertEqual(json.loads(self.expect(again, OK).stdout)["predicted_bytes"], needed)
        self.out.unlink()
        self.expect(self.train(1, "--memory-budget", needed - 1, "--dry-run"), OK, "are recomputed, to stay within the budget")
        little = needed * 2 // 3
        said = f" bytes are in use, and its memory budget is {little}."
        self.expect(self.train(1, "--memory-budget", little), FAILED, "bytes do not fit on device cpu: ", said)
        self.expect(self.train(1, "--memory-budget", little, "--dry-run"), FAILED, said)
        self.expect(self.train(1, "--memory-budget", "1KiB"), FAILED, "its memory budget is 1024.", "While reserving memory for all storages")
        self.assertEqual([f.name for f in self.folder.iterdir()], [])
        dims, device = ["--batch", 2, "--seq", 16], ["--device", "cpu", "--memory-budget"]
        for verb in (["eval", self.model, "--data", self.text, *dims], ["profile", self.model, "--train", *dims],
                     ["run", self.model, "--entry", "loss", "--input", "tokens=zeros", "--input", "labels=zeros", *dims],
                     ["bench", "train", self.model, *dims, "--steps", 1, "--no-floor"]):
            self.expect(run(*verb, *device, "1KiB"), FAILED, "its memory budget is 1024.")
            self.expect(run(*verb, *device, "64MiB"), OK)
        self.expect(run("bench", "matmul", "--m", 64, "--n", 64, "--k", 64, "--runs", 7, *device, "1KiB"), FAILED, "budget is 1024.")
        self.expect(run("bench", "train", self.model, *dims, "--steps", 1, *device, "1MiB"), FAILED, "--no-floor leaves it out")

    def test_bench_ties(self):
        call = run("bench", "ties", "--repeats", 3, "--runs", 1, "--ties", 5, "-o", "json")
        times = json.loads(self.expect(call, OK).stdout)["times"]
        self.assertEqual(list(times), ["open and plan", "run", "training step"])
        for row in times.values():
            self.assertAlmostEqual(row["ratio"], row["tied_ms"] / row["plain_ms"])
        self.assertIn("3 repeats", self.expect(run("bench", "ties", "--repeats", 3, "--runs", 1, "--ties", 5), OK).stdout)

    def test_the_table_bench(self):
        times = json.loads(self.expect(run("bench", "table", "--parameters", 50, "-o", "json"), OK).stdout)["time_ms"]
        self.assertEqual(sorted(times), sorted(["build", "save", "open", "to the device", "plan to run", "plan to train", "clone",
                                                "untie none", "tie each", "save tied", "untie each"]))

    def test_a_device_that_computes_nothing(self):
        self.expect(self.train(2, "--device", "null"), BAD_DEVICE, "Device null computes nothing")
        self.assertFalse(self.out.exists())
        self.expect(run("eval", self.model, "--data", self.text, "--device", "null"), BAD_DEVICE, "computes nothing")


class GoingOn(harness.Case):
    def setUp(self):
        super().setUp()
        self.out, self.checkpoints = self.folder / "out.bowline", self.folder / "checkpoints"

    def train(self, steps, *more):
        return self.finetune("--steps", steps, "--out", self.out, "--checkpoint", self.checkpoints, *more)

    def test_extend(self):
        self.expect(self.train(5), OK)
        first = self.out.read_bytes()
        self.expect(self.train(8, "--resume", "auto"), FAILED, "is finished: it has made its 5 steps", "--extend")
        self.assertEqual(self.out.read_bytes(), first)
        self.expect(self.train(8, "--resume", "auto", "--extend"), OK, "resumed at step 5")
        self.assertNotEqual(self.out.read_bytes(), first)
        self.assertEqual(sorted(f.name for f in self.checkpoints.iterdir()), ["step-00000005.bowline", "step-00000008.bowline"])
        done = self.expect(self.train(8, "--resume", "auto"), OK, "the run is finished; a larger --steps with --extend continues it")
        self.assertIn("resumed at step 8", done.stdout)
        self.expect(self.train(8, "--extend"), USAGE, "--resume")

    def test_extend_before_the_end(self):
        self.expect(self.train(6, "--save-every", 4), OK)
        (self.checkpoints / "step-00000006.bowline").unlink()
        self.expect(self.train(9, "--resume", "auto"), FAILED, "is of step 4 of a run of 6 steps, now 9", "schedule would change",
                    "--extend")
        self.expect(self.train(9, "--resume", "auto", "--extend", "--force"), OK, "resumed at step 4")

    def test_a_damaged_checkpoint_is_not_said_to_be_finished(self):
        self.expect(self.train(5), OK)
        newest = self.checkpoints / "step-00000005.bowline"
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content)
        done = self.expect(self.train(8, "--resume", "auto"), BAD_FILE, "is skipped", "do not match the hash")
        self.assertNotIn("--extend", done.stderr)

    def test_fewer_steps_than_made(self):
        self.expect(self.train(7, "--schedule", "constant"), OK)
        before = self.out.read_bytes()
        self.expect(self.train(5, "--schedule", "constant", "--resume", "auto"), FAILED, "is of step 7, beyond --steps 5")
        self.assertEqual(self.out.read_bytes(), before)

    def test_the_output_of_the_same_run_is_replaced(self):
        flags = ["--schedule", "constant"]
        self.expect(self.train(3, *flags), OK)
        self.expect(self.train(6, "--resume", "auto", *flags), OK)
        self.out.write_bytes(self.model.read_bytes())
        self.expect(self.train(8, "--resume", "auto", *flags), USAGE, "exists already", "--force")
        self.assertEqual(self.out.read_bytes(), self.model.read_bytes())

    def test_another_text(self):
        self.expect(self.train(5), OK)
        other = self.folder / "other.txt"
        other.write_text(harness.make_text(60, seed=9))
        done = run("finetune", self.model, "--data", other, "--batch", 2, "--seq", 16, "--device", "cpu", "--steps", 5, "--out",
                   self.out, "--checkpoint", self.checkpoints, "--resume", "auto")
        self.expect(done, BAD_FILE, "belongs to a run on other data", "Use the data of that run")

    def test_another_device_is_said(self):
        device = harness.vulkan_device()
        if device is None:
            self.skipTest("no Vulkan device is usable here")
        self.expect(self.train(2, "--schedule", "constant"), OK)
        self.expect(self.train(3, "--schedule", "constant", "--resume", "auto", "--device", device), OK,
                    f"the run was on device cpu and continues on {device}")


if __name__ == "__main__":
    unittest.main()
