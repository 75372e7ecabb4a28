#!/usr/bin/env python3
"""Saves the files of a guide. A file that has the right text already is not written again, so that
nothing is compiled again.

usage: save_files.py PAGE FOLDER
"""

import pathlib
import sys

sys.dont_write_bytecode = True  # leaves nothing in the source tree
import page  # noqa: E402


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    texts = {}
    for step in page.read(pathlib.Path(sys.argv[1]).read_text()):
        if isinstance(step, page.File):
            texts[step.name] = texts.get(step.name, "") + step.text
    for name, text in texts.items():
        path = pathlib.Path(sys.argv[2]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
