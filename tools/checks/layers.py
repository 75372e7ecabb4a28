#!/usr/bin/env python3
"""Checks that every #include points down, as the layer map of runtime/README.md says.

  tools/ samples/ tests/ -> api -> train -> exec -> plan -> graph -> ops
                            -> params -> model -> device -> core -> base
  backends/*             -> device/backend.h and what lies below it
  text                   -> the public headers (bowline.h, bowline/) and base
  c                      -> the public headers, bowline_text.h, bowline_import.h and base
  mpi                    -> the public headers and base
  base                   -> bowline/status.h

The programs and readers in tools/ include only the public headers, bowline_text.h, bowline_c.h,
bowline_import.h and base/ of the library. The export of bowline also includes the description of
tokenizers, which includes only public headers. tools/conform also includes the header of the
conformance runner, which includes only public headers. Samples do not include base/, since they are
programs outside the tree. The FlatBuffers tables of a model file stay in runtime/model. Elsewhere
in runtime/ no file includes their generated header, directly or indirectly, and no file names its
types, except the attribute tables of operators.

Prints a sentence per wrong include; exit code 1 if there is any.
"""

import pathlib
import re
import sys
import tempfile

# from bottom to top
LAYERS = ["base", "core", "device", "model", "params", "ops", "graph", "plan", "exec", "train", "api"]
# Visible in every layer: the public types, and the files that the build generates from the schemas.
PUBLIC = re.compile(r"bowline\.h$|bowline/\w+\.h$")
STATUS = "bowline/status.h"
MPI = "bowline_mpi.h"  # of runtime/mpi
TEXT = "bowline_text.h"  # of the second target, runtime/text, which is a program to the library
IMPORT = "bowline_import.h"  # of the third target, tools/import
C = re.compile(r"bowline_c\.h$|bowline_c/\w+\.h$|c/")  # of the fourth target, runtime/c
HEADER_OF_C = "bowline_c.h"
PUBLIC_C = re.compile(r"c/bowline_c/\w+\.h$")
GENERATED = re.compile(r"generated/")
# Every backend compiles these files.
FORMULAS = re.compile(r"ops/formulas/")
GPU_HEADERS = re.compile(r"vulkan|cuda|cudnn|cublas|metal", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".cpp", ".cu", ".cuh"}


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES) if folder.is_dir() else []


def layer_of(include):
    head = include.split("/")[0]
    return head if head in LAYERS and "/" in include else None


def check_runtime(root):
    for path in files_of(root / "runtime"):
        name = path.relative_to(root / "runtime").as_posix()
        layer = layer_of(name)
        for quote, include in includes(path):
            if quote == "<" and GPU_HEADERS.search(include):
                yield f"runtime/{name} includes {include}: runtime/ knows no GPU header."
            if layer == "base" and PUBLIC.match(include) and include != STATUS:
                yield f"runtime/{name} includes {include}: of the public headers base/ sees {STATUS} alone."
            if quote == "<" or PUBLIC.match(include) or GENERATED.match(include):
                continue
            target = layer_of(include)
            if name.startswith("text/"):
                if include != TEXT and not include.startswith(("text/", "base/")):
                    yield f"runtime/{name} includes {include}: text/ sees the public headers, base/ and its own files alone."
            elif name.startswith("mpi/"):
                if include != MPI and not include.startswith("base/"):
                    yield f"runtime/{name} includes {include}: mpi/ sees the public headers, base/ and its own files alone."
            elif name.startswith("c/"):
                # The headers of C include each other by their path, as some import tools need.
                own = C.match(include) or PUBLIC_C.match(name) and (path.parent / include).exists()
                if include not in (TEXT, IMPORT) and not own and not include.startswith("base/"):
                    yield f"runtime/{name} includes {include}: c/ sees the public headers, base/ and its own files alone."
            elif PUBLIC.match(name):
                yield f"runtime/{name} includes {include}: a public header includes only standard and public headers."
            elif include.startswith("backends/"):
                yield f"runtime/{name} includes {include}: runtime/ knows no backend."
            elif layer and target and LAYERS.index(target) > LAYERS.index(layer):
                yield f"runtime/{name} includes {include}: {target}/ lies above {layer}/."
            elif layer == "ops" and target not in ("base", "core", "ops"):
                yield f"runtime/{name} includes {include}: an op file includes ops/, core/ and base/."


def check_backends(root):
    allowed = set(LAYERS[: LAYERS.index("device") + 1])
    backends = [p.name for p in (root / "backends").iterdir() if p.is_dir()]
    for backend in backends:
        folder = root / "backends" / backend
        for path in files_of(folder):
            name = path.relative_to(root).as_posix()
            for quote, include in includes(path):
                if quote == "<" or PUBLIC.match(include) or GENERATED.match(include) or FORMULAS.match(include):
                    continue
                target = layer_of(include)
                own = (folder / include).exists() or (path.parent / include).exists()
                if not own and target and target not in allowed:
                    yield f"{name} includes {include}: a backend includes device/backend.h and what lies below it."
                others = [b for b in backends if b != backend and include.startswith((f"{b}/", f"backends/{b}/"))]
                if others and not own:
                    yield f"{name} includes {include}: a backend knows no other backend."


def check_programs(root):
    """A program includes its own headers, the public ones, and headers from outside the tree."""
    runner = "conformance/conformance.h"
    tokenizers = "text/description.h"
    # A program may include headers of the folders that it is built with.
    beside = {"tools/bowline": [root / "tools/import"], "tools/import": [], "samples": [],
              "tools/conform": [root / "tools/bowline"]}
    for folder in beside:
        for path in files_of(root / folder):
            name = path.relative_to(root).as_posix()
            for quote, include in includes(path):
                own = any((place / include).exists() for place in (path.parent, root / folder, *beside[folder]))
                # tools/cmake/commit.cmake, tools/import/onnx/CMakeLists.txt
                generated = include in ("commit.h", "onnx.pb.h")
                base = include.startswith("base/") and folder != "samples"
                conform = include == runner and folder == "tools/conform"
                conform |= include == tokenizers and name.startswith("tools/bowline/export/")
                allowed = own or generated or base or conform or PUBLIC.match(include) or include in (TEXT, IMPORT, HEADER_OF_C)
                library = any((place / include).exists() for place in (root / "runtime", root / "tests", root))
                if (quote == '"' or library or GENERATED.match(include)) and not allowed:
                    yield f"{name} includes {include}: a program includes the public headers and base/ alone."
    for header in (root / "tests" / runner, root / "runtime" / tokenizers):
        for quote, include in includes(header) if header.exists() else []:
            if quote == '"' and not PUBLIC.match(include):
                name = header.relative_to(root).as_posix()
                yield f"{name} includes {include}: programs see it, so it includes the public headers alone."


TABLES = "generated/model_generated.h"
# The types that files outside of model/ may use: operators and their attribute tables
# (schemas/ops.fbs).
FILE_TYPE = re.compile(r"\bfile::(\w+)")


def check_tables(root):
    runtime = root / "runtime"
    below = {p.relative_to(runtime).as_posix(): [i for _, i in includes(p)] for p in files_of(runtime)}

    def way(name, seen):
        """Returns the chain of includes from a file to the tables."""
        for include in below.get(name, []):
            if include == TABLES:
                return [include]
            if include in below and include not in seen:
                seen.add(include)
                rest = way(include, seen)
                if rest:
                    return [include, *rest]
        return []

    schema = (root / "schemas" / "ops.fbs").read_text(encoding="utf-8")
    operators = set(re.findall(r"^\s*(?:table|enum)\s+(\w+)", schema, re.MULTILINE))
    for path in files_of(runtime):
        name = path.relative_to(runtime).as_posix()
        if layer_of(name) == "model":
            continue
        reached = way(name, {name})
        if reached:
            yield f"runtime/{name} includes {' -> '.join(reached)}: the tables of a file stay in model/."
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        forward = re.sub(r"namespace (?:\w+::)*file \{.*?\}", "", text, flags=re.DOTALL)
        for found in sorted(set(FILE_TYPE.findall(forward))):
            if found.removesuffix("T") not in operators and found not in operators:
                yield f"runtime/{name} names file::{found}: the tables of a file stay in model/."


# Files of a small tree. A line that ends with the mark is wrong.
MARK = "// wrong"
SEEDED = {
    "runtime/model/verify.h": '#include "generated/model_generated.h"',
    "runtime/model/read.h": "namespace bowline::file {\nstruct Graph;\n}",
    "runtime/graph/load.cpp": '#include "graph/load.h" // wrong\n#include "model/read.h"',
    "runtime/graph/load.h": '#include "model/verify.h" // wrong',
    "runtime/ops/relu.cpp": '#include "params/table.h" // wrong',
    "runtime/params/file.cpp": "file::ParameterList* fine;\nfile::StorageT no; // wrong\n// file::RangeT",
    "runtime/exec/session.cpp": '#include "train/trainer.h" // wrong',
    "runtime/text/bpe.cpp": '#include "text/bpe.h"\n#include "bowline_text.h"\n#include "core/shape.h" // wrong',
    "runtime/c/bowline_c/api.h": '#include "types.h"\n#include "call.h" // wrong',
    "runtime/c/bowline_c/types.h": "",
    "runtime/c/model.cpp": '#include "c/call.h"\n#include "bowline_c.h"\n#include "bowline_text.h"\n#include "params/table.h" // wrong',
    "runtime/mpi/mpi.cpp": '#include "bowline_mpi.h"\n#include "base/status.h"\n#include "train/trainer.h" // wrong',
    "runtime/train/trainer.h": "",
    "runtime/bowline/model.h": '#include "bowline/status.h"\n#include "core/shape.h" // wrong',
    "runtime/base/status.h": '#include "bowline/status.h"\n#include "bowline/model.h" // wrong',
    "runtime/core/status.h": "",
    "tools/bowline/run.cpp": '#include "core/status.h" // wrong\n#include "base/status.h"\n#include "verb.h"\n#include "bowline.h"\n'
                             '#include "bowline/model.h"\n#include "conformance/conformance.h" // wrong',
    "tools/bowline/verb.h": "#include <vector>",
    "tools/import/onnx/import.h": '#include "bowline.h"\n#include "verb.h" // wrong',
    "tools/import/onnx/lower.cpp": '#include "onnx/import.h"\n#include "onnx.pb.h"\n#include "graph/load.h" // wrong',
    "tools/conform/main.cpp": '#include "conformance/conformance.h"\n#include "verb.h"',
    "samples/mlp/mlp.cpp": "#include <base/status.h> // wrong\n#include <bowline_import.h>",
    "tools/import/bowline_import.h": '#include "bowline.h"',
    "tests/conformance/conformance.h": '#include "conformance/gaps.h" // wrong',
    "schemas/ops.fbs": "table ParameterList { parameters: [uint]; }",
    "backends/cpu/backend.cpp": '#include "graph/load.h" // wrong',
}


def wrong_arrows(root):
    return [*check_runtime(root), *check_backends(root), *check_programs(root), *check_tables(root)]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in SEEDED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = sorted(re.match(r"(\S+) (?:includes|names) (file::\w+|[\w./]+)", line).groups() for line in wrong_arrows(root))
    marked = [(name, line) for name, text in SEEDED.items() for line in text.split("\n") if line.endswith(MARK)]
    wrong = sorted((name, re.search(r"file::\w+|[\w/]+\.h", line)[0]) for name, line in marked)
    if found != wrong:
        sys.exit(f"layers.py does not find its seeded arrows {wrong}, but {found}.")


def main():
    self_test()
    wrong = wrong_arrows(pathlib.Path(__file__).resolve().parents[2])
    print("\n".join(wrong) or "Every include points down.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
