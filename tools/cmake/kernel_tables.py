"""Writes the table of kernels of a backend, from the heads of its kernel files.

generate_ops.py calls it.
"""

import re

HEADER = "// Generated from the heads of kernel files by tools/cmake/kernel_tables.py.\n"
DTYPES_HEAD = r"^//! %s(?:\(([\w, ]+)\))?%s$"


def claims_of(path, stems, families, dtypes, fail):
    """Yields (operator, dtype, symbol) of a kernel file. The operator is its stem, or those of
    `//! ops A B`, `//! ops(f16, bf16) A B` or `//! ops(any) A`. `//! elementwise`, `//!
    elementwise(f16)` or `//! optimizers(f16)` stand for the operators with formulas of these
    dtypes, which the argument `families` lists. `stems` has the stem of each operator."""
    text = path.read_text()
    heads = re.findall(DTYPES_HEAD % ("ops", " (.*)"), text, re.M)
    found = [(types, names.split(), None) for types, names in heads]
    found += [(types, list(members), family) for family, members in families.items()
              for types in re.findall(DTYPES_HEAD % (family, ""), text, re.M)]
    if not found:
        found = [("", [name], None) for name, stem in stems.items() if stem == path.stem]
    for types, names, symbol in found:
        columns = dtypes if types == "any" else [t for t in re.split(r"[, ]+", types) if t] or ["f32"]
        for name in names:
            if name not in stems:
                fail(f"{path}: claims {name}, which is in no op list.")
            for t in columns:
                if t not in dtypes:
                    fail(f"{path}: there is no dtype {t}.")
                if symbol and t not in families[symbol][name]:
                    continue
                suffix = "" if types == "any" or t == "f32" else f"_{t}"
                yield name, t, (symbol or stems[name]) + suffix


def kernel_table(backend, claims, stems, dtypes):
    """Returns the C++ of the table: a row per operator, a column per dtype. `claims` has the file
    and the symbol by operator and dtype. Each file has the namespace <stem>_kernels, so local names
    may repeat between files."""
    lines = [HEADER, '#include "kernel.h"\n', f"namespace bowline::detail::{backend} {{\n"]
    for space, symbol in dict.fromkeys((path.stem, symbol) for path, symbol in claims.values()):
        lines += [f"namespace {space}_kernels {{", f"extern const Kernel kernel_{symbol};", "}"]
    lines += ["\nconst device::KernelTable<Kernel> kKernels = {"]
    for name in stems:
        at = [claims.get((name, t)) for t in dtypes]
        row = [f"&{c[0].stem}_kernels::kernel_{c[1]}" if c else "nullptr" for c in at]
        while len(row) > 1 and row[-1] == "nullptr":
            row.pop()
        lines += [f"    {{{', '.join(row)}}},  // {name}"]
    lines += ["};\n", f"}}  // namespace bowline::detail::{backend}\n"]
    return "\n".join(lines)


def write_all(generated, backend, folders, stems, lists, families, write, fail):
    """Writes the table with the selected operators and dtypes, and what is left out."""
    claims = {}
    for path in sorted(p for f in folders for p in f.glob("*") if p.suffix in (".cpp", ".cu", ".comp")):
        for name, dtype, symbol in claims_of(path, stems, families, lists.dtypes, fail):
            if (name, dtype) in claims:
                fail(f"{path}: claims {name} in {dtype}, which {claims[name, dtype][0]} claims too.")
            claims[name, dtype] = (path, symbol)
    selection = lists.selection
    selected = {(name, dtype): claim for (name, dtype), claim in claims.items()
                if name in selection.ops and dtype in selection.dtypes}
    write(generated / f"kernels_{backend}.cpp", kernel_table(backend, selected, stems, lists.dtypes))
    # For compile_shaders.py: parts of the names of variants, then kernel files, that are not in the
    # build.
    parts = [t for t in lists.dtypes if t not in selection.dtypes] + ([] if selection.encodings else ["codes"])
    files = {str(path) for path, _ in claims.values()} - {str(path) for path, _ in selected.values()}
    write(generated / f"left_out_{backend}.txt", "\n".join([" ".join(parts), *sorted(files), ""]))
