#!/usr/bin/env python3
"""Compiles compute shaders in the variants that their heads declare, and embeds the result.

    //! variants T=f32 DIR=forward,backward   one variant per combination: -DT_f32 -DDIR_forward
    //! ops Add Sub Mul                       the operators that a family file serves

`list` prints the variants of files; `build` makes one variant; `index` writes the C++ that holds
all of them. If the build lacks operators or dtypes (BOWLINE_OPS), the index has the names of all
variants, but only the words of those that its kernels use.
"""

import argparse
import itertools
import lzma
import pathlib
import re
import struct
import subprocess
import sys

import cooperative_matrix

HEAD = re.compile(r"^//!\s*(\w+)\s+(.*?)\s*$")
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"')


def variants(path):
    """Yields (name, defines) for every variant of the shader."""
    axes = []
    for line in path.read_text().splitlines():
        if not line.startswith("//"):
            break
        found = HEAD.match(line)
        if found and found.group(1) == "variants":
            for axis in found.group(2).split():
                name, equals, values = axis.partition("=")
                if not equals or not all(values.split(",")):
                    sys.exit(f"{path}: axis '{axis}' of its variants is not NAME=value,value.")
                axes.append((name, values.split(",")))
    for choice in itertools.product(*(values for _, values in axes)):
        name = "_".join([path.stem, *choice])
        yield name, [f"{axis}_{value}" for (axis, _), value in zip(axes, choice)]


def included(path, libraries, seen):
    for line in path.read_text().splitlines():
        found = INCLUDE.match(line)
        if found:
            header = next(folder / found.group(1) for folder in libraries if (folder / found.group(1)).exists())
            if header not in seen:
                seen.append(header)
                included(header, libraries, seen)
    return seen


# What precedes every shader.
PREAMBLE = """#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_GOOGLE_cpp_style_line_directive : require
#line 1 "{}"
"""


def run(command, text=None):
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stdout}")


def validate(spirv_val, module):
    if spirv_val:
        run([spirv_val, "--target-env", "vulkan1.2", "--scalar-block-layout", str(module)])


def knows_matrices(spirv_val):
    """True if the validator knows SPV_KHR_cooperative_matrix and SPV_KHR_bfloat16."""
    version = subprocess.run([spirv_val, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) >= (2025, 3)


def words_of(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def depfile_of(output, sources):
    """Returns a rule of make: the output depends on the sources. Paths may have spaces."""
    def escaped(path):
        return re.sub(r"([ #])", r"\\\1", str(path)).replace("$", "$$")
    return f"{escaped(output)}: {' '.join(map(escaped, sources))}\n"


def build(args):
    source, output = pathlib.Path(args.source), pathlib.Path(args.output)
    libraries = [pathlib.Path(p) for p in args.library]
    defines = [f"-D{d}=1" for d in args.define]
    run([args.glslang, "-V", "--target-env", "vulkan1.2", "--stdin", "-S", "comp", *(f"-I{p}" for p in libraries), *defines,
         "-o", str(output)], PREAMBLE.format(source) + source.read_text())
    validate(args.spirv_val, output)
    words = words_of(output.read_bytes())
    translated = cooperative_matrix.translated(words, bfloat16="T_bf16" in args.define)
    if translated != words:
        output.write_bytes(struct.pack(f"<{len(translated)}I", *translated))
        if knows_matrices(args.spirv_val):
            validate(args.spirv_val, output)
    if args.depfile:
        pathlib.Path(args.depfile).write_text(depfile_of(output, [source, *included(source, libraries, [])]))


# Instructions of SPIR-V that carry only names and lines of the source.
DEBUG = {2, 3, 4, 5, 6, 7, 8, 317, 330}
MOST_IN_PACK = 1 << 15  # words. Unpacking a module unpacks what precedes it in its pack.


def without_names(data):
    """The words of a module, without debug instructions."""
    words = words_of(data)
    out, at = words[:5], 5
    while at < len(words):
        length, operation = words[at] >> 16, words[at] & 0xFFFF
        if operation not in DEBUG:
            out += words[at:at + length]
        at += length
    return out


def pack(words):
    """Packs words as backends/vulkan/lzma.cpp decodes them."""
    sizes = dict(lc=0, lp=2, pb=2)  # of contexts: kLzma... in lzma.h
    coder = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[dict(id=lzma.FILTER_LZMA1, preset=9, **sizes)])
    return coder.compress(struct.pack(f"<{len(words)}I", *words)) + coder.flush()


TYPES = ["f32", "f16", "bf16", "i8", "u8", "i32", "i64"]
BYTES = {"1": "one", "2": "two", "4": "four", "8": "eight"}


def by_dtype(names):
    """Yields the C++ of a table per shader whose variants are dtypes, or sizes of elements.

    The table has the name of the shader without that axis. It is left out for two such axes.
    """
    for struct, members in (("ByType", dict(zip(TYPES, TYPES))), ("ByBytes", BYTES)):
        tables = {}
        for number, name in enumerate(names):
            parts = name.split("_")
            axes = [i for i, part in enumerate(parts) if part in members]
            if len(axes) == 1:
                key = "_".join(parts[:axes[0]] + parts[axes[0] + 1:])
                tables.setdefault(key, {})[parts[axes[0]]] = number
        for key, numbers in tables.items():
            rows = [f".{members[value]} = {numbers[value]}" for value in members if value in numbers]
            yield f"inline constexpr {struct} {key}{{{', '.join(rows)}}};"


def unused(names, left_out, sources):
    """Returns the variants that no kernel of the build uses.

    The first line of the file `left_out` has dtypes, and "codes" for quantized weights: variants
    with such a part of their name are not used. The other lines are kernel files that are not in
    the build. The C++ files name a variant `shader::NAME`, also without a dtype or size, or begin
    its name: `shader::update_##NAME`.
    """
    without, *files = left_out.read_text().splitlines()
    if not without and not files:
        return set()
    named = set()
    for path in sorted(p for p in sources.rglob("*") if p.suffix in (".cpp", ".h") and str(p) not in files):
        named.update(re.findall(r"\bshader::(\w+)", path.read_text()))

    def is_used(name):
        parts = name.split("_")
        keys = {name} | {"_".join(parts[:i] + parts[i + 1:]) for i, part in enumerate(parts) if part in TYPES or part in BYTES}
        return not set(parts) & set(without.split()) and any(
            key in named or any(n.endswith("_") and key.startswith(n) for n in named) for key in keys)

    return {name for name in names if not is_used(name)}


def index(args):
    files = {path.stem: path for path in map(pathlib.Path, args.files)}
    names = sorted({*files, *args.absent})
    modules = [without_names(files[n].read_bytes()) if n in files else [] for n in names]
    made = "// Made by tools/cmake/compile_shaders.py from the shaders of the build; do not edit.\n"
    header = [made, "#pragma once\n", "#include <cstddef>", "#include <cstdint>\n",
              f"namespace {args.namespace} {{\n",
              "struct PackedShader {", "  const char* name;", "  size_t words;   // 0: the build lacks it",
              "  size_t before;  // words of the modules before it in its pack",
              "  size_t at;      // the first byte of its pack", "};\n",
              "// One number per variant: a shader that is not there does not compile.",
              "namespace shader {"]
    for struct, members in (("ByType", TYPES), ("ByBytes", BYTES.values())):
        fields = ", ".join(f"{member} = UINT32_MAX" for member in members)
        header.append(f"struct {struct} {{ uint32_t {fields}; }};")
    header += [f"inline constexpr uint32_t {name} = {i};" for i, name in enumerate(names)]
    header += by_dtype(names)
    packed, rows = bytearray(), []
    # The variants of one shader are much alike, so they share a pack.
    for _, group in itertools.groupby(zip(names, modules), lambda module: module[0].split("_")[0]):
        words = []
        for name, module in group:
            if words and len(words) + len(module) > MOST_IN_PACK:
                packed += pack(words)
                words = []
            rows.append(f'    {{"{name}", {len(module)}, {len(words)}, {len(packed)}}},')
            words += module
        packed += pack(words) if words else b""
    header += ["}  // namespace shader\n", f"inline constexpr uint32_t kShaderCount = {len(names)};",
               f"inline constexpr size_t kPackedBytes = {len(packed)};",
               "extern const PackedShader kPackedShaders[kShaderCount];",
               "extern const uint8_t kPackedWords[kPackedBytes];\n", f"}}  // namespace {args.namespace}", ""]
    source = [made, f'#include "{pathlib.Path(args.output).name}.h"\n', f"namespace {args.namespace} {{\n",
              "extern const PackedShader kPackedShaders[kShaderCount] = {"]
    source += [*rows, "};\n", "extern const uint8_t kPackedWords[kPackedBytes] = {"]
    source += ["    " + ",".join(map(str, packed[i:i + 32])) + "," for i in range(0, len(packed), 32)]
    source += ["};\n", f"}}  // namespace {args.namespace}", ""]
    for suffix, lines in ((".h", header), (".cpp", source)):
        path = pathlib.Path(args.output + suffix)
        text = "\n".join(lines)
        if suffix == ".cpp" or not path.exists() or path.read_text() != text:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    lister = verbs.add_parser("list")
    lister.add_argument("--left-out", required=True, help="parts of names, and kernel files, that are not in the build")
    lister.add_argument("--sources", required=True, help="folder of the C++ files that name shaders")
    lister.add_argument("files", nargs="*")
    maker = verbs.add_parser("build")
    for flag in ("--source", "--output", "--glslang"):
        maker.add_argument(flag, required=True)
    maker.add_argument("--library", action="append", required=True)
    maker.add_argument("--depfile")
    maker.add_argument("--spirv-val")
    maker.add_argument("--define", action="append", default=[])
    indexer = verbs.add_parser("index")
    indexer.add_argument("--output", required=True)
    indexer.add_argument("--namespace", required=True)
    indexer.add_argument("--absent", action="append", default=[], help="a variant that the build lacks")
    indexer.add_argument("files", nargs="*")
    args = parser.parse_args()
    if args.verb == "list":
        rows = [(name, file, defines) for file in args.files for name, defines in variants(pathlib.Path(file))]
        absent = unused([name for name, _, _ in rows], pathlib.Path(args.left_out), pathlib.Path(args.sources))
        for name, file, defines in rows:
            print("|".join([name] if name in absent else [name, file, *defines]))
    elif args.verb == "build":
        build(args)
    else:
        index(args)


if __name__ == "__main__":
    main()
