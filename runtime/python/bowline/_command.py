"""Runs the command `bowline`, which is a program inside the package."""

import os
import pathlib
import sys


def main() -> None:
    """Replaces this process by the command."""
    program = pathlib.Path(__file__).parent / "bin" / "bowline"
    if not program.exists():
        sys.exit("bowline: This package was built without the command (BOWLINE_TOOLS=OFF).")
    os.execv(program, [str(program), *sys.argv[1:]])
