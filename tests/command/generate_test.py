"""Tests `bowline generate` and `bowline chat` like a user at a terminal."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import time
import unittest

import harness
from harness import BAD_FILE, BOWLINE, FAILED, INTERRUPTED, OK, PATIENCE, USAGE, run

MAKE_DECODER = os.environ["MAKE_DECODER"]
LONG = 100_000  # tokens; a test does not wait for so many


class Terminal:
    """Runs a command with this test as its terminal."""

    def __init__(self, *arguments):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([BOWLINE, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)
        os.close(slave)
        self.seen = ""

    def read_until(self, text, timeout=60):
        """Waits until `text` appears after the last match."""
        end = time.monotonic() + timeout * PATIENCE
        while text not in self.seen:
            if time.monotonic() > end or not select.select([self.master], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"No {text!r} in {self.seen!r}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"The end, and no {text!r} in {self.seen!r}")
            self.seen += data.decode(errors="replace")
        before, self.seen = self.seen.split(text, 1)
        return before

    def read_some(self):
        """Waits for any output."""
        self.seen += os.read(self.master, 1).decode(errors="replace")

    def write(self, text):
        os.write(self.master, text.encode())

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def wait(self):
        try:
            while os.read(self.master, 65536):
                pass
        except OSError:
            pass
        return self.process.wait(60 * PATIENCE)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


class Case(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lm = cls.shared / "lm.bowline"
        made = run(cls.lm, "vocabulary=256", "tokenizer=bytes", f"context={LONG}", program=MAKE_DECODER)
        if made.returncode != 0:
            raise AssertionError(made.stderr)

    def terminal(self, *arguments):
        terminal = Terminal(*arguments)
        self.addCleanup(terminal.close)
        return terminal

    def generate(self, *arguments, **options):
        return run("generate", self.lm, *arguments, "--device", "cpu", **options)

    def generate_json(self, *arguments, **options):
        done = self.expect(self.generate(*arguments, "-o", "json", **options), OK)
        return json.loads(done.stdout)


class BadInput(Case):
    def test_a_model_that_is_none_or_cannot_generate(self):
        self.expect(run("generate", self.folder / "none.bowline", "x"), BAD_FILE, "none.bowline")
        self.expect(run("chat", self.text), BAD_FILE, "text.txt")

    def test_a_model_without_a_tokenizer(self):
        path = self.folder / "bare.bowline"
        self.assertEqual(run(path, program=MAKE_DECODER).returncode, 0)
        for call in (("generate", path, "x"), ("chat", path), ("run", path, "--input", "tokens=text:x", "--batch", 1, "--seq", 1)):
            self.expect(run(*call, "--device", "cpu", input="x\n"), BAD_FILE, "The model has no tokenizer")
        self.expect(run("tokenize", path, "x"), BAD_FILE, "The model has no tokenizer")

    def test_a_prompt_that_does_not_fit(self):
        self.expect(self.generate("twelve bytes", "--ctx-size", 8), FAILED, "12 tokens, more than the context (8)")
        self.expect(self.generate("", "-n", 4), FAILED, "The prompt has no tokens")
        self.expect(self.generate(input="", timeout=60), FAILED, "The prompt has no tokens")

    def test_flags_outside_their_range(self):
        for flags in (["--temp", -1], ["--temp", "nan"], ["--top-p", 2], ["--top-p", 0], ["--min-p", 1.5], ["--top-k", -3],
                      ["--repetition-penalty", 0.5], ["--max-tokens", 0], ["--ctx-size", 0], ["--seed", -1]):
            self.expect(self.generate("x", *flags), USAGE, flags[0])

    def test_a_chat_format_that_is_none(self):
        self.expect(run("chat", self.lm, "--device", "cpu", input=""), FAILED, "--chat-format")
        self.expect(run("chat", self.lm, "--device", "cpu", "--chat-format", "no\x1b[31m", input=""), FAILED, "\\x1b[31m")


class Generate(Case):
    def test_a_model_without_a_cache(self):
        """A model that has only `forward`, like the model of the demo: each token reads the whole
        text again.
        """
        done = self.expect(run("generate", self.model, "the rope", "-n", 70, "--device", "cpu", "-o", "json"), OK)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["finish_reason"], "length")
        # with the prompt more tokens than the first plan can take
        self.assertEqual(len(answer["tokens"]), 70)
        text = b"the rope" + bytes(answer["tokens"][:-1])
        logits = self.folder / "logits.npy"
        self.expect(run("run", self.model, "--entry", "forward", "--input", f"tokens={self.tokens(text)}", "--output",
                        f"logits=@{logits}", "--device", "cpu"), OK)
        _, shape, data = harness.read_npy(logits)
        self.assertEqual(shape, (1, len(text), 256))
        rows = struct.unpack(f"<{len(text) * 256}f", data)
        for i, token in enumerate(answer["tokens"]):
            row = rows[(len("the rope") - 1 + i) * 256:][:256]
            self.assertEqual(token, row.index(max(row)), i)

    def tokens(self, text):
        path = self.folder / "tokens.npy"
        path.write_bytes(harness.npy("<i4", (1, len(text)), struct.pack(f"<{len(text)}i", *text)))
        return f"@{path}"

    def test_a_rate_is_of_several_tokens(self):
        """A single token gives no rate, because its time is the time of the start."""
        one = self.expect(self.generate("x", "-n", 1), OK)
        self.assertNotIn("tokens/s", one.stderr)
        answer = self.generate_json("x", "-n", 1)
        self.assertIsNone(answer["prompt_tokens_per_second"])
        self.assertIsNone(answer["tokens_per_second"])
        several = self.generate_json("one two", "-n", 4)
        self.assertGreater(several["prompt_tokens_per_second"], 0)
        self.assertGreater(several["tokens_per_second"], 0)

    def test_a_reader_that_leaves(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = self.generate("x", "-n", LONG - 9, "--ctx-size", LONG, stdout=writer, stderr=subprocess.PIPE, capture_output=False)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (OK, ""))

    def test_the_same_text_each_time_in_text_and_json(self):
        first = self.generate_json("one two", "-n", 20)
        self.assertEqual(first["finish_reason"], "length")
        self.assertEqual(first["prompt_tokens"], 7)
        self.assertEqual(len(first["tokens"]), 20)
        self.assertEqual(first, {**self.generate_json("one two", "-n", 20), **{k: v for k, v in first.items() if "second" in k}})
        plain = self.expect(self.generate("one two", "-n", 20), OK)
        self.assertIn("answer  20 tokens", plain.stderr)
        self.assertIn("(length)", plain.stderr)

    def test_a_pipe_gets_the_text_as_it_is_and_a_terminal_what_cannot_act_on_it(self):
        flags = ["a", "-n", 1500, "--temp", 5, "--seed", 1]
        text = self.generate_json(*flags)["text"]
        self.assertTrue({"\t", "\r", "\x1b"} <= set(text), "the model draws every byte")
        piped = self.expect(run("generate", self.lm, *flags, "--device", "cpu", text=False), OK)
        self.assertEqual(piped.stdout.decode(), text + "\n")
        shown = self.terminal("generate", self.lm, *flags, "--device", "cpu").read_until("answer ")
        self.assertIn("\t", shown)
        self.assertIn("\\x1b", shown)
        self.assertNotIn("\x1b", shown)

    def test_standard_input_is_the_prompt(self):
        tokens = self.generate_json("one two", "-n", 5)["tokens"]
        for flags in ([], ["-"]):
            self.assertEqual(self.generate_json(*flags, "-n", 5, input="one two")["tokens"], tokens)

    def test_the_seed_decides_what_is_drawn(self):
        flags = ["one two", "-n", 12, "--temp", 1.2, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.01, "--seed"]
        self.assertEqual(self.generate_json(*flags, 1)["tokens"], self.generate_json(*flags, 1)["tokens"])
        self.assertNotEqual(self.generate_json(*flags, 1)["tokens"], self.generate_json(*flags, 2)["tokens"])

    def test_a_penalty_changes_the_text(self):
        plain = self.generate_json("aaaaaaaa", "-n", 40)["tokens"]
        other = self.generate_json("aaaaaaaa", "-n", 40, "--repetition-penalty", 1.8)["tokens"]
        self.assertNotEqual(plain, other)
        self.assertGreater(len(set(other)), len(set(plain)) - 1)

    def test_text_ends_at_a_stop_string(self):
        found = self.generate_json("one two", "-n", 60, "--temp", 1, "--seed", 3)
        text = found["text"]
        stop = text[10:12]
        begin = text.index(stop)
        done = self.generate_json("one two", "-n", 60, "--temp", 1, "--seed", 3, "--stop", stop, "--stop", "never shown at all")
        self.assertEqual(done["finish_reason"], "stop")
        self.assertEqual(done["text"], text[:begin])

    def test_a_text_ends_where_the_context_does(self):
        done = self.generate_json("one two", "--ctx-size", 16)
        self.assertEqual(done["finish_reason"], "context")
        self.assertEqual(len(done["tokens"]), 10)

    def test_a_context_that_the_model_was_not_made_for_is_noted(self):
        for context, noted in ((LONG + 1, True), (LONG, False), (16, False)):
            done = self.expect(self.generate("one two", "-n", 1, "--ctx-size", context), OK)
            self.assertEqual(f"--ctx-size {context} exceeds the context_length of the model ({LONG})" in done.stderr, noted)

    def test_a_token_of_the_model_ends_it(self):
        first = self.generate_json("one two", "-n", 30)["tokens"]
        path = self.folder / "eos.bowline"
        run(path, "vocabulary=256", "tokenizer=bytes", "context=512", f"eos={first[3]}", program=MAKE_DECODER)
        done = json.loads(self.expect(run("generate", path, "one two", "--device", "cpu", "-o", "json"), OK).stdout)
        self.assertEqual(done["finish_reason"], "stop")
        self.assertEqual(done["tokens"], first[:first.index(first[3]) + 1])

    def test_codes_generate_too(self):
        self.generate_json("one two", "-n", 5, "--quantize", "q8_0")

    def test_ctrl_c_ends_the_text(self):
        terminal = self.terminal("generate", self.lm, "one two", "-n", LONG, "--ctx-size", LONG, "--device", "cpu")
        terminal.read_some()
        terminal.interrupt()
        terminal.read_until("(interrupted)")
        self.assertEqual(terminal.wait(), INTERRUPTED)


class Chat(Case):
    FLAGS = ["--chat-format", "chatml", "--device", "cpu", "--ctx-size", LONG]

    def test_a_conversation_keeps_its_cache(self):
        done = self.expect(run("chat", self.lm, *self.FLAGS, "-n", 6, "--system", "Be short.", input="one\ntwo\n"), OK)
        first, second = [line for line in done.stderr.splitlines() if line.startswith("prompt")]
        self.assertIn(", 0 of them from the cache", first)
        read = int(first.split()[1])
        kept = int(second.split()[3])
        self.assertGreaterEqual(kept, read - 1)  # the last token of a text is always read again

    def test_ctrl_c_ends_an_answer_and_the_next_one_comes(self):
        terminal = self.terminal("chat", self.lm, *self.FLAGS, "-n", LONG)
        terminal.read_until("> ")
        terminal.write("one\n")
        terminal.read_until("one\r\n")
        terminal.read_some()
        terminal.interrupt()
        terminal.read_until("(interrupted)")
        terminal.read_until("> ")
        terminal.write("two\n")
        terminal.read_until("two\r\n")
        terminal.read_some()
        terminal.interrupt()
        terminal.read_until("(interrupted)")
        terminal.read_until("> ")
        terminal.write("/exit\n")
        self.assertEqual(terminal.wait(), OK)

    def test_ctrl_c_at_the_prompt_ends_the_program(self):
        terminal = self.terminal("chat", self.lm, *self.FLAGS)
        terminal.read_until("> ")
        terminal.interrupt()
        self.assertEqual(terminal.wait(), INTERRUPTED)

    def test_the_end_of_the_input_ends_the_program(self):
        terminal = self.terminal("chat", self.lm, *self.FLAGS, "-n", 4)
        terminal.read_until("> ")
        terminal.write("one\n")
        terminal.read_until("(length)")
        terminal.read_until("> ")
        terminal.write("\x04")
        self.assertEqual(terminal.wait(), OK)

    def test_a_line_of_json_for_each_answer(self):
        def chat():
            done = run("chat", self.lm, *self.FLAGS, "-n", 4, "-o", "json", input="one\ntwo\n")
            return [json.loads(line) for line in self.expect(done, OK).stdout.splitlines()]

        answers = chat()
        self.assertEqual([(a["finish_reason"], len(a["tokens"])) for a in answers], [("length", 4)] * 2)
        # the prompt contains the conversation
        self.assertLess(answers[0]["prompt_tokens"], answers[1]["prompt_tokens"])
        self.assertEqual([a["tokens"] for a in chat()], [a["tokens"] for a in answers])

    def test_a_conversation_that_is_too_long_is_said_to_be(self):
        done = run("chat", self.lm, "--chat-format", "chatml", "--device", "cpu", "--ctx-size", 40, input="one\n")
        self.expect(done, FAILED, "more than the context (40)")


if __name__ == "__main__":
    unittest.main()
