#!/usr/bin/env python3
"""Checks that the rooms of runtime/ do not depend on single operators, and that functions of the
planner are short.

  runtime/api, plan, device      name no operator: a special case is a property in the definition of
                                 the operator (ops/op.h)
  runtime/graph                  only operators that seed, weight, sum and store gradients, and that
                                 cast to 16 bits
  runtime/plan                   functions have at most 60 lines

Prints a sentence per violation; exit code 1 if there is any.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_GRADIENTS = {"Fill", "Add", "AccumulateGrad", "ZeroGrad", "LossScale", "Scale", "Mul"}
OF_PRECISION = {"Cast"}
ALLOWED = {"api": set(), "plan": set(), "device": set(), "graph": OF_GRADIENTS | OF_PRECISION}
MOST_LINES = 60
OPERATOR = re.compile(r"\bOp::(\w+)")
# A function starts at column 0, or is a member function defined in its class.
BEGIN = re.compile(r"^( {0,2})(?!namespace|class|struct|enum|union|public|private|if|for|while|switch|else|do|using|#|//|\})\S")
LONGEST_HEAD = 8  # lines


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def named(text, allowed):
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        for name in OPERATOR.findall(line):
            if name != "Invalid" and name not in allowed:
                yield number, name


def long_functions(text):
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        found = BEGIN.match(lines[at])
        brace = next((i for i in range(at, min(at + LONGEST_HEAD, len(lines))) if lines[i].endswith(("{", ";", "}"))), None)
        if not found or brace is None or not lines[brace].endswith("{") or "(" not in "".join(lines[at:brace + 1]):
            at += 1
            continue
        end = next((i for i in range(brace + 1, len(lines)) if lines[i].startswith(found.group(1) + "}")), brace)
        if end - at + 1 > MOST_LINES:
            yield at + 1, end - at + 1
        at = end + 1


def self_test():
    seeded = "  node.op = Op::Softmax;  // Op::Relu\nif (op == Op::Invalid || op == Op::Fill) {\n"
    function = "void f(int a,\n       int b) {\n" + "  x();\n" * 58 + "}\n"
    found = [*named(seeded, OF_GRADIENTS)] == [(1, "Softmax")] and [*long_functions(function)] == [(1, 61)] and \
        not [*long_functions(function.replace("  x();\n", "", 1))]
    if not found:
        sys.exit("rooms.py does not find its seeded violations.")


def main():
    self_test()
    wrong = []
    files = 0
    for room, allowed in ALLOWED.items():
        for path in sorted((ROOT / "runtime" / room).glob("*.[ch]*")):
            text = path.read_text(encoding="utf-8")
            files += 1
            name = path.relative_to(ROOT)
            wrong += [f"{name}:{line} names the operator {op}." for line, op in named(text, allowed)]
            if room == "plan":
                wrong += [f"{name}:{line} begins a function of {n} lines, above {MOST_LINES}."
                          for line, n in long_functions(text)]
    print("\n".join(wrong) or f"{files} files of the planner and its neighbours name no operator that they should not.")
    sys.exit(1 if wrong or not files else 0)


if __name__ == "__main__":
    main()
