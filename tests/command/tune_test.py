#!/usr/bin/env python3
"""Tests bowline tune: it stores what is fastest, and a bad tuning file changes no result."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

import harness
from harness import BAD_DEVICE, BAD_FILE, BOWLINE, FAILED, INTERRUPTED, OK, USAGE, run


class Tune(harness.Case):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.environment = {**os.environ, "BOWLINE_CACHE": str(self.cache), "LP_NUM_THREADS": "0"}
        self.device = harness.vulkan_device()

    def call(self, *arguments, cache=None, **options):
        environment = {**self.environment, **({} if cache is None else {"BOWLINE_CACHE": str(cache)})}
        return run(*arguments, env=environment, **options)

    def tune(self, *arguments, **options):
        harness.need(self.device, "There is no Vulkan device here.")
        small = () if {"--show", "--reset"} & set(arguments) else (self.model, "--batch", 1, "--seq", 8, "--rounds", 1)
        return self.call("tune", *small, "--device", self.device, *arguments, **options)

    def forward(self):
        """Runs the model, and returns what it prints on stdout and stderr."""
        done = self.expect(self.call("run", self.model, "--input", "tokens=1,2,3,4,5", "--device", self.device), OK)
        return done.stdout, done.stderr

    def file(self):
        files = list(self.cache.glob("tuning-*.txt"))
        self.assertEqual(len(files), 1, files)
        return files[0]

    def test_what_is_stored_is_shown_used_and_removed(self):
        tuned = json.loads(self.expect(self.tune("-o", "json"), OK).stdout)
        self.assertEqual(tuned["device"], self.device)
        self.assertEqual(tuned["file"], str(self.file()))
        [work] = tuned["works"]
        self.assertEqual(work["work"], "run of forward")
        self.assertFalse(work["stopped"])
        self.assertGreater(work["table_ms"], 0)
        self.assertGreater(work["ms"], 0)
        self.assertIn("Linear", {n["op"] for n in work["nodes"]})
        for node in work["nodes"]:
            self.assertGreaterEqual(node["candidates"], 2)
            self.assertGreaterEqual(node["count"], 1)
            if node["candidate"] is None:
                self.assertEqual(node["us"], node["table_us"])
            else:
                self.assertLess(node["candidate"], node["candidates"])
                self.assertLess(node["us"], 0.97 * node["table_us"])
        shown = json.loads(self.expect(self.tune("--show", "-o", "json"), OK).stdout)
        key = lambda n: (n["node"], n["candidate"], n["us"])
        self.assertEqual(sorted(map(str, map(key, shown["nodes"]))), sorted(map(str, map(key, work["nodes"]))))
        self.assertEqual(self.forward(), self.forward())
        self.expect(self.tune("--reset"), OK, f"removed {tuned['file']}")
        self.assertEqual(list(self.cache.glob("tuning-*.txt")), [])
        self.expect(self.tune("--reset"), OK, "has no tuning file")
        self.assertEqual(json.loads(self.tune("--show", "-o", "json").stdout)["nodes"], [])

    def test_a_training_step_adds_its_nodes(self):
        self.expect(self.tune(), OK)
        before = len(json.loads(self.tune("--show", "-o", "json").stdout)["nodes"])
        text = self.expect(self.tune("--train"), OK).stdout
        self.assertRegex(text, r"training step of loss on \S+: \d+ of \d+ kinds of nodes are faster")
        self.assertRegex(text, r"time in nodes: \d+\.\d{3} ms with the table, \d+\.\d{3} ms tuned; gain -?\d+\.\d percent")
        self.assertRegex(text, r"\n +\d+ +\d+\.\d\d +\d+\.\d\d  (table|\d+ of \d+) +MatMul f32 \(")
        self.assertGreater(len(json.loads(self.tune("--show", "-o", "json").stdout)["nodes"]), before)

    def test_the_progress_is_shown(self):
        done = self.expect(self.tune(), OK)
        self.assertRegex(done.stderr, r"run of forward: measuring the table\nrun of forward: measuring candidate 1 of \d+\n")

    def test_a_bad_file_is_named_and_changes_nothing(self):
        self.expect(self.tune(), OK)
        good = self.file().read_bytes()
        self.file().unlink()
        by_table, _ = self.forward()
        path = self.cache / pathlib.Path(json.loads(self.tune("--show", "-o", "json").stdout)["file"]).name
        digit = re.search(rb"choice \S+ (\d)", good).start(1)
        for name, content in {"empty": b"", "text": b"hello\n", "cut": good[:-20], "zeros": bytes(300),
                              "edited": good[:digit] + b"7" + good[digit + 1:],
                              "longer": good + b"choice 0 3 1 1 Linear\n"}.items():
            with self.subTest(name):
                path.write_bytes(content)
                output, errors = self.forward()
                self.assertEqual(output, by_table)
                self.assertIn(f'bowline: Tuning file "{path}" is damaged or was edited. It is ignored.', errors)
                self.assertIn(f"bowline tune --device {self.device}", errors)
                self.expect(self.tune("--show"), BAD_FILE, "is damaged or was edited")
                self.assertEqual(path.read_bytes(), content)
        self.expect(self.tune(), OK)
        self.expect(self.tune("--show"), OK)
        self.assertEqual(self.forward()[1], "")

    def test_a_file_of_another_device(self):
        self.expect(self.tune(), OK)
        other = self.file().rename(self.folder / "other.txt")
        variant = {**self.environment, "BOWLINE_VULKAN_VARIANT": "gpu"}
        shown = run("tune", "--show", "--device", self.device, "-o", "json", env=variant)
        shutil.copy(other, json.loads(self.expect(shown, OK).stdout)["file"])
        done = run("run", self.model, "--input", "tokens=1,2,3", "--device", self.device, env=variant)
        self.expect(done, OK)
        self.assertRegex(done.stderr, 'bowline: Tuning file ".*" has "device Vulkan .*", but this is "device Vulkan .*, variants gpu"')
        self.expect(run("tune", "--show", "--device", self.device, env=variant), BAD_FILE, "but this is")

    def test_a_place_that_cannot_be_written(self):
        self.cache.mkdir()
        self.expect(self.tune(preexec_fn=harness.short_files(0)), FAILED, "cannot be written")
        self.assertEqual(list(self.cache.glob("*tuning*")), [])
        for cache, reason in (("/proc/none", "cannot be written"), ("", "without a cache folder")):
            done = self.expect(self.tune(cache=cache), FAILED, reason)
            self.assertNotIn("measuring", done.stderr)
        self.expect(self.tune("--show", cache=""), FAILED, "without a cache folder")

    def test_devices_without_a_choice(self):
        for device in ("cpu", "null"):
            done = self.call("tune", self.model, "--batch", 1, "--seq", 8, "--device", device)
            self.expect(done, BAD_DEVICE, f"Device {device} has one way to run each operator")
            self.expect(self.call("tune", "--show", "--device", device), BAD_DEVICE, "so there is nothing to tune")

    def test_wrong_flags(self):
        self.expect(self.tune("--shwo"), USAGE, "'--shwo'", "'--show'")
        self.expect(self.tune("--show", "--reset"), USAGE, "--reset")
        self.expect(self.tune("--show", "--rounds", 2), USAGE, "--rounds")
        self.expect(self.call("tune", self.model, "--show"), USAGE, "--show")
        self.expect(self.call("tune", "--train"), USAGE, "--train", "model")
        self.expect(self.call("tune", "--rounds", 0), USAGE, "--rounds")
        self.expect(self.call("tune", self.model, "--entry", "nowhere"), USAGE, "nowhere")
        self.expect(self.call("tune", self.folder / "none.bowline"), BAD_FILE, "none.bowline")

    def test_an_interruption_keeps_the_file(self):
        self.expect(self.tune(), OK)
        before = self.file().read_bytes()
        words = ["tune", self.model, "--train", "--batch", 4, "--seq", 64, "--rounds", 1000, "--device", self.device]
        process = subprocess.Popen([BOWLINE, *map(str, words)], env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.assertIn("measuring the table", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60 * harness.PATIENCE)
        self.assertEqual(process.returncode, INTERRUPTED, errors)
        self.assertIn("bowline: Tuning was stopped.", errors)
        self.assertEqual(self.file().read_bytes(), before)
        self.assertEqual([p.name for p in self.cache.glob("*tuning*")], [self.file().name])


if __name__ == "__main__":
    unittest.main()
