#!/usr/bin/env python3
"""Compiles compute shaders in the variants that their heads declare, and embeds the result.

    //! variants T=f32 DIR=forward,backward   one variant per combination: -DT_f32 -DDIR_forward
    //! ops Add Sub Mul                       the operators that a family file serves

`list` prints the variants of files; `build` makes one variant; `index` writes the C++ that holds
all of them.
"""

import argparse
import itertools
import pathlib
import re
import subprocess
import sys

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


def run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stdout}")


def build(args):
    source, output = pathlib.Path(args.source), pathlib.Path(args.output)
    libraries = [pathlib.Path(p) for p in args.library]
    defines = [f"-D{d}=1" for d in args.define]
    run([args.glslang, "-V", "--target-env", "vulkan1.2", "-S", "comp", *(f"-I{p}" for p in libraries), *defines,
         "-o", str(output), str(source)])
    if args.spirv_val:
        run([args.spirv_val, "--target-env", "vulkan1.2", "--scalar-block-layout", str(output)])
    if args.depfile:
        headers = " ".join(str(h) for h in included(source, libraries, []))
        pathlib.Path(args.depfile).write_text(f"{output}: {source} {headers}\n")


def index(args):
    binaries = sorted(pathlib.Path(p) for p in args.files)
    names = [b.stem for b in binaries]
    made = "// Made by tools/cmake/compile_shaders.py from the shaders of the build; do not edit.\n"
    header = [made, "#pragma once\n", "#include <cstddef>", "#include <cstdint>\n",
              f"namespace {args.namespace} {{\n",
              "struct ShaderBinary {", "  const char* name;", "  const uint32_t* words;",
              "  size_t bytes;", "};\n",
              "// The index of each variant. A name without shader does not compile.",
              "namespace shader {"]
    header += [f"inline constexpr uint32_t {name} = {i};" for i, name in enumerate(names)]
    header += ["}  // namespace shader\n", f"inline constexpr uint32_t kShaderCount = {len(names)};",
               "extern const ShaderBinary kShaders[];\n", f"}}  // namespace {args.namespace}", ""]
    source = [made, f'#include "{pathlib.Path(args.output).name}.h"\n',
              f"namespace {args.namespace} {{", "namespace {\n"]
    for binary in binaries:
        data = binary.read_bytes()
        words = [f"0x{int.from_bytes(data[i:i + 4], 'little'):08x}" for i in range(0, len(data), 4)]
        source.append(f"constexpr uint32_t words_{binary.stem}[] = {{")
        source += ["    " + ", ".join(words[i:i + 8]) + "," for i in range(0, len(words), 8)]
        source.append("};")
    source += ["\n}  // namespace\n", "extern const ShaderBinary kShaders[] = {"]
    source += [f'    {{"{n}", words_{n}, sizeof(words_{n})}},' for n in names]
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
    indexer.add_argument("files", nargs="*")
    args = parser.parse_args()
    if args.verb == "list":
        for file in args.files:
            for name, defines in variants(pathlib.Path(file)):
                print("|".join([name, file, *defines]))
    elif args.verb == "build":
        build(args)
    else:
        index(args)


if __name__ == "__main__":
    main()
