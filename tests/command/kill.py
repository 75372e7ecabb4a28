"""Tests SIGKILL and resume: weights, optimizer state and loss log equal those of an uninterrupted
run, bit for bit.

$BOWLINE_KILLS is the number of kills (5), $BOWLINE_KILL_SEED their seed (1). The run is killed at a
random time, at the n-th file operation (after half of a write), or while the newest checkpoint is
from inside an accumulation.
"""

import os
import random
import signal
import subprocess
import time

import harness
from harness import BOWLINE, OK

STEPS, ACCUMULATE = 12, 3
KILLS = int(os.environ.get("BOWLINE_KILLS", "5"))
SEED = int(os.environ.get("BOWLINE_KILL_SEED", "1"))
MOMENTS = ("time", "file", "accumulation", "file", "time")


class Kill(harness.Case):
    device = "cpu"

    def command(self, folder):
        return ["finetune", self.model, "--data", self.text, "--batch", 2, "--seq", 16, "--device", self.device,
                "--steps", STEPS, "--accumulate", ACCUMULATE, "--warmup", 3, "--learning-rate", "0.01", "--seed", 5,
                "--eval-batches", 1, "--save-every-batches", 2, "--checkpoint", folder / "checkpoints", "--resume", "auto",
                "--log", folder / "log", "--out", folder / "out.bowline"]

    def result(self, folder):
        newest = sorted((folder / "checkpoints").glob("step-*.bowline"))[-1]
        return {"checkpoint": newest.name, "state": newest.read_bytes(), "log": (folder / "log").read_bytes(),
                "weights": (folder / "out.bowline").read_bytes()}

    def start(self, folder, **variables):
        environment = {**os.environ, **variables}
        return subprocess.Popen([BOWLINE, *map(str, self.command(folder))], env=environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_at(self, moment, folder, pick, seconds):
        """Starts a run, kills it, and returns a description."""
        if moment == "file":
            at = pick.randrange(1, 200)
            self.start(folder, **harness.preloaded("KILL_AT_LIBRARY"), KILL_AT=str(at)).wait(timeout=120)
            return f"at file operation {at}"
        process = self.start(folder)
        begin = time.monotonic()
        after = pick.uniform(0, seconds)
        inside = pick.randrange(1, STEPS)
        while process.poll() is None:
            if moment == "time" and time.monotonic() - begin >= after:
                break
            if moment == "accumulation" and list((folder / "checkpoints").glob(f"step-{inside:08}.*.bowline")):
                break
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return f"after {after:.3f} s" if moment == "time" else f"inside the accumulation of step {inside + 1}"

    def test_kills(self):
        reference = self.folder / "reference"
        reference.mkdir()
        self.expect(harness.run(*self.command(reference)), OK)  # also fills the cache of pipelines
        again = self.folder / "again"
        again.mkdir()
        begin = time.monotonic()
        self.expect(harness.run(*self.command(again)), OK)
        seconds = time.monotonic() - begin
        expected = self.result(reference)
        self.assertEqual(self.result(again), expected, "two uninterrupted runs differ")
        self.assertEqual(len(expected["log"].splitlines()), 1 + STEPS)

        pick = random.Random(SEED)
        killed = 0
        for i in range(KILLS):
            folder = self.folder / f"kill{i}"
            folder.mkdir()
            moment = MOMENTS[i % len(MOMENTS)]
            if "KILL_AT_LIBRARY" not in os.environ and moment == "file":
                moment = "time"
            where = self.kill_at(moment, folder, pick, seconds)
            killed += not (folder / "out.bowline").exists()
            self.expect(harness.run(*self.command(folder)), OK)
            result = self.result(folder)
            for key, value in expected.items():
                self.assertEqual(result[key], value, f"{key} differs after a kill {where} (seed {SEED}, kill {i})")
            left = [f.name for f in (folder / "checkpoints").iterdir() if f.suffix != ".bowline"]
            self.assertEqual(left, [], "files are left over")
        print(f"{self.device}: {KILLS} runs, {killed} of them killed before the end; all equal", flush=True)
        self.assertGreater(2 * killed, KILLS, "most runs ended before the kill")
