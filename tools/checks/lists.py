#!/usr/bin/env python3
"""Checks that no list is kept by hand that the build generates: of operators, backends, verbs,
kernels or tests.

An operator is listed in one of the two op lists. Elsewhere in CMake files and in runtime/ outside
of ops/, a run of many operator names counts as a list. Only CMake files in backends/<name> name a
backend, and only those in tools/bowline name a verb.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True  # leaves nothing in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cmake"))
from generate_ops import Lists  # noqa: E402

MOST_NAMES = 8  # in one run of quoted names or of case labels


def op_names(root):
    return {name for name, _, _ in Lists(root).ops()}


def cmake_files(root):
    for pattern in ("CMakeLists.txt", "*.cmake"):
        yield from (p for p in root.rglob(pattern) if "build" not in p.relative_to(root).parts)


def check_cmake(root, operators):
    backends = [p.name for p in (root / "backends").iterdir() if p.is_dir()]
    for path in cmake_files(root):
        name = path.relative_to(root).as_posix()
        code = re.sub(r"#.*", "", path.read_text())
        words = set(re.findall(r"\w+", code))
        if len(words & operators) > 2 and not name.startswith("backends/"):
            yield f"{name} names operators: {', '.join(sorted(words & operators))}."
        for backend in backends:
            if f"backend_{backend}" in words and not name.startswith(f"backends/{backend}/"):
                yield f"{name} names the backend {backend}."


def check_code(root, operators):
    for path in sorted((root / "runtime").rglob("*.cpp")):
        name = path.relative_to(root).as_posix()
        if name.startswith("runtime/ops/"):
            continue
        quoted = [w for w in re.findall(r'"(\w+)"', path.read_text()) if w in operators]
        if len(quoted) > MOST_NAMES:
            yield f"{name} names {len(quoted)} operators as text: {', '.join(quoted[:5])}, ..."


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    operators = op_names(root)
    wrong = [*check_cmake(root, operators), *check_code(root, operators)]
    print("\n".join(wrong) or f"No list by hand: {len(operators)} operators are named in the two op lists.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
