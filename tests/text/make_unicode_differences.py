#!/usr/bin/env python3
"""Writes runtime/text/unicode_differences.h: differences between the Unicode tables of the package
`tokenizers` and of utf8proc.

The tables of the package have several ages. Its normal forms use Unicode 12; punctuation, controls
and accents of BERT use Unicode 8; its regular expressions use Unicode 16. utf8proc 2.8 has Unicode
15. Needs the package tokenizers and libutf8proc.so.2.
"""

import ctypes
import pathlib

from tokenizers import Regex, normalizers, pre_tokenizers

HEADER = pathlib.Path(__file__).resolve().parents[2] / "runtime" / "text" / "unicode_differences.h"
utf8proc = ctypes.CDLL("libutf8proc.so.2")
# category, combining class, ...
utf8proc.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_int16)
LETTERS, MARKS, NUMBERS, PUNCTUATION = range(1, 6), range(6, 9), range(9, 12), range(12, 19)
MN, CONTROLS = 6, (26, 27, 29)
FLAGS = {"mark": 1, "nonspacing mark": 2, "punctuation": 4, "control": 8, "not normalized": 16, "letter": 32, "number": 64, "word": 128}


def ours_decomposed(code, compatible):
    out = (ctypes.c_int32 * 32)()
    last = ctypes.c_int(0)
    n = utf8proc.utf8proc_decompose_char(code, out, 32, (1 << 4 | 1 << 1) | (1 << 2 if compatible else 0), ctypes.byref(last))
    return "".join(map(chr, out[:n]))


def differences():
    accents = normalizers.StripAccents()
    rules = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    clean = normalizers.BertNormalizer(**rules | {"clean_text": True})
    bert = normalizers.BertNormalizer(**rules | {"strip_accents": True})
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    letter, number = (pre_tokenizers.Split(Regex(f"\\p{{{k}}}"), "removed") for k in "LN")
    punctuation, words = pre_tokenizers.Punctuation("removed"), pre_tokenizers.Whitespace()
    for code in (*range(0x80, 0xD800), *range(0xE000, 0x110000)):
        c = chr(code)
        properties = utf8proc.utf8proc_get_property(code)
        category, rank = properties[0], properties[1]
        decomposes = ours_decomposed(code, True) != c
        here = set()
        if (accents.normalize_str("a" + c) == "a") != (category in MARKS):
            here.add("mark")
        if not decomposes and (bert.normalize_str("a" + c) == "a") != (category == MN):
            here.add("nonspacing mark")
        if (not punctuation.pre_tokenize_str(c)) != (category in PUNCTUATION):
            here.add("punctuation")
        if (clean.normalize_str("a" + c) == "a") != (category in CONTROLS or code == 0xFFFD):
            here.add("control")
        if (rank > 1 and nfd.normalize_str(c + "\u0334") == c + "\u0334") or (decomposes and nfkd.normalize_str(c) == c):
            here.add("not normalized")
        if not letter.pre_tokenize_str(c) and category not in LETTERS:
            here.add("letter")
        if not number.pre_tokenize_str(c) and category not in NUMBERS:
            here.add("number")
        if category == 0 and len(words.pre_tokenize_str("a" + c)) == 1:
            here.add("word")
        yield code, sum(FLAGS[f] for f in here)


def main():
    ranges = []
    for code, flags in differences():
        if flags and ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == flags:
            ranges[-1][1] = code
        elif flags:
            ranges.append([code, code, flags])
    rows = [f"{{0x{a:X}, 0x{b:X}, {flags}}}," for a, b, flags in ranges]
    text = """// Made by tests/text/make_unicode_differences.py: code points whose properties in the tables of the
// package `tokenizers` differ from those of Unicode 15.
#pragma once

#include <cstdint>

namespace bowline::text {

// The properties that differ: mark, nonspacing mark, punctuation or control character; the
// decomposition and combining class; letter, digit or part of a word.
enum UnicodeDifference : uint8_t {
  kMarkDiffers = 1,
  kNonspacingDiffers = 2,
  kPunctuationDiffers = 4,
  kControlDiffers = 8,
  kNotNormalized = 16,
  kIsLetter = 32,
  kIsNumber = 64,
  kIsWord = 128,
};

struct UnicodeDifferences {
  char32_t first;
  char32_t last;
  uint8_t what;
};

// clang-format off
inline constexpr UnicodeDifferences kUnicodeDifferences[] = {
"""
    for i in range(0, len(rows), 5):
        text += "    " + " ".join(rows[i:i + 5]) + "\n"
    HEADER.write_text(text + "};\n// clang-format on\n\n}  // namespace bowline::text\n")
    print(len(ranges), "ranges")


if __name__ == "__main__":
    main()
