#!/usr/bin/env python3
"""Checks the format of all C++ files with clang-format 15; with --fix it changes them.

Exit code 1 if a file differs, 77 if clang-format 15 is not installed.
"""

import pathlib
import shutil
import subprocess
import sys

FOLDERS = ["runtime", "backends", "tools", "samples", "tests"]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    program = shutil.which("clang-format-15")
    if program is None:
        print("skipped: clang-format-15 is not installed (other versions lay out some lines differently)")
        sys.exit(77)
    files = [str(p) for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix in (".h", ".cpp", ".cu", ".cuh")]
    if "--fix" in sys.argv:
        subprocess.run([program, "-i", *files], check=True)
        return
    done = subprocess.run([program, "--dry-run", "--ferror-limit=1", *files], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    for path in wrong:
        print(f"{pathlib.Path(path).relative_to(root)} differs from .clang-format; tools/checks/format.py --fix changes it.")
    print(f"{len(files)} files checked, {len(wrong)} differ.")
    sys.exit(1 if wrong or done.returncode else 0)


if __name__ == "__main__":
    main()
