#!/usr/bin/env python3
"""Saves the files of a guide.

usage: save_files.py PAGE FOLDER
"""

import pathlib
import sys

sys.dont_write_bytecode = True  # leaves nothing in the source tree
import page  # noqa: E402


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, started = pathlib.Path(sys.argv[2]), set()
    for step in page.read(pathlib.Path(sys.argv[1]).read_text()):
        if isinstance(step, page.File):
            page.save(step, folder, started)


if __name__ == "__main__":
    main()
