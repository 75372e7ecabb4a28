#!/usr/bin/env python3
"""Keeps the size of small programs with Bowline: text, data and bss after strip.

Links programs/run.cpp and programs/train.cpp with a static library and --gc-sections, runs them
with samples/finetune_text/base.bowline, and compares their sizes with sizes.json. A size may
differ by 2 %. Sizes are recorded per compiler and kind of build; those of another build are not
compared.

--update records the sizes instead.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
RECORD = HERE / "sizes.json"
MODEL = HERE.parents[1] / "samples/finetune_text/base.bowline"
TOLERANCE = 0.02
SKIPPED = 77


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          env={**os.environ, "LP_NUM_THREADS": "0"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexits with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def link(compiler, includes, library, source, program):
    run([compiler, "-std=c++20", "-Os", "-fno-rtti", "-fno-pie", "-no-pie", "-I", includes, source, library,
         "-Wl,--gc-sections", "-s", "-pthread", "-ldl", "-o", program])


def check_result(kind, text):
    """The program must have computed, not only started."""
    numbers = [float(n) for n in re.findall(r"(-?\d+\.\d+)", text)]
    good = len(numbers) == 1 and numbers[0] != 0 if kind == "run" else len(numbers) == 2 and numbers[1] < numbers[0]
    if not good:
        sys.exit(f"The program '{kind}' printed '{text.strip()}'.")


def size_of(program):
    """Returns text + data + bss in bytes."""
    return sum(map(int, run(["size", program]).splitlines()[1].split()[:3]))


def measure(compiler, includes, library, kind, device):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, kind)
        link(compiler, includes, library, HERE / f"programs/{kind}.cpp", program)
        out = [pathlib.Path(folder, "out.bowline")] if kind == "train" else []
        check_result(kind, run([program, MODEL, device, *out]))
        return size_of(program)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="c++", help="the C++ compiler [c++]")
    parser.add_argument("--includes", required=True, help="folder of bowline.h")
    parser.add_argument("--build", required=True, help="the kind of build, for example 'Release quick'")
    parser.add_argument("--update", action="store_true", help="record the sizes")
    parser.add_argument("programs", nargs="+", metavar="KIND:DEVICE:LIBRARY", help="run or train, a device, a static library")
    args = parser.parse_args()
    first = run([args.compiler, "--version"]).splitlines()[0]
    build = f"{os.uname().machine}, {first}, {args.build}"
    recorded = json.loads(RECORD.read_text())
    expected = recorded.get(build)
    if expected is None and not args.update:
        print(f"No sizes are recorded for {build}. Record them with --update.")
        return SKIPPED
    sizes, wrong = {}, []
    for kind, device, library in (p.split(":", 2) for p in args.programs):
        name = f"{kind}, {device}"
        sizes[name] = size = measure(args.compiler, args.includes, library, kind, device)
        before = (expected or {}).get(name)
        print(f"{name}: {size:,} bytes" + (f", recorded: {before:,}" if before else ""))
        if not args.update and (before is None or abs(size - before) > TOLERANCE * before):
            wrong.append(name)
    if args.update:
        recorded[build] = {**(expected or {}), **sizes}
        RECORD.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
    if wrong:
        print(f"Not within {TOLERANCE:.0%} of {RECORD.name}: {'; '.join(wrong)}. If the change is worth it, record it with --update.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
