#!/usr/bin/env python3
"""Runs tools/checks/mutate on a small project with a tested, an untested and an unbuilt line."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

MUTATE = pathlib.Path(__file__).resolve().parents[2] / "tools/checks/mutate"
FILES = {
    "CMakePresets.json": """{"version": 5, "configurePresets": [{"name": "release", "generator": "Ninja",
"binaryDir": "${sourceDir}/build/release"}]}""",
    "CMakeLists.txt": """project(tiny CXX)
enable_testing()
add_library(tiny STATIC runtime/area.cpp)
add_executable(area_test tests/area/area_test.cpp)
target_link_libraries(area_test tiny)
add_test(NAME area.Area COMMAND area_test --gtest_filter=Area)
add_test(NAME check.source COMMAND false)
""",
    ".gitignore": "build\n",
    "runtime/area.cpp": """// Lines of a comment: 1 + 1 < 2.
int area(int width, int height) {
  return width * height;
}
int untested(int width) {
  return width + 4;
}
const char* text() { return "1 + 1"; }
struct Size {
  static_assert(sizeof(int) == 4);
  char bytes[sizeof(int) - 3];
  char same[sizeof(bytes) - 1 == 0 ? 1 : -2];
};
""",
    "runtime/unused.cpp": "int unused() {\n  return 1 - 2;\n}\n",
    "tests/area/area_test.cpp": "int area(int, int);\nint main() { return area(3, 5) == 15 ? 0 : 1; }\n",
}
EXPECTED = {
    ("runtime/area.cpp", 3): "caught",
    ("runtime/area.cpp", 6): "survived",
    ("runtime/area.cpp", 11): "not compiled",
    ("runtime/area.cpp", 12): "not compiled",
    ("runtime/unused.cpp", 2): "not built",
}


def mutate(root, *arguments):
    report = root / "build/report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run([root / "tools/checks/mutate", *arguments, "--jobs", "1", "--report", report],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not report.is_file():
        sys.exit(f"mutate {' '.join(arguments)} wrote no report:\n{done.stdout}")
    return done.returncode, json.loads(report.read_text())


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got}, not {wanted}")


def main():
    for tool in ("cmake", "git", "ninja"):
        if not shutil.which(tool):
            print(f"{tool} is not installed.")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "tools/checks").mkdir(parents=True)
        shutil.copy(MUTATE, root / "tools/checks")
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t", "commit", "-qm", "One"]):
            subprocess.run(["git", *command], cwd=root, check=True)

        code, report = mutate(root, "--count", "100", "--floor", "0.6")
        expect("results", {(m["file"], m["line"]): m["result"] for m in report["mutations"]}, EXPECTED)
        expect("share", report["share"], 0.5)
        expect("exit code below the floor", code, 1)

        # --since mutates only the changed line, and the copy contains the change.
        (root / "runtime/area.cpp").write_text(FILES["runtime/area.cpp"].replace("width * height", "height * width"))
        code, report = mutate(root, "--since", "HEAD")
        expect("lines since HEAD", [(m["line"], m["result"]) for m in report["mutations"]], [(3, "caught")])
        expect("exit code above the floor", code, 0)

        # A test that fails without a mutation voids the result.
        (root / "tests/area/area_test.cpp").write_text("int main() { return 1; }\n")
        code, report = mutate(root, "--since", "HEAD")
        expect("result of a test that fails anyway", [m["result"] for m in report["mutations"]], ["void"])
        expect("exit code of void results", code, 2)


if __name__ == "__main__":
    main()
