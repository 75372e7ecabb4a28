#!/usr/bin/env python3
"""The command never truncates, overwrites or deletes a file of the user, opens only regular files,
and loses no work.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

import harness
from harness import BAD_FILE, BOWLINE, FAILED, INTERRUPTED, OK, USAGE, run


class Place(harness.Case):
    def setUp(self):
        super().setUp()
        self.out, self.log = self.folder / "out.bowline", self.folder / "log"
        self.checkpoints = self.folder / "checkpoints"

    def train(self, steps, *more, **options):
        if "--out" not in more:
            more = ("--out", self.out, *more)
        return self.finetune("--steps", steps, "--schedule", "constant", *more, **options)

    def start(self, *more, steps=10**7):
        return super().start("--steps", steps, "--schedule", "constant", "--out", self.out, *more)

    def wait_for(self, what):
        for _ in range(6000 * harness.PATIENCE):
            if what():
                return
            time.sleep(0.01)
        self.fail("nothing came of it in a minute")

    def names(self, folder=None):
        return sorted(f.name for f in (folder or self.checkpoints).iterdir())


class Files(Place):
    def test_log_is_never_another_file(self):
        mine = self.folder / "mine.txt"
        for content in (b"dear diary\n", b"1\t5.5\t1\t0.001\n", b"#\n", b"\n", self.model.read_bytes()):
            mine.write_bytes(content)
            for flags in ([], ["--force"], ["--checkpoint", self.checkpoints, "--resume", "auto"]):
                self.expect(self.train(2, "--log", mine, *flags), USAGE, "did not write", "It is not changed")
                self.assertEqual(mine.read_bytes(), content)
        self.assertFalse(self.out.exists())

    def test_log_of_another_run(self):
        self.expect(self.train(3, "--log", self.log), OK)
        first = self.log.read_text()
        self.assertEqual(len(first.splitlines()), 4)
        other = self.folder / "other.bowline"
        self.expect(self.train(2, "--log", self.log, "--out", other), USAGE, "steps of an earlier run", "--force")
        self.expect(self.train(2, "--log", self.log, "--out", other, "--seed", 7), USAGE, "steps of another run", "--force")
        self.assertEqual(self.log.read_text(), first)
        self.expect(self.train(2, "--log", self.log, "--out", other, "--force"), OK)
        self.assertEqual(self.log.read_text().splitlines(), first.splitlines()[:3])

    def test_existing_output(self):
        self.out.write_bytes(b"mine")
        self.expect(self.train(2), USAGE, "exists already", "--force")
        self.assertEqual(self.out.read_bytes(), b"mine")
        self.expect(self.train(2, "--force"), OK)
        self.expect(run("verify", self.out), OK)

    def test_in_place(self):
        model = self.folder / "model.bowline"
        model.write_bytes(self.model.read_bytes())
        call = ["finetune", model, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "--steps", 5, "--out", model]
        self.expect(run(*call), USAGE, "--out and the model are the same file")
        self.expect(run(*call, "--force"), OK)
        self.assertNotEqual(model.read_bytes(), self.model.read_bytes())

    def test_one_file_for_two_flags(self):
        link = self.folder / "link"
        link.symlink_to(self.text)
        valid = self.folder / "valid.txt"
        valid.write_text(harness.make_text(20, seed=3))
        for flags, names in ((["--out", self.text], ("--out", "--data")), (["--log", self.text], ("--log", "--data")),
                             (["--log", link], ("--log", "--data")), (["--log", self.model], ("--log", "the model")),
                             (["--log", valid, "--valid", valid], ("--log", "--valid")),
                             (["--log", self.folder / "x", "--out", self.folder / "." / "x"], ("--log", "--out")),
                             (["--checkpoint", self.folder / "x", "--log", self.folder / "x"], ("--checkpoint", "--log"))):
            before = self.text.read_bytes(), valid.read_bytes()
            self.expect(self.train(2, *flags, "--force"), USAGE, *names, "are the same file")
            self.assertEqual((self.text.read_bytes(), valid.read_bytes()), before)

    def test_a_file_called_partial(self):
        mine = pathlib.Path(f"{self.out}.partial")
        mine.write_bytes(b"mine")
        self.checkpoints.mkdir()
        other = self.checkpoints / "step-00000001.bowline.partial"
        other.write_bytes(b"mine too")
        self.expect(self.train(2, "--checkpoint", self.checkpoints, "--save-every", 1), OK)
        self.assertEqual(mine.read_bytes(), b"mine")
        self.assertEqual(other.read_bytes(), b"mine too")

    def test_what_is_no_regular_file(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.folder / "socket"))
        kinds = {pipe: "a pipe", self.folder / "socket": "a socket", self.folder: "a directory", "/dev/zero": "a device"}
        for place, kind in kinds.items():
            for flag in ("--data", "--valid", "--log"):
                self.expect(self.train(2, flag, place, timeout=20), BAD_FILE, f"is {kind}, not a regular file")
            self.expect(run("eval", self.model, "--data", place, timeout=20), BAD_FILE, f"is {kind}, not a regular file")
            self.expect(run("bench", "train", self.model, "--tokens", place, "--no-floor", "--device", "cpu", timeout=20), BAD_FILE,
                        f"is {kind}, not a regular file")
            for force, code in ([], USAGE), (["--force"], FAILED):
                self.expect(self.train(2, "--out", place, *force, timeout=20), code)
        temporary = self.folder / ".out.bowline.bowline-write"
        os.mkfifo(temporary)
        self.expect(self.train(2, timeout=20), FAILED, "out.bowline")
        reader = os.open(temporary, os.O_RDONLY | os.O_NONBLOCK)
        self.expect(self.train(2, timeout=20), FAILED, "not a regular file")
        os.close(reader)
        self.assertEqual(self.names(self.folder), [".out.bowline.bowline-write", "pipe", "socket"])

    def test_a_cache_that_is_a_pipe(self):
        device = harness.vulkan_device()
        if device is None:
            self.skipTest("no Vulkan device is usable here")
        cache = self.folder / "cache"
        cache.mkdir()
        environment = {**os.environ, "BOWLINE_CACHE": str(cache)}
        self.expect(self.train(1, "--device", device, env=environment), OK)
        files = list(cache.iterdir())
        self.assertEqual(sorted(file.suffix for file in files), [".cache", ".test"])
        for file in files:
            file.unlink()
            os.mkfifo(file)
        self.expect(self.train(1, "--device", device, "--force", env=environment, timeout=60), OK)

    @unittest.skipIf(harness.SANITIZED, "a sanitizer takes more address space than the limit of this test")
    def test_giants(self):
        giant = self.folder / "giant.txt"
        for gigabytes, text in ((3, "giant.txt:1:1: There is a NUL byte"), (5, "has more than 4294967296 bytes")):
            with giant.open("wb") as file:
                file.truncate(gigabytes << 30)
            done = subprocess.run(["/bin/sh", "-c", 'ulimit -v 2000000; exec "$@"', "sh", BOWLINE, "eval", self.model, "--data",
                                   giant], capture_output=True, text=True, timeout=20)
            self.expect(done, BAD_FILE, text)

    def test_json_lines(self):
        rows = '{"text": "a knot"}\n\n{"text": "a rope"}\n' * 40
        for name, content, refused in (("lines.txt", rows, True), ("plain.jsonl", harness.make_text(60), True),
                                       ("one.txt", '{"a": 1}\n', True), ("brace.txt", "{ a brace\n" * 60, False),
                                       ("mixed.txt", '{"a": 1}\nand text\n' + harness.make_text(60), False)):
            data = self.folder / name
            data.write_text(content)
            done = run("eval", self.model, "--data", data, "--seq", 16)
            if refused:
                self.expect(done, BAD_FILE, name, "holds JSON lines", "--as-text")
                self.expect(run("eval", self.model, "--data", data, "--seq", 16, "--as-text"), OK)
            else:
                self.expect(done, OK)
        data = self.folder / "lines.txt"
        self.expect(self.train(2, "--data", data), BAD_FILE, "holds JSON lines")
        self.expect(self.train(2, "--data", data, "--as-text"), OK)


    def test_tables_and_json(self):
        """finetune trains on tables and JSON as plain text only with --as-text."""
        table = "text,label\n" + '"a knot, a rope",knots\nhold,ropes\n' * 60
        for name, content, holds in (("rows.csv", table, "a table"), ("rows.txt", table, "a table"),
                                     ("rows.tsv", table.replace(",", "\t"), "a table"), ("tabs.txt", "id\ttext\n" + "1\ta knot\n" * 60, "a table"),
                                     ("list.json", json.dumps([{"text": "a knot"}] * 60, indent=1), "JSON"),
                                     ("list.txt", json.dumps([{"text": "a knot"}] * 60, indent=1), "JSON"),
                                     ("prose.txt", "a knot, a rope\n" * 60, None), ("words.txt", "knot,rope\nhold\n" * 60, None)):
            data = self.folder / name
            data.write_text(content)
            with self.subTest(name):
                done = run("eval", self.model, "--data", data, "--seq", 16)
                if holds:
                    self.expect(done, BAD_FILE, name, f"holds {holds}. Only plain text can be trained on", "--as-text")
                    self.expect(self.train(2, "--data", data, "--force"), BAD_FILE, f"holds {holds}")
                    self.expect(run("eval", self.model, "--data", data, "--seq", 16, "--as-text"), OK)
                else:
                    self.expect(done, OK)


class Folders(Place):
    def test_a_folder_has_one_writer(self):
        first = self.start("--checkpoint", self.checkpoints, "--save-every", 1, "--eval-batches", 1)
        self.wait_for(lambda: list(self.checkpoints.glob("step-*")))
        second = self.train(2, "--checkpoint", self.checkpoints, "--resume", "auto")
        self.expect(second, FAILED, f"Another run is writing to folder \"{self.checkpoints}\": process {first.pid}.")
        first.send_signal(signal.SIGKILL)
        first.communicate()
        # The kernel has released the lock.
        self.expect(self.train(10**6, "--checkpoint", self.checkpoints, "--resume", "auto", "--dry-run"), OK)
        again = self.start("--checkpoint", self.checkpoints, "--resume", "auto", "--eval-batches", 1, "--log", self.log)
        self.wait_for(self.log.exists)  # from here on a signal leads to a checkpoint
        self.assertEqual((self.checkpoints / ".bowline-lock").read_text(), str(again.pid))
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(60), INTERRUPTED)
        self.assertEqual([name for name in self.names() if not name.startswith("step-")], [])
        again.communicate()

    def test_going_back_keeps_what_is_there(self):
        self.expect(self.train(40, "--checkpoint", self.checkpoints, "--save-every", 5), OK)
        old = self.folder / "old15.bowline"
        self.expect(self.train(15, "--checkpoint", self.folder / "c", "--out", self.folder / "o"), OK)
        (self.folder / "c" / "step-00000015.bowline").rename(old)
        self.out.unlink()
        self.assertEqual(self.names(), ["step-00000035.bowline", "step-00000040.bowline"])
        self.expect(self.train(19, "--checkpoint", self.checkpoints, "--resume", old, "--save-every", 1), OK)
        self.assertEqual(self.names(), ["step-00000018.bowline", "step-00000019.bowline", "step-00000035.bowline",
                                        "step-00000040.bowline"])

    def test_checkpoints_of_another_run(self):
        self.expect(self.train(4, "--checkpoint", self.checkpoints, "--save-every", 2), OK)
        self.out.unlink()
        old = self.folder / "old.bowline"
        self.expect(self.train(1, "--seed", 8, "--checkpoint", self.folder / "c", "--out", self.folder / "o"), OK)
        (self.folder / "c" / "step-00000001.bowline").rename(old)
        before = {f.name: f.read_bytes() for f in self.checkpoints.iterdir()}
        self.expect(self.train(6, "--seed", 8, "--checkpoint", self.checkpoints, "--save-every", 1, "--resume", old), BAD_FILE,
                    "step-00000004.bowline", "--seed 0, now 8", "another folder")
        self.assertEqual({f.name: f.read_bytes() for f in self.checkpoints.iterdir()}, before)

    def test_a_damaged_checkpoint_takes_no_place(self):
        self.expect(self.train(6, "--checkpoint", self.checkpoints, "--save-every", 3), OK)
        self.out.unlink()
        damaged = self.checkpoints / "step-00000006.bowline"
        damaged.write_bytes(damaged.read_bytes()[:-40])
        self.expect(self.train(5, "--checkpoint", self.checkpoints, "--save-every", 1, "--resume", "auto"), OK, "is skipped")
        self.assertEqual(self.names(), ["step-00000004.bowline", "step-00000005.bowline", "step-00000006.bowline"])

    def test_three_interrupted_runs(self):
        for number in (1, 2, 3):
            process = self.start("--log", self.log.with_name(f"log{number}"), "--eval-batches", 1)
            log = self.log.with_name(f"log{number}")
            self.wait_for(lambda log=log: log.exists() and log.stat().st_size > 400)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED, errors)
            step, path = re.search(r'Step (\d+) is in "([^"]+)"', errors).groups()
            self.expect(run("verify", path), OK)
            self.assertIn(f"--checkpoint {pathlib.Path(path).parent} --resume auto continues the run", errors)
            self.assertEqual(int(step), len(log.read_text().splitlines()) - 1)
        folders = sorted(f.name for f in self.folder.iterdir() if f.is_dir())
        self.assertEqual(folders, ["out.bowline.checkpoint", "out.bowline.checkpoint.2", "out.bowline.checkpoint.3"])


class WaysOut(Place):
    def test_interrupt_during_an_evaluation(self):
        valid = self.folder / "valid.txt"
        valid.write_text(harness.make_text(40000))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            folder = self.folder / f"c{number}"
            process = self.start("--valid", valid, "--eval-stride", 1, "--checkpoint", folder, "--eval-every", 3,
                                 "--resume", "auto", "--log", self.folder / f"log{number}")
            # The first evaluation before any step takes seconds.
            self.wait_for(lambda n=number: (self.folder / f"log{n}").exists())
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED, errors)
            self.assertEqual(self.names(folder), ["step-00000000.bowline"])

    def test_interrupt_during_an_evaluation_between_steps(self):
        valid = self.folder / "valid.txt"
        valid.write_text(harness.make_text(3000))
        process = self.start("--valid", valid, "--eval-stride", 1, "--checkpoint", self.checkpoints, "--eval-every", 3, "--log",
                             self.log)
        self.wait_for(lambda: self.log.exists() and len(self.log.read_text().splitlines()) == 4)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, errors)
        self.assertIn("Interrupted after step 3.", errors)
        self.assertEqual([name for name in self.names() if name != "best.bowline"], ["step-00000003.bowline"])

    def test_a_log_that_cannot_be_written(self):
        if "KILL_AT_LIBRARY" not in os.environ:
            self.skipTest("nothing can be preloaded here")
        environment = {**os.environ, **harness.preloaded("KILL_AT_LIBRARY"), "FAIL_WRITE": str(self.log)}
        self.log.touch()
        done = self.train(9, "--log", self.log, env=environment)
        self.expect(done, FAILED, "log", "No space left", "Step 1 is in")
        self.assertEqual(self.names(self.folder / "out.bowline.checkpoint"), ["step-00000001.bowline"])
        self.assertFalse(self.out.exists())

    def test_output_is_tried_before_training(self):
        self.out.mkdir()
        done = self.train(10**7, "--force", timeout=60)
        self.expect(done, FAILED, "not a regular file")
        self.assertNotIn("step 1/", done.stdout)

    def test_output_that_appears_meanwhile(self):
        process = self.start("--checkpoint", self.checkpoints, "--log", self.log, "--eval-batches", 1, steps=3000)
        self.wait_for(self.log.exists)
        self.out.write_bytes(b"mine")
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, FAILED, errors)
        self.assertIn("exists already", errors)
        self.assertEqual(self.out.read_bytes(), b"mine")
        self.assertIn("step-00003000.bowline", self.names())

    def test_full_stdout(self):
        with open("/dev/full", "w") as full:
            done = self.train(3, stdout=full, stderr=subprocess.PIPE, capture_output=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("Standard output cannot be written", done.stderr)
        self.expect(run("verify", self.out), OK)


del Place
if __name__ == "__main__":
    unittest.main()
