#!/usr/bin/env python3
"""The readers of text models account for every key: an unusual value changes the model or is
refused, and a key that a table calls harmless changes no byte. transformers saved the folders, with
every key of their config classes.
"""

import json
import pathlib
import re
import shutil
import unittest

import harness
from forms import Gguf
from harness import BAD_FILE, OK, run

TESTS = pathlib.Path(__file__).resolve().parents[1]
FIXTURES, IMPORT = TESTS / "import/fixtures", TESTS.parent / "tools/import"
# Folders of each architecture in which the keys have a meaning.
FOLDERS = {"llama": ["llama", "llama_biased"], "mistral": ["mistral_window"], "qwen2": ["qwen2_window", "qwen2"],
           "qwen3": ["qwen3_window"], "gemma": ["gemma"], "gemma2": ["gemma2"], "gemma3": ["gemma3_older", "gemma3"], "granite": ["granite"],
           "smollm3": ["smollm3_window", "smollm3"], "phi3": ["phi3", "phi3_part", "phi3_long"], "olmo2": ["olmo2"], "olmo3": ["olmo3"],
           "stablelm": ["stablelm"], "ministral": ["ministral"], "ministral3": ["ministral3"],
           **{kind: [kind] for kind in ("arcee", "codegen", "cohere", "cohere2", "ernie4_5", "exaone4", "glm", "glm4", "gpt2", "gpt_neo", "gptj",
                                        "helium", "hunyuan", "nemotron", "olmo", "opt", "persimmon", "phi", "seed_oss", "starcoder2",
                                        "xglm")},
           "gpt_bigcode": ["gpt_bigcode", "gpt_bigcode_heads"], "gpt_neox": ["gpt_neox", "gpt_neox_sequential"],
           "falcon": ["falcon", "falcon_groups", "falcon_one_norm", "falcon_sequential"], "bert": ["bert_classes"],
           "roberta": ["roberta_classes"], "distilbert": ["distilbert_classes"], "albert": ["albert_classes"],
           "electra": ["electra_classes"], "modernbert": ["modernbert_classes"], "eurobert": ["eurobert_classes"],
           "gte": ["gte_classes"], "nomic_bert": ["nomic_bert_classes"]}
# Tables that architectures share, and their files.
SHARED = {"kLlamaFamilyKeys": "blocks/decoder_form.h", "kGptFamilyKeys": "blocks/decoder_form.h", "kBertFamilyKeys": "blocks/bert_family.h"}
# Keys that count only if another key is missing.
INSTEAD = {"max_window_layers": "layer_types", "sliding_window_pattern": "layer_types", "no_rope_layer_interval": "no_rope_layers"}
SIZE = 8192  # of config.json, so that models differ only in its text
ROWS = re.compile(r'\{((?:"[^"]+"\s*)+)(?:\}|,\s*KeyUse::(\w+))')
ENCODERS = ("bert", "roberta", "distilbert", "albert", "electra", "modernbert", "eurobert", "gte", "nomic_bert")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "A", "e", "\u00e9", "\u6771"]
MARKS = [{"id": i, "content": PIECES[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
         for i in range(5)]


def piece(name):
    return {"SpecialToken": {"id": name, "type_id": 0}}


# Its handling of case differs from TOKENIZER_CONFIG.
WORD_PIECES = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": MARKS,
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing", "single": [piece("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, piece("[SEP]")],
                       "pair": [piece("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, piece("[SEP]"),
                                {"Sequence": {"id": "B", "type_id": 1}}, piece("[SEP]")],
                       "special_tokens": {t: {"id": t, "ids": [PIECES.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
              "vocab": {p: i for i, p in enumerate(PIECES)}}}
# As transformers 5 writes the file, plus the keys of older versions.
TOKENIZER_CONFIG = {
    "tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True,
    "bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "sep_token": "[SEP]", "cls_token": "[CLS]",
    "mask_token": {"content": "[MASK]"}, "added_tokens_decoder": {str(t["id"]): {k: t[k] for k in t if k != "id"} for t in MARKS},
    "additional_special_tokens": ["[MASK]"], "extra_special_tokens": ["[MASK]"], "model_specific_special_tokens": {"image_token": "[MASK]"},
    "add_bos_token": True, "add_eos_token": True, "model_max_length": 16, "truncation_side": "right", "split_special_tokens": False,
    "fix_mistral_regex": False, "padding_side": "right", "max_length": 16, "stride": 0, "truncation_strategy": "longest_first",
    "clean_up_tokenization_spaces": False, "clean_text": True, "never_split": None, "do_basic_tokenize": True, "legacy": False, "backend": "tokenizers",
    "is_local": True, "name_or_path": "x", "chat_template": "{{ messages }}"}
# Bytes, with a space in front of the text if the tokenizer requires it.
BYTE_PIECES = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {"a": 0, "b": 1, "\u0120": 2, "<s>": 3}, "merges": []}}


def uses_in(text):
    """Returns the keys of the rows of a C++ text, and the use of each key."""
    return {key: use or "read" for keys, use in ROWS.findall(text) for key in keys.replace('"', "").split()}


def harmless_keys(*files):
    return [key for file in files for key, use in uses_in((IMPORT / file).read_text()).items() if use == "harmless"]


def others(key, value):
    """Returns values that differ from the given value."""
    if "act" in key and isinstance(value, str):
        return ["relu" if value != "relu" else "gelu"]
    if isinstance(value, bool):
        return [not value]
    if key == "max_window_layers":
        return [1 if value != 1 else 2]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value * 2 + 0.125]
    if isinstance(value, str):
        return ["another"]
    if isinstance(value, list):
        return [value[::-1] if value[::-1] != value else ["another"] if all(isinstance(v, str) for v in value) else [63]]
    if value == {}:
        return [{"another": 3}]
    if isinstance(value, dict):
        return [{k: other for k, v in value.items() for other in others(k, v)[:1]}]
    return [True, 3]


def uses(file, table):
    """Returns the keys of a table in a C++ file, and the use of each key."""
    text = (IMPORT / file).read_text()
    begin = text.index(f"constexpr KeyRule {table}[]")
    return uses_in(text[begin:text.index("};", begin)])


def harmless_keys_of(kind):
    """Returns the keys that the tables of an architecture and its family call harmless."""
    file = f"architectures/{kind}.cpp"
    tables = [name for name in SHARED if name in (IMPORT / file).read_text()]
    own = uses_in((IMPORT / file).read_text())
    shared = [key for name in tables for key, use in uses(SHARED[name], name).items() if use == "harmless" and key not in own]
    return harmless_keys(file) + shared


class ImportKeys(harness.Case):
    def setUp(self):
        super().setUp()
        self.source, self.out, self.digests = self.folder / "source", self.folder / "m.bowline", None

    def imported(self, config, *flags):
        """Returns the bytes of the model without config.json and its digest, or None if it is
        refused.
        """
        text = json.dumps(config, sort_keys=True)
        text += " " * (SIZE - len(text))
        (self.source / "config.json").write_text(text)
        done = run("import", self.source, "--out", self.out, "--force", "--dropout", *flags)
        self.assertIn(done.returncode, (OK, BAD_FILE, harness.USAGE), done.stderr)
        if done.returncode != OK:
            return None
        content = self.out.read_bytes()
        self.assertEqual(content.count(text.encode()), 1)
        content = bytearray(content.replace(text.encode(), b""))
        digests = self.digests if self.digests is not None else []
        for at in digests:
            content[at:at + 8] = bytes(8)
        return bytes(content)

    def find_digests(self, config, *flags):
        """Finds the bytes of the model that change with a key that only is a note of its writer."""
        self.digests = None
        first, second = (self.imported(config | {"_note": n}, *flags) for n in range(2))
        self.digests = sorted({i // 8 * 8 for i, (a, b) in enumerate(zip(first, second)) if a != b})
        self.assertEqual(len(first), len(second))
        self.assertLessEqual(len(self.digests), 8)

    def folder_of(self, name):
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(FIXTURES / name, self.source)
        return json.loads((self.source / "config.json").read_text())

    def test_each_key_of_each_config(self):
        common = harmless_keys("blocks/build_model.cpp")
        for kind, folders in FOLDERS.items():
            own = harmless_keys_of(kind)
            effects = {}
            for name in folders:
                config = self.folder_of(name)
                known = {}  # by the settings that all other values share
                for key, value in config.items():
                    base = {k: v for k, v in config.items() if k != INSTEAD.get(key)}
                    flags = ["--skeleton"] if key in ("dtype", "torch_dtype") and kind not in ENCODERS else []
                    settings = json.dumps([base, flags])
                    if settings not in known:
                        self.find_digests(base, *flags)
                        known[settings] = (self.digests, self.imported(base, *flags))
                    self.digests, right = known[settings]
                    self.assertIsNotNone(right, name)
                    for other in others(key, value) if key not in ("dtype", "torch_dtype") else ["bfloat16"]:
                        made = self.imported(base | {key: other}, *flags)
                        effects.setdefault(key, set()).add("refused" if made is None else "same" if made == right else "changed")
            for key, seen in effects.items():
                with self.subTest(kind, key=key):
                    if key in own or key in common:
                        self.assertEqual(seen, {"same"})
                    elif key not in ("dtype", "torch_dtype") or kind not in ENCODERS:
                        self.assertTrue(seen - {"same"}, "The key changes nothing, is not refused, and no table says that it is harmless.")

    def test_what_a_table_calls_harmless(self):
        common = harmless_keys("blocks/build_model.cpp")
        for kind, folders in FOLDERS.items():
            own = harmless_keys_of(kind)
            config = self.folder_of(folders[0])
            self.find_digests(config)
            right = self.imported(config)
            keys = {key: 3 for key in own + (common if kind == "llama" else []) if key not in config}
            self.assertEqual(self.imported(config | keys | {"_note": 3}), right, keys)

    def test_missing_keys(self):
        """A missing key has the value that transformers assumes, or the model is refused."""
        # Special tokens are never assumed. Labels and ties follow the tensors. The original length
        # follows the settings of the rotation.
        other = {"bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id", "tie_word_embeddings",
                 "original_max_position_embeddings"}
        defaults = json.loads((TESTS / "import/defaults.json").read_text())
        common = harmless_keys("blocks/build_model.cpp")
        for kind, name in ((kind, folder) for kind, folders in FOLDERS.items() for folder in folders):
            skipped = {*common, *harmless_keys_of(kind), *other}
            config, seen = self.folder_of(name), 0
            for key, assumed in defaults[name].items():
                less = {k: v for k, v in config.items() if k != key}
                self.digests = None
                if key in skipped or self.imported(less) is None:
                    continue
                self.find_digests(less)
                with self.subTest(name, key=key, assumed=assumed):
                    self.assertTrue(self.imported(less | {key: assumed}) == self.imported(less))
                    seen += 1
            self.assertGreater(seen, 0, name)

    def test_keys_that_are_not_known(self):
        """Keys of an architecture that transformers has under another name, of quantized weights,
        and of attention that is not causal.
        """
        for name, changes in (("llama", {"no_rope_layers": [1, 0]}), ("llama", {"is_causal": False}), ("llama", {"partial_rotary_factor": 0.5}),
                              ("llama", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0,
                                                             "partial_rotary_factor": 0.5}}),
                              ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
                              ("llama", {"quantization_config": {"bits": 4}}), ("llama", {"sliding_window": 4}),
                              ("mistral_window", {"layer_types": ["full_attention", "sliding_attention"]}),
                              ("mistral_window", {"use_sliding_window": False}), ("gpt2", {"scale_attn_weights": None}),
                              ("gpt2", {"hidden_size": 16}), ("bert", {"add_cross_attention": True})):
            with self.subTest(name, **changes):
                config = self.folder_of(name)
                (self.source / "config.json").write_text(json.dumps(config | changes))
                key = "partial_rotary_factor" if "rope_parameters" in changes else next(iter(changes))
                self.expect(run("import", self.source, "--out", self.out), BAD_FILE, f'"{key}"')

    def test_keys_of_rotations(self):
        """A key of each kind of rotation changes the model, or its table says that it does not."""
        reader = "blocks/rotation.cpp"
        length = {"original_max_position_embeddings": 16}
        yarn = {"factor": 4.0, "beta_fast": 1.0, "beta_slow": 0.25, "truncate": False, **length}
        longrope = {"short_factor": [1.0, 2.0, 3.0, 4.0], "long_factor": [4.0, 5.0, 6.0, 7.0], **length}
        # "attention_factor" counts instead of the keys that it is computed from.
        kinds = {"default": [{}], "linear": [{"factor": 2.0, **length}], "dynamic": [{"factor": 2.0}],
                 "llama3": [{"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **length}],
                 "longrope": [longrope | {"factor": 3.0}, longrope | {"attention_factor": 2.0}],
                 "proportional": [{"factor": 2.0, "partial_rotary_factor": 0.25}],
                 "yarn": [yarn | {"mscale": 1.0, "mscale_all_dim": 0.5}, yarn | {"attention_factor": 2.0}]}
        text = (IMPORT / reader).read_text()
        self.assertEqual(sorted(kinds), re.findall(r'^    \{"(\w+)", (?:\{\}|k\w+), read_', text, re.M))
        for kind, keys in ((kind, keys) for kind, forms in kinds.items() for keys in forms):
            config = self.folder_of("llama")
            rotation = {"rope_type": kind, "rope_theta": 100.0, **keys}
            known = uses(reader, f"k{kind.capitalize()}Keys") if keys else {}
            self.assertEqual(sorted(known), sorted({key for form in kinds[kind] for key in form}))
            base = config | {"rope_parameters": rotation}
            self.find_digests(base)
            right = self.imported(base)
            for key, value in rotation.items():
                for other in others(key, value):
                    with self.subTest(kind, key=key):
                        self.assertEqual(self.imported(config | {"rope_parameters": rotation | {key: other}}) == right,
                                         known.get(key) == "harmless")
            for key in {"another_key", "low_freq_factor", "partial_rotary_factor", "factor" if "factor" not in known else "truncate"} - {*known}:
                (self.source / "config.json").write_text(json.dumps(config | {"rope_parameters": rotation | {key: 2.5}}))
                self.expect(run("import", self.source, "--out", self.out, "--force"), BAD_FILE, f'"{key}"')

    def test_keys_of_models_of_texts_and_images(self):
        for name in ("gemma3_images", "ministral3_images"):
            config = self.folder_of(name)
            self.each_key(self.source / "config.json", config, uses("huggingface/text_part.cpp", "kCompositeKeys"))

    def metadata(self):
        return json.loads(run("inspect", self.out, "-o", "json").stdout)["metadata"]

    def effect(self, right, *flags):
        done = run("import", self.source, "--out", self.out, "--force", *flags)
        self.assertIn(done.returncode, (OK, BAD_FILE), done.stderr)
        return done.stdout, "refused" if done.returncode != OK else "same" if self.out.read_bytes() == right else "changed"

    def each_key(self, path, base, table, within=lambda value: value, known=()):
        """Changes the value of each key in a file. `within` embeds the object with the keys into
        the content of the file.
        """
        def write(value):
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(within(value)))
        write(base)
        self.expect(run("import", self.source, "--out", self.out, "--force"), OK)
        right = self.out.read_bytes()
        for key, value in base.items():
            for other in others(key, value):
                write(base | {key: other})
                stdout, seen = self.effect(right)
                with self.subTest(path.name, key=key, value=other):
                    if table.get(key) == "harmless" or key in known:
                        self.assertEqual(seen, "same")
                    else:
                        self.assertNotEqual(seen, "same", stdout)
        for other in ({"another_key": 3}, {key: 3 for key, use in table.items() if use == "harmless"}):
            write(base | other)
            self.assertEqual(self.effect(right)[1], "refused" if "another_key" in other else "same", other)
        write(base)

    def test_keys_of_sentence_transformers(self):
        reader = "huggingface/read.cpp"
        self.folder_of("bert_sentences")
        prompts = self.source / "config_sentence_transformers.json"
        prompts.write_text(json.dumps({"prompts": {"q": "query: "}, "default_prompt_name": "q"}))
        older = {f"pooling_mode_{mode}": mode == "mean_tokens" for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
                                                                          "weightedmean_tokens", "lasttoken")}
        pooling = self.source / "1_Pooling/config.json"
        self.each_key(pooling, older | {"word_embedding_dimension": 32, "include_prompt": True}, uses(reader, "kPoolingKeys"))
        self.each_key(pooling, {"pooling_mode": "mean", "embedding_dimension": 32, "include_prompt": True}, uses(reader, "kPoolingKeys"))
        self.each_key(self.source / "2_Normalize/config.json", {"module_input_name": "sentence_embedding", "module_output_name": None},
                      uses(reader, "kNormalizeKeys"))
        self.each_key(prompts, {"prompts": {"q": "query: "}, "default_prompt_name": "q", "similarity_fn_name": "cosine", "truncate_dim": None,
                                "model_type": "SentenceTransformer", "__version__": {"transformers": "5"}}, uses(reader, "kSentenceKeys"))
        text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
        table = uses(reader, "kTransformerKeys")
        base = {"max_seq_length": 32, "do_lower_case": False, "transformer_task": "feature-extraction", "modality_config": text,
                "module_output_name": "token_embeddings"}
        self.assertLessEqual(set(base), set(table))
        self.each_key(self.source / "sentence_bert_config.json", {key: None for key, use in table.items() if use == "fixed"} | base, table)
        modules = json.loads((self.source / "modules.json").read_text())
        for at, module in enumerate(modules):
            # Normalize has only default settings, in any folder.
            self.each_key(self.source / "modules.json", module, uses(reader, "kModuleKeys"),
                          lambda value, at=at: modules[:at] + [value] + modules[at + 1:], known=("path",) if at == 2 else ())

    def test_the_settings_of_an_older_sentence_transformer(self):
        """RoBERTa has another file name."""
        self.folder_of("bert_sentences")
        (self.source / "sentence_bert_config.json").rename(self.source / "sentence_roberta_config.json")
        (self.source / "sentence_roberta_config.json").write_text(json.dumps({"max_seq_length": 9}))
        self.expect(run("import", self.source, "--out", self.out), OK, "max_tokens = 9")

    def write_tokenizer(self, tokenizer, config):
        (self.source / "tokenizer.json").write_text(json.dumps(tokenizer))
        (self.source / "tokenizer_config.json").write_text(json.dumps(config))

    def test_keys_of_tokenizer_config(self):
        table = uses("huggingface/tokenizer_config.cpp", "kKeys")
        elsewhere = {"add_prefix_space", "keep_accents", "max_len"}  # tested below
        self.assertLessEqual({key for key, use in table.items() if use != "harmless"} - elsewhere, set(TOKENIZER_CONFIG))
        self.folder_of("bert_classes")

        def made(config, digests=()):
            """Returns the bytes of the model without the text of tokenizer_config.json."""
            self.write_tokenizer(WORD_PIECES, {})
            text = json.dumps(config, sort_keys=True)
            text += " " * (SIZE - len(text))
            (self.source / "tokenizer_config.json").write_text(text)
            done = run("import", self.source, "--out", self.out, "--force")
            self.assertIn(done.returncode, (OK, BAD_FILE), done.stderr)
            if done.returncode != OK:
                return None
            content = self.out.read_bytes()
            self.assertEqual(content.count(text.encode()), 1)
            content = bytearray(content.replace(text.encode(), b""))
            for at in digests:
                content[at:at + 8] = bytes(8)
            return content
        first, second = (made(TOKENIZER_CONFIG | {"_note": n}) for n in range(2))
        digests = sorted({i // 8 * 8 for i, (a, b) in enumerate(zip(first, second)) if a != b})
        self.assertLessEqual(len(digests), 8)
        right = made(TOKENIZER_CONFIG, digests)
        for key, value in TOKENIZER_CONFIG.items():
            for other in others(key, value):
                with self.subTest(key, value=other):
                    self.assertEqual(made(TOKENIZER_CONFIG | {key: other}, digests) == right, table[key] == "harmless")
        self.assertEqual(made(TOKENIZER_CONFIG | {key: 3 for key, use in table.items() if use == "harmless"}, digests), right)
        self.write_tokenizer(WORD_PIECES, TOKENIZER_CONFIG | {"another_key": 3})
        self.expect(run("import", self.source, "--out", self.out, "--force"), BAD_FILE, '"another_key"')

    def ids(self, text):
        done = self.expect(run("tokenize", self.out, text, "-o", "json"), OK)
        return json.loads(done.stdout)["ids"]

    def test_what_tokenizer_config_changes(self):
        """The ids are those of transformers 5."""
        self.folder_of("bert_classes")
        usual = {"tokenizer_class": "BertTokenizer", "bos_token": "[CLS]", "eos_token": "[SEP]"}
        for changes, right in (({}, [2, 5, 8, 10, 5, 3]), ({"do_lower_case": False}, [2, 7, 9, 10, 5, 3]), ({"do_lower_case": True}, [2, 5, 8, 10, 5, 3]),
                               ({"do_lower_case": True, "strip_accents": False}, [2, 5, 9, 10, 5, 3]),
                               ({"do_lower_case": True, "tokenizer_class": "PreTrainedTokenizerFast"}, [2, 7, 9, 10, 5, 3]),
                               ({"do_lower_case": False, "strip_accents": True}, [2, 7, 8, 10, 5, 3]),
                               ({"do_lower_case": False, "tokenize_chinese_chars": False}, [2, 7, 9, 1, 3]),
                               ({"tokenizer_class": None}, [2, 7, 9, 10, 5, 3])):
            with self.subTest(**changes):
                self.write_tokenizer(WORD_PIECES, usual | changes)
                self.expect(run("import", self.source, "--out", self.out, "--force"), OK)
                self.assertEqual(self.ids("A \u00e9 \u6771a"), right)
        self.folder_of("llama")
        ends = {"bos_token": "<s>", "eos_token": "<s>", "add_prefix_space": False}
        for before, behind in ((False, False), (True, False), (False, True), (True, True)):
            text = [{"Sequence": {"id": "A", "type_id": 0}}]
            single = before * [piece("<s>")] + text + behind * [piece("<s>")]
            tokenizer = BYTE_PIECES | {"post_processor": {
                "type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}}
            for key, adds in (("add_bos_token", before), ("add_eos_token", behind)):
                for wants in (False, True):
                    with self.subTest(before=before, behind=behind, **{key: wants}):
                        self.write_tokenizer(tokenizer, ends | {key: wants})
                        done = run("import", self.source, "--out", self.out, "--force")
                        if wants != adds:
                            self.expect(done, BAD_FILE, f'"{key}": {str(wants).lower()}', "adds" if adds else "does not add")
                        else:
                            self.expect(done, OK)
                            self.assertEqual(self.ids("ab"), before * [3] + [0, 1] + behind * [3])

    def test_what_tokenizer_config_contradicts(self):
        for name, tokenizer, config in (
                ("llama", BYTE_PIECES, {"add_prefix_space": True}),
                ("bert_classes", BYTE_PIECES, {"do_lower_case": True, "tokenizer_class": "AlbertTokenizer"}),
                ("bert_classes", BYTE_PIECES | {"normalizer": {"type": "StripAccents"}}, {"keep_accents": True, "tokenizer_class": "AlbertTokenizer"}),
                ("bert_classes", BYTE_PIECES, {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}),
                ("llama", BYTE_PIECES, {"added_tokens_decoder": {"3": {"content": "<s>"}}}),
                ("llama", BYTE_PIECES, {"additional_special_tokens": ["<s>"]}),
                ("llama", BYTE_PIECES, {"add_bos_token": "yes"}),
                ("bert_classes", WORD_PIECES, {"truncation_side": "left"}),
                ("llama", BYTE_PIECES, {"max_len": 0})):
            with self.subTest(name, **config):
                self.folder_of(name)
                self.write_tokenizer(tokenizer, config)
                self.expect(run("import", self.source, "--out", self.out, "--force"), BAD_FILE, f'"{next(iter(config))}"')
        self.folder_of("llama")  # a decoder does not truncate texts
        self.write_tokenizer(BYTE_PIECES, {"truncation_side": "left", "max_len": 7})
        self.expect(run("import", self.source, "--out", self.out, "--force"), OK)

    def test_spaces_that_transformers_removes_from_text(self):
        """With a BPE, transformers 5 keeps the spaces unless a second key is true. An encoder
        writes no text.
        """
        key, bpe_too = (f"clean_up_tokenization_spaces{end}" for end in ("", "_for_bpe_even_though_it_will_corrupt_output"))
        bare = {k: WORD_PIECES[k] for k in WORD_PIECES if k != "post_processor"} | {"post_processor": None}
        for name, tokenizer, config, noted in (
                ("gpt2", bare, {key: True}, True), ("gpt2", bare, {key: False}, False), ("gpt2", bare, {bpe_too: True}, False),
                ("gpt2", BYTE_PIECES, {key: True}, False), ("gpt2", BYTE_PIECES, {key: True, bpe_too: True}, True),
                ("bert_classes", WORD_PIECES, {key: True}, False)):
            with self.subTest(name, **config):
                self.folder_of(name)
                self.write_tokenizer(tokenizer, config)
                done = self.expect(run("import", self.source, "--out", self.out, "--force"), OK)
                self.assertEqual(f'note: tokenizer_config.json has "{key}": true' in done.stdout, noted)

    def test_learned_positions_end_a_context(self):
        """The learned positions of GPT-2 limit the context. Rotary positions do not."""
        for name in ("gpt2", "llama"):
            self.folder_of(name)
            self.write_tokenizer(BYTE_PIECES, {})
            self.expect(run("import", self.source, "--out", self.out, "--force"), OK)
            length = int(self.metadata()["context_length"])
            done = run("generate", self.out, "ab", "-n", 1, "--ctx-size", length + 1, "--device", "cpu")
            if name == "gpt2":
                self.expect(done, harness.FAILED, f"A context of {length + 1} tokens exceeds the {length} learned positions")
            else:
                self.expect(done, OK, f"--ctx-size {length + 1} exceeds the context_length of the model ({length})")
            self.expect(run("generate", self.out, "ab", "-n", 1, "--ctx-size", length, "--device", "cpu"), OK)

    def test_special_tokens_of_older_folders(self):
        self.folder_of("llama")
        self.write_tokenizer(BYTE_PIECES, {"pad_token": "<x>"})
        (self.source / "special_tokens_map.json").write_text(json.dumps({"pad_token": {"content": "<pad>"}, "cls_token": "<cls>"}))
        self.expect(run("import", self.source, "--out", self.out), OK)
        metadata = self.metadata()
        self.assertEqual((metadata["pad_token"], metadata["cls_token"]), ("<pad>", "<cls>"))

    def test_keys_of_generation_config(self):
        """A note names the settings that generate and chat do not apply by themselves, and the
        flag.
        """
        self.folder_of("llama")
        path = self.source / "generation_config.json"
        text = (IMPORT / "huggingface/read.cpp").read_text()
        flags = dict(re.findall(r'\{"([^"]+)", R?"[^"]*", "(--[a-z-]+)"\}', text))
        self.assertEqual(len(flags), 8)
        table = uses("huggingface/read.cpp", "kOtherGenerationKeys")
        harmless = {key: 3 for key, use in table.items() if use == "harmless"}
        path.write_text(json.dumps(harmless))
        self.assertNotIn("generation_config.json has", self.expect(run("import", self.source, "--out", self.out), OK).stdout)
        for key in [*flags, *(key for key, use in table.items() if use == "fixed"), "no_repeat_ngram_size", "suppress_tokens", "bad_words_ids"]:
            with self.subTest(key):
                path.write_text(json.dumps({key: [[7]] if key == "stop_strings" else 0.25}))
                self.expect(run("import", self.source, "--out", self.out, "--force"), OK, f'generation_config.json has "{key}"', flags.get(key, "do not support"))
        for ids in (2, [2, 7]):
            path.write_text(json.dumps({"eos_token_id": ids}))
            self.expect(run("import", self.source, "--out", self.out, "--force"), OK)
            self.assertEqual(self.metadata()["eos_token_ids"], str(ids).strip("[]").replace(" ", ""))

    def test_keys_of_gguf(self):
        path, data = self.folder / "m.gguf", TESTS / "gguf/data/llama_f32.gguf"

        def made(**keys):
            path.write_bytes(Gguf(data).with_values(keys))
            done = run("import", path, "--out", self.out, "--force")
            return done, done.returncode == OK and self.out.read_bytes()
        _, right = made()
        for key, value in (("attention.causal", False), ("attention.scale", 0.5), ("logit_scale", 2.0), ("expert_count", 4),
                           ("attention.sliding_window", 4), ("rope.scaling.attn_factor", 2.0),
                           ("attention.key_length_swa", 4), ("tensor_data_layout", "another")):
            with self.subTest(key):
                self.expect(made(**{f"llama.{key}": value})[0], BAD_FILE, key)
        for key, value in (("tokenizer.ggml.another", 3), ("split.count", 2), ("general.type", "adapter")):
            with self.subTest(key):
                self.expect(made(**{key: value})[0], BAD_FILE, key)
        for keys in ({"llama.rope.scale_linear": 2.0}, {"llama.rope.scaling.factor": 2.0}, {"tokenizer.ggml.eot_token_id": 5}):
            with self.subTest(**keys):
                self.assertNotIn(made(**keys)[1], (right, False))
        neutral = {"llama.attention.causal": True, "llama.expert_count": 0, "llama.logit_scale": 1.0, "llama.pooling_type": 0,
                   "llama.rope.scale_linear": 1.0, "general.name": "a", "general.file_type": 7, "split.count": 1, "someone.note": 3}
        self.assertEqual(made(**neutral)[1], right)


if __name__ == "__main__":
    unittest.main()
