#!/usr/bin/env python3
"""Checks that every #include points down, as the layer map of runtime/README.md says.

  tools/ samples/ tests/ -> train -> exec -> plan -> graph -> ops -> params -> model -> device -> core
  backends/* -> device/backend.h and what lies below it

One sentence per wrong arrow; exit code 1 if there is any.
"""

import pathlib
import re
import sys

ROOMS = ["core", "device", "model", "params", "ops", "graph", "plan", "exec", "train"]  # from the bottom
# Above its room by purpose: the public types of every room, and what the build makes of the schemas.
PUBLIC = "bowline.h"
GENERATED = re.compile(r"generated/")
# What an op file may include, besides core/ and the generated tables.
OP_FILES = {"ops/op.h", "ops/build.h", "ops/index.h", "ops/reduced.h", "ops/elementwise.h", "ops/counted.h"}
GPU_HEADERS = re.compile(r"vulkan|cuda|cudnn|cublas|metal", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".cpp", ".cu", ".cuh"}


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES) if folder.is_dir() else []


def room_of(include):
    head = include.split("/")[0]
    return head if head in ROOMS and "/" in include else None


def check_runtime(root):
    for path in files_of(root / "runtime"):
        name = path.relative_to(root / "runtime").as_posix()
        room = room_of(name)
        for quote, include in includes(path):
            if quote == "<" and GPU_HEADERS.search(include):
                yield f"runtime/{name} includes {include}: runtime/ knows no GPU header."
            if quote == "<" or include == PUBLIC or GENERATED.match(include):
                continue
            target = room_of(include)
            if name == PUBLIC:
                yield f"runtime/{name} includes {include}: it includes only standard headers."
            elif include.startswith("backends/"):
                yield f"runtime/{name} includes {include}: runtime/ knows no backend."
            elif room and target and ROOMS.index(target) > ROOMS.index(room):
                yield f"runtime/{name} includes {include}: {target}/ lies above {room}/."
            elif room == "ops" and target != "core" and include not in OP_FILES:
                yield f"runtime/{name} includes {include}: an op file includes ops/op.h and core/."


def check_backends(root):
    allowed = set(ROOMS[: ROOMS.index("device") + 1])
    backends = [p.name for p in (root / "backends").iterdir() if p.is_dir()]
    for backend in backends:
        folder = root / "backends" / backend
        for path in files_of(folder):
            name = path.relative_to(root).as_posix()
            for quote, include in includes(path):
                if quote == "<" or include == PUBLIC or GENERATED.match(include):
                    continue
                target = room_of(include)
                own = (folder / include).exists() or (path.parent / include).exists()
                if not own and target and target not in allowed:
                    yield f"{name} includes {include}: a backend includes device/backend.h and what lies below it."
                others = [b for b in backends if b != backend and include.startswith((f"{b}/", f"backends/{b}/"))]
                if others and not own:
                    yield f"{name} includes {include}: a backend knows no other backend."


def check_samples(root):
    for path in files_of(root / "samples"):
        name = path.relative_to(root).as_posix()
        for quote, include in includes(path):
            custom = "custom_backend" in name and include == "bowline/backend.h"
            if quote == '"' and include != PUBLIC and not custom and not (path.parent / include).exists():
                yield f"{name} includes {include}: a sample includes {PUBLIC} alone."


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    wrong = [*check_runtime(root), *check_backends(root), *check_samples(root)]
    print("\n".join(wrong) or "Every include points down.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
