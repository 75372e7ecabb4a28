#!/usr/bin/env python3
"""A disk that becomes full during import or export gives a message and the exit code 1, and leaves
no incomplete file.
"""

import json
import pathlib
import subprocess
import unittest

import harness
from forms import write_safetensors
from harness import FAILED, OK, PEFT, run

TESTS = pathlib.Path(__file__).resolve().parents[1]


class FullDisk(harness.AdapterCase):
    @classmethod
    def peft_folder(cls):
        cls.peft = cls.shared / "peft"
        cls.peft.mkdir()
        (cls.peft / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 64, "lora_alpha": 1}))
        module = "base_model.model.model.layers.0.mlp.gate_proj"
        write_safetensors(cls.peft / "adapter_model.safetensors", {
            f"{module}.lora_{part}.weight": (shape, [0.01] * shape[0] * shape[1]) for part, shape in (("A", [64, 16]), ("B", [24, 64]))})
        return cls.peft

    def setUp(self):
        super().setUp()
        self.place = self.folder / "place"
        self.place.mkdir()

    def writers(self):
        """Returns commands that write more than 8 KiB to the path after --out."""
        out = self.place / "out"
        merged = ["--adapter", self.adapter, "--to"]
        return {
            "import of Hugging Face": ("import", PEFT / "llama", "--out", out),
            "import of GGUF": ("import", TESTS / "gguf/data/llama_f32.gguf", "--out", out),
            "import with what was dequantized": ("import", TESTS / "gguf/data/llama_q4_k.gguf", "--out", out),
            "import of classes": ("import", TESTS / "import/fixtures/bert_classes", "--out", out),
            "import of an adapter": ("import", self.peft, "--base", self.base, "--out", out),
            "export of the model": ("export", self.base, "--strip", "--out", out),
            "export in another dtype": ("export", self.base, "--dtype", "bf16", "--out", out),
            "export of storages": ("export", self.base, "--weights", out),
            **{f"export to {to}": ("export", self.base, *merged, to, "--out", out) for to in ("hf", "gguf", "peft", "gguf-lora")}}

    def test_they_write_where_there_is_room(self):
        for name, command in self.writers().items():
            with self.subTest(name):
                self.expect(run(*command), OK)
                out = self.place / "out"
                self.assertGreater(sum(p.stat().st_size for p in (out.iterdir() if out.is_dir() else [out])), 8192)
                self.assertEqual([p.name for p in self.place.iterdir()], ["out"])
                subprocess.run(["rm", "-r", out], check=True)

    def test_a_file_that_cannot_grow(self):
        """Fails at the first byte, within the data before the weights, and within the weights."""
        for name, command in self.writers().items():
            for bytes_ in (0, 100, 2048):
                with self.subTest(name, bytes=bytes_):
                    self.expect(run(*command, preexec_fn=harness.short_files(bytes_)), FAILED, "cannot be written", "File too large")
                    self.assertEqual(list(self.place.iterdir()), [])

    def test_finetune_names_the_file_that_it_would_write(self):
        """finetune fails before it trains. With a checkpoint folder it names the first checkpoint.
        """
        train = ("--steps", 10, "--checkpoint", self.place)
        for flags, name in ((("--save-every", 4), "step-00000004.bowline"), ((), "step-00000010.bowline")):
            done = self.finetune(*train, *flags, preexec_fn=harness.short_files(2048))
            self.expect(done, FAILED, f"{self.place}/{name}", "File too large")

    def test_a_file_that_was_there_stays(self):
        for name, command in self.writers().items():
            with self.subTest(name):
                (self.place / "out").write_text("mine")
                self.expect(run(*command, "--force", preexec_fn=harness.short_files(2048)), FAILED, "cannot be written")
                self.assertEqual((self.place / "out").read_text(), "mine")
                self.assertEqual([p.name for p in self.place.iterdir()], ["out"])

    def test_a_file_system_without_room(self):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", self.place], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            for name, command in self.writers().items():
                with self.subTest(name):
                    self.expect(run(*command), FAILED, "are free in its folder")
                    self.assertEqual(list(self.place.iterdir()), [])
            # The check before the write cannot foresee that another process fills the disk. Here a
            # file does so.
            (self.place / "other").write_bytes(bytes(8192))
            for name, command in self.writers().items():
                with self.subTest(name, full=True):
                    self.expect(run(*command), FAILED)
                    self.assertEqual([p.name for p in self.place.iterdir()], ["other"])
        finally:
            subprocess.run(["umount", self.place], check=True)


if __name__ == "__main__":
    unittest.main()
