#!/usr/bin/env python3
"""Every verb refuses a flag that has no effect on the given input. import_test.py covers import."""

import json
import os
import pathlib
import re
import shutil
import unittest

import harness
from harness import FAILED, OK, USAGE, run

IMPORTS = pathlib.Path(__file__).resolve().parents[1] / "import/fixtures"

# Flags that always have an effect, that describe the input, or that only allow something.
ALWAYS = {
    "devices": "--all",
    "inspect": "--batch --seq --dim --html --listing",
    "verify": "",
    "run": "--batch --seq --entry --input --output --step --quantize --adapter --device --memory-budget --matmul-precision",
    "profile": "--batch --seq --entry --train --input --compute --device --memory-budget --matmul-precision --steps --trace",
    "tune": "--batch --seq --dim --entry --train --input --step --compute --device --memory-budget --matmul-precision --rounds --show --reset",
    "export": "--strip --out --to --weights --force",
    "quantize": "--out --encoding --pattern --force",
    "tokenize": "--file --lines --null --no-special --plain-special --max-tokens",
    "finetune": "--data --valid --out --log --tensorboard --report --steps --epochs --batch --accumulate --fast-reduce --process-timeout --on-nonfinite "
                "--learning-rate --head-learning-rate --warmup --schedule --optimizer --weight-decay --clip --compute --loss-scale "
                "--lora-rank --eval-every --eval-batches --checkpoint --resume --device --memory-budget --matmul-precision --dry-run",
    "eval": "--data --batch --batches --report --quantize --adapter --device --memory-budget --matmul-precision",
    "predict": "--file --embed --batch --max-seq-length --quantize --adapter --device --memory-budget --matmul-precision",
    "generate": "--max-tokens --ctx-size --temp --repetition-penalty --stop --quantize --adapter --device --memory-budget --matmul-precision",
    "chat": "--max-tokens --ctx-size --temp --repetition-penalty --stop --quantize --adapter --device --memory-budget --matmul-precision --chat-format",
    "conform": "--suite --filter --seed --quick --variant",
    "bench matmul": "--m --n --k --layout --dtype --encoding --runs --device --memory-budget --matmul-precision",
    "bench run": "--batch --seq --entry --input --compute --quantize --adapter --c-library --runs --device --memory-budget --matmul-precision",
    "bench train": "--batch --seq --device --memory-budget --matmul-precision --compute --lora-rank --steps --tokens --dump-losses --save-model --no-floor",
    "bench decode": "--prompt --tokens --quantize --adapter --device --memory-budget --matmul-precision --no-floor",
    "bench table": "--parameters --device",
    "bench ties": "--repeats --runs --ties --device",
    "bench tokenize": "--text --runs",
}
COMMON = {"--help", "--format"}
# Reasons that depend on the data or the model, or that name another flag or its value.
LATE = {"all rows of the data are texts", "the rows of the data have two texts", "only the in-batch loss has a scale",
        "only the triplet loss has a margin", "the model predicts labels", "--checkpoint, which is not given", "which does not have it", "Add --lora-rank"}


class Flags(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        make = lambda *words, program=harness.BOWLINE: cls.must(run(*words, program=program))
        cls.lm, cls.mute = cls.shared / "lm.bowline", cls.shared / "mute.bowline"
        make("import", IMPORTS / "llama", "--out", cls.lm)
        silent = shutil.copytree(IMPORTS / "llama", cls.shared / "mute")
        config = json.loads((silent / "tokenizer_config.json").read_text())
        config["chat_template"] = "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"
        (silent / "tokenizer_config.json").write_text(json.dumps(config))
        make("import", silent, "--out", cls.mute)
        cls.encoder = cls.shared / "encoder.bowline"
        make(cls.encoder, program=os.environ["ENCODER_MODEL"])
        sentences = shutil.copytree(IMPORTS / "bert_sentences", cls.shared / "sentences")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(IMPORTS / "llama" / name, sentences)
        cls.embedder = cls.shared / "embedder.bowline"
        make("import", sentences, "--out", cls.embedder)
        cls.tagger, cls.words = cls.shared / "tagger.bowline", cls.shared / "words.jsonl"
        tagged = shutil.copytree(IMPORTS / "bert_tags", cls.shared / "tagged")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(IMPORTS / "llama" / name, tagged)
        make("import", tagged, "--out", cls.tagger)
        cls.words.write_text('{"tokens": ["3", "4"], "tags": ["O", "B-knot"]}\n' * 8)
        cls.pairs, cls.triplets = cls.shared / "pairs.csv", cls.shared / "triplets.csv"
        cls.pairs.write_text("anchor,positive\n" + "3 4,5\n6,7 8\n" * 6)
        cls.triplets.write_text("anchor,positive,negative\n" + "3 4,5,9\n6,7 8,10\n" * 6)
        cls.table = cls.shared / "table.csv"
        cls.table.write_text("text,label\n" + "the cat,animals\nred,colours\nsix,numbers\n" * 8)
        cls.chat, cls.texts = cls.shared / "chat", cls.shared / "texts"
        for folder, row in ((cls.chat, {"messages": [{"role": "user", "content": "what is 1"}, {"role": "assistant", "content": "the number"}]}),
                            (cls.texts, {"text": "a b c"})):
            folder.mkdir()
            for part in ("train", "valid"):
                (folder / f"{part}.jsonl").write_text((json.dumps(row) + "\n") * 8)
        cls.labels = cls.shared / "labels.txt"
        cls.labels.write_text("a\nb\n")

    @classmethod
    def must(cls, done):
        if done.returncode != OK:
            raise AssertionError(done.stderr)

    def cases(self):
        """Yields calls with flags that have no effect, and a part of the reason."""
        row = {"--max-seq-length": [8], "--pad-to-longest": [], "--train-on": ["all"], "--chat-format": ["chatml"],
               "--text-field": ["text"], "--label-field": ["label"], "--labels": [self.labels]}
        trained = {"--in-order": [], "--class-weights": ["none"]}
        window = {"--as-text": [], "--seq": [16]}
        groups = {"--embed-loss": ["in-batch"], "--similarity-scale": [2], "--triplet-margin": [1]}
        chats = {k: row[k] for k in ("--train-on", "--chat-format")}
        examples = {k: row[k] for k in ("--text-field", "--label-field", "--labels")}
        device = {"--threads": [1]}
        null = ["--device", "null"]
        for verb, stride in (("finetune", {"--eval-stride": [8]}), ("eval", {"--stride": [8]})):
            text = [verb, self.model, "--data", self.text, "--device", "cpu"]
            chat = [verb, self.lm, "--data", self.chat, "--device", "cpu"]
            classes = [verb, self.encoder, "--data", self.table, "--device", "cpu"]
            words = [verb, self.tagger, "--data", self.words, "--device", "cpu"]
            pairs, triplets = ([verb, self.embedder, "--data", data, "--device", "cpu"] for data in (self.pairs, self.triplets))
            if verb == "finetune":
                text, chat, classes, pairs, triplets, words = ([*call, "--steps", 0] for call in (text, chat, classes, pairs, triplets, words))
            extra = trained if verb == "finetune" else {}
            yield text, row | extra | groups, "on plain text; it is for "
            yield chat, window | stride | examples | groups, "on conversations; it is for "
            yield classes, window | stride | chats | groups, "on texts with labels; it is for "
            yield pairs, window | stride | chats | {"--labels": [self.labels]}, "on groups of texts; it is for "
            yield words, window | stride | chats | groups | ({"--class-weights": ["none"]} if extra else {}), "on words with tags; it is for "
            yield pairs, {"--embed-loss": ["in-batch"]}, "the rows of the data have two texts"
            yield pairs, {"--triplet-margin": [1]}, "only the triplet loss has a margin"
            yield [*triplets, "--embed-loss", "triplet"], {"--similarity-scale": [2]}, "only the in-batch loss has a scale"
            yield [*chat[:2], "--data", self.texts, *chat[4:]], chats, "all rows of the data are texts"
            yield [*text[:-2], *null] if verb == "eval" else [*text[:4], *null, "--steps", 0], device, "on device null; it is for cpu"
        text = ["finetune", self.model, "--data", self.text, "--device", "cpu", "--steps", 1]
        chat = ["finetune", self.lm, "--data", self.chat, "--device", "cpu", "--steps", 1]
        out = ["--out", self.folder / "out.bowline"]
        yield [*chat, *out], {"--class-weights": ["none"]}, "on conversations"
        yield [*chat, *out, "--in-order"], {"--seed": [7]}, "the model has no dropout"
        names, flags = harness.optimizer_flags()
        for name in names:
            idle = {flag: value for flag, (of, value) in flags.items() if name not in of}
            yield [*text, *out, "--optimizer", name], idle, f"on {name}; it is for "
        yield [*text, *out, "--schedule", "constant"], {"--final-fraction": [0.5]}, "the rate never falls"
        lora = {"--lora-alpha": [1], "--lora-scale": [1], "--lora-dropout": [0.1], "--lora-target": ["*"]}
        yield [*text, *out, "--lora-rank", 0], lora, "--lora-rank is 0"
        yield [*text, *out], lora, "requires --lora-rank"
        yield [*text, *out, "--lora-rank", 2], {"--freeze": ["*"], "--with-training-state": []}, "adapter"
        yield [*text, "--checkpoint", self.folder / "c"], {"--force": []}, "none of them is given"
        yield [*text, *out], {"--save-every": [1], "--save-every-batches": [1]}, "--checkpoint, which is not given"
        yield [*text, *out], {"--extend": []}, "give --resume"
        yield [*text, *out], {"--keep": ["best"], "--patience": [1]}, "give --eval-every"
        yield [*text, *out], {"--quantize": ["int8"]}, "Add --lora-rank"
        yield ["eval", self.model, "--data", self.text], {"--force": []}, "--report is not given"
        yield ["predict", self.encoder, "a text"], {"--text-field": ["text"]}, "are not rows of"
        yield ["predict", self.encoder, "a text"], {"--width": [4]}, "the model predicts labels"
        yield ["predict", self.encoder, "a text", *null], device, "on device null"
        for verb in (["generate", self.lm, "a"], ["chat", self.lm]):
            yield verb, {"--top-k": [5], "--top-p": [0.5], "--min-p": [0.1], "--seed": [3]}, "--temp 0 always takes the most probable token"
            yield verb, {"--repetition-context-size": [9]}, "no token is penalized"
            yield [*verb, *null], device, "on device null"
        yield ["chat", self.mute], {"--system": ["Be short."]}, "has no system message"
        model = ["export", self.lm, *out]
        yield [*model, "--to", "hf"], {"--encoding": ["q8_0"]}, "is for --to gguf"
        yield [*model, "--to", "peft"], {"--dtype": ["bf16"]}, "in the dtype of its factors"
        yield [*model, "--to", "peft"], {"--untie": ["lm_head.weight"]}, "changes no tie"
        yield ["export", self.lm, "--weights", self.folder / "w"], {"--adapter": [self.lm]}, "requires --out"
        yield ["inspect", self.model], {"--columns": [], "--entry": ["loss"]}, "requires --listing"
        yield ["inspect", self.model], {"--force": []}, "requires --html"
        yield ["inspect", self.model], {"--device": ["cpu"]}, "nothing is planned"
        yield ["inspect", self.model, "-o", "json"], {"--parameters": [], "--storages": [], "--ties": []}, "holds all rows"
        yield ["inspect", self.model, "--parameters"], {"--batch": [2], "--seq": [8], "--dim": ["batch=2"], "--device": ["cpu"]}, "no memory plan"
        yield (["inspect", self.model, "--listing", "forward", "--batch", 2, "--seq", 8],
               {"--parameters": [], "--storages": [], "--ties": [], "--html": [self.folder / "page.html"]}, "excludes")
        yield ["verify", self.model], {"--device": ["cpu"]}, "has no self tests"
        yield ["run", self.model, "--input", "tokens=zeros", "--batch", 2, "--seq", 8], {"--force": []}, "requires --output"
        profile = ["profile", self.model, "--batch", 2, "--seq", 8, "--device", "cpu"]
        yield profile, {"--force": []}, "requires --trace"
        yield [*profile, "--train"], {"--step": ["training=1"]}, "excludes"
        for verb in (["run"], ["profile"], ["bench", "run"]):
            yield [*verb, self.lm, "--entry", "forward", "--device", "cpu"], {"--dim": ["kv_length=8"]}, "which does not have it"
        yield ["bench", "train", self.model, "--batch", 2, "--seq", 8], {"--lora-target": ["*"]}, "requires --lora-rank"
        yield ["bench", "train", self.model, "--batch", 2, "--seq", 8], {"--quantize": ["int8"]}, "Add --lora-rank"
        yield ["bench", "train", self.model, "--batch", 2, "--seq", 8, *null], device, "on device null"
        yield ["bench", "run", self.model, "--batch", 2, "--seq", 8, *null], device, "on device null"
        yield ["bench", "decode", self.lm, *null], device, "on device null"
        yield ["bench", "matmul", *null], device, "on device null"
        conform = ["conform", "--suite", "ops", "--filter", "Relu"]
        yield conform, {"--models": [3]}, "they are of the suite random"
        yield ["conform", "--suite", "ties"], {"--candidates": [], "--every": [2]}, "suite ops"
        yield [*conform, "-o", "json"], {"--failures": [3]}, "holds all failures"
        yield ["conform", "--suite", "gradients", "--filter", "Relu"], {"--device": ["cpu"]}, "run on no device"
        yield ["conform", "--suite", "trajectories", "--device", "cpu"], {"--matmul-precision": ["tf32"]}, "know the errors of TF32"

    def test_a_flag_without_effect_is_refused(self):
        for call, flags, reason in self.cases():
            for flag, words in flags.items():
                with self.subTest(call=" ".join(map(str, call)), flag=flag):
                    done = run(*call, flag, *words, input="")
                    late = done.returncode == FAILED and reason in LATE
                    self.expect(done, FAILED if late else USAGE, *([] if reason in LATE else [flag]), reason)

    def test_the_same_calls_run_without_the_flag(self):
        """Only the flag is the reason for the refusal."""
        seen = set()
        for call, flags, reason in self.cases():
            key = (str(call[0]), str(call[1]))
            fast = call[0] in ("finetune", "eval", "inspect", "verify", "generate", "chat", "predict") and "null" not in call
            if fast and key not in seen and "requires" not in reason:
                seen.add(key)
                with self.subTest(call=" ".join(map(str, call))):
                    self.expect(run(*call, *(["--force"] if "--out" in call else []), input=""), OK)
                    shutil.rmtree(self.folder / "out.bowline.checkpoint", ignore_errors=True)

    def verbs(self):
        def names_in(text):
            return re.findall(r"^  (\w+) ", text[text.index("Subcommands:"):], re.MULTILINE)
        top = run("--help").stdout
        names = names_in(top[:top.index("Exit codes")])
        return [*(n for n in names if n not in ("bench", "import")), *(f"bench {n}" for n in names_in(run("bench", "--help").stdout))]

    def test_every_flag_is_known_here(self):
        idle = {}
        for call, flags, _ in self.cases():
            verb = " ".join(call[:2]) if call[0] == "bench" else call[0]
            idle.setdefault(verb, set()).update(flags)
        for verb in self.verbs():
            with self.subTest(verb):
                text = self.expect(run(*verb.split(), "--help"), OK).stdout
                listed = set(re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", text, re.MULTILINE))
                known = set(ALWAYS[verb].split()) | idle.get(verb, set()) | COMMON
                self.assertEqual(listed - known, set(), "flags that this test does not know")
                self.assertEqual(known - listed - COMMON, set(), "flags that the verb does not have")


if __name__ == "__main__":
    unittest.main()
