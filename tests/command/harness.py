"""Shared by the tests of the command: a tiny model, a text, files of NumPy, and calls of the
command.
"""

import ast
import json
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import tempfile
import unittest

BOWLINE = os.environ["BOWLINE"]
MAKE_MODEL = os.environ["MAKE_MODEL"]
STRICT = os.environ.get("BOWLINE_STRICT") == "1"
# A sanitizer is several times slower and reserves address space without limit.
SANITIZED = "BOWLINE_SANITIZE" in os.environ
PATIENCE = 10 if SANITIZED else 1
OK, FAILED, USAGE, BAD_FILE, BAD_DEVICE, RESTART, INTERRUPTED = 0, 1, 2, 3, 4, 75, 130
TINY = ["--layers", "2", "--channels", "16", "--heads", "2"]
PEFT = pathlib.Path(__file__).resolve().parents[1] / "peft/fixtures"
# Tests with a new BOWLINE_CACHE share the compiled shaders of the software driver.
os.environ.setdefault("MESA_SHADER_CACHE_DIR", str(pathlib.Path.home() / ".cache"))
WORDS = "the a knot rope that holds under load is moved again and can be untied on purpose".split()


def run(*arguments, program=BOWLINE, timeout=120, **options):
    """Runs the command and returns the finished process with its output as text."""
    options = {"capture_output": True, "text": True, **options}
    return subprocess.run([program, *map(str, arguments)], timeout=timeout * PATIENCE, **options)


def preloaded(variable):
    """Returns what to add to the environment so that a program loads the library that an
    environment variable names; nothing without the variable. LD_PRELOAD takes no path with a space.
    """
    folder, name = os.path.split(os.environ.get(variable, ""))
    return {"LD_PRELOAD": name, "LD_LIBRARY_PATH": folder} if name else {}


def devices():
    return json.loads(run("devices", "--all", "-o", "json").stdout)


def real_devices():
    """Returns the names of the devices that compute. With BOWLINE_STRICT, a missing Vulkan device
    is a failure.
    """
    names = [d["name"] for d in devices() if d["usable"] and not d["for_tests"]]
    if STRICT and not any(name.startswith("vulkan") for name in names):
        raise AssertionError(f"No Vulkan device is usable: {devices()}")
    return names


def vulkan_device():
    """Returns the first Vulkan device, or None."""
    return next((name for name in real_devices() if name.startswith("vulkan")), None)


def optimizer_flags():
    """The names of the optimizers, and {flag: (names of those that have it, a value for it)}, from
    the help of finetune.
    """
    text = run("finetune", "--help").stdout
    names = re.search(r"--optimizer NAME +([\w|]+) \[", text)[1].split("|")
    flags = {}
    for flag, value, of, end in re.findall(r"^  (--[\w-]+)( X)? +For (\w+(?:, \w+)*)(.*)$", text, re.M):
        if set(of.split(", ")) <= set(names):
            flags[flag] = of.split(", "), [-0.5 if "[-" in end else 0.25] if value else []
    return names, flags


def need(found, sentence):
    """Skips a test whose requirement is not met. With BOWLINE_STRICT the test fails."""
    if not found:
        raise AssertionError(sentence) if STRICT else unittest.SkipTest(sentence)


def need_tool(name):
    need(shutil.which(name), f"There is no program '{name}' here (tools/setup installs it).")


def short_files(bytes_):
    """Returns a preexec_fn that limits the size of files, like a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))


def npy(descr, shape, data, version=1, order=False, header=None):
    """Returns a file as NumPy writes it."""
    text = header or f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape!r}, }}"
    begin = 10 if version == 1 else 12
    text = text.encode() + b" " * (-(begin + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def read_npy(path):
    """Returns dtype, shape and bytes of a file of version 1.0."""
    content = path.read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    length = struct.unpack_from("<H", content, 8)[0]
    assert (10 + length) % 64 == 0 and content[9 + length] == ord("\n")
    header = ast.literal_eval(content[10:10 + length].decode())
    assert header["fortran_order"] is False
    return header["descr"], header["shape"], content[10 + length:]


def make_text(lines, seed=1):
    pick = random.Random(seed)
    return "".join(" ".join(pick.choice(WORDS) for _ in range(9)) + ".\n" for _ in range(lines))


class Case(unittest.TestCase):
    """A test with a folder that contains tiny.bowline and text.txt."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="bowline_command_"))
        made = run(*TINY, cls.shared / "tiny.bowline", program=MAKE_MODEL)
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        (cls.shared / "text.txt").write_text(make_text(60))
        cls.model, cls.text = cls.shared / "tiny.bowline", cls.shared / "text.txt"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))

    def finetune(self, *arguments, **options):
        return run("finetune", self.model, *self.with_defaults(arguments), **options)

    def with_defaults(self, arguments):
        flags = {"--data": self.text, "--batch": 2, "--seq": 16, "--device": "cpu"}
        return [*(word for flag, value in flags.items() if flag not in arguments for word in (flag, value)), *arguments]

    def start(self, *arguments):
        """Starts `bowline finetune` of the tiny model on the CPU. A failed test ends the process.
        """
        process = subprocess.Popen([BOWLINE, "finetune", self.model, *map(str, self.with_defaults(arguments))],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            if process.returncode is None:
                process.kill()
                process.communicate()

        self.addCleanup(end)
        return process

    def expect(self, process, code, *texts):
        """Expects the exit code `code`. If it is an error, expects one message with all texts and
        no crash.
        """
        output = process.stdout + process.stderr
        self.assertEqual(process.returncode, code, output)
        for text in texts:
            self.assertIn(text, process.stderr if code else output)
        if code:
            self.assertTrue(process.stderr.startswith("bowline: ") or "\nbowline: " in process.stderr, output)
            self.assertNotIn("Unexpected failure", output)
        return process


class AdapterCase(Case):
    """A test with base.bowline, a Llama, and its adapter adapter.bowline."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base, cls.adapter = cls.shared / "base.bowline", cls.shared / "adapter.bowline"
        for arguments in ((PEFT / "llama", "--out", cls.base), (cls.peft_folder(), "--base", cls.base, "--out", cls.adapter)):
            made = run("import", *arguments)
            if made.returncode != 0:
                raise AssertionError(made.stderr)

    @classmethod
    def peft_folder(cls):
        """Returns the folder of peft from which the adapter is imported."""
        return PEFT / "llama_qv"
