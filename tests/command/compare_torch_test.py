#!/usr/bin/env python3
"""tools/compare_torch: what it refuses, and that both descriptions of its networks mean the same. PyTorch is not needed."""

import array
import json
import os
import pathlib
import struct
import sys
import unittest

import harness
from harness import FAILED, OK, USAGE, npy, read_npy, run

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/compare_torch"
sys.path.insert(0, str(TOOL))
sys.dont_write_bytecode = True
import nets  # noqa: E402

COMPARE_NETS = os.environ["COMPARE_NETS"]


def compare(*arguments):
    """Without the packages that are installed here, PyTorch among them."""
    return run("-S", "-E", "-B", TOOL / "compare_torch.py", *arguments, program=sys.executable)


def compare_nets(*arguments):
    return run(*arguments, program=COMPARE_NETS)


class CompareTorch(harness.Case):
    def says(self, done, code, *texts):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr if code else done.stdout)

    def test_help(self):
        self.says(compare("--help"), OK, "lstm", "mobilenet", "example", "exit codes")
        self.says(run("--help", program=TOOL / "run"), OK, "--venv", "--net")
        self.says(compare_nets("--help"), OK, "example", "exit codes")

    def test_mistyped(self):
        self.says(compare("--net", "lstn"), USAGE, "'lstn'", "'lstm'")
        self.says(compare("--nte", "lstm"), USAGE, "--nte")
        self.says(compare("--runs", "0"), USAGE, "--runs")
        self.says(compare("--runs", "many"), USAGE, "many")
        self.says(run("--venv", program=TOOL / "run"), USAGE, "--venv needs a folder")
        self.says(compare_nets(), USAGE)
        self.says(compare_nets("make", "lstn", "m.bowline"), USAGE, "lstn")
        self.says(compare_nets("run", "lstm", "m.bowline", "--data", "x"), USAGE, "lstm")
        self.says(compare_nets("train", "lstm", "m.bowline"), USAGE, "--data")
        self.says(compare_nets("train", "lstm", "m.bowline", "--data", "x", "--batch", "0"), USAGE, "--batch")

    def test_flags_of_text_alone(self):
        for flag in ("--vulkan", "--cuda", "--no-cpu", "--torch-only"):
            self.says(compare("--net", "lstm", flag), USAGE, flag, "text")

    def test_missing_pytorch(self):
        for net in nets.AIM, ("text",):
            self.says(compare("--net", *net), FAILED, f"PyTorch is not installed for {sys.executable}", "pip install torch")

    def test_bad_files(self):
        model, data = self.folder / "lstm.bowline", self.folder / "data.bin"
        self.says(compare_nets("make", "lstm", model), OK)
        train = ("train", "lstm", model, "--batch", 16, "--data")
        self.says(compare_nets(*train, data), FAILED, f'"{data}"')
        data.write_bytes(bytes(4160 + 4))
        self.says(compare_nets(*train, data), FAILED, "4164 bytes", "has 4160")
        self.says(compare_nets("train", "lstm", self.text, "--data", data), FAILED, str(self.text))

    def test_lstm_learns(self):
        model, data = self.folder / "lstm.bowline", self.folder / "data.bin"
        nets.make_data("lstm", nets.LSTM_BATCH, self.text.read_bytes(), data)
        self.says(compare_nets("make", "lstm", model), OK)
        done = compare_nets("train", "lstm", model, "--data", data, "--batch", nets.LSTM_BATCH, "--seq", nets.SEQ, "--steps", 12)
        self.says(done, OK)
        losses = json.loads(done.stdout)["losses"]
        self.assertEqual(len(losses), 12)
        self.assertAlmostEqual(losses[0], 5.545, delta=0.1)  # of 256 bytes that are as likely
        self.assertLess(losses[-1], losses[0] - 0.5)

    def test_networks_are_the_same(self):
        """MobileNetV2 of nets.cpp, and of nets.py as an ONNX file, after a step that moves every weight and statistic."""
        first, model, data = (self.folder / name for name in ("first.bowline", "model.bowline", "data.bin"))
        nets.make_data("mobilenet", 1, b"", data)
        self.says(compare_nets("make", "mobilenet", first), OK)
        run_flags = ("--data", data, "--device", "cpu")
        self.says(compare_nets("train", "mobilenet", first, *run_flags, "--steps", 1, "--save", model), OK)
        self.says(compare_nets("run", "mobilenet", model, *run_flags, "--steps", 1, "--result", self.folder / "logits.bin"), OK)
        ours = struct.unpack(f"<{nets.CLASSES}f", (self.folder / "logits.bin").read_bytes())

        self.expect(run("export", model, "--weights", self.folder / "weights"), OK)
        operators = nets.OnnxOperators(nets.read_parameters(self.folder / "weights"))
        shape = (1, 3, nets.SIDE, nets.SIDE)
        logits = nets.mobilenet(operators, operators.file.input("images", list(shape)))
        (self.folder / "model.onnx").write_bytes(operators.file.finish(logits, [1, nets.CLASSES]))
        self.expect(run("import", self.folder / "model.onnx", "--out", self.folder / "imported.bowline"), OK)
        images = array.array("f", data.read_bytes()[: 4 * 3 * nets.SIDE**2]).tobytes()
        (self.folder / "images.npy").write_bytes(npy("<f4", shape, images))
        self.expect(run("run", self.folder / "imported.bowline", "--input", f"images=@{self.folder / 'images.npy'}",
                        "--output", f"{logits}=@{self.folder / 'logits.npy'}", "--device", "cpu"), OK)
        _, theirs_shape, theirs = read_npy(self.folder / "logits.npy")
        theirs = struct.unpack(f"<{nets.CLASSES}f", theirs)
        self.assertEqual(len(theirs), nets.CLASSES, theirs_shape)
        largest = max(map(abs, theirs))
        self.assertGreater(largest, 0.01)
        self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs)), nets.MOST_LOGIT_ERROR * largest)

    def test_count_of_work(self):
        """What the floor is made of: MobileNetV2 has 3.5 million weights, and 300 million products for 224 x 224 pixels."""
        counting = nets.Counting()
        nets.mobilenet(counting, nets.SIDE)
        self.assertEqual(counting.weights, 3504872)
        counting = nets.Counting()
        nets.mobilenet(counting, 224)
        self.assertAlmostEqual(counting.products, 300.8e6, delta=1e6)


if __name__ == "__main__":
    unittest.main()
