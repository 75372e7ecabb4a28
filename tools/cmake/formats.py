"""Generates code from the block formats of runtime/base/formats (its README.md has the rules).

  generated/formats.inc          BOWLINE_FORMAT(name, number, ...): the fields of BlockFormat,
                                 without its functions, for each format of the build
  generated/all_formats.inc      the same for all formats; a format that the build leaves out
                                 (BOWLINE_OPS) has number 0
  generated/format_formulas.inc  the descriptions
  generated/formats.glsl         their text for shaders, with decode_format()
"""

import re
import typing

HEADER = "// Generated from runtime/base/formats by tools/cmake/formats.py.\n"
HEADS = {
    "gguf": r"(\d+) (\w+) file (\d+)",
    "block": r"(\d+) values (\d+) bytes groups of (\d+)",
    "steps": r"([\d.]+) error ([\d.]+)",
    "halves": r"(\d+)(?: (\d+))?",
    "strided": r"(\d) bits at (\d+)(?: in halves of (\d+))?(?: zero (\d+))?",
}
OPTIONAL = {"halves", "strided"}


class Format(typing.NamedTuple):
    name: str
    number: int
    heads: dict
    has_minimum: bool
    text: str

    def block(self):
        return [int(n) for n in self.heads["block"]]

    def row(self):
        """The arguments of BOWLINE_FORMAT."""
        gguf, gguf_name, gguf_file = self.heads["gguf"]
        halves = [h for h in self.heads.get("halves", ()) if h]
        strided = [n or "0" for n in self.heads.get("strided", ())]
        fields = [self.name, self.number, *self.block(), str(self.has_minimum).lower(), gguf, f'"{gguf_name}"', gguf_file,
                  *self.heads["steps"], f"{{{', '.join(halves)}}}", len(halves), f"{{{', '.join(strided)}}}"]
        return ", ".join(map(str, fields))


def read_format(path, number, fail):
    text, heads = path.read_text(), {}
    for key, value in re.findall(r"^//! (\w+) (.*)$", text, re.M):
        found = re.fullmatch(HEADS[key], value) if key in HEADS else None
        if not found or key in heads:
            fail(f"{path}: '//! {key} {value}' is not a head of a format, or is there twice.")
        heads[key] = found.groups()
    for key in HEADS.keys() - OPTIONAL - heads.keys():
        fail(f"{path}: the head '//! {key}' is missing.")
    for form in ("SCALES", "CODE"):
        if not re.search(rf"^{form}\({path.stem}\)", text, re.M):
            fail(f"{path}: {form}({path.stem}) is missing.")
    if not path.with_name(f"{path.stem}_encode.cpp").exists():
        fail(f"{path}: its encoder, {path.stem}_encode.cpp, is missing.")
    out = Format(path.stem, number, heads, "least =" in text, text)
    block, _, group = out.block()
    if block > 256 or group > 32 or block % group != 0:
        fail(f"{path}: a block has at most 256 values, in groups of at most 32 (base/formats.h).")
    return out


def names(root):
    return sorted(path.stem for path in (root / "runtime/base/formats").glob("*.h"))


def read_formats(root, selected, fail):
    kept = [name for name in names(root) if name in selected]
    return [read_format(root / f"runtime/base/formats/{name}.h", kept.index(name) + 1 if name in selected else 0, fail)
            for name in names(root)]


def rows(formats):
    return "\n".join([HEADER, *(f"BOWLINE_FORMAT({f.row()})" for f in formats), "#undef BOWLINE_FORMAT", ""])


def shader(shared, formats):
    lines = [HEADER, shared, *(f.text for f in formats),
             "\n// Value i of a block. `format` is Format::number.",
             "float decode_format(uint format, Block b, int i) {", "  float scale = 0;", "  float least = 0;", "  int code = 0;",
             "  switch (format) {"]
    for f in formats:
        group = f.block()[2]
        lines += [f"    case {f.number}u:", f"      {f.name}_scales(b, i / {group}, scale, least);",
                  f"      code = {f.name}_code(b, i / {group}, i % {group});", "      break;"]
    return "\n".join([*lines, "    default:", "      break;", "  }", "  return scale * float(code) - least;", "}", ""])


def write_all(root, generated, selected, write, fail):
    formats = read_formats(root, selected, fail)
    kept = [f for f in formats if f.number]
    write(generated / "formats.inc", rows(kept))
    write(generated / "all_formats.inc", rows(formats))
    write(generated / "format_formulas.inc", "\n".join([HEADER, '#include "base/formats/shared.inc"',
                                                       *(f'#include "base/formats/{f.name}.h"' for f in formats), ""]))
    write(generated / "formats.glsl", shader((root / "runtime/base/formats/shared.inc").read_text(), kept))
