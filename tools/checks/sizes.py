#!/usr/bin/env python3
"""Checks that files and functions of the product are short.

A file has at most 600 lines. A function has at most 80, one of the planner 60, and one of a kernel
or shader 120. Lambdas and nested functions count as a part of the function around them. The check
prints one sentence per breach and exits with 1 if there is any.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ["backends", "runtime", "samples", "schemas", "shaders", "tools"]
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".comp", ".glsl", ".fbs", ".cmake", ".py"}
KERNELS = {".cu", ".cuh", ".comp", ".glsl"}
WITHOUT_FUNCTIONS = {".fbs", ".cmake"}
MOST_OF_FILE = 600
MOST_OF_FUNCTION, MOST_OF_KERNEL, MOST_OF_PLANNER = 80, 120, 60

# Comments, strings and preprocessor lines, in which braces do not count.
HIDDEN = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*\""""
                    r"""|\b\d[\d']*|'(?:\\.|[^'\\\n])+'"""
                    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
CONTAINER = re.compile(
    r"(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|class|struct|union|enum|extern)\b[^()]*$",
    re.DOTALL)


def functions_of_c(text):
    """The first line and the number of lines of each outermost function."""
    code = HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    begin, inside, depth = 0, None, 0
    for found in re.finditer(r"[{};]", code):
        at = found.start()
        if found[0] == "{":
            depth += 1
            head = code[begin:at].strip()
            if inside is None and "(" in head and not CONTAINER.match(head):
                inside = depth, begin + len(code[begin:at]) - len(code[begin:at].lstrip())
        elif found[0] == "}":
            if inside is not None and inside[0] == depth:
                first = code.count("\n", 0, inside[1]) + 1
                yield first, code.count("\n", 0, at) + 2 - first
                inside = None
            depth -= 1
        if inside is None:
            begin = at + 1


def functions_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno + 1 - node.lineno


def breaches(name, text):
    path = pathlib.PurePosixPath(name)
    lines = text.count("\n")
    if lines > MOST_OF_FILE:
        yield f"{name} has {lines} lines, above {MOST_OF_FILE}."
    if path.suffix in WITHOUT_FUNCTIONS:
        return
    most = MOST_OF_KERNEL if path.suffix in KERNELS else \
        MOST_OF_PLANNER if name.startswith("runtime/plan/") else MOST_OF_FUNCTION
    find = functions_of_python if path.suffix == ".py" else functions_of_c
    for first, count in find(text):
        if count > most:
            yield f"{name}:{first} begins a function of {count} lines, above {most}."


def self_test():
    body = "  if (x('{')) { y(); }  // {\n" * 78
    method = f"class A {{\n  A() : a_{{1}} {{}}\n  int f(int a = 1) const {{\n{body}  }}\n}};\n"
    longer = method.replace(body, body + "  y();\n")
    lengths = [count for _, count in functions_of_c(method)]
    python = "def f():\n" + "    x()\n" * 80
    found = {
        "a method of 80 lines": max(lengths) == 80 and not [*breaches("a.cpp", method)],
        "a method of 81 lines": len([*breaches("a.h", longer)]) == 1,
        "a function of the planner": len([*breaches("runtime/plan/a.cpp", method)]) == 1,
        "a shader": not [*breaches("a.comp", f"void main() {{\n{body}}}\n")],
        "a long shader": len([*breaches("a.comp", f"void main() {{\n{body}{body}}}\n")]) == 1,
        "a function of Python": len([*breaches("a.py", python)]) == 1,
        "a long file": len([*breaches("a.h", "int a;\n" * 601)]) == 1,
        "a file": not [*breaches("a.h", "int a;\n" * 600)],
    }
    wrong = [name for name, holds in found.items() if not holds]
    if wrong:
        sys.exit(f"sizes.py measures wrongly: {', '.join(wrong)}.")


def main():
    self_test()
    files = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in SOURCES]
    wrong = []
    for path in files:
        wrong += breaches(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    print("\n".join(wrong) or f"{len(files)} files and their functions are short.")
    sys.exit(1 if wrong or not files else 0)


if __name__ == "__main__":
    main()
