#!/usr/bin/env python3
"""Checks shared libraries for what Android asks of them, without the NDK.

The libraries are a stand-in: zig builds them for aarch64 with musl (tools/check full android).
Their sources and their symbols are those of Android, except for the symbols of the C++ library.

- Each segment is aligned for pages of 16 KB.
- They need only libraries that Android or the AAR has.
- Bionic has each symbol that they use, in the API level minSdk of build.gradle.kts.
"""

import argparse
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
GRADLE = FOLDER.parents[1] / "runtime" / "kotlin" / "build.gradle.kts"
PAGE = 16384
# libc has threads and clocks: there is no libpthread and no librt.
LIBRARIES = re.compile(r"lib(c|m|dl|log|bowline_c)\.so(\.1)?")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check(library, levels, min_sdk):
    segments = re.findall(r"^ +LOAD .* (0x[0-9a-f]+)$", output_of("readelf", "-lW", library), re.MULTILINE)
    if not segments:
        yield f"{library} has no segments."
    for alignment in segments:
        if int(alignment, 16) < PAGE:
            yield f"{library} has a segment that is aligned to {int(alignment, 16)} bytes, less than {PAGE}."
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", library)):
        if not LIBRARIES.fullmatch(needed):
            yield f"{library} needs {needed}, which Android does not have."
    for line in output_of("nm", "-D", "--undefined-only", library).splitlines():
        kind, name = line.split()[-2:]
        name = name.split("@")[0]
        if kind in "wv" or name.startswith("bowline_"):
            continue
        level = levels.get(name)
        if level is None:
            yield f"{library} uses {name}. bionic_symbols.txt does not say in which API level Android has it."
        elif level != "stand-in" and int(level) > min_sdk:
            yield f"{library} uses {name} of API level {level}, but minSdk is {min_sdk}."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="+")
    arguments = parser.parse_args()
    lines = [line.split("#")[0].split() for line in (FOLDER / "bionic_symbols.txt").read_text().splitlines()]
    levels = {line[0]: line[1] for line in lines if line}
    min_sdk = int(re.search(r"minSdk = (\d+)", GRADLE.read_text()).group(1))
    wrong = [text for library in arguments.libraries for text in check(library, levels, min_sdk)]
    print("\n".join(wrong) or f"{len(arguments.libraries)} libraries fit Android from API level {min_sdk} on.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
