#!/usr/bin/env python3
"""Writes the operator reference, operators.md. It describes each operator of a model file with the
comment of its file in runtime/ops, its per-step scalars, and its attributes from schemas/ops.fbs.

usage: operators.py --root DIR --out FILE
"""

import argparse
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cmake"))
from generate_ops import fail, read_tables, read_union, stem_of  # noqa: E402
from optimizers import read_optimizers  # noqa: E402

HEAD = """# Operators

`GraphBuilder::op()` adds an operator by its name. An attribute that is left out has its default. A size (type `long`) can be the
name of a dimension instead of a number. A run sets a per-step scalar with a `StepScalar` of its name.
"""


OPTIMIZERS = """# Optimizers

`Optimizer` takes these by name, with the settings that are listed. A setting that is left out has its default. `scale` is the factor
of gradient clipping and averaging, `learning_rate` that of the step and the parameter group, and `update` counts steps from 1.
"""


def comment_of(path):
    """Returns the comment at the start of an operator file, and its per-step scalars."""
    text, steps = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("//! step "):
            steps.append(re.sub(r"^writes ", "", line.removeprefix("//! step ")))
        elif line.startswith("//") and not line.startswith("//!"):
            text.append(line.removeprefix("//").removeprefix(" "))
        elif not line.startswith("//!"):
            break
    return "\n".join(text).strip(), ", ".join(steps)


def section(root, name, table, tables, enums):
    text, steps = comment_of(root / "runtime/ops" / f"{stem_of(name)}.cpp")
    lines = [f"## {name}", "", "```", text, "```", ""]
    if steps:
        lines += [f"Per-step scalars: `{steps}`.", ""]
    if tables[table]:
        lines += ["| attribute | type | default |", "|---|---|---|"]
        for f in tables[table]:
            kind = f.kind.strip("[]")
            values = f"{kind}: {', '.join(enums[kind])}" if kind in enums else kind
            default = f.default
            if kind in enums:
                default = default if default in enums[kind] else enums[kind][int(default)]
            listed = f.kind.startswith("[")
            lines.append(f"| `{f.name}` | {'list of ' if listed else ''}{values} | {'' if listed or kind == 'string' else default} |")
        lines.append("")
    return lines


def optimizer_section(root, o):
    """Of an optimizer without a formula, the head of its operator file says what it computes."""
    text, _ = comment_of(o.path if o.has_formula else root / f"runtime/ops/{o.stem}.cpp")
    lines = [f"## {o.name}", "", "```", text, "```", "", "| setting | range | default | |", "|---|---|---|---|"]
    lines += [f"| `weight_decay` | [0, inf) | {o.default_decay} | {o.decay_text()} |",
              "| `decay_all` | 0, 1 | 0 | decay vectors and scalars too |"]
    for row in o.order:
        if row[0] in o.flags:
            lines.append(f"| `{row[0]}` | 0, 1 | 0 | {row[1]} |")
        else:
            name, default, begin, low, high, end, text = row
            lines.append(f"| `{name}` | {begin}{low}, {high}{end} | {default} | {text} |")
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    schema = args.root / "schemas/ops.fbs"
    tables, enums = read_tables([schema])
    lines = [HEAD]
    for name, table, _ in sorted(read_union(schema, "Op")):
        lines += section(args.root, name, table, tables, enums)
    lines.append(OPTIMIZERS)
    for o in read_optimizers(args.root, fail):
        lines += optimizer_section(args.root, o)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
