#!/usr/bin/env python3
"""Writes the parts of the source tree that the conformance runner needs into one .cpp: the case
files of all operators in the order of the op lists. Also writes a header with the gaps of the
backends that have a conformance.cpp."""

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # leaves no files in the source tree
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/cmake"))
from generate_ops import Lists, stem_of, write  # noqa: E402


def literal(text):
    """Returns C++ string literals of a text, in parts that every compiler accepts."""
    lines = text.splitlines(keepends=True) or [""]
    return "\n".join('     R"cases(' + line.rstrip("\n") + '\n)cases"' for line in lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--names", action="store_true", help="only print the names of the operators")
    parser.add_argument("--backends", default="", help="names of the backends with a conformance.cpp, comma-separated")
    args = parser.parse_args()
    ops = Lists(args.root).ops()
    if args.names:
        print(";".join(name for name, _, _ in ops), end="")
        return
    lines = ["// Generated from tests/ops/*.cases by tests/conformance/embed.py.", '#include "conformance/suite.h"\n',
             "namespace bowline::conformance {\n", "const CaseText kCaseTexts[kOps] = {"]
    for name, _, _ in ops:
        path = args.root / "tests/ops" / (stem_of(name) + ".cases")
        lines += [f'    {{"{path.name}",', literal(path.read_text()) + "},"]
    lines += ["};\n", "}  // namespace bowline::conformance\n"]
    write(args.out / "generated/cases.cpp", "\n".join(lines))

    names = [n for n in args.backends.split(",") if n]
    lines = ["// Generated from backends/*/conformance.cpp by tests/conformance/embed.py.", "#pragma once\n",
             "#include <array>", "#include <string_view>\n", '#include "conformance/gaps.h"\n',
             "namespace bowline::conformance {\n", "struct BackendGaps {", "  std::string_view backend;",
             "  const Gaps& (*gaps)();", "};\n"]
    lines += [f"const Gaps& gaps_{n}();" for n in names]
    rows = ", ".join(f'BackendGaps{{"{n}", gaps_{n}}}' for n in names)
    lines += [f"inline constexpr std::array<BackendGaps, {len(names)}> kBackendGaps = {{{rows}}};\n",
              "}  // namespace bowline::conformance\n"]
    write(args.out / "generated/gaps.h", "\n".join(lines))


if __name__ == "__main__":
    main()
