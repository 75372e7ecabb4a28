#!/usr/bin/env python3
"""Checks that the build rejects wrong declarations of per-step scalars, each with a clear message.
"""

import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True  # leaves nothing in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cmake"))
from generate_ops import Lists, read_step_words, step_head_shader  # noqa: E402

FORM = "is not of the form name: type = default, with type f32, u32, u64."
HEADS = {  # the head of a.cpp, the head of b.cpp, the expected message
    ("x: f32 = 1", "x: f32 = 1"): None,
    ("x: f32, y: u32 = 4294967295", "z: u64 = 18446744073709551615, w: f32 = -0.5e-3"): None,
    ("x: u32 = 0", "writes x: u32 = 0"): None,
    ("x: f32", "x: u32"): "b.cpp: per-step scalar x is u32, but f32 in a.cpp.",
    ("x: f32 = 1", "x: f32 = 2"): "b.cpp: per-step scalar x is f32 = 2, but f32 = 1 in a.cpp.",
    ("x: f32 = 1", "writes x: f32"): "b.cpp: per-step scalar x is f32, but f32 = 1 in a.cpp.",
    ("x: f32, x: f32", ""): "a.cpp: per-step scalar x occurs twice.",
    ("x: f32\n//! step writes x: f32", ""): "a.cpp: per-step scalar x occurs twice.",
    ("x", ""): "a.cpp: 'x' " + FORM,
    ("x: f16", ""): "a.cpp: 'x: f16' " + FORM,
    ("x: f32 = ", ""): "a.cpp: 'x: f32 =' " + FORM,
    ("x: f32; y: f32", ""): "a.cpp: 'x: f32; y: f32' " + FORM,
    ("x: u32 = 4294967296", ""): "a.cpp: the default 4294967296 of per-step scalar x is not a u32.",
    ("x: u32 = -1", ""): "a.cpp: the default -1 of per-step scalar x is not a u32.",
    ("x: u64 = 0.5", ""): "a.cpp: the default 0.5 of per-step scalar x is not a u64.",
    ("x: f32 = one", ""): "a.cpp: the default one of per-step scalar x is not a f32.",
}


def refusal(folder, heads):
    files = {}
    for op, head in zip("AB", heads):
        files[op] = folder / f"{op.lower()}.cpp"
        files[op].write_text("// An operator.\n" + (f"//! step {head}\n" if head else "") + "#include <cmath>\n")
    try:
        read_step_words(files)
    except SystemExit as sentence:
        return str(sentence).replace(f"{folder}/", "")
    return None


def check_heads():
    with tempfile.TemporaryDirectory() as folder:
        for heads, expected in HEADS.items():
            got = refusal(pathlib.Path(folder), heads)
            if got != expected:
                yield f"Heads {heads}: {got!r} instead of {expected!r}."


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    lists = Lists(root)
    words = read_step_words(lists.op_files(root), lists.optimizers)
    names = {w.name for entries in words.values() for w in entries}
    head = step_head_shader(root / "runtime/device/program.h")
    wrong = [*check_heads(), *(f"The head of the step buffer has a {n}, which an operator declares too."
                               for n in sorted(names) if f" {n};" in head)]
    print("\n".join(wrong) or f"{len(words)} operators have {len(names)} per-step scalars; {len(HEADS)} heads are read as they should be.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
