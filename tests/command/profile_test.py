#!/usr/bin/env python3
"""Tests bowline profile: every node has a time on every device that computes, and Chrome can read
the trace.
"""

import json
import os
import pathlib
import unittest

import harness
from harness import FAILED, OK, USAGE, run

MAKE_DECODER = os.environ["MAKE_DECODER"]


class Profile(harness.Case):
    def profile(self, device, *arguments):
        done = run("profile", self.model, "--batch", 2, "--seq", 16, "--steps", 2, "--device", device, *arguments)
        return self.expect(done, OK).stdout

    def test_every_node_is_timed(self):
        for device in harness.real_devices():
            result = json.loads(self.profile(device, "-o", "json"))
            self.assertEqual((result["device"], result["entry"], result["train"]), (device, "forward", False))
            nodes = result["nodes"]
            self.assertEqual({n["part"] for n in nodes}, {"forward"})
            self.assertLessEqual({"Embedding", "Attention", "RmsNorm", "Linear"}, {n["op"] for n in nodes})
            self.assertAlmostEqual(sum(n["ms"] for n in nodes), result["nodes_ms"], places=6)
            self.assertGreater(result["percent_on_nodes"], 0)
            self.assertLess(result["nodes_ms"], result["clocked_ms"])
            for node in nodes:
                self.assertRegex(node["name"], r"node \d+ ")
                self.assertGreaterEqual(node["ms"], 0)
            # Two layers are two iterations of one Repeat.
            self.assertEqual({n["count"] for n in nodes if n["op"] == "Attention"}, {2})

    def test_a_training_step(self):
        before = self.model.read_bytes()
        for device in harness.real_devices():
            nodes = json.loads(self.profile(device, "--train", "-o", "json"))["nodes"]
            self.assertEqual([n["part"] for n in nodes], sorted(n["part"] for n in nodes))
            ops = {part: {n["op"] for n in nodes if n["part"] == part} for part in ("accumulate", "update")}
            self.assertLessEqual({"CrossEntropy", "AttentionGrad"}, ops["accumulate"])
            self.assertIn("AdamW", ops["update"])
        self.assertEqual(self.model.read_bytes(), before)

    def test_a_generating_model(self):
        """A run writes the last rows of full caches."""
        lm = self.folder / "lm.bowline"
        self.expect(run(lm, "vocabulary=256", "context=64", program=MAKE_DECODER), OK)
        before = lm.read_bytes()
        for device in harness.real_devices():
            for entry, dims in (("decode", ()), ("prefill", ("--dim", "rows=16"))):
                done = run("profile", lm, "--entry", entry, "--dim", "kv_length=48", *dims, "--steps", 2, "--device", device,
                           "-o", "json")
                result = json.loads(self.expect(done, OK).stdout)
                self.assertEqual(result["entry"], entry)
                # The keys and values of each layer belong to one iteration of a Repeat. GPUs
                # write both at once.
                writes = [("WriteRows", 3)] * 2 if device == "cpu" else [("FusedWriteRows", 3)]
                self.assertEqual([(n["op"], n["count"]) for n in result["nodes"] if n["op"].endswith("WriteRows")], writes)
                self.assertIn("Attention", {n["op"] for n in result["nodes"]})
        self.assertEqual(lm.read_bytes(), before)
        decode = ("profile", lm, "--entry", "decode", "--device", "cpu", "--dim", "kv_length=48")
        self.expect(run(*decode, "--step", "position=47"), OK)
        self.expect(run(*decode, "--step", "position=48"), FAILED, "WriteRows")
        self.expect(run(*decode, "--step", "position"), USAGE, "NAME=NUMBER")
        self.expect(run(*decode, "--step", "place=3"), FAILED, "place")

    def test_16_bits(self):
        """A run makes copies of the weights. In training, the optimizer writes them."""
        for arguments in ((), ("--train",)):
            ops = {n["op"] for n in json.loads(self.profile("cpu", *arguments, "--compute", "bf16", "-o", "json"))["nodes"]}
            self.assertEqual("Cast" in ops, not arguments)
            ops = {n["op"] for n in json.loads(self.profile("cpu", *arguments, "-o", "json"))["nodes"]}
            self.assertNotIn("Cast", ops)

    def test_nearly_all_of_a_step_is_on_nodes(self):
        """The nodes take at least 95 percent of a step, as README says. Both times come from the
        same steps with clocks, so that a busy machine slows both.
        """
        base = pathlib.Path(__file__).resolve().parents[2] / "samples" / "finetune_text" / "base.bowline"
        done = run("profile", base, "--train", "--batch", 8, "--seq", 256, "--steps", 3, "--device", "cpu", "-o", "json")
        result = json.loads(self.expect(done, OK).stdout)
        print(f"{result['nodes_ms']:.3f} of {result['clocked_ms']:.3f} ms on nodes: {result['percent_on_nodes']:.2f} percent")
        self.assertAlmostEqual(result["percent_on_nodes"], 100 * result["nodes_ms"] / result["clocked_ms"], places=6)
        self.assertGreaterEqual(result["percent_on_nodes"], 95)
        self.assertLessEqual(result["percent_on_nodes"], 100)

    def test_trace(self):
        trace = self.folder / "trace.json"
        result = json.loads(self.profile("cpu", "--train", "--trace", trace, "-o", "json"))
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual(len(events), 2 * len(result["nodes"]))
        self.assertEqual({e["ph"] for e in events}, {"X"})
        for event, after in zip(events, events[1:]):
            self.assertAlmostEqual(event["ts"] + event["dur"], after["ts"], places=3)
        self.assertEqual({e["args"]["step"] for e in events}, {0, 1})
        self.expect(run("profile", self.model, "--trace", trace, "--batch", 1, "--seq", 1), USAGE, "--force")

    def test_text(self):
        text = self.profile("cpu", "--train")
        self.assertRegex(text, r"^training step of loss on cpu: \d+\.\d+ ms without clocks \(median of 2\)")
        self.assertIn("AdamW", text)


if __name__ == "__main__":
    unittest.main()
