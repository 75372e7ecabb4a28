#!/usr/bin/env python3
"""Checks that layers of runtime/ do not name single operators.

  runtime/api, plan, device      name no operator: a special case is a property in the definition of
                                 the operator (ops/op.h)
  runtime/graph                  only operators that seed, weight, sum and store gradients, and that
                                 cast to 16 bits; its folder rewrites/ is not checked

Prints a sentence per violation; exit code 1 if there is any.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_GRADIENTS = {"Fill", "Add", "AccumulateGrad", "ZeroGrad", "LossScale", "Scale", "Mul"}
OF_PRECISION = {"Cast"}
ALLOWED = {"api": set(), "plan": set(), "device": set(), "graph": OF_GRADIENTS | OF_PRECISION}
OPERATOR = re.compile(r"\bOp::(\w+)")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def named(text, allowed):
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        for name in OPERATOR.findall(line):
            if name != "Invalid" and name not in allowed:
                yield number, name


def self_test():
    seeded = "  node.op = Op::Softmax;  // Op::Relu\nif (op == Op::Invalid || op == Op::Fill) {\n"
    found = [*named(seeded, OF_GRADIENTS)] == [(1, "Softmax")]
    if not found:
        sys.exit("named_operators.py does not find its seeded violations.")


def main():
    self_test()
    wrong = []
    files = 0
    for layer, allowed in ALLOWED.items():
        for path in sorted((ROOT / "runtime" / layer).glob("*.[ch]*")):
            text = path.read_text(encoding="utf-8")
            files += 1
            name = path.relative_to(ROOT)
            wrong += [f"{name}:{line} names the operator {op}." for line, op in named(text, allowed)]
    print("\n".join(wrong) or f"{files} files in {len(ALLOWED)} layers name no operator that they should not.")
    sys.exit(1 if wrong or not files else 0)


if __name__ == "__main__":
    main()
