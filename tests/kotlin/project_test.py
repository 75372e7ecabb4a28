#!/usr/bin/env python3
"""Checks what Gradle and Android need of runtime/kotlin, without Gradle and the NDK.

The library must export the native methods of Native.java and JNI_OnLoad, and nothing else. The
names that native code looks up must be those of the Kotlin classes, and consumer-rules.pro must
keep them. The paths and options in the Gradle files must be those of this repository.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "runtime" / "kotlin"
MAIN = PACKAGE / "src" / "main"
CLASSES = MAIN / "kotlin" / "bowline" / "runtime"
PREFIX = "Java_bowline_runtime_Native_"
NATIVE = re.compile(r"static native [\w\[\]]+ (\w+)\(")
# Java's names of the types in a JNI signature.
TYPES = {"J": "long", "I": "int", "[B": "byte[]", "V": "void", "Ljava/nio/ByteBuffer;": "java.nio.ByteBuffer"}


def exported(library, nm):
    lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in lines.stdout.splitlines()}


def check_symbols(library, nm):
    methods = NATIVE.findall((MAIN / "java/bowline/runtime/Native.java").read_text())
    if len(methods) < 2:
        yield "Native.java has no native methods."
    needed = {PREFIX + name for name in methods} | {"JNI_OnLoad"}
    has = exported(library, nm)
    for name in sorted(needed - has):
        yield f"The library does not export {name}."
    for name in sorted(has - needed):
        yield f"The library exports {name}, which Native.java does not declare."


def check_names(rules):
    """Names that call.cpp looks up: classes, their methods, and the rules that keep them."""
    source = (MAIN / "cpp" / "call.cpp").read_text()
    classes = re.findall(r'find\("([\w/]+)"\)', source)
    methods = re.findall(r'Get(Static)?MethodID\(library\.(\w+),\s*"([\w<>]+)",\s*"\(([^)]*)\)([^"]+)"\)', source)
    if len(classes) < 2 or len(methods) < 4:
        yield "call.cpp has fewer look-ups than this test expects."
    kotlin = "\n".join(p.read_text() for p in sorted(CLASSES.glob("*.kt")))
    for name in classes:
        if not re.search(rf"\b(class|object) {name.split('/')[-1]}\b", kotlin):
            yield f"No Kotlin file declares {name}."
        if f"-keep class {name.replace('/', '.')} " not in rules:
            yield f"consumer-rules.pro does not keep {name}."
    for static, _, name, arguments, result in methods:
        types = re.findall(r"\[?(?:L[^;]+;|[A-Z])", arguments)
        text = f"{name}({', '.join(TYPES[t] for t in types)});"
        if static:
            text = f"static {TYPES[result]} {text}"
        if text not in rules:
            yield f"consumer-rules.pro does not keep `{text}`."


def check_gradle(gradle):
    for path in re.findall(r'(?:file|consumerProguardFiles)\("([^"]+)"\)', gradle):
        if not (PACKAGE / path).is_file():
            yield f"build.gradle.kts names {path}, which does not exist."
    for text in ('abiFilters += listOf("arm64-v8a", "x86_64")', '"-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON"',
                 '"-DANDROID_STL=c++_static"', 'namespace = "bowline.runtime"'):
        if text not in gradle:
            yield f"build.gradle.kts lacks `{text}`."
    cmake = "\n".join(p.read_text() for p in [ROOT / "CMakeLists.txt", *sorted((ROOT / "tools/cmake").glob("*.cmake"))])
    backends = [p.parent.name.upper() for p in (ROOT / "backends").glob("*/CMakeLists.txt")]
    for option in re.findall(r'"-DBOWLINE_(\w+)=', gradle):
        if option not in backends and not re.search(rf"\b(?:option|set|cmake_dependent_option)\(BOWLINE_{option}\b", cmake):
            yield f"build.gradle.kts sets BOWLINE_{option}, which no CMake file declares."
    lists = (PACKAGE / "CMakeLists.txt").read_text() + (ROOT / "runtime/c/CMakeLists.txt").read_text()
    for target in re.findall(r'"(\w+)"', re.search(r"targets \+= listOf\(([^)]*)\)", gradle).group(1)):
        if f"add_library({target} SHARED" not in lists:
            yield f"build.gradle.kts builds {target}, which is not a shared library."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--nm", required=True)
    arguments = parser.parse_args()
    rules = (PACKAGE / "consumer-rules.pro").read_text()
    gradle = (PACKAGE / "build.gradle.kts").read_text()
    wrong = [*check_symbols(arguments.library, arguments.nm), *check_names(rules), *check_gradle(gradle)]
    print("\n".join(wrong) or "The library and the project files fit.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
