"""Tests `mpirun -n N bowline finetune`: several processes train one model.

Skips if there is no mpirun, or if this build has no libbowline_mpi.so.
"""

import os
import pathlib
import shutil
import subprocess
import time
import unittest

import harness
from harness import BAD_DEVICE, BOWLINE, OK, PATIENCE, RESTART

HAS_LIBRARY = (pathlib.Path(BOWLINE).parent / "libbowline_mpi.so").exists()


class Processes(harness.Case):
    def setUp(self):
        super().setUp()
        harness.need(shutil.which("mpirun") and HAS_LIBRARY, "mpirun or libbowline_mpi.so is missing (tools/setup installs MPI).")

    def words(self, processes, arguments, model=None):
        flags = {"--steps": 3, "--accumulate": 6, "--learning-rate": "0.01", "--eval-batches": 1}
        given = [word for flag, value in flags.items() if flag not in arguments for word in (flag, value)]
        return ["-n", processes, BOWLINE, "finetune", model or self.model, *given, *self.with_defaults(arguments)]

    def mpirun(self, *words):
        return ["mpirun", "--oversubscribe", "--allow-run-as-root", *map(str, words)]

    def together(self, processes, *arguments):
        return harness.run(*self.mpirun(*self.words(processes, arguments))[1:], program="mpirun")

    def start(self, processes, *arguments):
        """Starts processes that train without end."""
        words = self.mpirun(*self.words(processes, ["--save-every", 2, "--schedule", "constant", *arguments]))
        words[words.index("--steps") + 1] = "100000"
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.poll() is not None or process.kill())
        return process

    def wait_for_checkpoint(self, folder, process):
        """Returns the ids of the processes of mpirun after the first checkpoint."""
        end = time.monotonic() + 60 * PATIENCE
        while not list(folder.glob("step-*.bowline")):
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        found = subprocess.run(["pgrep", "-P", str(process.pid), "bowline"], capture_output=True, text=True, check=True)
        return sorted(map(int, found.stdout.split()))

    def test_the_bits_are_those_of_one_process(self):
        lora = ["--lora-rank", 2, "--lora-dropout", "0.1"]
        for name, arguments in {"weights": ["--clip", "0.5"], "adapter": lora, "sgd": ["--optimizer", "sgd"]}.items():
            files = {}
            for processes in (1, 2, 3) if name == "weights" else (1, 2):
                out, log = self.folder / f"{name}-{processes}", self.folder / f"{name}-{processes}.log"
                flags = [*arguments, "--out", out, "--log", log]
                done = self.finetune(*self.words(1, flags)[5:]) if processes == 1 else self.together(processes, *flags)
                self.expect(done, OK, "held-out")
                self.assertEqual(done.stdout.count("speed:"), 1, "one process prints")
                files[processes] = out.read_bytes(), log.read_bytes()
            for processes, content in files.items():
                self.assertEqual(content, files[1], f"{name}: {processes} processes")

    def test_fast_reduce_has_about_the_same_loss(self):
        losses = []
        for processes in (1, 2):
            log = self.folder / f"fast-{processes}.log"
            flags = ["--fast-reduce", "--out", self.folder / f"fast-{processes}", "--log", log]
            done = self.finetune(*self.words(1, flags)[5:]) if processes == 1 else self.together(processes, *flags)
            self.expect(done, OK)
            losses.append([float(line.split()[1]) for line in log.read_text().splitlines() if line[:1].isdigit()])
        self.assertEqual(len(losses[0]), 3)
        for one, two in zip(*losses):
            self.assertAlmostEqual(one, two, delta=1e-4 * one)

    def test_a_dead_process_ends_the_run_and_another_number_continues(self):
        folder = self.folder / "run"
        process = self.start(3, "--checkpoint", folder)
        killed = self.wait_for_checkpoint(folder, process)[1]
        subprocess.run(["kill", "-KILL", str(killed)], check=True)
        _, errors = process.communicate(timeout=60 * PATIENCE)
        self.assertNotEqual(process.returncode, OK)
        self.assertRegex(errors, r"rank 1 .*signal 9")
        step = max(int(p.stem.split("-")[1]) for p in folder.glob("step-*.bowline"))
        flags = ["--schedule", "constant", "--steps", step + 2]
        done = self.together(2, *flags, "--checkpoint", folder, "--resume", "auto", "--out", self.folder / "resumed")
        self.expect(done, OK, f"resumed at step {step}")
        self.expect(self.finetune(*self.words(1, [*flags, "--out", self.folder / "whole"])[5:]), OK)
        self.assertEqual((self.folder / "resumed").read_bytes(), (self.folder / "whole").read_bytes())

    def test_a_process_that_stops_answering_is_named(self):
        folder = self.folder / "run"
        process = self.start(2, "--checkpoint", folder, "--process-timeout", 2 * PATIENCE)
        stopped = self.wait_for_checkpoint(folder, process)[1]
        subprocess.run(["kill", "-STOP", str(stopped)], check=True)
        _, errors = process.communicate(timeout=60 * PATIENCE)
        self.assertEqual(process.returncode, RESTART, errors)
        self.assertIn("Process 1 of 2 has not answered for", errors)
        self.assertIn("The last checkpoint is", errors)

    def test_different_runs_are_refused(self):
        other = self.folder / "other.bowline"
        made = harness.run(*harness.TINY, "--seed", 2, other, program=harness.MAKE_MODEL)
        self.assertEqual(made.returncode, OK, made.stderr)
        out = ["--out", self.folder / "out"]
        first = self.words(1, out)
        for second, words in ((self.words(1, out, other), "the checksum of the weights is"),
                              (self.words(1, [*out, "--batch", 3]), "the option dims is \"batch=2 seq=16\" in process 0")):
            done = harness.run(*self.mpirun(*first, ":", *second)[1:], program="mpirun")
            self.assertNotEqual(done.returncode, OK)
            self.assertIn(words, done.stderr)
            self.assertIn("in process 1", done.stderr)
            self.assertFalse((self.folder / "out").exists())

    def test_more_processes_than_micro_batches_are_refused(self):
        done = self.together(2, "--accumulate", 1, "--out", self.folder / "out")
        self.assertIn("--accumulate 1 gives a step fewer micro-batches than there are processes (2)", done.stderr)

    def test_processes_take_different_gpus(self):
        devices = ["cpu", "cuda:0", "cuda:1!", "cuda:2", "vulkan:0", "vulkan:1~", "vulkan:2"]
        for wanted, taken in {"gpu": "cuda:0 cuda:2 cuda:0 cuda:2", "best": "cuda:0 cuda:2 cuda:0 cuda:2",
                              "cuda": "cuda:0 cuda:2 cuda:0 cuda:2", "vulkan": "vulkan:0 vulkan:1 vulkan:2 vulkan:0",
                              "cuda:2": "cuda:2 cuda:2 cuda:2 cuda:2", "cpu": "cpu cpu cpu cpu"}.items():
            done = harness.run(wanted, *devices, program=os.environ["DEVICE_OF_PROCESS"])
            self.assertEqual(done.stdout.split(), taken.split(), wanted)
        done = harness.run("gpu", "cpu", "vulkan:0", program=os.environ["DEVICE_OF_PROCESS"])
        self.assertEqual(done.stdout.split(), ["vulkan:0"] * 4)

    def test_a_command_without_the_library_says_so(self):
        alone = self.folder / "bowline"
        shutil.copy(BOWLINE, alone)
        done = subprocess.run([alone, "finetune", self.model, "--data", self.text, "--out", self.folder / "out"],
                              env={"OMPI_COMM_WORLD_SIZE": "2"}, capture_output=True, text=True, check=False)
        self.expect(done, BAD_DEVICE, "mpirun started 2 processes", "libopenmpi-dev")


if __name__ == "__main__":
    unittest.main()
