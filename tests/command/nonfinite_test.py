#!/usr/bin/env python3
"""Steps that are not finite are skipped, end the run, or are rolled back. A usable checkpoint is
never replaced by an unusable one.
"""

import array
import math
import os
import re
import unittest

import harness
from harness import FAILED, OK, USAGE, run

STEPS = 30


class Stumbling(harness.Case):
    """The training text contains the byte Z once. The step that reads it is not finite."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.shared / "stumbling.bowline"
        made = run(cls.model, program=os.environ["STUMBLING_MODEL"])
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        text = harness.make_text(8)
        cls.text.write_text(text[:100] + "Z" + text[100:])

    def setUp(self):
        super().setUp()
        self.out, self.log, self.checkpoints = self.folder / "out.bowline", self.folder / "log", self.folder / "checkpoints"

    def train(self, *more, steps=STEPS, name="", **options):
        return self.finetune("--steps", steps, "--batch", 1, "--seq", 16, "--schedule", "constant", "--checkpoint",
                             f"{self.checkpoints}{name}", "--log", f"{self.log}{name}", "--out", f"{self.out}{name}", *more,
                             **options)

    def lines(self, name=""):
        return [line.split("\t") for line in (self.folder / f"log{name}").read_text().splitlines()[1:]]

    def first_bad(self, *flags):
        """Returns the first step that is not finite, according to a run that skips such steps."""
        self.expect(self.train(*flags, name="_skip"), OK)
        return next(int(line[0]) for line in self.lines("_skip") if line[-1] == "skipped")

    def same(self, one, other):
        for file in ("log", "out.bowline"):
            self.assertEqual((self.folder / f"{file}{one}").read_bytes(), (self.folder / f"{file}{other}").read_bytes())

    def test_skip_is_the_default(self):
        done = self.expect(self.train(), OK, "(not finite: skipped)")
        self.expect(self.train("--on-nonfinite", "skip", name="_skip"), OK)
        self.same("", "_skip")
        bad = [int(line[0]) for line in self.lines() if line[-1] == "skipped"]
        self.assertEqual([line[0] for line in self.lines()], [str(step) for step in range(1, STEPS + 1)])
        self.assertIn(f"step {bad[0]}/{STEPS}  loss nan", done.stdout)
        self.assertRegex(run("finetune", "--help").stdout, r"--on-nonfinite .*skip\|stop\|rollback \[skip\]\n")

    def test_stop_names_the_place(self):
        bad = self.first_bad()
        done = self.expect(self.train("--on-nonfinite", "stop"), FAILED, f"Step {bad}: the loss is", "(Add)",
                           'The gradient of parameter "pairs" is not finite.', f'Step {bad - 1} is in "')
        self.assertFalse(self.out.exists())
        self.assertNotIn("skipped", done.stdout)
        self.assertEqual(len(self.lines()), bad - 1)
        # --on-nonfinite is not a part of the identity of a run. The run continues as if it had
        # skipped from the beginning.
        self.expect(self.train("--resume", "auto"), OK, f"resumed at step {bad - 1}")
        self.same("", "_skip")

    def test_stop_within_a_step(self):
        flags = ("--accumulate", 3, "--seed", 1)
        bad = self.first_bad(*flags)
        self.expect(self.train(*flags, "--on-nonfinite", "stop", "--save-every-batches", 1), FAILED, f"Step {bad}: the loss is")
        self.assertEqual([file.name for file in self.checkpoints.glob(f"step-{bad - 1:08}.[12].bowline")],
                         [f"step-{bad - 1:08}.2.bowline"], "the last batch of the step is to be the bad one: take another seed")
        self.expect(self.train(*flags, "--resume", self.checkpoints / f"step-{bad - 1:08}.bowline"), OK)
        self.same("", "_skip")

    def test_rollback_goes_back_to_the_checkpoint(self):
        flags = ("--on-nonfinite", "rollback", "--save-every", 4, "--eval-every", 3)
        bad = self.first_bad()
        back = (bad - 1) // 4 * 4
        self.assertLess(0, back, "the bad step comes before the first checkpoint: this test needs another seed")
        self.assertLess(back, bad - 1)
        done = self.expect(self.train(*flags), OK, f"(not finite: back to step {back})")
        # The log contains only the steps that led to the weights. Evaluations after the checkpoint
        # are repeated.
        self.assertEqual([line[0] for line in self.lines()], [str(step) for step in range(1, STEPS + 1)])
        self.assertNotIn("skipped", done.stdout + self.log.read_text())
        self.assertNotEqual(self.lines()[bad - 1:], self.lines("_skip")[bad - 1:])
        evaluated = [int(step) for step in re.findall(r"held-out at step (\d+)", done.stdout)]
        self.assertEqual(sorted(set(evaluated)), list(range(3, STEPS + 1, 3)))
        self.assertEqual(evaluated.count((bad - 1) // 3 * 3), 2 if (bad - 1) // 3 * 3 > back else 1)
        # The bits equal those of a run that was interrupted at this checkpoint.
        self.expect(self.train(*flags, steps=back, name="_two"), OK)
        self.expect(self.train(*flags, "--resume", "auto", name="_two"), OK, f"resumed at step {back}")
        self.same("", "_two")

    def test_rollback_needs_a_checkpoint(self):
        self.expect(self.finetune("--steps", 2, "--out", self.out, "--on-nonfinite", "rollback"), USAGE, "--save-every")

    def test_a_word_that_is_none(self):
        self.expect(self.train("--on-nonfinite", "ignore"), USAGE, "ignore")


class Ruined(harness.Case):
    """Extreme weight decay: the weights grow until they are not finite, and no loss shows it
    before.
    """

    def setUp(self):
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"

    def train(self, *more):
        return self.finetune("--steps", 20, "--schedule", "constant", "--optimizer", "sgd", "--learning-rate", "1e6",
                             "--weight-decay", "1e6", "--out", self.folder / "out.bowline", *more)

    def not_finite(self, path):
        """Returns the number of weights that are not finite."""
        folder = self.folder / f"{path.parent.name}_{path.stem}"
        self.expect(run("export", path, "--weights", folder), OK)
        values = array.array("f", b"".join(file.read_bytes() for file in folder.glob("storage_*.bin")))
        self.assertGreater(len(values), 10000)
        return sum(not math.isfinite(value) for value in values)

    def test_finite_checkpoints_stay(self):
        for how in ("skip", "stop"):
            folder = self.checkpoints / how
            done = self.train("--checkpoint", folder, "--save-every", 1, "--on-nonfinite", how)
            ends = {"skip": "This is non-finite step 5 in a row.", "stop": 'The first is parameter "'}
            self.expect(done, FAILED, ends[how], 'is not kept: parameter "', "is no longer finite. The last checkpoint is")
            self.assertEqual(sorted(file.name for file in folder.iterdir()), ["step-00000002.bowline", "step-00000003.bowline"])
            self.assertEqual([self.not_finite(file) for file in folder.iterdir()], [0, 0])

    def test_rollback_takes_the_update_back(self):
        done = self.train("--checkpoint", self.checkpoints, "--save-every", 1, "--on-nonfinite", "rollback")
        self.expect(done, FAILED, "the update made weights that are not finite", "This is non-finite step 5 in a row.", "Step 3 is in")
        self.assertEqual(self.not_finite(self.checkpoints / "step-00000003.bowline"), 0)

    def test_without_a_checkpoint(self):
        self.expect(self.train(), FAILED, "is no longer finite. The last checkpoint is none.")
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
