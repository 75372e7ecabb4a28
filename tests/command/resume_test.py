#!/usr/bin/env python3
"""Tests checkpoints: a resumed run equals an uninterrupted run. Also tests damaged and foreign
checkpoints, Ctrl-C once and twice, and a full disk.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

import harness
from harness import BAD_FILE, FAILED, INTERRUPTED, OK, USAGE, run


class Resume(harness.Case):
    def setUp(self):
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"
        self.log = self.folder / "log"
        self.out = self.folder / "out.bowline"

    def train(self, steps, *more, **options):
        return self.finetune("--steps", steps, "--schedule", "constant", "--checkpoint", self.checkpoints, "--log",
                             self.log, "--out", self.out, "--eval-batches", 1, *more, **options)

    def start(self, *more):
        """Starts a run of several minutes, and returns after its first step."""
        begin = self.lines()
        process = super().start("--steps", 10**7, "--schedule", "constant", "--eval-batches", 1, "--checkpoint",
                                self.checkpoints, "--log", self.log, "--out", self.out, *more)
        for _ in range(6000):
            if self.lines() > begin:
                return process
            time.sleep(0.01)
        self.fail("no step was made in a minute")

    def lines(self):
        """Returns the number of steps in the log."""
        return max(0, len(self.log.read_text().splitlines()) - 1) if self.log.exists() else 0

    def inspect(self, path):
        return json.loads(self.expect(run("inspect", path, "-o", "json"), OK).stdout)

    def names(self):
        return sorted(f.name for f in self.checkpoints.iterdir())

    def test_same_bits_as_without_interruption(self):
        self.expect(self.train(8), OK)
        log, weights = self.log.read_bytes(), self.out.read_bytes()
        shutil.rmtree(self.checkpoints)
        self.log.unlink()
        self.out.unlink()
        self.expect(self.train(3), OK)
        self.expect(self.train(8, "--resume", "auto"), OK, "resumed at step 3")
        self.assertEqual(self.log.read_bytes(), log)
        self.assertEqual(self.out.read_bytes(), weights)

    def test_every_optimizer_goes_on(self):
        names, flags = harness.optimizer_flags()
        for name in names:
            with self.subTest(name):
                own = [word for flag, (of, value) in flags.items() if name in of for word in (flag, *value)]
                optimizer = ["--optimizer", name, *own]
                self.expect(self.train(3, *optimizer), OK)
                log, weights = self.log.read_bytes(), self.out.read_bytes()
                self.clear()
                self.expect(self.train(2, *optimizer), OK)
                refused = self.train(3, "--resume", "auto", "--optimizer", name, "--force")
                self.expect(refused, BAD_FILE, "belongs to a run with")
                self.expect(self.train(3, *optimizer, "--resume", "auto", "--force"), OK, "resumed at step 2")
                self.assertEqual(self.log.read_bytes(), log)
                self.assertEqual(self.out.read_bytes(), weights)
                self.clear()

    def clear(self):
        shutil.rmtree(self.checkpoints)
        self.log.unlink()
        self.out.unlink()

    def test_same_bits_twice_and_on_one_thread(self):
        logs = []
        for threads in (1, 2, 2):
            self.expect(self.train(6, "--threads", threads, "--force"), OK)
            logs.append((self.log.read_bytes(), self.out.read_bytes()))
            shutil.rmtree(self.checkpoints)
        self.assertEqual(logs[0], logs[1])
        self.assertEqual(logs[1], logs[2])

    def test_keeps_the_last_two(self):
        self.expect(self.train(7, "--save-every", 2), OK)
        self.assertEqual(self.names(), ["step-00000006.bowline", "step-00000007.bowline"])

    def test_output_has_no_optimizer_state(self):
        self.expect(self.train(2), OK)
        self.assertLess(abs(self.out.stat().st_size - self.model.stat().st_size), 8192)
        self.expect(run("verify", self.out), OK)

    def test_output_with_training_state(self):
        self.expect(self.train(8), OK)
        log, weights = self.log.read_bytes(), self.out.read_bytes()
        self.log.unlink()
        shutil.rmtree(self.checkpoints)
        half = self.folder / "half.bowline"
        self.expect(self.train(3, "--with-training-state", "--force"), OK)
        self.out.rename(half)
        info = self.inspect(half)
        self.assertEqual((info["kind"], info["training"]["step"]), ("checkpoint", 3))
        self.assertEqual(info["sizes"]["training_bytes"], 2 * info["sizes"]["bytes"])
        shutil.rmtree(self.checkpoints)
        self.expect(self.train(8, "--resume", half), OK, f"resumed at step 3 from {half}")
        self.assertEqual(self.log.read_bytes(), log)
        self.assertEqual(self.out.read_bytes(), weights)
        self.expect(self.finetune("--steps", 1, "--checkpoint", self.checkpoints, "--with-training-state"), USAGE, "--out")

    def test_output_of_a_run_that_begins_with_a_checkpoint(self):
        """Moments in the input file belong to another run. They go neither into this run nor into
        its output.
        """
        self.expect(self.train(3), OK)
        whole = self.checkpoints / "step-00000003.bowline"
        self.assertGreater(whole.stat().st_size, 2 * self.model.stat().st_size)
        sizes = {}
        for flags in ((), ("--with-training-state",)):
            out = self.folder / f"tuned{len(flags)}.bowline"
            self.expect(run("finetune", whole, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "--steps", 2,
                            "--out", out, *flags), OK)
            sizes[flags] = out.stat().st_size
            info = self.inspect(out)
            self.assertEqual(info["sizes"]["training_bytes"], 2 * info["sizes"]["bytes"] if flags else 0)
            self.assertEqual(info["training"]["step"] if flags else info["kind"], 2 if flags else "model")
        self.assertLess(abs(sizes[()] - self.model.stat().st_size), 8192)
        self.assertLess(abs(sizes[("--with-training-state",)] - whole.stat().st_size), 8192)

    def test_refuses_to_mix_two_runs(self):
        self.expect(self.train(2), OK)
        self.expect(self.train(2), FAILED, "earlier run (step 2)", "--resume auto")

    def test_damaged_newest_checkpoint(self):
        self.expect(self.train(6, "--save-every", 3), OK)
        log, weights = self.log.read_bytes(), self.out.read_bytes()
        newest = self.checkpoints / "step-00000006.bowline"
        content = bytearray(newest.read_bytes())
        for damage in ("flip", "cut", "empty"):
            changed = bytearray(content)
            changed[len(content) // 2] ^= 1
            newest.write_bytes({"flip": bytes(changed), "cut": bytes(content[:-40]), "empty": b""}[damage])
            again = self.expect(self.train(6, "--resume", "auto", "--force"), OK, "resumed at step 3")
            self.assertIn("step-00000006.bowline", again.stderr)
            self.assertIn("is skipped", again.stderr)
            self.assertEqual(self.log.read_bytes(), log)
            self.assertEqual(self.out.read_bytes(), weights)

    def test_all_checkpoints_damaged(self):
        self.expect(self.train(6, "--save-every", 3), OK)
        for file in self.checkpoints.iterdir():
            file.write_bytes(file.read_bytes()[:100])
        before = self.out.read_bytes()
        self.expect(self.train(8, "--resume", "auto"), BAD_FILE)
        self.assertEqual(self.out.read_bytes(), before)

    def test_checkpoint_of_another_model(self):
        other = self.folder / "other.bowline"
        self.expect(run("--layers", 3, "--channels", 16, "--heads", 2, other, program=harness.MAKE_MODEL), OK)
        self.expect(self.train(2), OK)
        self.expect(run("finetune", other, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "--steps",
                        4, "--schedule", "constant", "--checkpoint", self.checkpoints, "--resume", "auto", "--out",
                        self.out), BAD_FILE, "step-00000002.bowline")

    def test_checkpoint_of_another_run(self):
        self.expect(self.train(2), OK)
        self.expect(self.train(4, "--resume", "auto", "--learning-rate", "0.5"), BAD_FILE, "learning-rate", "0.5")

    def test_resume_file_that_is_not_there(self):
        self.expect(self.train(2, "--resume", self.folder / "none.bowline"), BAD_FILE, "none.bowline")

    def test_interrupt_once(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, errors)
        self.assertIn("--resume auto", errors)
        steps = self.lines()
        self.assertEqual(self.names(), [f"step-{steps:08}.bowline"])
        kept = self.log.read_text()
        self.expect(self.train(steps + 2, "--resume", "auto"), OK, f"resumed at step {steps}")
        self.assertTrue(self.log.read_text().startswith(kept))

    def test_interrupt_without_a_folder(self):
        process = super().start("--steps", 10**7, "--schedule", "constant", "--eval-batches", 1, "--log", self.log, "--out",
                                self.out)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, errors)
        self.assertFalse(self.out.exists())
        self.checkpoints = self.folder / "out.bowline.checkpoint"
        steps = int(self.names()[-1][5:13])
        self.expect(self.train(steps + 1, "--resume", "auto"), OK, f"resumed at step {steps}")

    def test_one_interruption_may_be_two_signals(self):  # as timeout(1) sends them
        self.expect(self.train(4), OK)
        process = self.start("--resume", "auto", "--save-every", "1")
        process.send_signal(signal.SIGINT)
        time.sleep(0.0005)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertIn("Interrupted after step", errors)

    def test_interrupt_twice(self):
        self.expect(self.train(4), OK)
        process = self.start("--resume", "auto", "--save-every", "1")
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertLess(time.monotonic() - begin, 10)
        newest = [name for name in self.names() if name.startswith("step-")][-1]
        self.expect(run("verify", self.checkpoints / newest), OK)
        steps = int(newest[5:13])
        self.expect(self.train(steps + 1, "--resume", "auto"), OK, f"resumed at step {steps}")

    def test_file_size_limit(self):
        self.expect(self.train(2), OK)
        before = {f.name: f.read_bytes() for f in self.checkpoints.iterdir()}
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        self.expect(self.train(4, "--resume", "auto", preexec_fn=limit), FAILED, "checkpoints")
        self.assertEqual({f.name: f.read_bytes() for f in self.checkpoints.iterdir()}, before)

    def test_no_space(self):
        harness.need_tool("mount")
        small = self.folder / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", small], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no file system can be mounted here")
        try:
            self.expect(self.finetune("--steps", 2, "--eval-batches", 1, "--out", small / "out.bowline"), FAILED,
                        "out.bowline")
            self.assertEqual(list(small.iterdir()), [])
        finally:
            subprocess.run(["umount", small], check=True)

    def test_folder_that_is_not_there(self):
        self.expect(self.finetune("--steps", 1, "--out", self.folder / "none" / "out.bowline"), USAGE, "--out")

    def test_folder_that_cannot_be_written(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        self.folder.chmod(0o500)
        self.expect(self.train(1), FAILED)


class TwoMeans(harness.Case):
    """The loss adds a mean over some labels and a mean over all labels. A step needs the sums of
    both first.
    """

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.shared / "two_means.bowline"
        made = run(cls.model, "two_means=true", program=os.environ["STUMBLING_MODEL"])
        if made.returncode != 0:
            raise AssertionError(made.stderr)

    def train(self, name, *more):
        self.expect(self.finetune("--steps", 3, "--schedule", "constant", "--learning-rate", 0.1, "--log", self.folder / name,
                                  "--out", self.folder / f"{name}.bowline", *more), OK)
        lines = (self.folder / name).read_text().splitlines()
        self.assertEqual(len(lines), 4)
        return [float(line.split("\t")[1]) for line in lines[1:]]

    def test_the_split_changes_the_rounding_alone(self):
        whole = self.train("whole", "--batch", 3)
        split = self.train("split", "--batch", 1, "--accumulate", 3)
        for a, b in zip(whole, split):
            self.assertAlmostEqual(a, b, delta=2e-5)

    def test_goes_on_inside_of_a_step(self):
        flags = ("--batch", 1, "--accumulate", 3)
        checkpoints = self.folder / "checkpoints"
        self.train("one", *flags, "--checkpoint", checkpoints, "--save-every-batches", 2)
        log, weights = (self.folder / "one").read_bytes(), (self.folder / "one.bowline").read_bytes()
        self.train("one", *flags, "--checkpoint", checkpoints, "--force", "--resume", checkpoints / "step-00000002.2.bowline")
        self.assertEqual((self.folder / "one").read_bytes(), log)
        self.assertEqual((self.folder / "one.bowline").read_bytes(), weights)


if __name__ == "__main__":
    unittest.main()
