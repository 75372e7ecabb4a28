#!/usr/bin/env python3
"""Tests bowline run: the same bits as the API, the file format of NumPy, and errors."""

import json
import os
import struct
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, USAGE, npy, read_npy, run


class Run(harness.Case):
    def setUp(self):
        super().setUp()
        self.x, self.y = self.folder / "x.npy", self.folder / "y.npy"
        self.tokens = [(7 * i) % 256 for i in range(2 * 16)]
        self.data = struct.pack("<32i", *self.tokens)
        self.x.write_bytes(npy("<i4", (2, 16), self.data))

    def call(self, *arguments, **options):
        return run("run", self.model, "--device", "cpu", *arguments, **options)

    def test_the_bits_of_the_api(self):
        self.expect(self.call("--input", f"tokens=@{self.x}", "--output", f"logits=@{self.y}"), OK, "logits f32[2,16,256]")
        descr, shape, data = read_npy(self.y)
        self.assertEqual((descr, shape), ("<f4", (2, 16, 256)))
        raw, out = self.folder / "raw", self.folder / "out"
        raw.write_bytes(self.data)
        api = run(self.model, raw, out, program=os.environ["RUN_FORWARD"])
        self.assertEqual(api.returncode, 0, api.stderr)
        self.assertEqual(data, out.read_bytes())

    def test_the_loss_is_that_of_finetune(self):
        labels = self.folder / "labels.npy"
        labels.write_bytes(npy("<i4", (2, 16), self.data))
        loss = self.folder / "loss.npy"
        self.expect(self.call("--entry", "loss", "--input", f"tokens=@{self.x}", "--input", f"labels=@{labels}", "--output",
                              f"loss=@{loss}"), OK)
        row = struct.pack("<34i", *self.tokens[:16], 0, *self.tokens[16:], 0)
        # bench reads rows of seq + 1 tokens, and a label is the next token. These are the same
        # labels, shifted by hand.
        shifted = [*self.tokens[1:16], 0, *self.tokens[17:], 0]
        labels.write_bytes(npy("<i4", (2, 16), struct.pack("<32i", *shifted)))
        self.expect(self.call("--entry", "loss", "--input", f"tokens=@{self.x}", "--input", f"labels=@{labels}", "--output",
                              f"loss=@{loss}", "--force"), OK)
        (self.folder / "rows").write_bytes(row)
        bench = self.expect(run("bench", "train", self.model, "--batch", 2, "--seq", 16, "--steps", 1, "--device", "cpu",
                                "--tokens", self.folder / "rows", "--no-floor", "-o", "json"), OK)
        descr, shape, data = read_npy(loss)
        self.assertEqual((descr, shape), ("<f4", ()))
        self.assertEqual(struct.unpack("<f", data)[0], struct.unpack("<f", struct.pack("<f", json.loads(
            bench.stdout)["losses"][0]))[0])

    def test_versions_of_the_format(self):
        results = []
        for version in (1, 2, 3):
            self.x.write_bytes(npy("<i4", (2, 16), self.data, version))
            self.expect(self.call("--input", f"tokens=@{self.x}", "--output", f"logits=@{self.y}", "--force"), OK)
            results.append(self.y.read_bytes())
        self.assertEqual(len(set(results)), 1)

    def test_made_inputs(self):
        rows = {}
        for what in ("zeros", "ones", "random:1", "random:2"):
            done = self.call("--input", f"tokens={what}", "--batch", 1, "--seq", 4, "--output", f"logits=@{self.y}", "--force",
                             "-o", "json")
            self.assertEqual(json.loads(self.expect(done, OK).stdout), {
                "device": "cpu", "entry": "forward",
                "outputs": [{"name": "logits", "dtype": "f32", "shape": [1, 4, 256], "file": str(self.y)}]})
            rows[what] = self.y.read_bytes()
        self.assertEqual(len(set(rows.values())), 4)

    def test_numbers_as_text(self):
        """Text input and output give the same bits as files of NumPy."""
        self.expect(self.call("--input", f"tokens=@{self.x}", "--output", f"logits=@{self.y}"), OK)
        values = struct.unpack("<8192f", read_npy(self.y)[2])
        rows = [self.tokens[:16], self.tokens[16:]]
        text, out = self.folder / "x.txt", self.folder / "y.txt"
        text.write_text("\n".join(" ".join(map(str, row)) for row in rows) + "\n\n")
        for what in (f"@{text}", ";".join(", ".join(map(str, row)) for row in rows)):
            self.expect(self.call("--input", f"tokens={what}", "--output", f"logits=@{out}", "--force"), OK, "logits f32[2,16,256]")
            lines = [[float(word) for word in line.split()] for line in out.read_text().splitlines()]
            self.assertEqual([len(line) for line in lines], [256] * 32)
            self.assertEqual(struct.pack("<8192f", *(v for line in lines for v in line)), struct.pack("<8192f", *values))

    def test_words(self):
        """The tokenizer of the model converts words to ids. For a model that reads bytes the ids
        are the bytes.
        """
        outs = []
        for what in ("text:a knot", ",".join(str(byte) for byte in b"a knot")):
            self.expect(self.call("--input", f"tokens={what}", "--output", f"logits=@{self.y}", "--force"), OK, "logits f32[1,6,256]")
            outs.append(self.y.read_bytes())
        self.assertEqual(outs[0], outs[1])
        self.expect(self.call("--input", "tokens=text:"), USAGE, "has no tokens")
        model = self.folder / "growing.bowline"
        self.assertEqual(run(model, program=os.environ["GROWING_MODEL"]).returncode, 0)
        self.assertIn("tokenizer", run("run", model, "--device", "cpu", "--input", "x=text:a").stderr)

    def test_text_of_every_rank_and_dtype(self):
        model = self.folder / "growing.bowline"
        self.assertEqual(run(model, program=os.environ["GROWING_MODEL"]).returncode, 0)
        call = ["run", model, "--device", "cpu", "--output", f"y=@{self.y}", "--force", "--step", "position=1"]
        self.x.write_bytes(npy("<f4", (3, 2), struct.pack("<6f", 0.1, -2.5e-3, 3, 1e-45, 3.4028235e38, -0.0)))
        self.expect(run(*call, "--input", f"x=@{self.x}"), OK)
        expected = self.y.read_bytes()
        self.expect(run(*call, "--input", "x=0.1 -2.5e-3;3\t1e-45;3.4028235e38,-0"), OK, "y f32[3,2]")
        self.assertEqual(self.y.read_bytes(), expected)
        self.expect(run("run", self.model, "--device", "cpu", "--entry", "loss", "--input", "tokens=1,2,3", "--input",
                        "labels=2,3,-100", "--output", f"loss=@{self.folder}/loss.txt"), OK, "loss f32[]")
        self.assertEqual(len((self.folder / "loss.txt").read_text().split()), 1)

    def test_halves_as_text(self):
        for dtype, read in (("f16", lambda data: struct.unpack(f"<{len(data) // 2}e", data)),
                            ("bf16", lambda data: struct.unpack(f"<{len(data) // 2}f", b"".join(
                                b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))))):
            model, out = self.folder / f"{dtype}.bowline", self.folder / "y.txt"
            self.expect(run("export", self.model, "--dtype", dtype, "--out", model), OK)
            for file in (self.y, out):
                self.expect(run("run", model, "--device", "cpu", "--input", "tokens=1,2,3", "--output", f"logits=@{file}", "--force"), OK)
            descr, shape, data = read_npy(self.y)
            if descr == "<f4":
                self.skipTest("The model gives f32.")
            # The shortest digits that represent the same f32.
            words = [float(word) for word in out.read_text().split()]
            self.assertEqual(list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}f", *words))), list(read(data)))

    def test_text_that_is_refused(self):
        text = self.folder / "x.txt"
        for content, words in (("", "x.txt has no numbers."), ("1 2\n3\n", "x.txt:2: the row has 1 numbers, the first one 2."),
                               ("1 2\n3 4x\n", 'x.txt:2:3: "4x" is not a value of i32.'), ("1 2\n 3000000000 4", 'x.txt:2:2: "3000000000"'),
                               ("1.5", '"1.5" is not a value of i32.'), ("1 \x1b[2J", '"\\x1b[2J" is not a value of i32.')):
            text.write_text(content)
            self.expect(self.call("--input", f"tokens=@{text}"), BAD_FILE, words)
        self.expect(self.call("--input", "tokens=1,a"), BAD_FILE, '--input tokens:1:3: "a" is not a value of i32.')
        self.expect(self.call("--input", "tokens=@/dev/zero.txt"), BAD_FILE, "cannot be opened")

    def test_files_that_are_refused(self):
        good = npy("<i4", (2, 16), self.data)
        cases = {
            "is not a NumPy array": b"no array at all",
            "It ends within its header": b"\x93NUMPY\x02\x00\x00\x00",
            "version 4.0": good[:6] + b"\x04" + good[7:],
            "its header alone takes": good[:40],
            "has 127 bytes of data; i32[2,16] takes 128": good[:-1],
            "has 129 bytes of data; i32[2,16] takes 128": good + b"x",
            "big-endian": npy(">i4", (2, 16), self.data),
            "The dtype '<f8' is unknown": npy("<f8", (2, 16), self.data * 2),
            "Fortran order": npy("<i4", (2, 16), self.data, order=True),
            "too large": npy("<i4", (2**62, 2**62), self.data),
            "not a tuple of at most 8 sizes": npy("<i4", (-2, 16), self.data),
            "records": npy("", (), b"", header="{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (), }"),
            "unknown or appears twice": npy("", (), b"", header="{'descr': '<i4', 'descr': '<i4', 'shape': (), }"),
            "is missing": npy("", (), b"", header="{'descr': '<i4', 'shape': (), }"),
            "is missing at": npy("", (), b"", header="{'descr': '<i4' 'shape': (), }"),
            "neither True nor False": npy("<i4", (2, 16), self.data, order=1),
        }
        for text, content in cases.items():
            self.x.write_bytes(content)
            self.expect(self.call("--input", f"tokens=@{self.x}"), BAD_FILE, text, "x.npy")
        self.expect(self.call("--input", f"tokens=@{self.folder}"), BAD_FILE, "is a directory")
        self.expect(self.call("--input", "tokens=@/dev/zero"), BAD_FILE, "not a regular file")
        self.expect(self.call("--input", f"tokens=@{self.folder}/none.npy"), BAD_FILE, "No such file")

    def test_shapes_and_dtypes_that_do_not_fit(self):
        self.x.write_bytes(npy("<f4", (2, 16), self.data))
        self.expect(self.call("--input", f"tokens=@{self.x}"), FAILED, "Input \"tokens\" is f32[2,16], not i32[2,16].")
        self.x.write_bytes(npy("<i4", (32,), self.data))
        self.expect(self.call("--input", f"tokens=@{self.x}", "--seq", 1), FAILED, "is i32[32], not i32[32,1].")

    def test_flags_that_are_refused(self):
        tokens = ("--input", f"tokens=@{self.x}")
        for call, text in (
                ((), "Input \"tokens\" of entry point \"forward\" is not given."),
                (("--input", "tokens=zeros"), "\"batch\" is unknown"),
                (("--input", "tokens=some", "--batch", 1, "--seq", 1), "is not an input value. Use @file.npy, @file.txt, zeros, ones, random:SEED"),
                (("--input", "tokens=random:", "--batch", 1, "--seq", 1), "is not an input value"),
                (("--input", "token=zeros"), "has no input \"token\"; it has tokens."),
                (("--input", "tokens"), "is not of the form NAME=VALUE"),
                ((*tokens, *tokens), "is given twice"),
                ((*tokens, "--output", f"logit=@{self.y}"), "has no output \"logit\"."),
                ((*tokens, "--output", "logits"), "is not of the form NAME=@file.npy"),
                ((*tokens, "--entry", "backward"), "no entry point \"backward\"; it has loss, forward."),
                ((*tokens, "--dim", "bach=2"), "no named dim \"bach\"; did you mean batch."),
                ((*tokens, "--dim", "batch=2", "--batch", 2), "\"batch\" is given twice."),
                ((*tokens, "--dim", "batch=-2"), "not of the form name=number")):
            self.expect(self.call(*call), USAGE, text)

    def test_step_words(self):
        model = self.folder / "dropout.bowline"
        self.assertEqual(run(*harness.TINY, "--dropout", "0.5", model, program=harness.MAKE_MODEL).returncode, 0)
        tokens = ("--device", "cpu", "--input", f"tokens=@{self.x}", "--output", f"logits=@{self.y}", "--force")

        def logits(*steps):
            self.expect(run("run", model, *tokens, *(word for s in steps for word in ("--step", s))), OK)
            return self.y.read_bytes()

        rows = [logits(), logits("training=1"), logits("training=1", "seed=18446744073709551615"),
                logits("training=1", "counter=2")]
        self.assertEqual(len(set(rows)), 4)
        self.assertEqual(rows[0], logits("training=0", "seed=3"))
        self.assertEqual(rows[1], logits("training=1.0"))
        for step, code, text in (("training", USAGE, "is not of the form NAME=NUMBER"),
                                 ("seed=-1", FAILED, "which cannot hold -1"),
                                 ("sead=1", FAILED, "the graph has: training (u32), seed (u64), counter (u32)")):
            self.expect(run("run", model, *tokens, "--step", step), code, text)

    def test_dynamic_dims(self):
        model = self.folder / "growing.bowline"
        self.assertEqual(run(model, program=os.environ["GROWING_MODEL"]).returncode, 0)
        self.expect(run("inspect", model), OK, "dynamic     [rows]: --dim sets the maximum size")
        self.x.write_bytes(npy("<f4", (3, 2), struct.pack("<6f", *range(6))))
        counted = ["run", model, "--device", "cpu", "--input", f"x=@{self.x}", "--output", f"y=@{self.y}", "--force"]
        for flags in (["--dim", "rows=8"], []):  # the maximum size, or the size of the input
            self.expect(run(*counted, *flags, "--step", "position=1"), OK, "y f32[3,2]")
            descr, shape, data = read_npy(self.y)
            self.assertEqual((descr, shape), ("<f4", (3, 2)))
            self.assertAlmostEqual(struct.unpack("<6f", data)[1], 0.76159416, places=6)
        self.expect(run(*counted, "--dim", "rows=2", "--step", "position=1"), FAILED,
                    'Dim "rows" is 3 in this run, outside 1..2, the limits of the plan.')
        self.expect(run(*counted, "--dim", "rows=9", "--step", "position=1"), FAILED, "Dim rows = 9 lies outside 1..8.")
        self.expect(run(*counted, "--dim", "rows=8"), FAILED, 'Per-step scalar "position" (u32) of node 1 (WriteRows)')
        self.expect(run(*counted, "--dim", "rows=8", "--step", "position=6"), FAILED, "Index 8 is out of range in node 1 (WriteRows).")

    def test_nothing_is_overwritten_unasked(self):
        self.y.write_text("mine")
        self.expect(self.call("--input", f"tokens=@{self.x}", "--output", f"logits=@{self.y}"), USAGE, "--force")
        self.assertEqual(self.y.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
