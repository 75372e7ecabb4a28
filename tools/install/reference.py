#!/usr/bin/env python3
"""Makes the API reference (HTML) from the public headers with Doxygen.

usage: reference.py --doxygen FILE --root DIR --version TEXT --out DIR [--check]

Prints every warning of Doxygen, and the types, functions and enums without a comment. Exit code 1
if there are any. Fields, enum values, constructors, operators, getters and the internal parts of
macros need no comment: their names or the comment of their type are sufficient.
"""

import argparse
import pathlib
import re
import subprocess
import sys

SETTINGS = """
PROJECT_NAME = Bowline
PROJECT_NUMBER = "{version}"
PROJECT_BRIEF = "Runs and fine-tunes neural networks on the CPU and on any GPU"
INPUT = {inputs}
STRIP_FROM_PATH = "{runtime}"
STRIP_FROM_INC_PATH = "{runtime}"
USE_MDFILE_AS_MAINPAGE = "{main_page}"
EXCLUDE_SYMBOLS = bowline::detail* bowline::Internals
OUTPUT_DIRECTORY = "{out}"
JAVADOC_AUTOBRIEF = YES
SORT_MEMBER_DOCS = NO
BUILTIN_STL_SUPPORT = YES
GENERATE_LATEX = NO
HAVE_DOT = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = YES
WARN_IF_INCOMPLETE_DOC = NO
WARN_NO_PARAMDOC = NO
WARN_FORMAT = "$file:$line: $text"
"""
MAIN_PAGE = """# Bowline: API reference

`bowline.h` includes the whole interface. Each header of `bowline/` is a topic and can be included
alone. `bowline_text.h` is the interface of bowline::text: tokenizers, chat templates, generation.

The operators that a graph can have are listed in `operators.md`, in the folder of the documentation.
"""
MAY_GO_WITHOUT = re.compile(
    r"Member (?:.*\((?:variable|enumvalue|macro definition)\)|operator.*|~?\w+\(\) (?:const )?&*.*"
    r"|(\w+)\(.*\(function\) of (?:class|struct) (?:\w+::)*\1) .*is not documented")


def refused(warnings):
    """Returns the relevant warnings without duplicates. Doxygen reads a header several times if
    others include it.
    """
    return list(dict.fromkeys(w for w in warnings if w.strip() and not MAY_GO_WITHOUT.search(w)))


def make(doxygen, headers, runtime, version, out):
    """Writes the pages of these headers and returns the relevant warnings."""
    out.mkdir(parents=True, exist_ok=True)
    main_page = out / "reference.md"
    main_page.write_text(MAIN_PAGE)
    settings = SETTINGS.format(version=version, runtime=runtime, main_page=main_page, out=out,
                               inputs=" ".join(f'"{h}"' for h in (*headers, main_page)))
    done = subprocess.run([doxygen, "-"], input=settings, capture_output=True, text=True)
    return refused(done.stderr.splitlines()) or ([] if done.returncode == 0 else ["Doxygen failed."])


SEEDED = """/// A file. @file
#pragma once
/// A namespace.
namespace bowline {
/// A type.
struct A {
  A(int b);
  int b = 0;
  /// Adds.
  int add(int c);
%s};
}
"""
FAULTS = {  # lines of the type, and the expected warning
    "": None,
    "  int without(int c);\n": "Member without(int c) (function) of struct bowline::A is not documented.",
    "  struct B {\n    int c;\n  };\n": "Compound bowline::A::B is not documented.",
    "  /// Adds. @parma c no such command\n  int wrong(int c);\n": "Found unknown command '@parma'",
}


def check_seeded(doxygen, folder):
    """Yields the wrong warnings for headers with and without a fault."""
    for number, (lines, expected) in enumerate(FAULTS.items()):
        place = folder / str(number)
        place.mkdir(parents=True, exist_ok=True)
        header = place / "a.h"
        header.write_text(SEEDED % lines)
        got = make(doxygen, [header], place, "1", place)
        if len(got) != (expected is not None) or got and expected not in got[0]:
            yield f"For {lines!r} Doxygen reports {got} instead of {expected!r}."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--doxygen", required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true", help="check this script with seeded faults first")
    options = parser.parse_args()
    runtime = options.root / "runtime"
    headers = [runtime / "bowline.h", *sorted((runtime / "bowline").glob("*.h")), runtime / "text/bowline_text.h"]
    wrong = list(check_seeded(options.doxygen, options.out / "seeded")) if options.check else []
    wrong += make(options.doxygen, headers, runtime, options.version, options.out)
    print("\n".join(wrong) or f"The reference of {len(headers)} headers: {options.out}/html/index.html")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
