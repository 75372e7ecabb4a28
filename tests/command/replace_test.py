#!/usr/bin/env python3
"""Tests export --force: the old output is removed only when the complete new output is written. If
the export fails, the old output does not change.
"""

import os
import unittest

import harness
from harness import FAILED, OK, USAGE, run

# The files of each format by name. None means that the output is a single file.
FORMS = {"hf": ["config.json", "model.safetensors"], "peft": ["adapter_config.json", "adapter_model.safetensors"], "gguf": None,
         "gguf-lora": None}
WEIGHTS = {"hf": "model.safetensors", "peft": "adapter_model.safetensors"}


class Replace(harness.AdapterCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def export(self, to, *more, **options):
        return run("export", self.base, "--adapter", self.adapter, "--to", to, "--out", self.out, "--force", *more, **options)

    def content(self):
        """Returns the bytes of each file at the output path."""
        return {p.name: p.read_bytes() for p in self.out.iterdir()} if self.out.is_dir() else self.out.read_bytes()

    def nothing_else_is_left(self):
        self.assertEqual([p.name for p in self.folder.iterdir()], ["out"])

    def put(self, kind):
        """Creates a file, or an older export of this format."""
        if kind == "file":
            self.out.write_text("mine")
            return
        self.out.mkdir()
        for name in (WEIGHTS[kind], "README.md", "tokenizer.json"):
            (self.out / name).write_text(f"old {name}")

    def clear(self):
        for path in self.out.iterdir() if self.out.is_dir() else []:
            path.unlink()
        self.out.rmdir() if self.out.is_dir() else self.out.unlink()

    def test_what_is_there_goes_whole(self):
        for old in ("file", "hf", "peft"):
            for to, files in FORMS.items():
                for libraries in ({}, harness.preloaded("RENAMES_LIBRARY")):
                    if old in WEIGHTS and to != old and not (old == "hf" and to == "gguf"):
                        continue
                    with self.subTest(old=old, to=to, **libraries):
                        self.put(old)
                        self.expect(self.export(to, env=os.environ | libraries), OK)
                        self.assertEqual(sorted(self.content()) if files else self.out.is_file(), files or True)
                        self.nothing_else_is_left()
                        self.clear()

    def test_where_the_file_system_has_no_such_rename(self):
        """Covers a new path, a path that another process creates during the export, and an old
        output that is restored because it cannot be replaced.
        """
        if harness.SANITIZED:
            self.skipTest("nothing is preloaded under a sanitizer")
        plain = os.environ | harness.preloaded("RENAMES_LIBRARY")
        for to in ("hf", "gguf"):
            self.expect(self.export(to, env=plain), OK)
            self.nothing_else_is_left()
            self.clear()
        for to in ("hf", "peft"):
            for number in (1, 2):
                with self.subTest(to, rename=number):
                    self.put(to)
                    before = self.content()
                    self.expect(self.export(to, env=plain | {"FAIL_RENAME": str(number)}), FAILED, "cannot be written: rename fails",
                                "Input/output error")
                    self.assertEqual(self.content(), before)
                    self.nothing_else_is_left()
                    self.clear()

    def test_a_folder_with_other_things_stays(self):
        for to in WEIGHTS:
            for name, is_folder in (("photos", True), ("other.safetensors", False), (WEIGHTS["hf" if to == "peft" else "peft"], False)):
                with self.subTest(to, name=name):
                    self.put(to)
                    (self.out / name).mkdir() if is_folder else (self.out / name).write_text("mine")
                    self.expect(self.export(to), FAILED, "is not replaced", WEIGHTS[to])
                    self.assertTrue((self.out / name).exists())
                    self.assertEqual((self.out / WEIGHTS[to]).read_text(), f"old {WEIGHTS[to]}")
                    self.nothing_else_is_left()
                    if is_folder:
                        (self.out / name).rmdir()
                    self.clear()
            self.out.mkdir()
            (self.out / "README.md").write_text("no weights")
            self.expect(self.export(to), FAILED, "is not replaced")
            self.clear()

    def test_a_failure_leaves_what_is_there(self):
        for to in FORMS:
            for old in ["file", *([to] if to in WEIGHTS else [])]:
                with self.subTest(to, old=old):
                    self.put(old)
                    before = self.content()
                    self.expect(self.export(to, preexec_fn=harness.short_files(1024)), FAILED, "cannot be written", "File too large")
                    self.assertEqual(self.content(), before)
                    self.nothing_else_is_left()
                    self.clear()

    def test_nothing_is_replaced_unasked(self):
        self.put("peft")
        before = self.content()
        done = run("export", self.base, "--adapter", self.adapter, "--to", "peft", "--out", self.out)
        self.expect(done, USAGE, "exists already", "--force")
        self.assertEqual(self.content(), before)


if __name__ == "__main__":
    unittest.main()
