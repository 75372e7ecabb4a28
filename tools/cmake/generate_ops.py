#!/usr/bin/env python3
"""Reads the two op lists (the unions of ops.fbs and internal_ops.fbs) and writes what follows from them.

  generated/ops.h                  enum class Op, names, attribute tables by their short names
  generated/op_table.cpp           Op -> OpDef, attribute text, copy, packing and construction by name
  generated/op_files.txt           the op files, one per line (for CMake)
  generated/kernels_<backend>.cpp  with --kernels: one row per op, null where no file claims it

Every disagreement between the lists and the files stops the configure step with one sentence.
"""

import argparse
import re
import sys
from pathlib import Path

INTERNAL_BASE = 256


def fail(sentence):
    sys.exit(sentence)


def stem_of(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def strip_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def read_union(path, union):
    """[(name, table, number)] of a union whose numbers are 1..n in order."""
    body = re.search(r"union\s+" + union + r"\s*\{([^}]*)\}", strip_comments(path.read_text()))
    if not body:
        fail(f"{path}: union {union} is not there.")
    ops = []
    for entry in filter(None, (e.strip() for e in body.group(1).split(","))):
        m = re.fullmatch(r"(\w+)\s*:\s*(\w+)\s*=\s*(\d+)", entry)
        if not m:
            fail(f"{path}: '{entry}' is not of the form Name: Table = number.")
        if int(m.group(3)) != len(ops) + 1:
            fail(f"{path}: {m.group(1)} has number {m.group(3)}, not {len(ops) + 1}.")
        ops.append((m.group(1), m.group(2), int(m.group(3))))
    if len(ops) > 255:
        fail(f"{path}: union {union} has {len(ops)} members; its tag is one byte.")
    return ops


def read_tables(paths):
    """{table: [(field, type)]} and the set of enum names."""
    tables, enums = {}, set()
    for path in paths:
        text = strip_comments(path.read_text())
        for name, body in re.findall(r"table\s+(\w+)\s*\{([^}]*)\}", text):
            fields = re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)\s*(?:=\s*[^;]+)?;", body)
            tables[name] = fields
        enums |= set(re.findall(r"enum\s+(\w+)\s*:", text))
    return tables, enums


HEADER = "// Generated from schemas/ops.fbs and schemas/internal_ops.fbs by tools/cmake/generate_ops.py.\n"
CPP_TYPES = {
    "bool": "bool", "byte": "int8_t", "ubyte": "uint8_t", "int": "int32_t", "uint": "uint32_t",
    "long": "int64_t", "ulong": "uint64_t", "float": "float", "double": "double",
}


def ops_header(file_ops, internal_ops, tables, enums):
    used = sorted({t for _, t, _ in file_ops + internal_ops})
    lines = [HEADER, "#pragma once\n", "#include <string_view>\n", '#include "core/status.h"',
             '#include "generated/internal_ops_generated.h"\n', "namespace bowline {\n",
             "enum class Op : uint16_t {", "  Invalid = 0,"]
    lines += [f"  {n} = {k}," for n, _, k in file_ops]
    lines += [f"  {n} = {INTERNAL_BASE + k}," for n, _, k in internal_ops]
    lines += ["};\n", f"constexpr int kFileOps = {len(file_ops)};",
              f"constexpr int kInternalOps = {len(internal_ops)};",
              "constexpr int kOps = kFileOps + kInternalOps;",
              f"constexpr uint16_t kInternalBase = {INTERNAL_BASE};\n",
              "// Position of an operator in the generated tables, 0 .. kOps - 1.",
              "constexpr int index_of(Op op) {",
              "  const auto n = static_cast<uint16_t>(op);",
              "  return n > kInternalBase ? kFileOps + n - kInternalBase - 1 : n - 1;", "}",
              "constexpr Op op_at(int index) {",
              "  return static_cast<Op>(index < kFileOps ? index + 1 : kInternalBase + 1 + index - kFileOps);",
              "}",
              "constexpr bool is_internal(Op op) { return static_cast<uint16_t>(op) > kInternalBase; }",
              "std::string_view name_of(Op op);",
              "// Op::Invalid if there is none of this name.", "Op op_named(std::string_view name);",
              "inline void append_text(std::string& out, Op op) { out += name_of(op); }\n"]
    for t in used:
        lines += [f"using file::{t};", f"using file::{t}T;"]
    lines += [f"using file::{e};" for e in sorted(enums) if e in ("GeluForm", "Reduction")]
    lines += ["\n}  // namespace bowline\n"]
    return "\n".join(lines)


def setter(field, kind, enums):
    """Code that sets one field of the object `t` from Attribute `a`; returns false for the wrong kind."""
    if kind in CPP_TYPES or kind in enums:
        cpp = CPP_TYPES.get(kind, f"file::{kind}")
        check = f"if (!a.list.empty()) {{ return wrong_kind(a); }} "
        if kind == "bool":
            value = "a.number != 0"
        elif kind in enums:
            check += (f"if (!is_whole(a.number, 0, static_cast<double>(file::{kind}::MAX))) "
                      f'{{ return unknown_value(a); }} ')
            value = f"static_cast<{cpp}>(static_cast<int>(a.number))"
        elif kind in ("float", "double"):
            value = f"static_cast<{cpp}>(a.number)"
        else:
            check += f"if (!is_whole<{cpp}>(a.number)) {{ return wrong_kind(a); }} "
            value = f"static_cast<{cpp}>(a.number)"
        return f"{check}t.{field} = {value};"
    inner = kind.strip("[]")
    if inner == "TargetDim":
        return ("BOWLINE_TRY(check_list(a.list.size(), a.name)); for (const GraphDim& d : a.list) { "
                "if (d.name.empty()) { BOWLINE_TRY(check_dim(d.value, -1)); } "
                "auto e = std::make_unique<file::TargetDimT>(); "
                f"e->value = d.value; e->name = d.name; t.{field}.push_back(std::move(e)); }}")
    if inner in CPP_TYPES:
        return ("BOWLINE_TRY(check_list(a.list.size(), a.name)); "
                f"for (const GraphDim& d : a.list) {{ if (!d.name.empty() || "
                f"!std::in_range<{CPP_TYPES[inner]}>(d.value)) {{ return wrong_kind(a); }} "
                f"t.{field}.push_back(static_cast<{CPP_TYPES[inner]}>(d.value)); }}")
    return "return wrong_kind(a);"


def text_of(field, kind, enums):
    """Code that appends one field of table `t` to `out`."""
    get = f"t.{field}()"
    if kind in enums:
        return f'field(out, "{field}"); append_text(out, file::EnumName{kind}({get}));'
    if kind in CPP_TYPES:
        return f'field(out, "{field}"); append_text(out, {get});'
    inner = kind.strip("[]")
    if inner in CPP_TYPES:
        return f'field(out, "{field}"); numbers(out, {get});'
    if inner == "TargetDim":
        return f'field(out, "{field}"); target_dims(out, {get});'
    return ""  # parameter lists are printed by the graph listing


def op_table(file_ops, internal_ops, tables, enums):
    ops = file_ops + internal_ops
    lines = [HEADER, "#include <array>", "#include <cmath>", "#include <limits>", "#include <memory>",
             "#include <utility>\n", '#include "core/rules.h"', '#include "graph/op_table.h"\n',
             "namespace bowline {\n"]
    lines += [f"extern const OpDef op_{stem_of(n)};" for n, _, _ in ops]
    lines += ["namespace {\n",
              "constexpr std::array<std::string_view, kOps> kNames = {"]
    lines += [f'    "{n}",' for n, _, _ in ops]
    lines += ["};\n",
              "void field(std::string& out, std::string_view name) {",
              "  if (!out.empty()) {", "    out += ' ';", "  }", "  out += name;", "  out += '=';", "}",
              "template <class V>", "void numbers(std::string& out, const V* v) {",
              "  out += '[';", "  for (flatbuffers::uoffset_t i = 0; v != nullptr && i < v->size(); ++i) {",
              "    if (i > 0) {", "      out += ',';", "    }", "    append_text(out, v->Get(i));", "  }", "  out += ']';", "}",
              "void target_dims(std::string& out, const flatbuffers::Vector<flatbuffers::Offset<file::TargetDim>>* v) {",
              "  out += '[';", "  for (flatbuffers::uoffset_t i = 0; v != nullptr && i < v->size(); ++i) {",
              "    if (i > 0) {", "      out += ',';", "    }",
              "    const file::TargetDim* d = v->Get(i);",
              "    if (d->name() != nullptr && d->name()->size() > 0) {", "      out += d->name()->string_view();",
              "    } else {", "      append_text(out, d->value());", "    }", "  }", "  out += ']';", "}",
              "Status wrong_kind(const Attribute& a) {",
              '  return Status(Code::bad_argument, format("Attribute {} has a value of the wrong kind.", a.name));', "}",
              "Status unknown_value(const Attribute& a) {",
              '  return Status(Code::bad_argument, format("Attribute {} has the unknown value {}.", a.name, a.number));', "}",
              "bool is_whole(double v, double lowest, double highest) {",
              "  return v >= lowest && v <= highest && std::trunc(v) == v;", "}",
              "// The largest int64 rounds up as a double; the next one below is the last that converts back.",
              "template <class T>", "bool is_whole(double v) {",
              "  constexpr double highest = sizeof(T) < 8 ? static_cast<double>(std::numeric_limits<T>::max())",
              "                                           : 9223372036854774784.0;",
              "  return is_whole(v, static_cast<double>(std::numeric_limits<T>::lowest()), highest);", "}\n"]
    used = sorted({t for _, t, _ in ops})
    for t in used:
        fields = tables[t]
        body = [text_of(f, k, enums) for f, k in fields]
        unused = "" if any(body) else "  (void)t;\n  (void)out;\n"
        lines += [f"void text_{t}(const {t}& t, std::string& out) {{", unused + "\n".join("  " + b for b in body if b), "}",
                  f"Status set_{t}({t}T& t, const Attribute& a) {{"]
        for f, k in fields:
            lines += [f'  if (a.name == "{f}") {{', f"    {setter(f, k, enums)}", "    return {};", "  }"]
        lines += ["  (void)t;", '  return Status(Code::bad_argument, format("There is no attribute {}.", a.name));', "}"]
    lines += ["\n}  // namespace\n",
              "std::string_view name_of(Op op) {",
              '  return op == Op::Invalid ? std::string_view("Invalid") : kNames[static_cast<size_t>(index_of(op))];', "}\n",
              "Op op_named(std::string_view name) {", "  for (int i = 0; i < kOps; ++i) {",
              "    if (kNames[static_cast<size_t>(i)] == name) {", "      return op_at(i);", "    }", "  }",
              "  return Op::Invalid;", "}\n",
              "const OpDef& op_def(Op op) {", "  static constexpr std::array<const OpDef*, kOps> table = {"]
    lines += [f"      &op_{stem_of(n)}," for n, _, _ in ops]
    lines += ["  };", "  return *table[static_cast<size_t>(index_of(op))];", "}\n"]

    def switch(signature, case, default):
        out = [signature + " {", "  switch (op) {"]
        for n, t, _ in ops:
            out += [f"    case Op::{n}:", f"      {case(t, n)}"]
        return out + ["    case Op::Invalid:", "      break;", "  }", f"  {default}", "}\n"]

    lines += switch("std::string attributes_text(Op op, const Attributes& attributes)",
                    lambda t, n: f"{{ std::string out; text_{t}(attributes.as<{t}>(), out); return out; }}",
                    "return {};")
    lines += switch("Result<Attributes> attributes_from(Op op, std::span<const Attribute> values)",
                    lambda t, n: (f"{{ {t}T t; for (const Attribute& a : values) {{ BOWLINE_TRY(set_{t}(t, a)); }} "
                                  "return Attributes::of(t); }"),
                    'return Status(Code::bad_argument, "The operator is not known.");')
    lines += switch("Attributes attributes_copy(Op op, const void* table)",
                    lambda t, n: (f"{{ const std::unique_ptr<{t}T> t(static_cast<const {t}*>(table)->UnPack()); "
                                  "return Attributes::of(*t); }"), "return {};")
    lines += switch("flatbuffers::Offset<void> attributes_pack(Op op, const Attributes& attributes,\n"
                    "                                          flatbuffers::FlatBufferBuilder& builder)",
                    lambda t, n: (f"{{ const std::unique_ptr<{t}T> t(attributes.as<{t}>().UnPack()); "
                                  f"return {t}::Pack(builder, t.get()).Union(); }}"), "return {};")
    lines += ["}  // namespace bowline\n"]
    return "\n".join(lines)


def kernel_table(backend, folder, extra, ops):
    """One row per op: the launcher symbol where a file bears its stem or claims it in its head."""
    claims = {}
    stems = {stem_of(n): n for n, _, _ in ops}
    names = {n for n, _, _ in ops}
    for path in sorted(p for f in [folder, *extra] for p in f.glob("*") if p.suffix in (".cpp", ".cu", ".comp")):
        head = re.findall(r"^//! ops (.*)$", path.read_text(), re.M)
        claimed = " ".join(head).split() if head else [stems[path.stem]] if path.stem in stems else []
        for name in claimed:
            if name not in names:
                fail(f"{path}: claims {name}, which is in no op list.")
            if name in claims:
                fail(f"{path}: claims {name}, which {claims[name]} claims too.")
            claims[name] = path
    lines = [HEADER, '#include "kernel.h"\n', f"namespace bowline::{backend} {{\n"]
    lines += [f"extern const Kernel kernel_{stem_of(n)};" for n, _, _ in ops if n in claims]
    lines += ["\nconst Kernel* const kKernels[kOps] = {"]
    lines += [f"    &kernel_{stem_of(n)}," if n in claims else f"    nullptr,  // {n}" for n, _, _ in ops]
    lines += ["};\n", f"}}  // namespace bowline::{backend}\n"]
    return "\n".join(lines)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True, help="the source tree")
    parser.add_argument("--out", type=Path, required=True, help="folder of the generated files")
    parser.add_argument("--kernels", metavar="BACKEND=FOLDER[;FOLDER]", action="append", default=[])
    args = parser.parse_args()
    schemas = args.root / "schemas"
    paths = [schemas / "ops.fbs", schemas / "internal_ops.fbs"]
    file_ops, internal_ops = read_union(paths[0], "Op"), read_union(paths[1], "InternalOp")
    ops = file_ops + internal_ops
    tables, enums = read_tables(paths)
    op_files = []
    for name, table, _ in ops:
        if table not in tables:
            fail(f"{name}: its attribute table {table} is not there.")
        source = args.root / "runtime/ops" / (stem_of(name) + ".cpp")
        cases = args.root / "tests/ops" / (stem_of(name) + ".cases")
        for path in (source, cases):
            if not path.exists():
                fail(f"{name} is in the op list, but {path.relative_to(args.root)} is not there.")
        op_files.append(str(source))
    for path in sorted((args.root / "runtime/ops").glob("*.cpp")):
        if path.stem not in {stem_of(n) for n, _, _ in ops}:
            fail(f"{path.relative_to(args.root)} belongs to no operator of the op lists.")
    generated = args.out / "generated"
    write(generated / "ops.h", ops_header(file_ops, internal_ops, tables, enums))
    write(generated / "op_table.cpp", op_table(file_ops, internal_ops, tables, enums))
    write(generated / "op_files.txt", "\n".join(op_files) + "\n")
    for spec in args.kernels:
        backend, folders = spec.split("=", 1)
        folder, *extra = [Path(f) for f in folders.split(";")]
        write(generated / f"kernels_{backend}.cpp", kernel_table(backend, folder, extra, ops))


if __name__ == "__main__":
    main()
