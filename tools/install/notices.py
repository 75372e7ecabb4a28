#!/usr/bin/env python3
"""Writes the notices of third parties: the licences of the code that is compiled into some objects.

The headers that the objects include and the static libraries among them determine the packages. The
headers of the compiler are excluded, because their licences have no conditions for programs.

usage: notices.py --build DIR --source DIR --objects FILE... --compiler FILE --out FILE
                  [--uses FILE]

Each line of --objects is an object or a static library. If --uses (see licences.py) lacks one of
the packages, the script fails. The licence texts come from the packages of Debian. For a file
without package the output has its path.
"""

import argparse
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # leaves nothing in the source tree
import licences  # noqa: E402

SYSTEM = "#include <bits/stdc++.h>\n#include <fcntl.h>\n#include <linux/futex.h>\n#include <pthread.h>\n#include <unistd.h>\n"
COMMON = re.compile(r"/usr/share/common-licenses/[\w.+-]*\w")


def output(*command, text=""):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stdout


def dependencies(build):
    """Returns {object: [source files and headers]}."""
    if (build / ".ninja_deps").is_file():
        found, files = {}, []
        for line in output("ninja", "-C", str(build), "-t", "deps").splitlines():
            if line.startswith("    "):
                files.append(line.strip())
            elif ": #deps" in line:
                files = found[line.split(": #deps")[0]] = []
        return found
    return {str(d.relative_to(build))[:-2]: d.read_text().replace("\\\n", " ").split(":", 1)[1].split() for d in build.rglob("*.o.d")}


def packages_of(paths):
    """Returns {package: [paths]}. The key "" has the paths without package."""
    found, left = {}, {str(p) for p in paths}
    for line in output("dpkg-query", "-S", *sorted(left)).splitlines() if left else []:
        names, _, path = line.rpartition(": ")
        if path in left:
            left.discard(path)
            found.setdefault(names.split(",")[0].split(":")[0].strip(), []).append(path)
    if left:
        found[""] = sorted(left)
    return found


def notice(package, common):
    version = output("dpkg-query", "-W", "-f", "${Version}", package)
    path = pathlib.Path("/usr/share/doc", package, "copyright")
    text = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else f"{path} is missing."
    common.update(COMMON.findall(text))
    return f"{'=' * 100}\n{package} {version}\n{'=' * 100}\n\n{text}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--objects", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--uses", type=pathlib.Path)
    args = parser.parse_args()
    build, source = args.build.resolve(), args.source.resolve()
    listed = [pathlib.Path(line.strip('"')) for f in args.objects for line in f.read_text().splitlines() if line]
    # Precompiled headers are beside the objects of a target.
    places = {re.sub(r"\.dir/.*", ".dir/", str(p)) for p in listed}
    headers = set()
    for made, files in dependencies(build).items():
        if any(str(build / made).startswith(place) for place in places):
            headers.update((build / f).resolve() for f in files)
    if not headers:
        sys.exit(f"{build} has no dependencies of the {len(listed)} objects. Build them first.")
    outside = {h for h in headers if not h.is_relative_to(source) and not h.is_relative_to(build)}
    archives = {p for p in listed if p.suffix == ".a" and not p.resolve().is_relative_to(build)}
    system = {h for h in output(args.compiler, "-std=c++20", "-x", "c++", "-M", "-", text=SYSTEM).replace("\\\n", " ").split()[1:]}
    own = set(packages_of({pathlib.Path(h).resolve() for h in system if h.startswith("/")})) - {""}
    found = packages_of(outside | archives)
    if args.uses:
        listed = {use.package for use in licences.read_uses(args.uses)}
        missing = sorted(set(found) - own - {""} - listed)
        if missing:
            sys.exit(f"`bowline --licences` would not list what is compiled in: {', '.join(missing)}. "
                     "Call bowline_uses() where CMake finds it (tools/cmake/licences.cmake).")
    common = set()
    parts = ["Third-party code that is compiled into Bowline, with the licences from the packages of Debian.\n"]
    parts += [notice(package, common) for package in sorted(set(found) - own - {""})]
    unknown = {str(pathlib.Path(p).parent) if not p.endswith(".a") else p for p in found.get("", [])}
    parts += [f"Without package; see its own licence: {p}\n" for p in sorted(unknown)]
    for path in sorted(map(pathlib.Path, common)):
        if path.is_file():
            parts.append(f"{'=' * 100}\n{path.name}\n{'=' * 100}\n\n{path.read_text(encoding='utf-8', errors='replace')}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
