#!/usr/bin/env python3
"""Runs samples/c_app, also under valgrind."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

APP = os.environ["C_APP"]
SUPPRESSIONS = pathlib.Path(__file__).parents[2] / "tools/checks/valgrind.supp"


class App(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name, "out.bowline")

    def run_app(self, *arguments, before=()):
        return subprocess.run([*before, APP, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)

    def losses(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("ties:\n0: first.weight, second.weight\n", done.stdout)
        return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]

    def test_it_learns_and_continues_from_a_file(self):
        losses = self.losses(self.run_app("cpu", self.out))
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], losses[0] / 10)
        again = self.losses(self.run_app("cpu", self.out.with_name("again.bowline"), self.out))
        self.assertLess(again[0], losses[0] / 10)

    def test_an_error_is_a_sentence(self):
        done = self.run_app("no_such_device")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^c_app: \w+: .*no_such_device.*\.\n")

    def test_it_leaks_nothing(self):
        if os.environ["BOWLINE_SANITIZE"]:
            self.skipTest("A sanitizer and valgrind exclude each other.")
        if shutil.which("valgrind") is None:
            self.skipTest("There is no program 'valgrind' here (tools/setup installs it).")
        valgrind = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite",
                    "--error-exitcode=9", f"--suppressions={SUPPRESSIONS}"]
        done = self.run_app("cpu", self.out, before=valgrind)
        self.losses(done)


if __name__ == "__main__":
    unittest.main()
