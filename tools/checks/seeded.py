#!/usr/bin/env python3
"""Seeded defects: one-line faults in the product, each of which the tests must catch.

tests/seeded/defects.txt lists them. Without --run it checks that every one still fits the source: the line that it
replaces is there exactly once. With --run it applies them one at a time in a copy of the tree, builds, and runs the
tests that should fail; if these pass, all tests. It prints which test caught what, and fails if one was not caught.

  --run             apply, build, test (the long lane: tools/check full seeded_a seeded_b)
  --only A,B        these defects alone
  --half 1|2        the first or the second half of the list
  --report FILE     the table as JSON
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/seeded/defects.txt"
KEYS = {"file", "old", "new", "tests"}


def read_defects():
    """Blocks of `[name]` and `key value` lines. `old` and `new` are the code of one line without its indent."""
    defects = []
    for number, line in enumerate(LIST.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if name := re.fullmatch(r"\[([\w-]+)\]", line):
            defects.append({"name": name[1]})
            continue
        key, _, value = line.partition(" ")
        if not defects or key not in KEYS or key in defects[-1]:
            sys.exit(f"{LIST.name}:{number}: the line does not fit: {line}")
        defects[-1][key] = value.strip()
    for d in defects:
        if missing := KEYS - d.keys():
            sys.exit(f"{LIST.name}: {d['name']} has no {', '.join(sorted(missing))}.")
    names = [d["name"] for d in defects]
    if twice := {n for n in names if names.count(n) > 1}:
        sys.exit(f"{LIST.name}: {', '.join(sorted(twice))} stands twice.")
    return defects


def changed(defect, root):
    """The text of the file with the defect in it; a sentence where it does not fit."""
    path = root / defect["file"]
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    found = [i for i, line in enumerate(lines) if line.strip() == defect["old"]]
    if len(found) != 1:
        return None, f"{defect['name']}: {defect['file']} has the line {len(found)} times: {defect['old']}"
    line = lines[found[0]]
    lines[found[0]] = line[: len(line) - len(line.lstrip())] + defect["new"] + "\n"
    return "".join(lines), None


def call(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def first_failure(output):
    """The name of the first test that failed, as ctest prints it."""
    found = re.search(r"^\s*\d+/\d+ Test\s+#\d+: (\S+) .*\*\*\*(?:Failed|Exception|Timeout|Not Run|Subprocess)",
                      output, re.MULTILINE)
    return found[1] if found else None


def caught_by(build, jobs, expression):
    """The first test that fails. The checks of the source are no such tests: they would see how a line is broken."""
    tests = call(["ctest", "--test-dir", build, "--stop-on-failure", "-j", jobs, "--timeout", "600",
                  "-E", r"^check\.", *(["-R", expression] if expression else [])])
    if "No tests were found" in tests.stdout:
        sys.exit(f"No test is named by {expression}.")
    return (first_failure(tests.stdout) or "a test") if tests.returncode else None


def try_defect(defect, tree, build, jobs):
    text, wrong = changed(defect, tree)
    if wrong:
        sys.exit(wrong)
    path = tree / defect["file"]
    before = path.read_text()
    path.write_text(text)
    try:
        made = call(["cmake", "--build", str(build), "--parallel", jobs])
        if made.returncode:
            # A fault that the compiler sees needs no test; it does not belong into the list.
            return "does not compile: " + (re.search(r".*(?:error|Error).*", made.stdout) or ["?"])[0], False
        test = caught_by(str(build), jobs, defect["tests"]) or caught_by(str(build), jobs, None)
        return test, test is not None
    finally:
        path.write_text(before)


def make_tree():
    """A clone of HEAD with its own build, kept between runs."""
    tree = ROOT / "build/seeded/tree"
    if not tree.is_dir():
        tree.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
    head = call(["git", "-C", str(ROOT), "rev-parse", "HEAD"]).stdout.strip()
    subprocess.run(["git", "-C", str(tree), "fetch", "--quiet", "origin"], check=True)
    subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", "--force", "--detach", head], check=True)
    build = tree / "build/release"
    # Kernels of CUDA run as cuda-emu; nvcc would only take its time.
    subprocess.run(["cmake", "--preset", "release", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"], cwd=tree, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(build), "--parallel", str(os.cpu_count())], check=True,
                   stdout=subprocess.DEVNULL)
    return tree, build


def run(defects, report):
    tree, build = make_tree()
    jobs = str(os.cpu_count())
    rows = []
    for defect in defects:
        begin = time.monotonic()
        by, caught = try_defect(defect, tree, build, jobs)
        rows.append({"defect": defect["name"], "file": defect["file"], "caught": caught, "by": by})
        print(f"{'caught' if caught else 'MISSED':8}{defect['name']:40}{by}  ({time.monotonic() - begin:.0f} s)", flush=True)
    count = sum(r["caught"] for r in rows)
    print(f"{count} of {len(rows)} seeded defects were caught.")
    if report:
        pathlib.Path(report).write_text(json.dumps(rows, indent=1) + "\n")
    return count == len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--half", type=int, choices=(1, 2))
    parser.add_argument("--report")
    options = parser.parse_args()
    defects = read_defects()
    wrong = [sentence for d in defects for sentence in [changed(d, ROOT)[1]] if sentence]
    if wrong:
        sys.exit("\n".join(wrong))
    if options.only:
        names = options.only.split(",")
        if unknown := set(names) - {d["name"] for d in defects}:
            sys.exit(f"There is no defect {', '.join(sorted(unknown))}.")
        defects = [d for d in defects if d["name"] in names]
    if options.half:
        middle = (len(defects) + 1) // 2
        defects = defects[:middle] if options.half == 1 else defects[middle:]
    if not options.run:
        print(f"{len(defects)} seeded defects fit the source.")
        return
    os.environ.setdefault("LP_NUM_THREADS", "0")
    sys.exit(0 if run(defects, options.report) else 1)


if __name__ == "__main__":
    main()
