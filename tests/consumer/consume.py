"""Installs a component of the build into an empty folder and uses it as a program outside of the
tree does.

usage: consume.py --build DIR --component NAME --source DIR --work DIR --compiler FILE
                  --generator NAME --make-program FILE [--flags TEXT] [--text]
                  [--import-with COMMAND] [--onnx] [TEST...]
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

parser = argparse.ArgumentParser()
for flag in ("build", "component", "source", "work", "compiler", "generator", "make-program"):
    parser.add_argument(f"--{flag}", required=True)
parser.add_argument("--flags", default="")
parser.add_argument("--text", action="store_true")
parser.add_argument("--import-with", default="", help="the command bowline, which must write the same files as bowline::import")
parser.add_argument("--onnx", action="store_true")
parser.add_argument("--c", default="", help="1 if the C interface has the import, else 0")
args, tests = parser.parse_known_args()
WORK = pathlib.Path(args.work)
PREFIX = WORK / "prefix"
SOURCE = pathlib.Path(args.source)
ROOT = SOURCE.parents[2]
TESTS = ROOT / "tests"
FLAGS = args.flags.split()
SANITIZED = any("-fsanitize" in flag for flag in FLAGS)
# The libraries of every C++ program.
RUNTIME = {"libc", "libm", "libgcc_s", "libstdc++", "ld-linux-x86-64", "ld-linux-aarch64"}
# Libraries of programs with an older C library, and of sanitizers.
RUNTIME |= {"libpthread", "libdl", "librt"} | ({"libasan", "libubsan", "libtsan"} if SANITIZED else set())

# The libraries of bowline::text.
TEXT = {"libsimdjson", "libpcre2-8", "libutf8proc"}


def run(*command, check=True, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def install():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    run("cmake", "--install", args.build, "--prefix", PREFIX, "--component", args.component)


def library():
    return next(p for p in sorted(PREFIX.rglob("libbowline.*")) if p.suffix in (".a", ".so"))


def is_shared():
    return library().suffix == ".so"


def configure(folder, *options, check=True):
    return run("cmake", "-S", SOURCE, "-B", WORK / folder, "-G", args.generator, f"-DCMAKE_MAKE_PROGRAM={args.make_program}",
               f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DCMAKE_CXX_COMPILER={args.compiler}", f"-DCMAKE_CXX_FLAGS={args.flags}", *options,
               check=check)


def pkg_config(*words):
    path = next(PREFIX.rglob("bowline.pc")).parent
    others = os.environ.get("PKG_CONFIG_PATH", "")
    return shlex.split(run("pkg-config", *words, env={**os.environ, "PKG_CONFIG_PATH": f"{path}:{others}"}).stdout)


def compiled(name, *flags, libraries=None, package="bowline", standard="c++20", suffix="cpp"):
    """Builds a program, or with -shared a library, from a file with pkg-config alone."""
    out = WORK / (name + "".join(f for f in flags if f in ("-static", "-shared")))
    found = pkg_config("--cflags", "--libs", package) if libraries is None else libraries
    run(args.compiler, f"-std={standard}", *FLAGS, *flags, SOURCE / f"{name}.{suffix}", "-x", "none", "-o", out, *found, f"-Wl,-rpath,{library().parent}")
    return out


def needed(path):
    """Returns the shared libraries that a file needs, for example libm for libm.so.6."""
    return {re.sub(r"\.so.*", "", n) for n in re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", path).stdout)}


def public_headers():
    """Returns bowline.h and the headers that it includes."""
    include = PREFIX / "include"
    return [include / "bowline.h", *sorted((include / "bowline").glob("*.h"))]


def names_of_header(header):
    """Returns the names that a public header declares in namespace bowline."""
    text = re.sub(r"//[^\n]*|^#(?:[^\n]*\\\n)*[^\n]*|= *{}", "", header.read_text(), flags=re.MULTILINE)
    names, depth, statement = set(), 0, ""
    for c in text.rpartition("namespace bowline {")[2]:
        depth += {"{": 1, "}": -1}.get(c, 0)
        if depth < 0:
            break
        if c in ";{" and depth == (c == "{"):
            declared = re.search(r"\b(?:class|struct|enum class)\s+(?:\[\[\w+\]\]\s+)?(\w+)\s*(?::[^:]*)?$", statement) or \
                re.search(r"\b(\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:const|noexcept)?\s*$", statement)
            if declared:
                names.add(declared[1])
            statement = ""
        elif depth == 0:
            statement = "" if c == "}" else statement + c
    return names


class Consumer(unittest.TestCase):
    def test_find_package(self):
        configure("build")
        run("cmake", "--build", WORK / "build")
        run(WORK / "build/program", WORK / "trained.bowline")
        self.assertLessEqual(needed(WORK / "build/program"), RUNTIME | ({"libbowline"} if is_shared() else set()))
        if is_shared():
            self.assertLessEqual(needed(library()), RUNTIME)
        if args.text:
            run(WORK / "build/text")

    def test_without_simdjson_the_text_target_is_missing_with_a_reason(self):
        absent = "-DCMAKE_DISABLE_FIND_PACKAGE_simdjson=ON" if args.text else "-DUNUSED=1"
        said = configure("no_text", absent).stdout
        self.assertIn("bowline::text is left out: ", said)
        self.assertIn("bowline::import is left out: ", said)
        for part in ("text", "import"):
            said = configure(f"no_{part}_required", absent, f"-DREQUIRED_PARTS={part}", check=False)
            self.assertNotEqual(said.returncode, 0)
            self.assertRegex(re.sub(r"\s+", " ", said.stderr), f"bowline::{part} cannot be used: (simdjson is not found|this Bowline)")

    @unittest.skipUnless(args.onnx, "the build has no bowline::import with ONNX")
    def test_without_protobuf_the_import_target_is_missing_with_a_reason(self):
        said = configure("no_protobuf", "-DCMAKE_DISABLE_FIND_PACKAGE_Protobuf=ON", "-DREQUIRED_PARTS=text;import", check=False)
        self.assertIn("bowline::import cannot be used: protobuf is not found", re.sub(r"\s+", " ", said.stderr))

    def imported(self, program, *words):
        """Imports with a program of bowline::import. Returns the saved bytes and the output."""
        out = WORK / "imported.bowline"
        out.unlink(missing_ok=True)
        said = run(program, *(out if w is None else w for w in words)).stdout
        return out.read_bytes(), said

    def commanded(self, *words):
        """Returns the bytes that the command saves."""
        out = WORK / "commanded.bowline"
        run(args.import_with, "import", *words, "--out", out, "--force")
        return out.read_bytes()

    def check_imports(self, program):
        folder, gguf = TESTS / "import/fixtures/llama", TESTS / "gguf/data/llama_q4_k.gguf"
        for source, name in ((folder, "Hugging Face"), (gguf, "GGUF")):
            saved, said = self.imported(program, source, None, "batch=1", "seq=3")
            self.assertRegex(said, f"^{name}, [1-9]")
            self.assertEqual(saved, self.commanded(source))
        if args.onnx:
            saved, said = self.imported(program, TESTS / "onnx/fixtures/shared.onnx", None, "batch=2")
            self.assertIn("ONNX, 0 tensors", said)
            self.assertEqual(saved, self.commanded(TESTS / "onnx/fixtures/shared.onnx", "--dim", "batch=2"))
        base, peft, tuned = WORK / "base.bowline", TESTS / "peft/fixtures/llama_qv", WORK / "adapter.gguf"
        base.write_bytes(self.commanded(TESTS / "peft/fixtures/llama"))
        saved, said = self.imported(program, "--adapter", peft, base, None)
        self.assertRegex(said, "^adapter, [1-9]")
        self.assertEqual(saved, self.commanded(peft, "--base", base))
        (WORK / "adapter.bowline").write_bytes(saved)
        run(args.import_with, "export", base, "--adapter", WORK / "adapter.bowline", "--to", "gguf-lora", "--out", tuned, "--force")
        saved, _ = self.imported(program, "--adapter", tuned, base, None)
        self.assertEqual(saved, self.commanded(tuned, "--base", base))
        absent = run(program, WORK / "absent", WORK / "no.bowline", check=False)
        self.assertEqual(absent.returncode, 1)
        self.assertIn("bad_file: ", absent.stderr)

    @unittest.skipUnless(args.import_with, "the build has no bowline::import")
    def test_import_writes_the_files_of_the_command(self):
        configure("build_import", "-DREQUIRED_PARTS=text;import")
        run("cmake", "--build", WORK / "build_import", "--target", "import")
        self.check_imports(WORK / "build_import/import")
        wanted = {"libbowline"} if is_shared() else set()
        self.assertLessEqual(needed(WORK / "build_import/import"), RUNTIME | TEXT | {"libprotobuf-lite"} | wanted)

    @unittest.skipUnless(args.import_with, "the build has no bowline::import")
    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_import_with_pkg_config(self):
        self.check_imports(compiled("import", package="bowline-import"))

    @unittest.skipUnless(args.c, "the build has no bowline::c")
    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_a_program_in_c_imports_with_pkg_config(self):
        program = compiled("in_c", "-x", "c", "-Wall", "-Wextra", "-pedantic", "-Werror", package="bowline-c", standard="c99", suffix="c")
        self.assertEqual(run(program).stdout, f"text {int(args.text)}, import {args.c}\n")
        if args.import_with:
            folder, out = TESTS / "import/fixtures/llama", WORK / "in_c.bowline"
            run(program, folder, out)
            self.assertEqual(out.read_bytes(), self.commanded(folder))
            self.assertEqual(run(program, WORK / "absent", out, check=False).returncode, 2)

    @unittest.skipUnless(args.import_with, "the build has no bowline::import")
    def test_only_the_functions_of_import_are_visible(self):
        declared = names_of_header(PREFIX / "include/bowline_import.h")
        self.assertLessEqual({"import_model", "import_adapter", "import_format", "name_of"}, declared)
        archive = next(PREFIX.rglob("libbowline_import.a"))
        names = re.findall(r"^[0-9a-f]+ [A-Za-z] (.*)$", run("nm", "-gC", "--defined-only", archive).stdout, re.MULTILINE)
        seen = {name[1] for name in map(re.compile(r"bowline::(\w+)").match, names) if name}
        self.assertLessEqual({"import_model", "import_adapter", "import_format"}, seen)
        allowed = set().union(declared, *map(names_of_header, public_headers()))
        self.assertEqual(sorted(seen - allowed), [])
        self.assertEqual([name for name in names if not name.startswith("bowline::")], [])

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_pkg_config(self):
        run(compiled("program"), WORK / "with_pkg_config.bowline")

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_a_program_has_names_of_its_own(self):
        self.assertEqual(run(compiled("names")).stdout, "cpu 170\n")

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_static_program(self):
        if is_shared() or SANITIZED:
            self.skipTest("of a static library, without a sanitizer")
        program = compiled("program", "-static")
        self.assertEqual(needed(program), set())
        self.assertIn("loss ", run(program, WORK / "static.bowline").stdout)

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_a_plugin_is_unmapped(self):
        if SANITIZED:
            self.skipTest("a sanitizer keeps what it has seen")
        plugin = compiled("plugin", "-shared", "-fPIC", "-fno-gnu-unique", "-O2")
        host = compiled("host", libraries=["-ldl"])
        run(host, plugin, *(["libbowline.so"] if is_shared() else []))
        if not is_shared():
            offered = run("nm", "-DC", "--defined-only", plugin).stdout
            self.assertNotIn(" bowline::Model", offered)

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_types_are_right_for_a_sanitizer(self):
        if SANITIZED:
            self.skipTest("the build has a sanitizer")
        strict = ["-fsanitize=undefined,vptr", "-fno-sanitize-recover=all"]
        probe = subprocess.run([args.compiler, *strict, "-x", "c++", "-", "-o", str(WORK / "probe")], input="int main() {}", text=True,
                               capture_output=True, check=False)
        if probe.returncode != 0:
            self.skipTest("the compiler has no UBSan here")
        run(compiled("program", *strict), WORK / "sanitized.bowline")

    def test_only_the_public_api_is_visible(self):
        declared = set().union(*map(names_of_header, public_headers()))
        text = "".join(h.read_text() for h in public_headers())
        self.assertLessEqual({"Model", "Session", "Trainer", "Device", "name_of", "write_file", "version"}, declared)
        flags = ["-D"] if is_shared() else ["-g"]
        symbols = run("nm", *flags, "--defined-only", library()).stdout
        names = run("nm", *flags, "-C", "--defined-only", library()).stdout
        kinds = {line.split()[1] for line in symbols.splitlines() if len(line.split()) == 3}
        self.assertNotIn("u", kinds, "A unique symbol keeps the library loaded after dlclose().")
        wrong, seen = [], set()
        for line in names.splitlines():
            found = re.match(r"[0-9a-f]+ [A-Za-z] (.*)", line)
            if not found:
                continue
            # A nested class is public if the header defines its members.
            name = re.match(r"bowline::(\w+)(?:::(\w+)::\w)?", found[1])
            if name and name[1] in declared and (not name[2] or re.search(rf"\b(?:struct|class) {name[2]}\b[^;{{]*{{", text)):
                seen.add(name[1])
            else:
                wrong.append(found[1])
        self.assertEqual(wrong, [])
        self.assertLessEqual({"Model", "Session", "Trainer", "Device", "name_of", "write_file", "version"}, seen)

    def test_what_is_installed(self):
        for name in ("LICENSE", "third-party-notices.txt", "operators.md"):
            self.assertTrue((PREFIX / "share/doc/bowline" / name).is_file(), name)
        notices = (PREFIX / "share/doc/bowline/third-party-notices.txt").read_text()
        if shutil.which("dpkg-query"):
            # The file format, its checksums, and the library of the CPU kernels.
            for package in ("libflatbuffers-dev ", "libxxhash-dev ", "libhwy-dev "):
                self.assertIn(f"\n{package}", notices)
            self.assertNotIn("\nlibstdc++", notices)
        reference = (PREFIX / "share/doc/bowline/operators.md").read_text()
        operators = re.findall(r"^  ([A-Z]\w+): \w+ = \d+", (ROOT / "schemas/ops.fbs").read_text(), re.MULTILINE)
        self.assertEqual(set(operators) - set(re.findall(r"^## (\w+)$", reference, re.MULTILINE)), set())
        self.assertTrue((PREFIX / "share/bowline/ops.fbs").is_file())
        self.assertTrue((PREFIX / "share/bowline/tsan.supp").is_file())

    def test_each_public_header_compiles_alone(self):
        headers = [*public_headers(), *(PREFIX / "include").glob("bowline_[ti]*.h")]
        self.assertGreater(len(headers), 8)
        for header in headers:
            run(args.compiler, "-std=c++20", *FLAGS, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-",
                "-I", PREFIX / "include", input=f"#include <{header.relative_to(PREFIX / 'include')}>\n")

    def test_compilers_that_are_too_old_are_refused(self):
        for name, version, refused in (("GNU", "11.4", True), ("GNU", "12.2", False), ("Clang", "13.0", True), ("Clang", "14.0", False)):
            done = run("cmake", f"-DCMAKE_CXX_COMPILER_ID={name}", f"-DCMAKE_CXX_COMPILER_VERSION={version}", "-P",
                       ROOT / "tools/cmake/compilers.cmake", check=False)
            self.assertEqual("is too old: Bowline is written in C++20" in re.sub(r"\s+", " ", done.stderr), refused, (name, version))


install()
unittest.main(argv=[sys.argv[0], *tests], verbosity=2)
