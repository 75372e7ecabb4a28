#!/usr/bin/env python3
"""The notation of the guides, and what the test of a page notices."""

import pathlib
import tempfile
import unittest
import unittest.mock

import page
from run_page import follow


def console(*lines, note=""):
    return "\n".join([note, "```console", *lines, "```", ""])


class Pages(unittest.TestCase):
    def follow(self, text):
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / "empty"
            folder.mkdir()
            return follow(page.read(text), folder, {"PATH": "/usr/bin:/bin"})

    def refuse(self, text, sentence):
        with self.assertRaisesRegex((AssertionError, page.BadPage), sentence):
            self.follow(text)

    def test_output_is_compared(self):
        self.assertEqual(self.follow(console("$ echo a b; echo c", "a b", "c", "$ printf d", "d")), 2)
        self.refuse(console("$ echo a; echo b", "a"), "the page shows")
        self.refuse(console("$ echo a", "a", "b"), "the command prints")
        self.refuse(console("$ echo a >&2", "b"), "line 3")

    def test_dots_stand_for_what_varies(self):
        self.follow(console("$ seq 9; echo took 5 s.", "1", "...", "9", "took ... s."))
        self.refuse(console("$ seq 9", "1", "...", "8"), "the page shows")
        self.refuse(console("$ echo took 5 s, almost", "took ... s."), "the page shows")

    def test_numbers_vary_only_with_the_note(self):
        lines = ("$ echo 'loss 2.5e-3 in 12 ms, step 3'", "loss 4.1 in 1.5 s, step 30")
        self.follow(console(*lines, note="<!-- numbers vary -->"))
        self.refuse(console(*lines), "the page shows")
        self.refuse(console(lines[0], "losses 4.1 in 1.5 s, step 30", note="<!-- numbers vary -->"), "the page shows")

    def test_exit_codes(self):
        self.follow(console("$ (exit 3)", "$ echo $?", "3"))
        self.refuse(console("$ (exit 3)", "$ echo $?", "4"), "the page shows")
        self.refuse(console("$ (exit 3)", "$ true"), "exit code 3")
        self.refuse(console("$ exit 3"), "ended the shell")

    def test_state_lasts(self):
        self.follow(console("$ mkdir a; cd a", "$ x=5") + console("$ echo $x \\", "  $(basename $PWD)", "5 a"))

    def test_files(self):
        block = "<!-- file: a/b.txt -->\n```text\none\n```\n"
        self.follow(block + "<!-- run: echo two >> a/b.txt -->\n" + block + console("$ cat a/b.txt", "one", "two", "one"))

    def test_skipped(self):
        self.assertEqual(self.follow(console("$ false", note="<!-- not run: It takes hours. -->")), 0)
        lacking = console("$ false", note="<!-- needs: no-such-program -->")
        with unittest.mock.patch("run_page.STRICT", False):
            self.assertEqual(self.follow(lacking), 0)
        with unittest.mock.patch("run_page.STRICT", True):
            self.refuse(lacking, "This machine lacks the program no-such-program")
        self.assertEqual(self.follow(console("$ true", note="<!-- needs: bash module:json -->")), 1)

    def test_bad_notation(self):
        self.refuse("<!-- fil: a -->\n```text\n```\n", "'fil' is unknown")
        self.refuse("<!-- file: a -->\ntext\n", "has no block")
        self.refuse("```\nls\n```\n", "block of ''")
        self.refuse("```cpp\nint main() {}\n```\n", "block of 'cpp'")
        self.refuse(console("ls"), "begins with a command")
        self.refuse("```text\n", "no end")


if __name__ == "__main__":
    unittest.main()
