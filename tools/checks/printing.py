#!/usr/bin/env python3
"""Checks that the command and bowline-conform print only through common/print.h, which escapes
untrusted text.
"""

import pathlib
import re
import sys

ALONE = "tools/bowline/common/print.cpp"
RAW = re.compile(
    r"fmt::v?print\b|\bv?f?printf\s*\(|\bf?put[cs]\s*\(|\bputchar\s*\(|\bperror\s*\(|\bstd::(?:cout|cerr|clog)\b|<iostream>"
    r"|\bfwrite\s*\([^;]*\bstd(?:out|err)\b|\bSTD(?:OUT|ERR)_FILENO\b|\bwrite\s*\(\s*[12]\s*,|\.exit\(\w+\)", re.DOTALL)


def raw_prints(path):
    code = re.sub(r"//[^\n]*", "", path.read_text())
    for found in RAW.finditer(code):
        yield code.count("\n", 0, found.start()) + 1, found[0].split("\n")[0]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    files = [p for folder in ("bowline", "conform") for p in sorted((root / "tools" / folder).rglob("*")) if p.suffix in (".cpp", ".h")]
    wrong = [f"{path.relative_to(root)}:{line}: \"{text}\" prints past common/print.h."
             for path in files if path.relative_to(root).as_posix() != ALONE for line, text in raw_prints(path)]
    print("\n".join(wrong) or f"All printing of {len(files)} files goes through common/print.h.")
    sys.exit(1 if wrong or not files else 0)


if __name__ == "__main__":
    main()
