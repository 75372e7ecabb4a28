#!/usr/bin/env python3
"""Exports keep the tokenizer: tokenizer.json becomes keys of GGUF, and keys of GGUF become
tokenizer.json. The ids are those of the package tokenizers (tests/text/data, by
tests/text/make_fixtures.py).
"""

import base64
import itertools
import json
import pathlib
import unicodedata
import unittest

import harness
from forms import Gguf, write_safetensors
from harness import OK, run

DATA = pathlib.Path(__file__).resolve().parents[1] / "text/data"
TEXTS = [bytes.fromhex(line) for line in (DATA / "texts.hex").read_text().split("\n")[:-1]]
VERSES = DATA.parents[2] / "samples/data/kjv.txt"
WIDTH, VOCABULARY = 8, 1280
NFC_NOTE = "The tokenizer brings text into the form NFC; llama.cpp does not, and makes other tokens of text in another form."
BYTES_NOTE = "Text without a token becomes bytes here; llama.cpp uses the unknown token."
ROUNDED_NOTE = "The scores of tokens are rounded to f32."
WHITE_SPACE_NOTE = "The tokenizer cuts text at any white space; readers of GGUF at spaces, and what its map of characters makes spaces of."
# The source of a GGUF tokenizer, if its name differs.
SOURCES = {"scores": "llama2"}


def expected(name):
    """Returns the ids of the package for each text."""
    rows = (DATA / f"{name}.expected").read_text().splitlines()
    return [[int(piece.split(":")[0]) for piece in row.partition("|")[0].split()] for row in rows]


class TokenizerForms(harness.Case):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        # A NUL byte separates the texts.
        self.used = [i for i, text in enumerate(TEXTS) if b"\0" not in text]
        self.file = self.folder / "texts"
        self.file.write_bytes(b"".join(TEXTS[i] + b"\0" for i in self.used))

    def ids(self, tokenizer):
        done = self.expect(run("tokenize", tokenizer, "--file", self.file, "--null", "-o", "json"), OK)
        return [json.loads(line)["ids"] for line in done.stdout.splitlines()]

    def expected(self, name):
        rows = expected(name)
        return [rows[i] for i in self.used]

    def source(self, tokenizer=None, config=None):
        """Makes a folder of Hugging Face with a tiny Llama whose vocabulary fits all tokenizers."""
        folder = self.folder / "source"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 4, "vocab_size": VOCABULARY,
            "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": True} | (config or {})))
        layer = "model.layers.0."
        shapes = {"model.embed_tokens": [VOCABULARY, WIDTH], "model.norm": [WIDTH], layer + "input_layernorm": [WIDTH],
                  layer + "post_attention_layernorm": [WIDTH], layer + "mlp.gate_proj": [4, WIDTH], layer + "mlp.up_proj": [4, WIDTH],
                  layer + "mlp.down_proj": [WIDTH, 4]}
        shapes |= {f"{layer}self_attn.{part}_proj": [WIDTH, WIDTH] for part in "qkvo"}
        write_safetensors(folder / "model.safetensors", {
            f"{name}.weight": (shape, [0.5] * (shape[0] * (shape[1] if len(shape) > 1 else 1))) for name, shape in shapes.items()})
        if tokenizer is not None:
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
        return folder

    def imported(self, source):
        model = self.folder / "model.bowline"
        self.expect(run("import", source, "--out", model, "--force"), OK)
        return model

    def of_gguf(self, name):
        """Returns a model with the tokenizer of a GGUF file, given as a path or a name in the data.
        """
        self.expect(run("export", self.imported(self.source()), "--to", "gguf", "--out", self.out, "--force"), OK)
        path = self.folder / "spliced.gguf"
        path.write_bytes(Gguf(self.out).with_keys(Gguf(DATA / f"{name}.gguf" if isinstance(name, str) else name), "tokenizer."))
        self.out.unlink()
        return self.imported(path)

    def to_hugging_face(self, name):
        """Returns tokenizer.json, tokenizer_config.json and the notes of the export."""
        done = self.expect(run("export", self.of_gguf(name), "--to", "hf", "--out", self.out, "--force", "-o", "json"), OK)
        return (*(json.loads((self.out / f"{file}.json").read_text()) for file in ("tokenizer", "tokenizer_config")),
                json.loads(done.stdout)["notes"])

    def to_gguf(self, tokenizer, config=None):
        """Returns the file and the notes of the export."""
        model, path = self.imported(self.source(tokenizer, config)), self.folder / "written.gguf"
        done = self.expect(run("export", model, "--to", "gguf", "--out", path, "--force", "-o", "json"), OK)
        return path, json.loads(done.stdout)["notes"]

    # Exports that are not possible give a note.

    def test_what_gguf_has_not(self):
        for name, sentence in (
                ("unigram", "GGUF has no keys for how it changes and splits text"), ("bert", "it is WordPiece, and only BPE and Unigram can be written"),
                ("word_level", "it is WordLevel"), ("o200k", "llama.cpp has no name for how it changes and splits text"),
                ("parts", "llama.cpp has no name for how it changes and splits text"), ("roberta", "GGUF has no keys for what it puts around a text"),
                ("llama2", "GGUF stores scores instead of merges, and no scores are equivalent to these merges: ")):
            with self.subTest(name):
                path, notes = self.to_gguf(json.loads((DATA / f"{name}.json").read_text()))
                self.assertEqual(len(notes), 1)
                self.assertIn(f"The file has no tokenizer: {sentence}", notes[0])
                self.assertEqual({key: value for key, value in Gguf(path).keys.items() if key.startswith("tokenizer.")},
                                 {"tokenizer.ggml.model": "none"})

    def test_what_scores_cannot_say(self):
        tokenizer, _, _ = self.to_hugging_face("scores")
        model, around = tokenizer["model"], tokenizer["post_processor"]
        ids = model["vocab"]
        swapped = model["merges"][:]
        first = next(i for i, (a, b) in enumerate(swapped) if sum(x + y == a + b for x, y in swapped) == 2)
        self.assertEqual("".join(swapped[first]), "".join(swapped[first + 1]))
        swapped[first + 1], swapped[first + 2] = swapped[first + 2], swapped[first + 1]
        for change, sentence in (
                ({"model": model | {"merges": swapped}}, "other merges come between those that make "),
                ({"model": model | {"merges": model["merges"][1:]}}, "is made by "),
                ({"model": model | {"vocab": {k.replace("<0x41>", "<0x4>"): i for k, i in ids.items()}}}, "it does not have a token for each byte"),
                ({"normalizer": {"type": "NFC"}}, "GGUF has no keys for how it changes and splits text"),
                ({"post_processor": around | {"single": around["single"] + 2 * around["single"][:1]}}, "GGUF has no keys for what it puts")):
            with self.subTest(sentence):
                _, notes = self.to_gguf(tokenizer | change)
                self.assertEqual(len(notes), 1)
                self.assertIn("The file has no tokenizer: ", notes[0])
                self.assertIn(sentence, notes[0])

    # Other exports give the same ids.

    def test_keys_of_gguf_become_a_tokenizer_of_hugging_face(self):
        for name in ("scores", "smollm", "llama3", "bert", "t5"):
            with self.subTest(name):
                tokenizer, config, notes = self.to_hugging_face(name)
                self.assertEqual(notes, [])
                self.assertEqual(self.ids(self.out / "tokenizer.json"), self.expected(name))
                self.assertEqual(self.ids(self.imported(self.out)), self.expected(name))
                keys = Gguf(DATA / f"{name}.gguf").keys
                vocabulary = tokenizer["model"]["vocab"]
                pieces = {i: piece for piece, i in vocabulary.items()} if name != "t5" else {i: piece for i, (piece, _) in enumerate(vocabulary)}
                self.assertEqual(len(pieces), len(keys["tokenizer.ggml.tokens"]))
                self.assertEqual(config["tokenizer_class"], "PreTrainedTokenizerFast")
                self.expect_parts(tokenizer, json.loads((DATA / f"{SOURCES.get(name, name)}.json").read_text()), name)
                self.assertEqual(config.get("bos_token"), pieces.get(keys.get("tokenizer.ggml.bos_token_id")))
                metadata = json.loads(run("inspect", self.of_gguf(name), "-o", "json").stdout)["metadata"]
                for key, part in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"),
                                  ("sep_token", "seperator"), ("cls_token", "cls"), ("mask_token", "mask")):
                    self.assertEqual(metadata.get(key), pieces.get(keys.get(f"tokenizer.ggml.{part}_token_id")), key)

    def test_word_pieces_obey_their_normalizer(self):
        """Two keys of GGUF contain the settings of BertNormalizer in tokenizer.json."""
        tokenizer = json.loads((DATA / "bert.json").read_text())
        path = self.folder / "keyed.gguf"
        for lowercase, strips in itertools.product((None, False, True), repeat=2):
            with self.subTest(lowercase=lowercase, strips=strips):
                given = {f"tokenizer.ggml.normalizer.{key}": value
                         for key, value in (("lowercase", lowercase), ("strip_accents", strips)) if value is not None}
                path.write_bytes(Gguf(DATA / "bert.gguf").with_values(given))
                normalizer = tokenizer["normalizer"] | {"lowercase": lowercase in (None, True), "strip_accents": strips}
                changed = self.folder / "tokenizer.json"
                changed.write_text(json.dumps(tokenizer | {"normalizer": normalizer}, ensure_ascii=False))
                right = self.ids(changed)
                self.assertEqual(self.ids(path), right)
                self.expect(run("export", self.of_gguf(path), "--to", "hf", "--out", self.out, "--force"), OK)
                self.assertEqual(self.ids(self.out / "tokenizer.json"), right)

    def expect_parts(self, ours, theirs, name):
        """The package rejects a part without a setting, so all settings must be there."""
        for part in ("normalizer", "pre_tokenizer", "decoder", "added_tokens"):
            self.assertEqual(ours[part], theirs[part], part)
        # Merges follow from the scores. GGUF cannot distinguish the token "##\u2581" from an empty
        # word, and its scores are f32.
        derived = {"scores": {"merges"}, "bert": {"vocab"}, "t5": {"vocab"}}.get(name, set())
        for key, value in theirs["model"].items():
            if key not in derived and value:
                self.assertEqual(ours["model"][key], value, key)
        around = theirs["post_processor"]
        if around is not None and around["type"] == "Sequence":
            around = around["processors"][-1]
        # In transformers the second text of a pair for Llama has type 1. The fixtures have type 0.
        same = lambda processor: json.loads(json.dumps(processor).replace('"type_id": 1', '"type_id": 0'))
        self.assertEqual(same(ours["post_processor"]), same(around))

    def test_scores_come_back(self):
        tokenizer, _, _ = self.to_hugging_face("scores")
        path, notes = self.to_gguf(tokenizer)
        self.assertEqual(notes, [])
        self.assertEqual(self.ids(path), self.expected("scores"))
        self.assertEqual(self.ids(self.imported(path)), self.expected("scores"))
        written, source = Gguf(path).keys, Gguf(DATA / "scores.gguf").keys
        count = len(source["tokenizer.ggml.tokens"])
        self.assertEqual(len(written["tokenizer.ggml.tokens"]), VOCABULARY)
        self.assertEqual(written["tokenizer.ggml.tokens"][:count], source["tokenizer.ggml.tokens"])
        self.assertEqual(written["tokenizer.ggml.tokens"][count], f"[PAD{count}]")
        unknown = source["tokenizer.ggml.unknown_token_id"]
        types = [2 if i == unknown else t for i, t in enumerate(source["tokenizer.ggml.token_type"])]
        self.assertEqual(written["tokenizer.ggml.token_type"], types + [5] * (VOCABULARY - count))
        for key, value in (("model", "llama"), ("bos_token_id", 1), ("unknown_token_id", 0), ("add_bos_token", True),
                           ("add_space_prefix", True)):
            self.assertEqual(written[f"tokenizer.ggml.{key}"], value)
        # The order of the source, as far as the merges require it.
        merged = {a + b for a, b in tokenizer["model"]["merges"]}
        order = [[i for i in sorted(range(count), key=lambda i: -keys["tokenizer.ggml.scores"][i])
                  if source["tokenizer.ggml.tokens"][i] in merged] for keys in (written, source)]
        self.assertEqual(*order)

    def test_pieces_of_one_score(self):
        """Merges of equal score are sorted by length, the longest first, like in transformers."""
        tokenizer, _, _ = self.to_hugging_face("scores")
        blocks = [list(block) for _, block in itertools.groupby(tokenizer["model"]["merges"], "".join)]
        for i in range(len(blocks) - 1):
            both = sorted(blocks[i] + blocks[i + 1], key=lambda m: (len(m[0]), len(m[1])), reverse=True)
            if len([0 for _ in itertools.groupby(both, "".join)]) > 2:
                break
        merges = [merge for block in [*blocks[:i], both, *blocks[i + 2:]] for merge in block]
        path, notes = self.to_gguf(tokenizer | {"model": tokenizer["model"] | {"merges": merges}})
        self.assertEqual(notes, [])
        keys = Gguf(path).keys
        score = dict(zip(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.scores"]))
        first, second, next_ = ("".join(blocks[k][0]) for k in (i, i + 1, i + 2))
        self.assertEqual(score[first], score[second])
        self.assertGreater(score[second], score[next_])
        self.expect(run("export", self.imported(path), "--to", "hf", "--out", self.out, "--force"), OK)
        self.assertEqual(json.loads((self.out / "tokenizer.json").read_text())["model"]["merges"], merges)

    def test_spaces_in_front(self):
        tokenizer, _, _ = self.to_hugging_face("scores")
        spaces = {"type": "Metaspace", "replacement": "\u2581", "split": False}
        no_space = "The tokenizer puts no space in front of a text that begins with one"
        for scheme, prefix, note in (("always", True, [no_space + "; readers of GGUF do."]), ("never", False, []),
                                     ("first", True, [no_space + ", nor behind a special token; readers of GGUF do."])):
            with self.subTest(scheme):
                changed = tokenizer | {"normalizer": None, "pre_tokenizer": spaces | {"prepend_scheme": scheme}}
                path, notes = self.to_gguf(changed)
                self.assertEqual(notes, note)
                self.assertEqual(Gguf(path).keys["tokenizer.ggml.add_space_prefix"], prefix)
                rows = list(zip(self.used, self.ids(path), self.ids(self.imported(self.source(changed))), strict=True))
                same = [(a, b) for i, a, b in rows if not prefix or not TEXTS[i].startswith(b" ") and b"<s>" not in TEXTS[i]]
                self.assertGreater(len(same), 60)
                for a, b in same:
                    self.assertEqual(a, b)

    def test_a_split_where_no_space_is_left(self):
        """The tokenizer of Gemma replaces spaces before the split."""
        tokenizer, _, _ = self.to_hugging_face("scores")
        space = {"String": " "}
        changed = tokenizer | {"normalizer": {"type": "Replace", "pattern": space, "content": "\u2581"},
                               "pre_tokenizer": {"type": "Split", "pattern": space, "behavior": "MergedWithPrevious", "invert": False}}
        path, notes = self.to_gguf(changed)
        self.assertEqual(notes, [])
        self.assertEqual(Gguf(path).keys["tokenizer.ggml.add_space_prefix"], False)
        right = self.ids(self.imported(self.source(changed)))
        self.assertNotEqual(right, self.expected("scores"))
        self.assertEqual(self.ids(path), right)
        _, notes = self.to_gguf(changed | {"pre_tokenizer": changed["pre_tokenizer"] | {"pattern": {"String": "e"}}})
        self.assertIn("GGUF has no keys for how it changes and splits text", notes[0])

    def test_tokenizers_over_bytes_become_keys(self):
        for name in ("smollm", "llama3", "qwen"):
            with self.subTest(name):
                path, notes = self.to_gguf(json.loads((DATA / f"{name}.json").read_text()), {"eos_token_id": 1})
                self.assertEqual(notes, [NFC_NOTE] if name == "qwen" else [])
                self.assertEqual(self.ids(path), self.expected(name))
                self.assertEqual(self.ids(self.imported(path)), self.expected(name))
                self.assertEqual(Gguf(path).keys["tokenizer.ggml.eos_token_id"], 1)

    def test_a_file_that_does_not_name_its_splitting(self):
        """llama.cpp uses its own rules. Bowline refuses the tokenizer until the file names the
        rules.
        """
        path, _ = self.to_gguf(json.loads((DATA / "llama3.json").read_text()))
        whole = Gguf(path)
        del whole.entries["tokenizer.ggml.pre"]
        path.write_bytes(whole.with_values({}))
        done = self.expect(run("import", path, "--out", self.folder / "model.bowline", "--force"), OK)
        self.assertIn('The tokenizer cannot be used: The file has no "tokenizer.ggml.pre"', done.stdout)
        self.assertIn("gguf-new-metadata --pre-tokenizer llama-bpe", done.stdout)
        path.write_bytes(Gguf(path).with_values({"tokenizer.ggml.pre": "llama-bpe"}))
        self.assertEqual(self.ids(self.imported(path)), self.expected("llama3"))

    def test_the_form_of_unicode_goes_by_the_name(self):
        """Qwen2 normalizes text to NFC. Without NFC the same rules have another name, which
        llama.cpp treats in the same way.
        """
        tokenizer = json.loads((DATA / "qwen.json").read_text())
        self.assertTrue(any(not unicodedata.is_normalized("NFC", TEXTS[at].decode(errors="replace")) for at in self.used))
        for normalizer, name, notes in (({"type": "NFC"}, "qwen2", [NFC_NOTE]), ({"type": "Sequence", "normalizers": []}, "deepseek-r1-qwen", []),
                                        (None, "deepseek-r1-qwen", [])):
            with self.subTest(name):
                changed = tokenizer | {"normalizer": normalizer}
                path, written = self.to_gguf(changed)
                self.assertEqual((Gguf(path).keys["tokenizer.ggml.pre"], written), (name, notes))
                right = self.ids(self.imported(self.source(changed)))
                self.assertEqual(right == self.expected("qwen"), name == "qwen2")
                model = self.imported(path)
                self.assertEqual(self.ids(model), right)
                self.expect(run("export", model, "--to", "hf", "--out", self.out, "--force"), OK)
                self.assertEqual(json.loads((self.out / "tokenizer.json").read_text())["normalizer"], normalizer if name == "qwen2" else None)
                self.assertEqual(self.ids(self.out / "tokenizer.json"), right)
        _, written = self.to_gguf(tokenizer | {"normalizer": {"type": "NFKC"}})
        self.assertEqual(written, ["The file has no tokenizer: llama.cpp has no name for how it changes and splits text."])

    def unigram(self, normalizers=None, pre=None, **model):
        """Returns the tokenizer of T5 with changes."""
        tokenizer = json.loads((DATA / "t5.json").read_text())
        steps = tokenizer["normalizer"]["normalizers"]
        changed = {"model": tokenizer["model"] | model}
        if normalizers is not None:
            changed["normalizer"] = {"type": "Sequence", "normalizers": [steps[i] if isinstance(i, int) else i for i in normalizers]}
        if pre is not None:
            changed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": pre}
        return tokenizer | changed

    def verses(self):
        """Replaces the texts by 2,000 lines of prose."""
        lines = [line.encode() for line in VERSES.read_text().splitlines() if line][:2000]
        self.assertEqual(len(lines), 2000)
        self.file.write_bytes(b"".join(line + b"\0" for line in lines))

    def test_unigram_becomes_keys(self):
        path, notes = self.to_gguf(self.unigram())
        self.assertEqual(notes, [BYTES_NOTE, ROUNDED_NOTE])
        keys, source = Gguf(path).keys, Gguf(DATA / "t5.gguf").keys
        count = len(source["tokenizer.ggml.tokens"])
        self.assertEqual(keys["tokenizer.ggml.tokens"], source["tokenizer.ggml.tokens"] + [f"[PAD{i}]" for i in range(count, VOCABULARY)])
        self.assertEqual(keys["tokenizer.ggml.token_type"], [2, *source["tokenizer.ggml.token_type"][1:]] + [5] * (VOCABULARY - count))
        self.assertEqual(keys["tokenizer.ggml.scores"], source["tokenizer.ggml.scores"] + [-10000.0] * (VOCABULARY - count))
        for key in ("model", "precompiled_charsmap", "remove_extra_whitespaces", "add_space_prefix", "unknown_token_id", "eos_token_id"):
            self.assertEqual(keys[f"tokenizer.ggml.{key}"], source[f"tokenizer.ggml.{key}"], key)
        self.assertEqual((keys["tokenizer.ggml.add_bos_token"], keys["tokenizer.ggml.add_eos_token"]), (False, True))
        model = self.imported(path)
        self.expect(run("export", model, "--to", "hf", "--out", self.out, "--force"), OK)
        for tokenizer in (path, model, self.out / "tokenizer.json"):
            self.assertEqual(self.ids(tokenizer), self.expected("t5"))
        self.verses()
        rows = self.ids(DATA / "t5.json")
        for tokenizer in (path, model, self.out / "tokenizer.json"):
            self.assertEqual(self.ids(tokenizer), rows)

    def test_spaces_of_unigram(self):
        space = {"type": "Metaspace", "replacement": "\u2581"}
        always, never = (space | {"prepend_scheme": scheme, "split": True} for scheme in ("always", "never"))
        rules = [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]
        for name, normalizers, pre, merges, prefix, note in (
                ("spaces of any number", [0], [never], False, False, None), ("without a map", [], [never], False, False, None),
                ("by rules", [0, *rules], [], False, True, None), ("by one rule", [0, rules[1]], [], False, False, None),
                ("as older files say it", [], [space | {"add_prefix_space": False}], False, False, None),
                ("one in front", [0], [always], False, True, "The tokenizer puts no space in front of a text that begins with one; readers of GGUF do."),
                ("at white space", [0], [{"type": "WhitespaceSplit"}, always], True, True, WHITE_SPACE_NOTE)):
            with self.subTest(name):
                tokenizer = self.unigram(normalizers, pre)
                path, notes = self.to_gguf(tokenizer)
                self.assertEqual(notes, [*([note] if note else []), BYTES_NOTE, ROUNDED_NOTE])
                keys = Gguf(path).keys
                self.assertEqual((keys["tokenizer.ggml.remove_extra_whitespaces"], keys["tokenizer.ggml.add_space_prefix"]), (merges, prefix))
                self.assertEqual("tokenizer.ggml.precompiled_charsmap" in keys, 0 in normalizers)
                model = self.imported(path)
                self.expect(run("export", model, "--to", "hf", "--out", self.out, "--force"), OK)
                (self.folder / "changed.json").write_text(json.dumps(tokenizer))
                texts = self.file.read_bytes()
                for prose in (False, True):
                    if prose:
                        self.verses()
                    if prose or note is None:
                        right = self.ids(self.folder / "changed.json")
                        self.assertEqual(self.ids(model), right)
                        self.assertEqual(self.ids(self.out / "tokenizer.json"), right)
                self.file.write_bytes(texts)

    def test_the_map_of_unigram_comes_back(self):
        """Base64 restores the map for every length modulo 3."""
        for more in range(3):
            tokenizer = self.unigram()
            step = tokenizer["normalizer"]["normalizers"][0]
            step["precompiled_charsmap"] = base64.b64encode(base64.b64decode(step["precompiled_charsmap"]) + bytes(more)).decode()
            path, _ = self.to_gguf(tokenizer)
            self.expect(run("export", self.imported(path), "--to", "hf", "--out", self.out, "--force"), OK)
            self.assertEqual(json.loads((self.out / "tokenizer.json").read_text())["normalizer"], tokenizer["normalizer"])

    def test_unused_pieces_of_unigram(self):
        """The score of the unknown token depends on the smallest score of the used tokens: "lm" and
        an unknown "x" have a higher score than "l" and "mx".
        """
        scores = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0, "\u2581": -1.0, "l": -30.0, "lm": -1.0, "mx": -30.0}
        path, notes = self.to_gguf(self.unigram(vocab=[list(piece) for piece in scores.items()], byte_fallback=False))
        self.assertEqual(notes, [])
        model = self.imported(path)
        self.expect(run("export", model, "--to", "hf", "--out", self.out, "--force"), OK)
        self.file.write_bytes(b"lmx\0")
        for tokenizer in (path, model, self.out / "tokenizer.json"):
            self.assertEqual(self.ids(tokenizer), [[3, 5, 0, 2]])

    def test_what_unigram_cannot_say(self):
        no_keys = "GGUF has no keys for how it changes and splits text"
        vocabulary = self.unigram()["model"]["vocab"]
        first = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": True}
        for sentence, tokenizer in (
                ("it has no unknown token", self.unigram(unk_id=None)), (no_keys, self.unigram([{"type": "NFKC"}, 1, 2])),
                (no_keys, self.unigram([0, 2])), (no_keys, self.unigram([0, 1, 2], [first])), (no_keys, self.unigram([0], [{"type": "Whitespace"}])),
                ("it cannot be read: The character map is not base64", self.unigram([{"type": "Precompiled", "precompiled_charsmap": "A A="}, 1, 2])),
                ("it looks for tokens within words, but readers of GGUF look in the whole text", self.unigram(vocab=[*vocabulary, ["in\u2581the", -9.0]])),
                ("it looks for tokens within words, but readers of GGUF look in the whole text",
                 self.unigram(vocab=[[piece.replace("\u2581", "_") if piece == "\u2581" else piece, score] for piece, score in vocabulary]))):
            with self.subTest(sentence):
                path, notes = self.to_gguf(tokenizer)
                self.assertEqual(notes, [f"The file has no tokenizer: {sentence}."])
                self.assertEqual(Gguf(path).keys["tokenizer.ggml.model"], "none")

    def test_a_token_behind_each_text(self):
        tokenizer, _, _ = self.to_hugging_face("scores")
        end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
        around = tokenizer["post_processor"]
        known = around["special_tokens"] | {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}
        path, notes = self.to_gguf(tokenizer | {"post_processor": around | {"single": [*around["single"], end], "special_tokens": known}})
        self.assertEqual(notes, [])
        self.assertEqual(self.ids(path), [row + [2] for row in self.expected("scores")])
        keys = Gguf(path).keys
        self.assertEqual((keys["tokenizer.ggml.add_eos_token"], keys["tokenizer.ggml.eos_token_id"]), (True, 2))

    def test_added_tokens_with_rules_of_their_own(self):
        path, notes = self.to_gguf(json.loads((DATA / "gpt2.json").read_text()))
        self.assertEqual(notes, ["The added token \"a word\" has its own matching rules (single_word, lstrip or rstrip), which GGUF does not have."])
        self.assertEqual(Gguf(path).keys["tokenizer.ggml.pre"], "gpt-2")


if __name__ == "__main__":
    unittest.main()
