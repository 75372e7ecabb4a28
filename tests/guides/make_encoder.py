#!/usr/bin/env python3
"""Makes a tiny sentence encoder for the guides: random weights, and a tokenizer of letters.

usage: make_encoder.py FOLDER
"""

import json
import pathlib
import shutil
import string
import sys

FIXTURE = pathlib.Path(__file__).resolve().parents[1] / "import/fixtures/bert"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer():
    letters = string.ascii_lowercase
    vocabulary = {token: n for n, token in enumerate([*SPECIAL, *letters, *(f"##{c}" for c in letters)])}
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    added = [{"id": n, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for n, token in enumerate(SPECIAL)]
    special = {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": vocabulary}}


folder = pathlib.Path(sys.argv[1])
shutil.copytree(FIXTURE, folder)
(folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
