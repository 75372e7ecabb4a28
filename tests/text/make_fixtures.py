#!/usr/bin/env python3
"""Makes the fixtures of the tokenizers, and compares `bowline tokenize` with the package
`tokenizers` in bulk.

  make_fixtures.py fixtures                  trains a small tokenizer of each kind and writes data/:
                                             the tokenizers, the texts, and the results of the
                                             package `tokenizers`
  make_fixtures.py corpus                    writes the first inputs of
                                             tests/fuzz/tokenizer_fuzz.cpp
  make_fixtures.py bulk --bowline PROGRAM    10,000 lines in 16 scripts and 100,000 random byte
                                             strings for each kind, and for the files of --file;
                                             exit code 1 if ids, offsets or texts differ

Needs the packages tokenizers and gguf. The script makes the texts. The training also reads
samples/data/kjv.txt.
"""

import argparse
import base64
import codecs
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
KJV = HERE.parents[1] / "samples" / "data" / "kjv.txt"

# A few words in each of 16 scripts.
WORDS = {
    "Latin": "the of and library café naïve Ångström Straße İstanbul fiancée don't we'll I'M THEY'RE x² ﬁne",
    "Greek": "το και της ελληνική γλώσσα Όμηρος Σίσυφος ὁδός ΑΒΓ λόγος",
    "Cyrillic": "и в не русский язык Ёлка ёж Україна їжак бързо СССР",
    "Armenian": "հայերեն լեզու և Երևան բարև մեկ",
    "Hebrew": "שלום עולם עִבְרִית ספר מים לחם",
    "Arabic": "السلام عليكم العَرَبِيَّة كتاب ماء ١٢٣ لا",
    "Devanagari": "हिन्दी भाषा नमस्ते दुनिया क्षत्रिय १२३ ज़िला",
    "Bengali": "বাংলা ভাষা নমস্কার বিশ্ব ১২৩ ড়",
    "Tamil": "தமிழ் மொழி வணக்கம் உலகம் கோ",
    "Thai": "ภาษาไทย สวัสดี โลก น้ำ ๑๒๓ กำ",
    "Khmer": "ភាសាខ្មែរ សួស្តី ពិភពលោក",
    "Hangul": "한국어 안녕하세요 세계 각 값",
    "Kana": "ひらがな カタカナ がぎぐ パピプ ｶﾞ ー",
    "Han": "中文 汉字 漢字 世界 你好 図書館 ，。 ㍿ ①②",
    "Georgian": "ქართული ენა გამარჯობა Ⴀ მსოფლიო",
    "Ethiopic": "አማርኛ ቋንቋ ሰላም ዓለም ፩፪፫",
}
# Code points that are often treated wrong, and texts that look like tokens.
STRANGE = ("\t", "\n", "\r\n", "  ", "   ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d", "\ufeff", "\x00", "\x07", "\x85", "\u2028",
           "é", "e\u0301", "e\u0323\u0301", "a\u0301\u0323", "\u1100\u1161\u11a8", "ﷺ", "½", "Ⅷ", "٣", "𝟘", "𝒜", "👍🏽", "👨‍👩‍👧", "🇩🇪",
           "\ufffd", "'", "'s", "'LL", "n't", " .", "$", "+", "^", "`", "|", "~", "¿", "—", "…", "\u0130", "ǅ", "ẞ", "ς", "<s>", "</s>",
           "[CLS]", "[MASK]", "<|end|>", " <mask> ", "<0x41>", "▁", "##a", "Ġ", "1234567", "3.14", "a_b", "\u0345", "ᾳ", "ﬃ", "ſ", "'ſ")
RANGES = ((0x20, 0x250), (0x300, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x1D400, 0x1D800), (0x1F300, 0x1F600))


def strange(random_):
    """Returns a random code point of Unicode 3.2, which tables of all ages contain."""
    while True:
        c = chr(random_.randrange(*random_.choice(RANGES)))
        if unicodedata.ucd_3_2_0.category(c) != "Cn":
            return c


def line(random_):
    """Returns words of one or two scripts, with punctuation, spaces and unusual code points between
    them.
    """
    scripts = random_.sample(list(WORDS), random_.choice([1, 1, 1, 2]))
    words = [w for s in scripts for w in WORDS[s].split()]
    out = []
    for _ in range(random_.randrange(1, 16)):
        kind = random_.random()
        if kind < 0.75:
            out.append(random_.choice(words))
        elif kind < 0.9:
            out.append(random_.choice(STRANGE))
        elif kind < 0.95:
            out.append("".join(strange(random_) for _ in range(random_.randrange(1, 4))))
        else:
            out.append(str(random_.randrange(10 ** random_.randrange(1, 9))))
        out.append(random_.choice([" ", " ", " ", " ", "", ", ", ". ", "!", "-", "\n" if random_.random() < 0.1 else " "]))
    return "".join(out)


def bytes_of_any_kind(random_):
    """Returns random bytes, or text with some random bytes."""
    if random_.random() < 0.5:
        return bytes(random_.randrange(256) for _ in range(random_.randrange(0, 24)))
    text = bytearray(line(random_).encode()[: random_.randrange(1, 60)])
    for _ in range(random_.randrange(0, 4)):
        text[random_.randrange(len(text))] = random_.randrange(256)
    return bytes(text)


def verses():
    return KJV.read_text(encoding="utf-8").splitlines()


# -------------------------------------------------------------------------------------- tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PIECES = 700
BYTE_PIECES = [f"<0x{b:02X}>" for b in range(256)]


def changed(tokenizer, **changes):
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | changes))


def byte_level(pre, lines, post=None, normalizer=None, added=()):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=PIECES, special_tokens=["<s>", "</s>", "<|end|>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(list(added))
    t.decoder = decoders.ByteLevel()
    if post:
        t.post_processor = post
    return t


def split_then_bytes(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(lines):
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), lines, processors.ByteLevel(trim_offsets=False),
                      added=[AddedToken("a word", single_word=True, normalized=False), AddedToken("library", single_word=True)])


def roberta(lines):
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), lines,
                      processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=True),
                      added=[AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False)])


def llama3(lines):
    t = byte_level(split_then_bytes(LLAMA3), lines)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])])
    return changed(t, model=json.loads(t.to_str())["model"] | {"ignore_merges": True})


def qwen(lines):
    return byte_level(split_then_bytes(QWEN), lines, processors.ByteLevel(trim_offsets=False), normalizer=normalizers.NFC())


def o200k(lines):
    return byte_level(split_then_bytes(O200K), lines)


def smollm(lines):
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), lines)


def llama2(lines):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=PIECES + 256, special_tokens=["<unk>", "<s>", "</s>", *BYTE_PIECES],
                                                     limit_alphabet=300, show_progress=False))
    t = changed(t, added_tokens=json.loads(t.to_str())["added_tokens"][:3], pre_tokenizer=None)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def bert_with(lines, longest=100, **options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=longest))
    t.normalizer = normalizers.BertNormalizer(**options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=PIECES + 200, limit_alphabet=350, show_progress=False,
                                                           special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert(lines):
    return bert_with(lines, lowercase=True)


def bert_cased(lines):
    t = bert_with(lines, longest=20, lowercase=False, strip_accents=False, handle_chinese_chars=False)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def charsmap(pairs):
    """Returns the `precompiled_charsmap` of SentencePiece for some texts: a double array over their
    bytes, then the texts.
    """
    texts = b""
    trie = {}
    for key, value in pairs:
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += value.encode() + b"\0"
    units = {0: [0, 0, False]}  # position: label, offset, whether it has a leaf
    leaves = {}
    taken = {0}

    def place(node, at):
        children = [b for b in node if b is not None]
        base = next(b for b in range(1, 1 << 20) if all((b ^ c) not in taken for c in [0, *children]))
        units[at][1] = at ^ base
        taken.update([base, *(base ^ c for c in children)])
        if None in node:
            units[at][2] = True
            leaves[base] = node[None]
        for c in children:
            units[base ^ c] = [c, 0, False]
        for c in children:
            place(node[c], base ^ c)

    place(trie, 0)
    out = [0x80000000 | 0xFF] * ((max(taken) | 255) + 1)
    for at, (label, offset, leaf) in units.items():
        assert offset < 1 << 21
        out[at] = label | leaf << 8 | offset << 10
    for at, value in leaves.items():
        out[at] = 0x80000000 | value
    return struct.pack("<I", 4 * len(out)) + struct.pack(f"<{len(out)}I", *out) + texts


SMALL_MAP = [("ﬁ", "fi"), ("ﬃ", "ffi"), ("①", "1"), ("\u3000", " "), ("\u00a0", " "), ("e\u0301", "é"), ("ｶﾞ", "ガ"), ("\t", " "), ("\n", " "), ("\u200b", ""),
             ("\x07", ""), ("½", "1⁄2"), ("㍿", "株式会社"), ("Å", "Å"), ("…", "...")]


def unigram_with(normalizer, byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>", *(BYTE_PIECES if byte_fallback else [])]
    # The trainer keeps every code point, so it gets only the code points of the words.
    t.train_from_iterator([*verses()[::8], *WORDS.values()], trainers.UnigramTrainer(vocab_size=PIECES + 300 + len(specials), special_tokens=specials,
                                                                                     unk_token="<unk>", show_progress=False))
    j = json.loads(t.to_str())
    t = changed(t, model=j["model"] | {"byte_fallback": byte_fallback}, added_tokens=j["added_tokens"][:3])
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if byte_fallback else decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return t


def unigram(_):
    return unigram_with(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]))


def t5(_):
    steps = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(SMALL_MAP)).decode()},
             {"type": "Strip", "strip_left": False, "strip_right": True},
             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]
    return changed(unigram_with(normalizers.NFKC(), byte_fallback=True), normalizer={"type": "Sequence", "normalizers": steps})


def parts(lines):
    """Covers the parts that the other kinds do not have."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="@@"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(),
        pre_tokenizers.Split("a", "merged_with_next"), pre_tokenizers.Split(Regex("[aeiou]+"), "contiguous", invert=True)])
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=PIECES, special_tokens=["<unk>"], end_of_word_suffix="</w>",
                                                     continuing_subword_prefix="@@", limit_alphabet=300, show_progress=False))
    t.decoder = decoders.BPEDecoder()
    return t


def word_level(lines):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.NFKD()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.CharDelimiterSplit("-")])
    t.train_from_iterator(lines, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False))
    return t


KINDS = [gpt2, roberta, llama3, qwen, o200k, smollm, llama2, bert, bert_cased, unigram, t5, parts, word_level]


def trained(only=()):
    random_ = random.Random(1)
    lines = verses()[::8] + [line(random_) for _ in range(2000)]
    for kind in KINDS:
        if not only or kind.__name__ in only:
            yield kind.__name__, kind(lines)


# -------------------------------------------------------------------------------------- GGUF files

def scored(tokenizer):
    """Returns the scores of a vocabulary as SentencePiece stores them, and the tokenizer whose
    merges follow from the scores.
    """
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"]
    scores = {piece: -1e9 for piece in vocab}
    for rank, (a, b) in enumerate(model["merges"]):
        scores[a + b] = max(scores[a + b], -float(rank))
    merges = [(-scores[piece], len(piece) - cut, piece[:cut], piece[cut:]) for piece in vocab if scores[piece] > -1e9
              for cut in range(1, len(piece)) if piece[:cut] in vocab and piece[cut:] in vocab]
    merges = [(a, b) for _, _, a, b in sorted(merges)]
    return [scores[piece] for piece in sorted(vocab, key=vocab.get)], changed(tokenizer, model=model | {"merges": merges})


def write_gguf(path, tokenizer, model, pre=None, scores=None, **ids):
    j = tokenizer if isinstance(tokenizer, dict) else json.loads(tokenizer.to_str())
    vocab = j["model"]["vocab"]
    pieces = [piece for piece, _ in vocab] if model == "t5" else sorted(vocab, key=vocab.get)
    special = {t["content"] for t in j["added_tokens"] if t["special"]}
    types = [3 if p in special else 6 if p in BYTE_PIECES and model in ("llama", "t5") else 1 for p in pieces]
    if model == "bert":  # the first token of a word has a mark, the other tokens have none
        pieces = [p if p in special else p[2:] if p.startswith("##") else "▁" + p for p in pieces]
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_tokenizer_model(model)
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(pieces)
    w.add_token_types(types)
    if scores:
        w.add_token_scores(scores)
    if model == "gpt2":
        w.add_token_merges([" ".join(m) for m in j["model"]["merges"]])
    for name, value in ids.items():
        getattr(w, f"add_{name}")(value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def write_ggufs(data, kinds):
    write_gguf(data / "smollm.gguf", kinds["smollm"], "gpt2", "smollm")
    write_gguf(data / "llama3.gguf", kinds["llama3"], "gpt2", "llama-bpe", bos_token_id=0)
    write_gguf(data / "bert.gguf", kinds["bert"], "bert", bos_token_id=2, sep_token_id=3, unk_token_id=1)
    scores, t = scored(kinds["llama2"])
    write_gguf(data / "scores.gguf", t, "llama", scores=scores, bos_token_id=1, unk_token_id=0)
    t5 = json.loads(kinds["t5"].to_str())
    write_gguf(data / "t5.gguf", t5, "t5", scores=[score for _, score in t5["model"]["vocab"]], eos_token_id=2, unk_token_id=0, add_space_prefix=True,
               remove_extra_whitespaces=True, precompiled_charsmap=base64.b64decode(t5["normalizer"]["normalizers"][0]["precompiled_charsmap"]))
    return {"scores": t}


# --------------------------------------------------------------------------------- expected values

def decoded(raw):
    """Returns the text with Python's replacement of invalid UTF-8, and the byte offset of each code
    point.
    """
    broken = []

    def note(error):
        broken.append((error.start, error.end))
        return "\ufffd", error.end

    codecs.register_error("note", note)
    text = raw.decode("utf-8", "note")
    begins = []
    at = 0
    for c in text:
        begins.append(at)
        if broken and broken[0][0] == at:
            at = broken.pop(0)[1]
        else:
            at += len(c.encode())
    assert at == len(raw) and not broken
    return text, [*begins, at]


def truth(tokenizer, raw):
    """Returns ids, offsets in bytes, and the decoded text."""
    text, begins = decoded(raw)
    e = tokenizer.encode(text)
    return e.ids, [[begins[a], begins[b]] for a, b in e.offsets], tokenizer.decode(e.ids)


# ---------------------------------------------------------------------------------------- commands

def compact(tokenizer):
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))


def fixture_texts():
    random_ = random.Random(2)
    texts = [b"", b" ", b"a", "".join(STRANGE).encode(), b"A library that draws maps.", b"  two  spaces \n\n and lines\r\n", b"x" * 200, "é".encode() * 60,
             b"<s>a</s> <|end|>[MASK] <mask>  b", b"library a word libraryx a words", b"\xff\xc3(\xe2\x82 \xf0\x9f\x98 end\xed\xa0\x80"]
    texts += [line(random_).encode()[:240] for _ in range(40)]
    texts += [bytes_of_any_kind(random_) for _ in range(20)]
    return texts + [v.encode() for v in verses()[::1000]]


# Expressions that have another meaning in PCRE2, and expressions of tokenizers.
EXPRESSIONS = [
    r"\w+", r"\w+|[^\w\s]+", r"\W", r"[\w]+", r"[^\w]", r"[\W\d]+", r"(?<!\w)\d+", r"\b", r"\B", r"\b\w", r"[[:word:]]+", r"[[:alpha:]]+", r"[[:alnum:]]+",
    r"[[:upper:]]+", r"[[:lower:]]+", r"[[:punct:]]+", r"[[:punct:]\s]+", r"[^[:alpha:]\s]+", r"[[:^alpha:]]+", r"[[:space:]]+", r"[[:digit:]]+", r"[]\s]+",
    r"[^]a]+", r"[a-z&&[^b]]+", r"[^a-z&&[^b]]+", r"[\p{L}&&[^\p{Han}]]+|\p{Han}+", r"[a-z&&\w&&[^c-d]]+", r"[a[bc]]+", r"[a[^bc]]+", r"[^a[^bc]]+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{Han}+", r"\p{Katakana}+", r"\p{Hiragana}+", r"\p{Latin}+", r"\P{Han}+", r"\p{^L}+", r"\p{Alpha}+", r"[\p{Lu}\p{Lt}]+",
    r"\p{Lu}", r"\p{M}+", r"\p{N}{1,3}", r"^.", r".$", r"^", r"$", r"(?m).+", r"(?m:a.c)", r"(?i)B|C", r"b(?i)c|d", r"((?i)b)C", r"(?i:AB)c", r"(?i-m:AB)",
    r"\h+", r"\H+", r"[\h]+", r"\v", r"[\v]", r"a{,2}", r"a{1,}", r"a{2}", r"a{,}", r"(?=a)", r"(?<=b)", r"a|", r"|b", r"a*", r"[\s-]+", r"[\w-]+", r"[\d-z]+",
    r"[&&a]+", r"\s+(?!\S)|\s+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|\s+",
    r"(?>a+)b", r"(?<x>a)\k<x>", r"(a)\1", r"\Aab", r"cd\z", r"\x{41}", r"[\x{41}-\x{43}]", r"[a\-c]+", r"[a\]]+", r"[\[\]]+", r"a.b", r"(?#no)b", r"x?+", r"a++b", r"a+?b",
    r"\p{Word}+", r"\P{Word}", r"[\p{Word}]+", r"\p{Punct}+", r"[^\p{Punct}]+", r"[[:graph:]]+", r"[[:print:]]+", r"[[:blank:]]+", r"[[:^graph:]]+", r"\p{Graph}+",
]
EXPRESSION_TEXTS = [
    "ab\ncd", "bab", "aab aaab caab", "a. b! c?", "a1 b_2 C-3", "सकते हिन्दी १२", "ก็ a", "e\u0301 1", "中文。abかなカナー、a。", "xabc xfacex CAFE", "a    b\n\n c", "a\tb\x0bc\x0cd",
    "A\u00c0\u01c5\u02b0 \u2160\u24b6", "don't we'll", "[]a]-&&", "ABCabc bC bc BC d D", "a\u00a0b\u2003c\u180ed\u200be", "a€ ©+<^` ¨∑ 😀$~|=_-", "aa", "acb a\nb a\nc", "1\u00bd x\u00b2\u00b3 \u00b9 \u2460b",
    "a\u061cb\u2066c\u180ed \u3000\t$+.!",
]


def cuts(expression, text):
    """Returns [begin, end) of each split in bytes from the package, or None if it refuses the
    expression.
    """
    try:
        split = pre_tokenizers.Split(Regex(expression), "isolated")
    except Exception:
        return None
    places = [0]
    for c in text:
        places.append(places[-1] + len(c.encode()))
    return [[places[begin], places[end]] for _, (begin, end) in split.pre_tokenize_str(text)]


def write_expressions():
    """Writes a line for each expression and text, both in hex, with the offsets of the splits."""
    rows = []
    for expression in EXPRESSIONS:
        for text in EXPRESSION_TEXTS:
            pieces = cuts(expression, text)
            if pieces is not None:
                rows.append(" ".join([expression.encode().hex(), text.encode().hex(), *(f"{begin}:{end}" for begin, end in pieces)]) + "\n")
    (HERE / "data/expressions.expected").write_text("".join(rows))


def write_fixtures():
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    texts = fixture_texts()
    (data / "texts.hex").write_text("".join(t.hex() + "\n" for t in texts))
    kinds = dict(trained())
    for name, t in kinds.items():
        (data / f"{name}.json").write_text(compact(t), encoding="utf-8")
    for name, t in (kinds | write_ggufs(data, kinds)).items():
        rows = []
        for raw in texts:
            ids, offsets, text = truth(t, raw)
            pieces = " ".join(f"{i}:{a}:{b}" for i, (a, b) in zip(ids, offsets))
            rows.append(f"{pieces}|{'=' if text.encode() == raw else text.encode().hex()}\n")
        (data / f"{name}.expected").write_text("".join(rows))
        print(name, t.get_vocab_size(), "pieces", flush=True)
    write_expressions()
    print(sum(p.stat().st_size for p in data.iterdir()), "bytes in all")


def write_corpus():
    """Writes files of each kind with a few tokens."""
    folder = HERE.parent / "fuzz" / "corpus" / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {p: i for i, p in enumerate(["<unk>", "a", "b", "ab", "▁", "▁ab", "é", "Ġ", "Ã", "©", "##b", "<0x61>", "<0xC3>", "<0xA9>", "c</w>"])}
    merges = ["a b", "▁ ab"]
    bpe = {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>"}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}
    around = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [], "special_tokens": {"a": {"id": "a", "ids": [1], "tokens": ["a"]}}}
    unigram_vocab = [[p, -float(i)] for p, i in vocab.items()]
    files = {
        "bytes": dict(model=bpe, normalizer={"type": "NFC"}, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, bytes_]},
                      post_processor={"type": "Sequence", "processors": [bytes_, around]}, decoder={"type": "ByteLevel"}),
        "fallback": dict(model=bpe | {"byte_fallback": True, "fuse_unk": True},
                         normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                         decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                                   {"type": "Strip", "content": " ", "start": 1, "stop": 1}]}),
        "words": dict(model={"type": "WordPiece", "vocab": vocab, "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
                      normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                      pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
        "unigram": dict(model={"type": "Unigram", "vocab": unigram_vocab, "unk_id": 0, "byte_fallback": True},
                        normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap([("e\u0301", "é"), ("A", "a")])).decode()},
                        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}, decoder={"type": "Metaspace", "replacement": "▁"}),
        "suffix": dict(model=bpe | {"end_of_word_suffix": "</w>"}, normalizer={"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                                                                                                                   {"type": "Strip", "strip_left": True, "strip_right": True}]},
                       pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Digits", "individual_digits": True},
                                                                            {"type": "Punctuation", "behavior": "Contiguous"}]},
                       decoder={"type": "BPEDecoder", "suffix": "</w>"}),
    }
    added = [{"id": 15, "content": "<s>", "special": True, "lstrip": True, "rstrip": True}, {"id": 16, "content": "É", "single_word": True, "normalized": True}]
    text = "ab <s> aé 12, É e\u0301A字".encode() + b"\xff "
    contents = {name: (0, json.dumps({"added_tokens": added, **f}, ensure_ascii=False, separators=(",", ":")).encode()) for name, f in files.items()}
    with tempfile.TemporaryDirectory() as place:
        for name, model, options in (("gguf_bytes", "gpt2", {"pre": "llama-bpe", "bos_token_id": 1}), ("gguf_scores", "llama", {"scores": [-float(i) for i in range(15)], "bos_token_id": 1,
                                                                                                                            "unk_token_id": 0}),
                                     ("gguf_words", "bert", {"bos_token_id": 1, "sep_token_id": 2, "unk_token_id": 0}),
                                     ("gguf_unigram", "t5", {"scores": [-float(i) for i in range(15)], "eos_token_id": 2, "unk_token_id": 0,
                                                             "precompiled_charsmap": charsmap([("e\u0301", "é"), ("A", "a")]),
                                                             "remove_extra_whitespaces": True})):
            path = pathlib.Path(place, name)
            of = {"vocab": unigram_vocab if model == "t5" else vocab, "merges": [m.split() for m in merges]}
            write_gguf(path, {"added_tokens": [{"content": "<unk>", "special": True}], "model": of}, model, **options)
            contents[name] = (1, path.read_bytes())
    for name, (kind, file) in contents.items():
        (folder / name).write_bytes(bytes([kind]) + struct.pack("<H", len(file)) + file + text)


def compare(name, program, path, tokenizer, texts, null):
    separator = b"\0" if null else b"\n"
    texts = [t.replace(separator, b" ") for t in texts]
    with tempfile.NamedTemporaryFile() as file:
        file.write(separator.join(texts) + separator)
        file.flush()
        command = [program, "tokenize", str(path), "--file", file.name, "--null" if null else "--lines", "-o", "json"]
        rows = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    assert len(rows) == len(texts), f"{len(rows)} rows of {len(texts)} texts"
    wrong = 0
    for raw, row in zip(texts, rows):
        want = truth(tokenizer, raw)
        got = json.loads(row)
        if (got["ids"], got["offsets"], got["text"]) != want:
            wrong += 1
            if wrong <= 2:
                print(f"{name}: {raw!r}\n  tokenizers {want}\n  bowline    {got['ids'], got['offsets'], got['text']}")
    return wrong


def bulk(program, files, count, only):
    random_ = random.Random(3)
    lines = [line(random_).encode() for _ in range(count // 2)] + [v.encode() for v in verses()[: count // 8]]
    lines += ["".join(strange(random_) for _ in range(random_.randrange(1, 40))).encode() for _ in range(count - len(lines))]
    strings = [bytes_of_any_kind(random_) for _ in range(10 * count)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        kinds = []
        for name, t in trained(only):
            kinds.append((name, t, pathlib.Path(folder, f"{name}.json")))
            kinds[-1][2].write_text(compact(t), encoding="utf-8")
        for path in files:
            t = Tokenizer.from_file(path)
            t.no_truncation()
            t.no_padding()
            kinds.append((path, t, path))
        for name, t, path in kinds:
            bad = compare(name, program, path, t, lines[::2], False) + compare(name, program, path, t, lines[1::2], True)
            bad_strings = compare(name, program, path, t, strings[::2], False) + compare(name, program, path, t, strings[1::2], True)
            print(f"{name}: {len(lines)} lines, {bad} differ; {len(strings)} byte strings, {bad_strings} differ", flush=True)
            wrong += bad + bad_strings
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["fixtures", "corpus", "bulk"])
    parser.add_argument("--bowline", default="build/release/bin/bowline")
    parser.add_argument("--file", action="append", default=[], help="another tokenizer.json to compare")
    parser.add_argument("--count", type=int, default=10000, help="lines; ten times as many byte strings")
    parser.add_argument("--only", action="append", default=[], help="a kind, instead of all")
    o = parser.parse_args()
    if o.verb == "fixtures":
        write_fixtures()
    elif o.verb == "corpus":
        write_corpus()
    elif bulk(o.bowline, o.file, o.count, o.only):
        sys.exit(1)


if __name__ == "__main__":
    main()
