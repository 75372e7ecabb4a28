#!/usr/bin/env python3
"""Tests tools/compare_torch without PyTorch: invalid usage and missing packages. Also tests
compare_nets, which runs the networks with Bowline.
"""

import array
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import FAILED, OK, USAGE, npy, read_npy, run

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tools/compare_torch"
NETS = os.environ["COMPARE_NETS"]


def compare(*arguments, script=FOLDER / "compare_torch.py"):
    # Hides the installed packages of the user and the machine, so that PyTorch is missing.
    return run("-I", "-S", "-c", f"import runpy, sys; sys.path.insert(0, {str(FOLDER)!r}); sys.argv = sys.argv[1:]; "
               "runpy.run_path(sys.argv[0], run_name='__main__')", script, *arguments, program=sys.executable)


def nets(*arguments):
    return run(*arguments, program=NETS)


class CompareTorch(unittest.TestCase):
    def expect(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def test_help(self):
        self.expect(compare("--help"), OK, "--net", "lstm", "mobilenet", "encoder", "decoder", "onnxruntime", "exit codes")
        done = subprocess.run([FOLDER / "run", "--help"], capture_output=True, text=True, check=False)
        self.expect(done, OK, "--venv", "--net", "compare_torch.py")

    def test_wrong_usage(self):
        self.expect(compare("--ruins", "3"), USAGE, "--ruins")
        self.expect(compare("--net", "resnet"), USAGE, "resnet", "mobilenet")
        self.expect(compare("--net", "encoder"), USAGE, "--encoder FOLDER", "get_model")
        self.expect(compare("--net", "onnx"), USAGE, "--onnx FOLDER")
        self.expect(compare("--net", "lstm", "--onnx", "folder"), USAGE, "--net onnx")
        self.expect(compare("--runs", "0"), USAGE, "--runs", "at least 1")
        self.expect(subprocess.run([FOLDER / "run", "--venv"], capture_output=True, text=True, check=False), USAGE, "--venv")

    def test_flags_of_text_alone(self):
        for flag in ("--vulkan", "--no-cpu", "--torch-only"):
            self.expect(compare("--net", "lstm", flag), USAGE, flag, "for text")
        self.expect(compare("--net", "decoder", "--cuda"), USAGE, "--cuda", "lstm")

    def test_without_torch(self):
        for net in ("text", "lstm", "mobilenet", "decoder"):
            self.expect(compare("--net", net), FAILED, "compare_torch: PyTorch is not installed", "pip install torch")

    def test_onnx_file(self):
        """Bowline can read the model that the tool writes for ONNX Runtime, with the same values.
        """
        sys.path.insert(0, str(FOLDER))
        from onnx_file import OnnxFile
        file = OnnxFile()
        file.initializer("weight", [2, 1, 2, 2], struct.pack("<8f", *range(1, 9)))
        file.initializer("low", [], struct.pack("<f", 0))
        file.initializer("high", [], struct.pack("<f", 20))
        x = file.node("Conv", [file.input("x", [1, 1, 2, 2]), "weight"], strides=[1, 1], pads=[0, 0, 0, 0], group=1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "m.onnx").write_bytes(file.finish(file.node("Clip", [x, "low", "high"]), [1, 2, 1, 1]))
            done = run("import", folder / "m.onnx", "--out", folder / "m.bowline")
            if "This build has no reader of ONNX" in done.stderr:
                harness.need(False, done.stderr)
            self.expect(done, OK)
            # Constant bounds become a Clip, which is fused into the convolution.
            self.expect(run("inspect", folder / "m.bowline", "--listing", "forward", "--entry", "forward"), OK, "FusedConv(", "min=0 max=20")
            done = self.expect(run("run", folder / "m.bowline", "--input", "x=ones", "--device", "cpu"), OK)
            self.assertRegex(done.stdout, r"\b10\b")  # 1 + 2 + 3 + 4
            self.assertRegex(done.stdout, r"\b20\b")  # 5 + 6 + 7 + 8, clipped


class CompareNets(unittest.TestCase):
    expect = CompareTorch.expect

    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.addCleanup(self.holder.cleanup)
        self.folder = pathlib.Path(self.holder.name)
        self.model, self.data = self.folder / "m.bowline", self.folder / "data.bin"

    def test_wrong_usage(self):
        self.expect(nets(), USAGE)
        self.expect(nets("--help"), OK, "make", "train", "run", "exit codes")
        self.expect(nets("make", "resnet", self.model), USAGE, "resnet")
        self.expect(nets("train", "lstm", self.model, "--data", self.data, "--btach", "2"), USAGE, "--btach")
        self.expect(nets("train", "lstm", self.model, "--data", self.data, "--batch", "0"), USAGE, "--batch")

    def test_bad_data(self):
        self.expect(nets("make", "lstm", self.model), OK)
        train = ("train", "lstm", self.model, "--data", self.data, "--batch", 2, "--seq", 4, "--steps", 2)
        self.expect(nets(*train), FAILED, "compare_nets: Data file", "a batch has 40")
        self.data.write_bytes(bytes(36))
        self.expect(nets(*train), FAILED, "has 36 bytes", "a batch has 40")
        self.data.write_bytes(struct.pack("<10i", *[1] * 9, 256))
        self.expect(nets(*train), FAILED, "256")
        self.expect(nets(*train[:2], self.folder / "none.bowline", *train[3:]), FAILED, "none.bowline")

    def test_lstm_learns(self):
        self.expect(nets("make", "lstm", self.model), OK)
        self.data.write_bytes(struct.pack("<18i", *[1, 2, 3] * 6))
        train = ("train", "lstm", self.model, "--data", self.data, "--batch", 2, "--seq", 8, "--steps", 20)
        losses = [json.loads(self.expect(nets(*train, "--threads", n), OK).stdout)["losses"] for n in (1, 2)]
        self.assertEqual(*losses)
        self.assertEqual(len(losses[0]), 20)
        self.assertLess(losses[0][-1], losses[0][0] / 2)

    def test_mobilenet_learns_and_runs(self):
        self.expect(nets("make", "mobilenet", self.model), OK)
        with self.data.open("wb") as file:
            array.array("f", (i * 2654435761 % 1000 / 500 - 1 for i in range(2 * 3 * 96 * 96))).tofile(file)
            array.array("i", [3, 999]).tofile(file)
        after = self.folder / "after.bowline"
        done = self.expect(nets("train", "mobilenet", self.model, "--data", self.data, "--batch", 2, "--steps", 8, "--save", after), OK)
        losses = json.loads(done.stdout)["losses"]
        self.assertLess(losses[-1], losses[0])
        logits = [self.folder / f"logits{n}.bin" for n in (1, 2)]
        for n, path in enumerate(logits, 1):
            self.expect(nets("run", "mobilenet", after, "--data", self.data, "--batch", 2, "--steps", 1, "--threads", n,
                             "--result", path), OK)
        self.assertEqual(logits[0].stat().st_size, 4 * 2 * 1000)
        self.assertEqual(logits[0].read_bytes(), logits[1].read_bytes())

    def test_both_sides_have_the_same_network(self):
        """Compares MobileNetV2 of nets.cpp with the ONNX file of nets.py, after a step that changes
        every weight and statistic.
        """
        sys.path.insert(0, str(FOLDER))
        import nets as python_side
        python_side.make_data("mobilenet", 1, b"", self.data)
        after, weights, logits = self.folder / "after.bowline", self.folder / "weights", self.folder / "logits.bin"
        self.expect(nets("make", "mobilenet", self.model), OK)
        self.expect(nets("train", "mobilenet", self.model, "--data", self.data, "--steps", 1, "--save", after), OK)
        self.expect(nets("run", "mobilenet", after, "--data", self.data, "--steps", 1, "--result", logits), OK)
        ours = struct.unpack("<1000f", logits.read_bytes())

        self.expect(run("export", after, "--weights", weights), OK)
        operators = python_side.OnnxOperators(python_side.read_parameters(weights))
        shape = (1, 3, python_side.SIDE, python_side.SIDE)
        output = python_side.mobilenet(operators, operators.file.input("images", list(shape)))
        onnx, imported = self.folder / "m.onnx", self.folder / "imported.bowline"
        onnx.write_bytes(operators.file.finish(output, [1, python_side.CLASSES]))
        done = run("import", onnx, "--out", imported)
        if "This build has no reader of ONNX" in done.stderr:
            harness.need(False, done.stderr)
        self.expect(done, OK)
        images, result = self.folder / "images.npy", self.folder / "logits.npy"
        images.write_bytes(npy("<f4", shape, self.data.read_bytes()[: 4 * 3 * python_side.SIDE**2]))
        self.expect(run("run", imported, "--input", f"images=@{images}", "--output", f"{output}=@{result}", "--device", "cpu"), OK)
        theirs = struct.unpack("<1000f", read_npy(result)[2])
        largest = max(map(abs, theirs))
        self.assertGreater(largest, 0.01)
        self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs)), python_side.MOST_LOGIT_ERROR * largest)


if __name__ == "__main__":
    unittest.main()
