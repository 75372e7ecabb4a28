#!/usr/bin/env python3
"""Tests the output: no text from a file or an argument controls the terminal, and failed writes are
errors.
"""

import json
import os
import pty
import subprocess
import unittest

import harness
from harness import BAD_DEVICE, BAD_FILE, FAILED, OK, USAGE, run

# C0 except newline, DEL, C1, bidirectional controls, and characters without width.
UNSEEN = [*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x200B, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


class Printing(harness.Case):
    def setUp(self):
        super().setUp()
        self.strange = self.folder / "strange.bowline"
        made = run(self.strange, program=os.environ["STRANGE_MODEL"])
        self.assertEqual(made.returncode, 0, made.stderr)

    def seen(self, *arguments, code=OK):
        """Returns the output of a call. It must not contain characters that control or hide."""
        done = run(*arguments, text=False)
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, output)
        text = output.decode()  # fails if the bytes are not UTF-8
        for point in UNSEEN:
            self.assertNotIn(chr(point), text, hex(point))
        return text

    def test_metadata_and_names(self):
        text = self.seen("inspect", self.strange)
        self.assertIn("tokenizer = \\x1b]0;title\\x07\\x1b[2J\\nforged = line\n", text)
        self.assertIn("\"en\\u{2066}try\"(\"x\\u{200b}\" f32[rows, 4])", text)
        self.assertIn("\"w\\u{9b}31m\\u{202e}\", \"b, c\"", self.seen("inspect", self.strange, "--ties"))

    def test_metadata_in_messages(self):
        text = self.seen("finetune", self.strange, "--data", self.text, "--out", self.folder / "out", code=BAD_FILE)
        self.assertIn("\\x1b]0;title", text)

    def test_json(self):
        info = json.loads(self.seen("inspect", self.strange, "-o", "json"))
        self.assertEqual(info["metadata"]["tokenizer"], "\x1b]0;title\x07\x1b[2J\nforged = line")
        self.assertEqual(info["ties"][0]["parameters"], ["w\u009b31m\u202e", "b, c"])

    def test_arguments(self):
        bad = b"no\x1b[2J\xff\r\n.bowline"
        for call in (("verify", bad), ("inspect", bad), ("bench", "train", bad),
                     ("finetune", self.model, "--data", bad, "--out", "x"),
                     ("finetune", bad, "--data", self.text, "--out", "x")):
            self.assertIn("no\\x1b[2J\\xff\\r", self.run_bytes(call, BAD_FILE))
        self.assertIn("\\x1b", self.run_bytes(("bench", "matmul", "--device", b"\x1bcpu"), BAD_DEVICE))
        for call in ((b"\x1bverb",), ("inspect", b"--\x1bflag"), ("bench", "matmul", "--layout", b"\x1b")):
            self.assertIn("\\x1b", self.run_bytes(call, USAGE))

    def run_bytes(self, call, *codes):
        done = subprocess.run([harness.BOWLINE, *(w if isinstance(w, bytes) else str(w) for w in call)],
                              capture_output=True, timeout=120)
        output = done.stdout + done.stderr
        self.assertIn(done.returncode, codes, output)
        for point in UNSEEN:
            self.assertNotIn(chr(point), output.decode(), hex(point))
        return output.decode()

    def test_a_path_that_is_not_utf8(self):
        path = os.fsencode(self.folder) + b"/caf\xe9.bowline"
        with open(path, "wb") as file:
            file.write(self.model.read_bytes())
        for call in (("inspect", path), ("verify", path), ("inspect", path, "-o", "json")):
            self.run_bytes(call, OK)

    def test_output_that_cannot_be_written(self):
        calls = (["devices"], ["inspect", self.model], ["inspect", self.model, "-o", "json"], ["verify", self.model],
                 ["--help"], ["--version"])
        for call in calls:
            with open("/dev/full", "w") as full:
                done = run(*call, stdout=full, stderr=subprocess.PIPE, capture_output=False)
            self.assertEqual(done.returncode, FAILED, call)
            self.assertEqual(done.stderr, "bowline: Standard output cannot be written: No space left on device.\n")

    def test_a_reader_that_leaves(self):
        """`bowline ... | head` ends without a message, like other tools."""
        calls = (["devices"], ["inspect", self.model], ["inspect", self.model, "-o", "json"], ["verify", self.model],
                 ["--help"], ["--version"])
        for call in calls:
            reader, writer = os.pipe()
            os.close(reader)
            done = run(*call, stdout=writer, stderr=subprocess.PIPE, capture_output=False)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (OK, ""), call)

    def test_a_terminal_without_escape_sequences(self):
        for setting, escapes in (({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
            master, slave = pty.openpty()
            environment = {k: v for k, v in os.environ.items() if k not in ("TERM", "NO_COLOR")}
            done = self.finetune("--steps", 2, "--out", self.folder / "out.bowline", "--force", stdout=slave, stderr=slave,
                                 capture_output=False, env={**environment, **setting})
            os.close(slave)
            output = b""
            try:
                while piece := os.read(master, 65536):
                    output += piece
            except OSError:
                pass
            os.close(master)
            self.assertEqual(done.returncode, OK, output)
            self.assertEqual(b"\x1b" in output, escapes, setting)


if __name__ == "__main__":
    unittest.main()
