#!/usr/bin/env python3
"""Checks the rules for backends/cuda that the CUDA emulation and bitwise reproducibility need.

Shared memory is declared as `__shared__ Shared<T> name;`, so that the emulation can check it. No
kernel uses atomics, because their order changes from run to run. `asm` is only in files that the
emulation does not compile. Prints a sentence per violation; exit code 1 if there is any.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = [
    (re.compile(r"__shared__\s+(?!Shared<)"), "declares shared memory without Shared<T>, which the emulation cannot check"),
    (re.compile(r"\batomic\w+\s*\("), "uses an atomic, whose order changes from run to run"),
    (re.compile(r"\basm\b"), "has inline PTX, which the emulation cannot run"),
]


def breaches(text):
    code = re.sub(r"//[^\n]*", "", text)
    for line, content in enumerate(code.split("\n"), 1):
        for pattern, sentence in RULES:
            if pattern.search(content):
                yield line, sentence


def main():
    # Self-test: the check must find known violations.
    seeded = "__shared__ float tile[4];\natomicAdd(&sum, x);\nasm(\"nop;\");\n__shared__ Shared<float[4]> right;\n"
    if [line for line, _ in breaches(seeded)] != [1, 2, 3]:
        sys.exit("kernels.py does not find its seeded violations.")
    files = sorted(p for folder in ("kernels", "device") for p in (ROOT / "backends/cuda" / folder).glob("*.cu*"))
    found = 0
    for path in files:
        for line, sentence in breaches(path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{line} {sentence}.")
            found += 1
    print(f"{len(files)} files of CUDA kernels checked.")
    sys.exit(1 if found or not files else 0)


if __name__ == "__main__":
    main()
