#!/usr/bin/env python3
"""Checks the files for package managers: debian/ and tools/packages/.

Each has the version of the CMake project. Each CMake option that it sets exists, and so does each
feature of the vcpkg port. Each build dependency of the Debian package is also in tools/setup.
`import bowline` in Python loads the standard library alone: `pip install .` imports the package
where no other package is installed.
"""

import ast
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_DEBIAN = {"debhelper-compat"}  # a name for debhelper with a version


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def options_of_cmake():
    """Returns the names of the options and cache variables that the build has."""
    names = {f"BOWLINE_{path.parent.name.upper()}" for path in (ROOT / "backends").glob("*/CMakeLists.txt")}
    for path in (p for p in ROOT.rglob("*") if (p.name == "CMakeLists.txt" or p.suffix == ".cmake") and "build" not in p.relative_to(ROOT).parts):
        text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
        names |= set(re.findall(r"\b(?:option|find_program|find_path|find_library)\(\s*(BOWLINE_\w+)", text))
        names |= set(re.findall(r"cmake_dependent_option\(\s*(BOWLINE_\w+)", text)) | set(re.findall(r"set\((BOWLINE_\w+)[^)]*\bCACHE\b", text))
    return names


def versions():
    """Yields (file, version)."""
    yield "debian/changelog", re.match(r"bowline \(([^)]+)\)", read("debian/changelog"))[1]
    yield "tools/packages/vcpkg/vcpkg.json", json.loads(read("tools/packages/vcpkg/vcpkg.json"))["version"]
    yield "tools/packages/homebrew/bowline.rb", re.search(r'^  version "(.+)"', read("tools/packages/homebrew/bowline.rb"), re.M)[1]


def wrong_options(name, text, known):
    text = re.sub(r"#[^\n]*", "", text)
    used = set(re.findall(r'-D(BOWLINE_\w+)=|"(BOWLINE_\w+)": |[ (]\w+ (BOWLINE_\w+)(?=[ )])', text))
    names = {n for found in used for n in found if n}
    if not names:
        yield f"{name} sets no option of CMake that this check finds."
    yield from (f"{name} sets {option}, which is not an option of CMake." for option in sorted(names - known))


def wrong_dependencies():
    """Yields sentences about build dependencies of the Debian package that tools/setup lacks."""
    block = re.search(r"^Build-Depends:\n((?: .+\n)+)", read("debian/control"), re.M)[1]
    names = {re.match(r" ([\w.+-]+)", line)[1] for line in block.splitlines()}
    installed = set(re.findall(r"^([\w.+-]+) +\| ", read("tools/setup"), re.M))
    yield from (f"debian/control builds with {name}, which tools/setup does not install." for name in sorted(names - installed - OF_DEBIAN))


def foreign_imports(name, text):
    """Yields what the import of a module loads beside the standard library and the package."""
    for node in ast.parse(text).body:
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            if module.split(".")[0] not in {*sys.stdlib_module_names, "bowline"}:
                yield f"{name} imports {module} when it is loaded. Import it in the functions that need it."


def modules_of_python():
    """Returns the modules that `import bowline` can load, with their texts."""
    folder = ROOT / "runtime/python/bowline"
    return {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.py")) if p.name != "flower.py"}


def main():
    version = re.search(r"^project\(bowline VERSION ([0-9.]+)", read("CMakeLists.txt"), re.M)[1]
    known = options_of_cmake()
    if not [*wrong_options("a file", "-DBOWLINE_NONE=ON", known)] or [*wrong_options("a file", "-DBOWLINE_TEXT=ON", known)]:
        sys.exit("packages.py does not find its seeded wrong option.")
    wrong = [f"{name} has version {v}, and CMakeLists.txt {version}." for name, v in versions() if v != version]
    files = ("debian/rules", "tools/packages/vcpkg/portfile.cmake", "tools/packages/conan/conanfile.py", "tools/packages/homebrew/bowline.rb")
    for name in files:
        wrong += wrong_options(name, read(name), known)
    features = set(json.loads(read("tools/packages/vcpkg/vcpkg.json"))["features"])
    in_port = set(re.findall(r"(\w+) BOWLINE_\w+", read("tools/packages/vcpkg/portfile.cmake").split("FEATURES", 1)[1].split(")")[0]))
    if features != in_port:
        wrong.append(f"vcpkg.json has the features {sorted(features)}, and portfile.cmake {sorted(in_port)}.")
    wrong += wrong_dependencies()
    if len([*foreign_imports("a file", "import numpy\nimport os\nfrom torch import nn\nfrom bowline import Model")]) != 2:
        sys.exit("packages.py does not find its seeded wrong imports.")
    for name, text in modules_of_python().items():
        wrong += foreign_imports(name, text)
    print("\n".join(wrong) or f"The files of {len(files)} package managers fit the build, version {version}.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
