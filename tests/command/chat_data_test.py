#!/usr/bin/env python3
"""Tests conversations in JSON lines: finetune and eval of a model that reads bytes, with data from
a folder. Invalid input comes first.
"""

import json
import unittest

import forms
import harness
from harness import BAD_FILE, FAILED, OK, USAGE, run


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def make_rows(count):
    rows = []
    for i in range(count):
        question, answer = f"{i % 5}+{i % 3}", str(i % 5 + i % 3)
        rows.append([{"text": f"the sum {question} is {answer}"}, {"prompt": question, "completion": answer},
                     {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}][i % 3])
    return rows


class Chat(harness.Case):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.data.mkdir()
        (self.data / "train.jsonl").write_text(lines(make_rows(60)))
        (self.data / "valid.jsonl").write_text(lines(make_rows(12)))

    def finetune(self, *arguments, **options):
        flags = {"--data": self.data, "--batch": 4, "--device": "cpu", "--chat-format": "chatml"}
        given = [word for flag, value in flags.items() if flag not in arguments for word in (flag, value)]
        return run("finetune", self.model, *given, *arguments, **options)

    def evaluate(self, model, *arguments):
        done = run("eval", model, "--data", self.data, "--device", "cpu", "--chat-format", "chatml", "-o", "json", *arguments)
        return json.loads(self.expect(done, OK).stdout)

    def refused(self, text, *messages):
        (self.data / "train.jsonl").write_text(text)
        self.expect(self.finetune("--steps", 1, "--out", self.folder / "out.bowline"), BAD_FILE, *messages)
        self.assertFalse((self.folder / "out.bowline").exists())

    def test_bad_rows(self):
        self.refused('{"text": "x"}\n{"text": "y"\n', "train.jsonl:2:13: The line is not valid JSON from here on: it ends")
        self.refused('{"messages": [{"role": "robot", "content": "x"}]}\n', "train.jsonl:1: A message has the unknown role \"robot\"")
        self.refused('{"question": "x"}\n', "train.jsonl:1: The row has neither \"messages\"")
        self.refused('{"prompt": ["x"], "completion": "y"}\n', "train.jsonl:1: Field \"prompt\" is array. It must be text")
        self.refused('{"messages": [{"role": "user"}]}\n', "train.jsonl:1: There is no field \"content\"")
        self.refused("", "train.jsonl")
        self.refused("once upon a time\n", "train.jsonl:1:1: The line is not valid JSON")

    def test_what_would_change_the_training_is_not_ignored(self):
        user, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
        for key, value in (("audio", "x"), ("weight", 0), ("train", False)):
            self.refused(lines([{"messages": [user, answer | {key: value}]}]), f"train.jsonl:1: A message has the key \"{key}\"", "\"text\"")
        for key, value in (("tool_calls", [{"name": "f"}]), ("name", "Ann"), ("reasoning_content", "so")):
            self.refused(lines([{"messages": [user, answer | {key: value}]}]), f"The chat template does not read \"{key}\"", "train.jsonl:1")
        for key, value in (("tools", [{"name": "f"}]), ("chat_template_kwargs", {"think": True})):
            self.refused(lines([{"messages": [user, answer], key: value}]), "The chat template does not read \"" + {"tools": "tools"}.get(key, "think"))
        for key, value in (("system", "Be kind."), ("documents", ["d"]), ("text", "x y")):
            self.refused(lines([{"messages": [user, answer], key: value}]), f"train.jsonl:1: A row has the key \"{key}\"")
        # Keys without meaning, and keys that no template reads.
        row = {"id": 7, "source": "web", "tools": None, "messages": [user | {"name": ""}, answer | {"tool_calls": [], "weight": 1}]}
        (self.data / "train.jsonl").write_text(lines([row] * 20))
        self.expect(self.finetune("--steps", 1, "--out", self.folder / "out.bowline", "--dry-run"), OK)

    def test_json_is_no_plain_text(self):
        done = run("finetune", self.model, "--data", self.data / "train.jsonl", "--device", "cpu", "--steps", 0)
        self.expect(done, BAD_FILE, "holds JSON lines. Only plain text can be trained on")

    def test_flags(self):
        self.expect(self.finetune("--labels", self.text, "--steps", 0), USAGE, "--labels has no effect on conversations")
        done = self.expect(run("finetune", self.model, "--data", self.data, "--device", "cpu", "--steps", 0), FAILED)
        self.assertIn("--chat-format", done.stderr)
        self.expect(self.finetune("--chat-format", "morse", "--steps", 0), FAILED, "morse")

    def test_learns(self):
        out = self.folder / "out.bowline"
        done = self.finetune("--epochs", 4, "--learning-rate", "0.003", "--out", out)
        self.expect(done, OK, "60 steps of 4 rows of at most", "every loss is in nats per token")
        before, after = self.evaluate(self.model), self.evaluate(out)
        self.assertLess(after["nats_per_token"], before["nats_per_token"] - 0.5)
        self.assertEqual(after["rows"], 12)

    def test_train_on(self):
        """Only answers count: the whole text of a "text" row, and in a conversation the answer and
        its end marker.
        """
        (self.data / "valid.jsonl").write_text(lines([{"prompt": "abc", "completion": "xy"}]))
        whole, masked = self.evaluate(self.model), self.evaluate(self.model, "--train-on", "last-answer")
        before = "<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n"
        text = before + "xy<|im_end|>\n"
        self.assertEqual(whole["tokens"], len(text) - 1)  # one id per byte
        self.assertEqual(masked["tokens"], len(text) - len(before))

    def test_cut(self):
        (self.data / "valid.jsonl").write_text(lines([{"text": "x" * 50}, {"text": "y" * 10}]))
        cut = ("eval", self.model, "--data", self.data, "--device", "cpu", "--max-seq-length", 20)
        self.assertIn("rows are cut at 20 tokens (--max-seq-length): 1 of 2 are longer", self.expect(run(*cut), OK).stdout)
        self.assertEqual(json.loads(self.expect(run(*cut, "-o", "json"), OK).stdout)["tokens"], 19 + 9)

    def test_batch_does_not_matter(self):
        a, b = self.evaluate(self.model, "--batch", 1), self.evaluate(self.model, "--batch", 12)
        self.assertEqual(a["tokens"], b["tokens"])
        self.assertAlmostEqual(a["nats_per_token"], b["nats_per_token"], places=5)

    def test_resume(self):
        whole, parts = self.folder / "whole.bowline", self.folder / "parts.bowline"
        flags = ("--accumulate", 2, "--train-on", "last-answer", "--schedule", "constant")
        logs = [self.folder / name for name in ("whole.log", "parts.log")]
        self.expect(self.finetune(*flags, "--iters", 14, "--out", whole, "--log", logs[0]), OK)
        for steps in (5, 14):
            self.expect(self.finetune(*flags, "--iters", steps, "--out", parts, "--log", logs[1], "--checkpoint",
                                      self.folder / "c", "--resume", "auto", "--extend"), OK)
        self.assertEqual(logs[0].read_text(), logs[1].read_text())
        self.assertEqual(whole.read_bytes(), parts.read_bytes())
        for left_out in ("--train-on", "--accumulate"):
            at = flags.index(left_out)
            kept = flags[:at] + flags[at + 2:]
            done = self.finetune(*kept, "--iters", 14, "--out", parts, "--checkpoint", self.folder / "c", "--resume", "auto", "--force")
            self.expect(done, BAD_FILE, f"belongs to a run with {left_out}")

    def test_adapter(self):
        out = self.folder / "adapter.bowline"
        self.expect(self.finetune("--iters", 30, "--lora-rank", 4, "--quantize", "int8", "--learning-rate", "0.01", "--out", out), OK)
        before, after = self.evaluate(self.model, "--quantize", "int8"), self.evaluate(self.model, "--quantize", "int8", "--adapter", out)
        self.assertLess(after["nats_per_token"], before["nats_per_token"])


MERGES = ["Ġ 4", "Ġ4 2", "a n", "an s", "ans w", "answ e", "answe r", "Ġ y", "Ġy e", "Ġye s"]
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
MARKED = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
          "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


class Labels(harness.Case):
    """Tests the labels of --train-on with a byte-level BPE."""

    def imported(self, template):
        """Returns a model with random weights and this chat template."""
        folder, out = self.folder / "source", self.folder / "m.bowline"
        folder.mkdir(exist_ok=True)
        letters = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256)]
        others = iter(range(256, 512))
        pieces = [letter or chr(next(others)) for letter in letters] + [m.replace(" ", "") for m in MERGES]
        special = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
        added = [{"id": len(pieces) + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True} for i, text in enumerate(special)]
        vocab = {piece: i for i, piece in enumerate(pieces)}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
               "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": MERGES}
        (folder / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": level, "model": bpe}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}))
        size = len(pieces) + len(special)
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size, "hidden_size": 8,
                  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 8,
                  "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True}
        (folder / "config.json").write_text(json.dumps(config))
        shapes = {"model.embed_tokens": [size, 8], "model.norm": [8]}
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.0.{name}"] = [8]
        for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"):
            shapes[f"model.layers.0.{name}_proj"] = [8, 8]
        forms.write_safetensors(folder / "model.safetensors", {
            f"{name}.weight": (shape, [0.1] * (shape[0] * (shape[1] if len(shape) > 1 else 1))) for name, shape in shapes.items()})
        self.expect(run("import", folder, "--out", out, "--force"), OK)
        return out

    def evaluate(self, model, row, train_on):
        (self.folder / "rows.jsonl").write_text(lines([row]))
        return run("eval", model, "--data", self.folder / "rows.jsonl", "--train-on", train_on, "--device", "cpu", "-o", "json")

    def labels(self, model, row, train_on="last-answer"):
        return json.loads(self.expect(self.evaluate(model, row, train_on), OK).stdout)["tokens"]

    def check(self, template, cases):
        model = self.imported(template)
        for prompt, completion, labels in cases:
            row = {"prompt": prompt, "completion": completion}
            self.assertEqual(self.labels(model, row), labels, (template, row))

    def test_the_prompt_ends_with_a_thought(self):
        """The answer has no thought block. The prompt for a generation has an empty one, which is
        longer than the answer.
        """
        thought = CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n\n</think>\n\n' }}{% endif")
        self.check(thought, [("abc", "xy", 4), ("abc", "xyxyxyxyxyxyxyxy", 18), ("yes", "yes", 5)])

    def test_a_token_over_the_border(self):
        """" 42" is one token, although the prompt ends with the space. "answer" is one token,
        although it begins in the prompt.
        """
        spaced = ("{% for m in messages %}{{ 'Q: ' + m.content + '\n' if m.role == 'user' else 'A: ' + m.content + '<|im_end|>' }}"
                  "{% endfor %}{% if add_generation_prompt %}{{ 'A: ' }}{% endif %}")
        self.check(spaced, [("abc", "42", 2), ("abc ", "x", 2)])
        plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
        self.check(plain, [("zans", "wer", 1), ("z ", "yes", 1), ("z", " yes", 1), ("zans", "!", 1)])

    def test_several_answers(self):
        """The newline behind an answer counts only if the template does not mark answers."""
        turns = [("user", "abc"), ("assistant", "xy"), ("user", "d"), ("assistant", "answer 42"), ("user", "no answer")]
        row = {"messages": [{"role": role, "content": content} for role, content in turns]}
        marked, plain = self.imported(MARKED), self.folder / "plain.bowline"
        marked.rename(self.folder / "marked.bowline")
        self.imported(CHATML).rename(plain)
        for model, end in ((self.folder / "marked.bowline", 1), (plain, 2)):
            self.assertEqual(self.labels(model, row), 2 + end, model)
            self.assertEqual(self.labels(model, row, "all-answers"), (2 + end) + (2 + end), model)
        silent = self.evaluate(plain, {"messages": row["messages"][:1]}, "all-answers")
        self.expect(silent, BAD_FILE, "has no token to predict")

    def test_tools(self):
        """The loss counts a call of a tool, but not its result, nor the descriptions of tools."""
        template = ("{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
                    "{% if m.content is defined %}{{ m.content }}{% endif %}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}"
                    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
        call = {"role": "assistant", "tool_calls": [{"function": {"name": "w", "arguments": {"z": 1, "a": 2}}}]}
        row = {"messages": [{"role": "user", "content": "d"}, call, {"role": "tool", "content": "no"}, {"role": "assistant", "content": "xy"}],
               "tools": [{"name": "w"}]}
        model, text = self.imported(template), '{"name": "w", "arguments": {"z": 1, "a": 2}}'
        self.assertEqual(self.labels(model, row), 2 + 2)
        self.assertEqual(self.labels(model, row, "all-answers"), len(text) + 2 + 2 + 2)
        more = self.labels(model, row, "all") - self.labels(model, row | {"tools": []}, "all")
        self.assertEqual(more, len('[{"name": "w"}]\n'))

    def test_a_template_changes_earlier_messages(self):
        """It shows only the last answer whole, as templates do that drop earlier thoughts."""
        shortening = CHATML.replace("m.content", "(m.content if loop.last or m.role == 'user' else m.content[:1])")
        turns = [("user", "abc"), ("assistant", "xy"), ("user", "d"), ("assistant", "answer 42")]
        row = {"messages": [{"role": role, "content": content} for role, content in turns]}
        model = self.imported(shortening)
        self.assertEqual(self.labels(model, row), 2 + 2)
        self.expect(self.evaluate(model, row, "all-answers"), BAD_FILE, "rows.jsonl:1", "changes the first 2 messages", "--train-on last-answer")


if __name__ == "__main__":
    unittest.main()
