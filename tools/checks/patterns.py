#!/usr/bin/env python3
"""Checks that sources do not contain what the rules of their folder forbid.

CUDA kernels: shared memory is declared as `__shared__ Shared<T> name;`, or has a class of such
members whose name begins with Shared, so that the emulation can check it. No kernel uses atomics,
because their order changes from run to run. Only atomicInc is allowed, which counts: the total does
not depend on the order (device/last_block.cuh, kernels/extreme.cu). `asm` is only in files that the
emulation does not compile. Every kernel begins with begin_kernel, and what it does before the wait
is only to prefetch (device/begin.cuh). None promises that memory is constant, because nvcc moves
loads of such memory before the wait.

Layers of runtime/: api, plan and device name no operator. A special case is a property in the
definition of the operator (ops/op.h). graph names only operators that seed, weight, sum and store
gradients, and that cast to 16 bits; its folder rewrites/ is not checked.

No file uses std::views, because Clang 14 does not compile them. A file that uses fmt includes it:
in a unity build another file may include it first, and then only other builds fail.

The command and bowline-conform print only through common/print.h, which escapes untrusted text.

Prints a sentence per violation; exit code 1 if there is any.
"""

import pathlib
import re
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALONE = "tools/bowline/common/print.cpp"  # it may print


class Rule(typing.NamedTuple):
    files: str     # globs
    pattern: str   # what is forbidden
    sentence: str  # "{}" stands for the text that was found
    wrong: str     # self-test: contains one violation, in its last line
    right: str     # self-test: contains none


KERNELS = "backends/cuda/kernels/*.cu* backends/cuda/device/*.cu*"
PRINTS = (r"fmt::v?print\b|\bv?f?printf\s*\(|\bf?put[cs]\s*\(|\bputchar\s*\(|\bperror\s*\(|\bstd::(?:cout|cerr|clog)\b|<iostream>"
          r"|\bfwrite\s*\([^;]*\bstd(?:out|err)\b|\bSTD(?:OUT|ERR)_FILENO\b|\bwrite\s*\(\s*[12]\s*,|\.exit\(\w+\)")
OPERATOR = r"(?<=\bOp::)(?!(?:Invalid%s)\b)\w+"
NAMES = "names the operator {}"
RULES = (
    Rule(KERNELS, r"__shared__\s+(?!Shared\w*<)", "declares shared memory without Shared<T>, which the emulation cannot check",
         "\n__shared__ float tile[4];", "__shared__ Shared<float[4]> right;"),
    Rule(KERNELS, r"\batomic(?!Inc\()\w+\s*\(", "uses an atomic, whose order changes from run to run", "atomicAdd(&sum, x);",
         "atomicInc(&count, most);  // atomicAdd(&sum, x);"),
    Rule(KERNELS, r"\basm\b", "has inline PTX, which the emulation cannot run", 'asm("nop;");', "int asm_ = 0;"),
    Rule(KERNELS, r"__global__[^;{]*\{(?!(?:\s*using [^;]*;)*\s*begin_kernel\()", "has a kernel that does not begin with begin_kernel",
         "\n__global__ void k(int* x) { *x = 1; }", "__global__ void k(int* x) {\n  using T = int;\n  begin_kernel();"),
    Rule(KERNELS, r"\bbegin_kernel\(\[&\](?!\s*\{[^;{}]*\bprefetch_\w+(?:<[\w, ]+>)?\([^;{}]*\);\s*\})", "does more before the wait than to prefetch",
         "begin_kernel([&] { sum = *x; });", "begin_kernel([&] { Lines(p).prefetch_all(p.k); });"),
    Rule(KERNELS, r"__restrict__|\b__ldg\b", "allows loads that the compiler moves before the wait of begin_kernel", "void k(const int* __restrict__ x);",
         "void k(const int* x);"),
    Rule("runtime/api/*.[ch]* runtime/plan/*.[ch]* runtime/device/*.[ch]*", OPERATOR % "", NAMES,
         "if (op == Op::Invalid ||\n    op == Op::Fill) {", "if (op == Op::Invalid) {  // Op::Relu"),
    Rule("runtime/graph/*.[ch]*", OPERATOR % "|Fill|Add|AccumulateGrad|ZeroGrad|LossScale|Scale|Mul|Cast", NAMES,
         "node.op = Op::Softmax;  // Op::Relu", "if (op == Op::Invalid || op == Op::Fill) {"),
    Rule(" ".join(f"{folder}/**/*.{end}" for folder in ("runtime", "backends", "tools", "tests", "samples") for end in ("cpp", "h")),
         r"\bstd::(?:ranges::)?views::\w+", "uses {}, which Clang 14 does not compile with libstdc++ 12: see base/projected.h",
         "names | std::views::transform(&Row::name);", "projected(names, &Row::name);  // std::views::transform"),
    Rule(" ".join(f"{folder}/**/*.{end}" for folder in ("runtime", "backends", "tools", "tests", "samples") for end in ("cpp", "h")),
         r"""\A(?!.*#include (?:<fmt/|"base/format\.h")).*\bfmt::\w+""", "uses fmt, but does not include <fmt/format.h>",
         "std::string s = fmt::format(text, 1);", "#include <fmt/format.h>\nstd::string s = fmt::format(text, 1);"),
    Rule("tools/bowline/**/*.cpp tools/bowline/**/*.h tools/conform/**/*.cpp", PRINTS, '"{}" prints past common/print.h',
         "\nstd::fwrite(text.data(), 1, text.size(), stderr);", 'print("{}", text);'),
)


def violations(rule, text):
    code = re.sub(r"//[^\n]*", "", text)
    for found in re.finditer(rule.pattern, code, re.DOTALL):
        yield code.count("\n", 0, found.start()) + 1, rule.sentence.format(found[0].split("\n")[0])


def main():
    wrong, count = [], 0
    for rule in RULES:
        if [line for line, _ in violations(rule, rule.wrong)] != [rule.wrong.count("\n") + 1] or [*violations(rule, rule.right)]:
            sys.exit(f"patterns.py does not find its seeded violation of the rule: {rule.sentence}.")
        files = sorted(path for glob in rule.files.split() for path in ROOT.glob(glob) if path.relative_to(ROOT).as_posix() != ALONE)
        if not files:
            sys.exit(f"There are no files {rule.files}.")
        count += len(files)
        for path in files:
            wrong += [f"{path.relative_to(ROOT)}:{line} {sentence}." for line, sentence in violations(rule, path.read_text(encoding="utf-8"))]
    print("\n".join(wrong) or f"{count} files keep to {len(RULES)} rules.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
