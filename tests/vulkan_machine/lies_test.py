"""Tests the self test of Vulkan devices on a driver that lies (BOWLINE_MACHINE_LIE of driver.cpp).
The variant is off, results are right, and `bowline devices` says why.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BOWLINE = os.environ["BOWLINE"]
OK, BAD_DEVICE = 0, 4
# Pipelines and what happens to them: the variant that the self test switches off, its reason, and
# an operator that would use these pipelines.
LIES = {
    "f16_matrices:drops": ("matrix units for f16", " of MatMul of f16 is ", "Linear"),
    "f16_matrices:fails": ("matrix units for f16", "MatMul of f16 fails. A Vulkan call fails (VkResult -13).", None),
    "f16_matrices:loses": ("matrix units for f16", "MatMul of f16 fails. The Vulkan device is lost.", None),
    "f16_matrices:hangs": ("matrix units for f16", "MatMul of f16 fails. The Vulkan device hangs: it has been running", None),
    "workgroup_matrices:drops": ("matrices of workgroups", " of MatMul of f16 is ", "MatMul"),
    "workgroup_matrices:fails": ("matrices of workgroups", "MatMul of f16 fails. A Vulkan call fails (VkResult -13).", None),
    "bf16_matrices:drops": ("matrix units for bf16", " of MatMul of bf16 is ", "Linear"),
    "large_tiles:drops": ("large tiles", "of MatMul of f32 is ", None),
    "large_workgroups:drops": ("large workgroups", "of Mul of f32 is ", "Mul"),
    "8_bits:drops": ("accesses of 8 bits", "of Greater of f32 is ", "Greater"),
    "16_bits:drops": ("accesses of 16 bits", "of Cast of f32 is ", "Cast"),
    "addresses:drops": ("buffer addresses", "of Mul of f32 is ", "Linear"),
    "subgroup_sizes:drops": ("required subgroup sizes", "of ReduceSum of f32 is ", "ReduceSum"),
}

class Lies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name)
        self.has_workgroup_matrices = False

    def run_on(self, lie, *arguments):
        environment = {**os.environ, "BOWLINE_MACHINE_LIE": lie, "BOWLINE_CACHE": str(self.cache)}
        if self.has_workgroup_matrices or lie.startswith("workgroup_matrices"):
            environment |= {"BOWLINE_MACHINE_HAS": "cooperativeMatrixWorkgroupScope", "BOWLINE_VULKAN_VARIANT": "workgroup_matrices"}
        return subprocess.run([BOWLINE, *arguments], capture_output=True, text=True, timeout=600, env=environment)

    def device(self, lie):
        process = self.run_on(lie, "devices", "-o", "json")
        self.assertEqual(process.returncode, OK, process.stderr)
        return next(d for d in json.loads(process.stdout) if d["name"] == "vulkan:0")

    def test_a_variant_that_fails_is_switched_off(self):
        for lie, (variant, reason, op) in LIES.items():
            with self.subTest(lie), tempfile.TemporaryDirectory() as folder:
                self.cache = pathlib.Path(folder)
                device = self.device(lie)
                self.assertTrue(device["usable"], device)
                self.assertEqual(len(device["switched_off"]), 1, device)
                self.assertIn(f"{variant}: ", device["switched_off"][0])
                self.assertIn(reason, device["switched_off"][0])
                text = self.run_on(lie, "devices").stdout
                self.assertIn(f"switched off: {variant}: ", text)
                if op is not None:
                    process = self.run_on(lie, "conform", "--suite", "ops", "--quick", "--every", "3", "--filter", op,
                                          "--device", "vulkan:0")
                    self.assertEqual(process.returncode, OK, process.stdout + process.stderr)

    def test_nothing_is_switched_off_on_an_honest_driver(self):
        for self.has_workgroup_matrices in (False, True):
            device = self.device("")
            self.assertTrue(device["usable"], device)
            self.assertEqual(device["switched_off"], [])

    def test_a_device_without_a_kernel_that_is_right_is_unusable(self):
        device = self.device("all:drops")
        self.assertFalse(device["usable"], device)
        self.assertIn("The Vulkan device cannot be used, because its self test fails. Element 0 of Mul of f32 is ",
                      device["reason"])
        process = self.run_on("all:drops", "conform", "--suite", "ops", "--device", "vulkan:0")
        self.assertEqual(process.returncode, BAD_DEVICE, process.stderr)
        self.assertIn("its self test fails", process.stderr)
        self.assertEqual(list(self.cache.glob("*.test")), [], "a device may work after an update of its driver")

    def test_a_device_that_only_plans_is_not_tested(self):
        self.assertEqual(self.device("all:drops")["usable"], False)
        model = str(self.cache / "model.bowline")
        made = subprocess.run([os.environ["MAKE_MODEL"], "--layers", "1", "--channels", "16", "--heads", "2", model],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, OK, made.stderr)
        process = self.run_on("all:drops", "inspect", model, "--batch", "1", "--seq", "4", "--device", "planning:vulkan:0")
        self.assertEqual(process.returncode, OK, process.stderr)

    def test_the_result_is_kept_until_its_file_is_damaged(self):
        lie, other = "f16_matrices:drops", "bf16_matrices:drops"
        first = self.device(lie)["switched_off"]
        self.assertEqual(self.device(other)["switched_off"], first)
        results = list(self.cache.glob("*.test"))
        self.assertEqual(len(results), 1, results)
        content = results[0].read_bytes()
        for damaged in (b"", content[:-1], content.replace(b"Element", b"Elephan"), b"x" * 100):
            results[0].write_bytes(damaged)
            self.assertIn("matrix units for bf16", self.device(other)["switched_off"][0])
        results[0].write_bytes(content)
        self.assertEqual(self.device(other)["switched_off"], first)


if __name__ == "__main__":
    unittest.main()
