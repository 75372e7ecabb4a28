#!/usr/bin/env python3
"""Checks the machine code of the CUDA kernels against backends/cuda/code_budgets.txt.

  tools/checks/cuda_code.py [--build DIR] [--all] [--list PATTERN] [--install]

  --build DIR     build folder [build/release]
  --all           compile every kernel file for sm_75, 80, 90 and 120, not only
                  the files whose kernels have budgets of their own
  --list PATTERN  print the figures of the kernels that match, such as
                  'matmul.*'
  --install       download nvdisasm and cuobjdump from PyPI into
                  build/cuda_tools, and do nothing else

No kernel for sm_90 or newer may access global memory before it waits for the launch before it
(backends/cuda/device/begin.cuh).

The check disassembles the kernels in the objects of the build. The build of a push has code of one
architecture, so the check also compiles files for the others: the files whose kernels have a budget
for a certain architecture, the shortest first. After 10 seconds of processor time it starts no
other file, and says what it left to `tools/check full cuda_code`. No GPU is needed.

Exit codes: 0 every kernel keeps its budgets and waits; 1 a kernel does not, or no kernel matches a
line; 77 a tool is missing, or the build has no CUDA kernels.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # leaves nothing in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cuda import compile as cuda_compile  # noqa: E402
from cuda.code import (FIGURES, Code, add_instructions, codes_of, short_name,  # noqa: E402
                       short_names)

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "backends/cuda/kernels"
BUDGETS = ROOT / "backends/cuda/code_budgets.txt"
TOOLS = ROOT / "build/cuda_tools"
ARCHITECTURES = [75, 80, 90, 120]
MOST_SECONDS = 10
LIMIT = re.compile(r"(\w+)(<=|>=)([\d.]+)")
SIZE = re.compile(r"size\s+(\w+)\s+([\d.]+)")


class Budget:
    """A line of the file."""

    def __init__(self, number, line):
        self.number = number
        self.pattern, architectures, *limits = line.split()
        self.architectures = None if architectures == "*" else [int(a) for a in architectures.split(",")]
        self.limits = {}
        for text in limits:
            found = LIMIT.fullmatch(text)
            if not found or found[1] not in FIGURES:
                raise ValueError(f"{BUDGETS.name}:{number}: '{text}' is not FIGURE<=NUMBER or FIGURE>=NUMBER, "
                                 f"with a figure of {', '.join(FIGURES)}.")
            self.limits[found[1], found[2]] = float(found[3])
        if not self.limits:
            raise ValueError(f"{BUDGETS.name}:{number} has no limit.")

    def applies(self, name, architecture):
        return fnmatch.fnmatchcase(name, self.pattern) and (
            self.architectures is None or architecture in self.architectures)


def read_budgets(text):
    lines = [(i, line.split("#")[0].strip()) for i, line in enumerate(text.splitlines(), 1)]
    return [Budget(i, line) for i, line in lines if line and not SIZE.fullmatch(line)]


def read_sizes(text):
    """{code: most megabytes}, with codes as nvcc names them, such as sm_80."""
    found = [SIZE.fullmatch(line.split("#")[0].strip()) for line in text.splitlines()]
    return {item[1]: float(item[2]) for item in found if item}


def fatbin_bytes(objects):
    """The compressed code of all architectures in objects."""
    listing = subprocess.run(["readelf", "-SW", *objects], capture_output=True, text=True, check=True).stdout
    return sum(int(size, 16) for size in re.findall(r"\s\.nv_fatbin\s+PROGBITS\s+\w+\s+\w+\s+(\w+)", listing))


def oversize(sizes, codes, measured):
    """Compares the code of a build for `codes` with their limits, if all have one."""
    if codes and all(code in sizes for code in codes):
        most = sum(sizes[code] for code in codes)
        if measured > most * 1e6:
            yield f"The code for {', '.join(codes)} has {measured / 1e6:.2f} MB, above {most:g} ({BUDGETS.name})."


def limits_of(budgets, name, architecture):
    """{(figure, comparison): (number, line)}. A later line replaces limits of earlier ones."""
    return {key: (number, b.number) for b in budgets if b.applies(name, architecture) for key, number in b.limits.items()}


def breaches(budgets, name, code):
    figures = code.figures()
    for (figure, comparison), (limit, line) in limits_of(budgets, name, code.architecture).items():
        number = figures.get(figure)
        where = f"{name} for sm_{code.architecture}"
        if number is None:
            yield f"{where} has no figure '{figure}' ({BUDGETS.name}:{line})."
        elif number > limit if comparison == "<=" else number < limit:
            yield (f"{where}: {figure} is {number:g}, {'above' if comparison == '<=' else 'below'} {limit:g} "
                   f"({BUDGETS.name}:{line}; {FIGURES[figure]}).")


def unordered(name, code):
    """From sm_90 on, a kernel may start while the launch before it still runs."""
    if code.architecture >= 90:
        for operation in code.before_wait():
            yield f"{name} for sm_{code.architecture}: '{operation}' comes before the wait of begin_kernel."


def wanted_files(budgets, everything, built):
    """Lists what to compile for architectures that the build lacks: pairs (file, architecture)."""
    wanted = []
    for architecture in [a for a in ARCHITECTURES if a not in built]:
        own = [b.pattern.split(".")[0] for b in budgets if b.architectures and architecture in b.architectures]
        wanted += [(file, architecture) for file in sorted(KERNELS.glob("*.cu"))
                   if everything or any(fnmatch.fnmatchcase(file.stem, name) for name in own)]
    return sorted(wanted, key=lambda item: item[0].stat().st_size)


def compiled_codes(compiler, wanted, nvdisasm, most_seconds):
    """Returns the kernels of the files, and the files for which there was no time."""
    codes, left, start = [], [], cuda_compile.processor_seconds()
    for source, architecture in wanted:
        cubin = compiler.kept(source, architecture)
        if cubin is None and cuda_compile.processor_seconds() - start > most_seconds:
            left.append(f"{source.stem} for sm_{architecture}")
            continue
        codes += codes_of(cubin or compiler.compile(source, architecture), architecture, nvdisasm)
    return codes, left


def built_codes(objects, cuobjdump, nvdisasm):
    """Returns the kernels in the objects of the build."""
    codes = []
    for item in objects:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([cuobjdump, "-xelf", "all", item], cwd=folder, check=True, capture_output=True)
            for cubin in sorted(pathlib.Path(folder).glob("*.cubin")):
                codes += codes_of(cubin, int(re.search(r"\.sm_(\d+)", cubin.name)[1]), nvdisasm)
    return codes


LISTING = """
\t.section\t.text.k,"ax",@progbits
.L_x_0:
        /*0000*/                   I2F R0, R1 ;
.L_x_1:
        /*0010*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0020*/              @!P0 LDSM.16.M88.4 R8, [R2] ;
        /*0030*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0040*/               @P0 BRA `(.L_x_1) ;
        /*0050*/              @!P1 STL [R1], R4 ;
        /*0060*/               @P1 BRA `(.L_x_0) ;
        /*0070*/                   BRA `(.L_x_2) ;
.L_x_3:
        /*0080*/                   I2FP.F32.S32 R0, R1 ;
        /*0088*/              @!P0 LDG.E.128.CONSTANT R0, desc[UR8][R16.64] ;
        /*0090*/                   FFMA R0, R0, R0, R0 ;
        /*00a0*/               @P0 BRA `(.L_x_3) ;
.L_x_2:
        /*00b0*/                   EXIT ;
"""


# 16 bytes, of which an address uses a half; then 26 bytes; then a use of R9, which is loaded.
FLIGHT = """
\t.section\t.text.k,"ax",@progbits
        /*0000*/                   LDG.E.128 R4, desc[UR8][R2.64] ;
        /*0010*/                   LDG.E.U16 R0, desc[UR8][R6.64] ;
        /*0020*/              @!P0 LD.E.64 R8, desc[UR8][R2.64] ;
        /*0030*/                   LDG.E.128.CONSTANT R12, desc[UR8][R2.64+0x10] ;
        /*0040*/                   FADD R1, R9, R20 ;
        /*0050*/                   LDG.E R3, desc[UR8][R20.64] ;
        /*0060*/                   EXIT ;
"""


WAITS = """
\t.section\t.text.k,"ax",@progbits
        /*0000*/              @P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0010*/                   CCTL.E.PF2 [R2] ;
        /*0020*/               @P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/                   ACQBULK ;
        /*0040*/                   PREEXIT ;
        /*0050*/                   LDG.E R0, desc[UR4][R2.64] ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   STG.E desc[UR4][R2.64], R0 ;
        /*0080*/                   EXIT ;
"""


def flight(listing):
    code = Code("k", 90)
    add_instructions(listing, {"k": code})
    return code.flight()


def waits(listing):
    code = Code("k", 90)
    add_instructions(listing, {"k": code})
    return code.before_wait()


def self_test():
    code = Code("k", 90, registers=128, threads=256)
    add_instructions(LISTING, {"k": code})
    expected = {"stack": 0, "local": 1, "registers": 128, "blocks": 2, "hmma": 1, "others": 3, "burst": 1, "math": 25, "conversions": 2, "wide": 1, "flight": 16}
    lines = "* * stack<=0 others<=3  # default\na.k<1,*> 90 others<=2.5 blocks>=3\n"
    broken = [*breaches(read_budgets(lines), "a.k<1,2>", code)]
    refused = []
    for line in ("* * stak<=0", "* * stack=0", "* *"):
        try:
            read_budgets(line)
        except ValueError as sentence:
            refused.append(sentence)
    found = {
        "the figures of a listing": code.figures() == expected,
        "a stricter line": len(broken) == 2 and "others is 3, above 2.5" in broken[0],
        "a line of another kernel": not [*breaches(read_budgets(lines), "a.l<1,2>", code)],
        "a wrong line": len(refused) == 3,
        "loads in flight": flight(FLIGHT) == 26,
        "loads in flight, of which the last is used": flight(FLIGHT.replace("R9, R20", "R11, R20")) == 30,
        "a name": short_name("void bowline::detail::cuda::a_kernels::(anonymous namespace)::k<(int)1, float>") == "a.k<1,float>",
        "a kernel that waits": waits(WAITS) == [],
        "a load before the wait": waits(WAITS.replace("CCTL.E.PF2 [R2]", "@P2 LDG.E R3, desc[UR4][R2.64]"))
        == ["LDG.E R3, desc[UR4][R2.64]"],
        "a path without a wait": waits(WAITS.replace("@P0 BRA `(.L_x_1)", "@P0 BRA `(.L_x_2)"))
        == ["STG.E desc[UR4][R2.64], R0", "EXIT"],
        "the files to compile": wanted_files(read_budgets("softmax.* 75 hmma>=1\nr?pe.* 75,80 hmma>=1\nrope.* 75 hmma>=1"), False, {80})
        == [(KERNELS / "softmax.cu", 75), (KERNELS / "rope.cu", 75)],
        "a command": cuda_compile.nvcc_command("  COMMAND = cd /b && /n/nvcc -O3 -gencode=arch=a,code=b -c /k.cu -o k.o -MD -MF d -I /i")
        == ["/n/nvcc", "-O3", "-I", "/i"],
        "the codes of a build": cuda_compile.built_for(
            "COMMAND = nvcc -gencode=arch=compute_75,code=compute_75 -gencode=arch=compute_90,code=[compute_90,sm_90] -c k.cu")
        == ["compute_75", "compute_90", "sm_90"],
        "sizes": read_sizes("size sm_80 2.5  # MB\n* * stack<=0") == {"sm_80": 2.5},
        "a build that is too large": [list(oversize({"sm_80": 2.5, "sm_90": 3}, codes, 5.6e6)) != []
                                      for codes in (["sm_80", "sm_90"], ["sm_80", "sm_100"], [])] == [True, False, False],
    }
    wrong = [name for name, holds in found.items() if not holds]
    if wrong:
        sys.exit(f"cuda_code.py measures wrongly: {', '.join(wrong)}.")


def not_run(reason):
    print(f"NOT RUN: {reason}")
    sys.exit(77)


def check(codes, budgets, left, complete, sizes):
    names = short_names(c.symbol for c in codes)
    wrong = list(sizes)
    wrong += sorted({sentence for c in codes for sentence in
                    [*breaches(budgets, names[c.symbol], c), *unordered(names[c.symbol], c)]})
    wrong += [f"{BUDGETS.name}:{b.number}: no kernel matches '{b.pattern}'." for b in budgets
              if complete and not any(fnmatch.fnmatchcase(name, b.pattern) for name in names.values())]
    print("\n".join(wrong) or f"{len(codes)} kernels keep their budgets.")
    if left:
        print(f"Left to tools/check full cuda_code: {', '.join(left)}.")
    sys.exit(1 if wrong else 0)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip(), add_help=False)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list")
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()  # the tools run in a folder of their own
    if options.install:
        cuda_compile.install(TOOLS)
        return
    self_test()
    text = BUDGETS.read_text(encoding="utf-8")
    budgets = read_budgets(text)
    ninja = options.build / "build.ninja"
    commands = ninja.read_text(encoding="utf-8") if ninja.exists() else ""
    command = cuda_compile.nvcc_command(commands)
    if command is None:
        not_run(f"{options.build} builds no CUDA kernels.")
    cuobjdump, nvdisasm = (cuda_compile.find_tool(name, command[0], TOOLS) for name in ("cuobjdump", "nvdisasm"))
    if not cuobjdump or not nvdisasm:
        not_run("cuobjdump and nvdisasm are missing (tools/checks/cuda_code.py --install).")
    compiler = cuda_compile.Compiler(command, options.build / "cuda_code")
    objects = sorted((options.build / "backends/cuda").glob("*.o"))
    built = built_codes(objects, cuobjdump, nvdisasm)
    wanted = wanted_files(budgets, options.all, {c.architecture for c in built})
    codes, left = compiled_codes(compiler, wanted, nvdisasm, float("inf") if options.all else MOST_SECONDS)
    codes += built
    if options.list:
        names = short_names(c.symbol for c in codes)
        for c in sorted(codes, key=lambda c: (names[c.symbol], c.architecture)):
            if fnmatch.fnmatchcase(names[c.symbol], options.list):
                print(names[c.symbol], f"sm_{c.architecture}", *(f"{k}={v:g}" for k, v in c.figures().items()))
        return
    too_large = oversize(read_sizes(text), cuda_compile.built_for(commands), fatbin_bytes(objects)) if objects else []
    check(codes, budgets, left, complete=built or options.all, sizes=too_large)


if __name__ == "__main__":
    main()
