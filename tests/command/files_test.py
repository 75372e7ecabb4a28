#!/usr/bin/env python3
"""Damaged model files and texts give a message and the exit code 3, and never a crash."""

import os
import random
import struct
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, USAGE, run


class Texts(harness.Case):
    def refuse(self, name, content, *texts):
        path = self.folder / name
        if content is not None:
            path.write_bytes(content)
        out = self.folder / "out.bowline"
        for place in ("--data", "--valid"):
            data = path if place == "--data" else self.text
            extra = [] if place == "--data" else ["--valid", path]
            self.expect(run("finetune", self.model, "--data", data, *extra, "--batch", 2, "--seq", 16, "--device",
                            "cpu", "--steps", 1, "--out", out), BAD_FILE, name, *texts)
            self.assertFalse(out.exists())

    def test_missing(self):
        self.refuse("missing.txt", None, "No such file")

    def test_empty(self):
        self.refuse("empty.txt", b"", "is empty")

    def test_binary(self):
        self.refuse("binary.txt", b"first\nsec\0nd" * 50, "binary.txt:2:4", "NUL")

    def test_not_utf8(self):
        self.refuse("latin1.txt", b"first\nsecond\ncaf\xe9 noir\n" * 50, "latin1.txt:3:4", "0xe9", "UTF-8")
        self.refuse("overlong.txt", b"ab\xc0\xaf" * 50, "overlong.txt:1:3", "0xc0")
        self.refuse("surrogate.txt", b"ab\xed\xa0\x80" * 50, "surrogate.txt:1:3")
        self.refuse("cut.txt", "text \u20ac".encode()[:-1], "cut.txt:1:6")

    def test_folder(self):
        (self.folder / "folder").mkdir()
        self.refuse("folder", None, "directory")

    def test_too_short(self):
        path = self.folder / "short.txt"
        path.write_text("tiny\n")
        self.expect(run("finetune", self.model, "--data", path, "--seq", 64, "--steps", 1, "--device", "cpu", "--out",
                        self.folder / "out"), BAD_FILE, "short.txt", "65")

    def test_columns_count_characters(self):
        self.refuse("wide.txt", "\u20ac\u20ac".encode() + b"\xff", "wide.txt:1:3")


class Models(harness.Case):
    def refuse(self, content, name="bad.bowline", every_verb=False):
        path = self.folder / name
        path.write_bytes(content)
        calls = [("verify", path)]
        if every_verb:
            calls += [("inspect", path), ("finetune", path, "--data", self.text, "--seq", 16, "--steps", 1, "--out",
                                          self.folder / "out", "--device", "cpu"),
                      ("bench", "train", path, "--batch", 1, "--seq", 16, "--steps", 1, "--device", "cpu")]
        for call in calls:
            self.expect(run(*call), BAD_FILE)

    def test_whole(self):
        self.expect(run("verify", self.model), OK, ": valid (")

    def test_missing(self):
        missing = self.folder / "missing.bowline"
        for call in (("verify", missing), ("inspect", missing)):
            self.expect(run(*call), BAD_FILE, "missing.bowline")

    def test_empty_or_other(self):
        self.refuse(b"", every_verb=True)
        self.refuse(b"This is a text and no model.\n" * 100, every_verb=True)
        self.refuse(bytes(4096), every_verb=True)

    def test_foreign_formats_are_named(self):
        header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        for content, name in ((b"GGUF\3\0\0\0" + bytes(100), "a GGUF file"),
                              (struct.pack("<Q", len(header)) + header + bytes(4), "a safetensors file"),
                              (b"PK\3\4" + bytes(100), "a ZIP archive (as PyTorch"),
                              (b"\x80\2}q\0." + bytes(20), "a Python pickle"),
                              (b"\x08\x07\x12\x07pytorch" + bytes(50), "an ONNX model"),
                              (b"\x1f\x8b\x08" + bytes(50), "a gzip file"),
                              (b"\x89HDF\r\n\x1a\n" + bytes(50), "an HDF5 file"),
                              (b"\x93NUMPY" + bytes(50), "a NumPy array"),
                              (b"\x1c\0\0\0TFL3" + bytes(50), "a TensorFlow Lite model"),
                              ("Kn\u00f6tchen ".encode() * 100, "a text file"), (b"", "an empty file")):
            path = self.folder / "foreign"
            path.write_bytes(content)
            for verb in ("inspect", "verify"):
                self.expect(run(verb, path), BAD_FILE, f"The file is {name}", "not a Bowline model", "foreign")
        self.expect(run("inspect", self.folder), BAD_FILE, "is a directory, not a file.")

    def test_truncated(self):
        whole = self.model.read_bytes()
        for length in (1, 63, 64, 100, 4096, len(whole) // 2, len(whole) - 33, len(whole) - 1):
            self.refuse(whole[:length], every_verb=length == len(whole) // 2)

    def test_longer(self):
        self.refuse(self.model.read_bytes() + b"\0" * 64)

    def test_bit_flips(self):
        whole = self.model.read_bytes()
        pick = random.Random(7)
        for _ in range(24):
            at, bit = pick.randrange(len(whole)), pick.randrange(8)
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            self.refuse(bytes(changed))

    def test_oversized_numbers(self):
        whole = self.model.read_bytes()
        for field in range(8, 64, 8):
            for value in (2**64 - 1, 2**63, 2**40, len(whole) + 1):
                changed = bytearray(whole)
                struct.pack_into("<Q", changed, field, value)
                self.refuse(bytes(changed))

    def test_damaged_weights_are_not_used(self):
        # Changes bytes of the last storage: the structure is valid, but the checksum is not.
        changed = bytearray(self.model.read_bytes())
        changed[-64] ^= 0x10
        self.refuse(bytes(changed))

    def test_model_without_loss(self):
        path = self.folder / "out.bowline"
        self.expect(run("bench", "train", self.model, "--batch", 0, "--seq", 16), harness.USAGE)
        self.expect(run("inspect", self.model, "--listing", "forward", "--device", "cpu"), USAGE, "batch")
        self.assertFalse(path.exists())
        made = run(path, program=os.environ["STRANGE_MODEL"])
        self.assertEqual(made.returncode, 0, made.stderr)
        for call in (("bench", "train", path), ("finetune", path, "--data", self.text, "--out", self.folder / "x")):
            done = run(*call, "--device", "cpu")
            self.assertEqual(done.returncode, BAD_FILE, done.stderr)
        self.expect(run("bench", "train", path), BAD_FILE, "has no entry point \"loss\".")

    def test_inspect_of_a_dim_that_is_not_there(self):
        self.expect(run("inspect", self.model, "--dim", "foo=3"), harness.USAGE, "no named dim \"foo\"; it has batch, seq.")


if __name__ == "__main__":
    unittest.main()
