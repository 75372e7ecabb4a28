#!/usr/bin/env python3
"""Compiles each header of the C interface alone, as C and C++ of several versions.

usage: headers_test.py --include DIR COMPILER...

Every compiler must accept each header without a warning. gnu89 is the oldest C that import tools of
other languages read; C99 is the oldest that bowline_c.h promises. A program may include a header
twice, and by its path, as import tools do. A macro must be a number, because these tools ignore
others.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

C = ["gnu89", "c99", "c11", "c17"]
CXX = ["c++11", "c++20"]
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Wpedantic", "-Werror"]
MACROS = re.compile(r"#define (\w+)(.*)")
NUMBER = re.compile(r" (\d+|\(-\d+\))")
HIDDEN = {"BOWLINE_C_EXPORT"}  # marks functions; no program needs it


def compiled(compiler, standard, source, include):
    is_cxx = standard.startswith("c++")
    strict = [flag for flag in STRICT if not (is_cxx and flag == "-Wstrict-prototypes")]
    # ISO C90 has no `//`, which gnu89 allows.
    strict = [flag for flag in strict if not (standard == "gnu89" and flag == "-Wpedantic")]
    with tempfile.NamedTemporaryFile("w", suffix=".cpp" if is_cxx else ".c") as file:
        file.write(source)
        file.flush()
        return subprocess.run([compiler, "-x", "c++" if is_cxx else "c", f"-std={standard}", *strict, *include,
                               "-fsyntax-only", file.name], capture_output=True, text=True)


def check_macros(path):
    for name, value in MACROS.findall(path.read_text(encoding="utf-8")):
        if not name.endswith("_H") and name not in HIDDEN and not NUMBER.fullmatch(value):
            yield f"{path.name}: {name} is not a number."


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--include", required=True, type=pathlib.Path)
    arguments.add_argument("compilers", nargs="+")
    args = arguments.parse_args()
    headers = [args.include / "bowline_c.h", *sorted((args.include / "bowline_c").glob("*.h"))]
    wrong, count = [], 0
    for path in headers:
        wrong += check_macros(path)
        name = path.relative_to(args.include).as_posix()
        sources = [(f'#include "{name}"\n#include "{name}"\n', ["-I", str(args.include)]), (f'#include "{path}"\n', [])]
        for compiler in args.compilers:
            for standard in [*C, *CXX]:
                for source, include in sources:
                    done = compiled(compiler, standard, source + "int x;\n", include)
                    count += 1
                    if done.returncode:
                        how = "in the include path" if include else "by its path"
                        wrong.append(f"{compiler} -std={standard}: {name}, included {how}:\n{done.stderr}")
    print("\n".join(wrong) or f"{len(headers)} headers compile in {count} ways.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
