#!/usr/bin/env python3
"""Generates code from the two op lists (the unions of ops.fbs and internal_ops.fbs).

  generated/ops.h                  enum class Op, names, aliases of the attribute tables
  generated/attribute_fields.h     every attribute table field by field, and the names of enum
                                   values
  generated/op_table.cpp           Op -> OpDef, names
  generated/op_files.txt           the op files, one per line (for CMake)
  generated/functions.h, .cpp      the elementwise functions of runtime/ops/formulas, and the
                                   function of each operator
  generated/functions.inc          BOWLINE_<FORM>(name) for each function of floats
  generated/formulas.inc           their files of runtime/ops/formulas
  generated/functions.glsl         the same for shaders: call(a, b, c, p, q)
  generated/functions_whole.inc, formulas_whole.inc, functions_whole.glsl
                                   the same for functions of integers or bool
  generated/step_words.h           the per-step scalars of every operator: constants by name, and
                                   step_words(op)
  generated/step.glsl              the head of the step buffer (runtime/device/program.h) for
                                   shaders
  generated/step_<stem>.glsl       the per-step scalars of an operator, for shaders
  generated/kernels_<backend>.cpp  with --kernels: a row per op and a column per dtype; null if no
                                   file has the kernel

With --only, operators that are not selected (select_ops.py) keep their numbers and names, but have
no definition, attributes and kernels:

  generated/ops.fbs, model.fbs     replace the schemas of the source tree

optimizers.py generates the code of optimizers, and formats.py that of block formats. A
contradiction between the lists and the files stops the configure step with a message.
"""

import argparse
import re
import sys
import typing
from pathlib import Path

sys.dont_write_bytecode = True  # leaves nothing in the source tree
import formats  # noqa: E402
import kernel_tables  # noqa: E402
import optimizers  # noqa: E402
import select_ops  # noqa: E402

INTERNAL_BASE = 256
# The forms of a formula, with their operands. A gradient form defines a separate operator.
FORMS = {"FORWARD": "a", "GRADIENT": "ab", "BINARY": "ab", "GRADIENT_A": "abc", "GRADIENT_B": "abc", "COMPARE": "ab"}
GRADIENTS = {"GRADIENT": "Grad", "GRADIENT_A": "GradA", "GRADIENT_B": "GradB"}
SETS = [{"FORWARD"}, {"FORWARD", "GRADIENT"}, {"BINARY"}, {"BINARY", "GRADIENT_A", "GRADIENT_B"}, {"COMPARE"}]
# The operand kinds of formulas, with their dtypes.
KINDS = {"floats": ["f32", "f16", "bf16"], "integers": ["i8", "u8", "i32", "i64"], "truths": ["boolean"]}
MOST_ENTRIES = 8  # default limit of a list: the largest rank


def fail(sentence):
    sys.exit(sentence)


def stem_of(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def strip_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def read_union(path, union):
    """Returns [(name, table, number)] of a union. The numbers must be 1..n in order."""
    body = re.search(r"union\s+" + union + r"\s*\{([^}]*)\}", strip_comments(path.read_text()))
    if not body:
        fail(f"{path}: union {union} is missing.")
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


class Field(typing.NamedTuple):
    """Of an attribute table."""
    name: str
    kind: str
    default: str
    most: int  # entries
    feature: str
    is_demanded: bool  # a file without the feature is rejected


def read_tables(paths, texts=()):
    """{table: [Field]} and {enum: [value names]}, whose numbers are 0, 1, ..., of files and of
    generated schemas.
    """
    tables, enums = {}, {}
    for path, text in [*((path, path.read_text()) for path in paths), *(("generated", text) for text in texts)]:
        text = strip_comments(text)
        for name, body in re.findall(r"table\s+(\w+)\s*\{([^}]*)\}", text):
            note = r"(?:most|feature|later_feature):\s*\"\w+\""
            fields = re.findall(rf"(\w+)\s*:\s*(\[?\w+\]?)\s*(?:=\s*([^;(]+?))?\s*(?:\(({note}(?:,\s*{note})*)\))?\s*;", body)
            if len(fields) != body.count(";"):
                fail(f"{path}: table {name} has a field that is not of the form name: type = default, with (most: \"n\"), (feature: \"name\"), "
                     "(later_feature: \"name\") or several of them.")
            tables[name] = []
            for field, kind, default, notes in fields:
                said = dict(re.findall(r"(\w+):\s*\"(\w+)\"", notes))
                tables[name].append(Field(field, kind, default or "0", int(said.get("most", MOST_ENTRIES)),
                                          said.get("feature", said.get("later_feature", "")), "feature" in said))
        for name, body in re.findall(r"enum\s+(\w+)\s*:\s*ubyte\s*\{([^}]*)\}", text):
            values = re.findall(r"(\w+)\s*=\s*(\d+)", body)
            if [int(number) for _, number in values] != list(range(len(values))):
                fail(f"{path}: the values of enum {name} are not 0, 1, ... in order.")
            enums[name] = [value for value, _ in values]
    return tables, enums


class Formula:
    """A file of runtime/ops/formulas: the functions of one operator."""

    def __init__(self, path, ops, tables, enums):
        text = path.read_text()
        self.stem = path.stem
        found = [(n, t) for n, t, _ in ops if stem_of(n) == path.stem]
        if not found:
            fail(f"{path}: there is no operator of this stem.")
        self.op, self.table = found[0]
        self.functions = re.findall(rf"^({'|'.join(FORMS)})\((\w+) ?\)", text, re.M)
        heads = dict(re.findall(r"^//! (constants|choice|of) (.*)$", text, re.M))
        self.divides = re.search(r"^//! divides$", text, re.M) is not None
        self.constants = heads.get("constants", "").split()
        self.choice = heads.get("choice")
        self.kinds = heads.get("of", "floats").split()
        if not set(self.kinds) <= set(KINDS):
            fail(f"{path}: its operands are of {', '.join(self.kinds)}; there are {', '.join(KINDS)}.")
        fields = {field.name: field.kind for field in tables[self.table]}
        for name in [*self.constants, *([self.choice] if self.choice else [])]:
            if name not in fields:
                fail(f"{path}: {self.table} has no attribute {name}.")
        self.names = [f"{self.stem}_{v}" for v in enums[fields[self.choice]]] if self.choice else [self.stem]
        self.forms = list(dict.fromkeys(form for form, _ in self.functions))
        for form in self.forms:
            if [n for f, n in self.functions if f == form] != self.names:
                fail(f"{path}: the {form} functions are not {', '.join(self.names)}, in this order.")
        if set(self.forms) not in SETS:
            fail(f"{path}: an operator has FORWARD, perhaps with GRADIENT; BINARY, perhaps with GRADIENT_A and GRADIENT_B; or COMPARE.")

    def op_of(self, form):
        return self.op + GRADIENTS.get(form, "")

    def gradients(self):
        """The gradient operators that the formula defines."""
        return [self.op_of(form) for form in self.forms if form in GRADIENTS]

    def dtypes(self, form):
        """The dtypes of its kernels. Only floats have gradients."""
        return [t for kind in self.kinds if kind == "floats" or form not in GRADIENTS for t in KINDS[kind]]


def name_of(form, name):
    return f"{name}_{form.lower()}"


def functions_header(formulas):
    names = [name_of(*f) for formula in formulas for f in formula.functions]
    return "\n".join([
        HEADER, "#pragma once\n", '#include "core/attributes.h"\n', "namespace bowline {\n",
        "enum class Function : uint32_t {", *(f"  {n}," for n in names), "};",
        f"constexpr uint32_t kFunctions = {len(names)};\n",
        "constexpr bool is_comparison(Function f) {",
        f"  return {' || '.join(f'f == Function::{name_of(*f)}' for formula in formulas for f in formula.functions if f[0] == 'COMPARE')};",
        "}", "// Of integers: a second operand of 0 is a bad index.", "constexpr bool divides(Function f) {",
        f"  return {' || '.join(f'f == Function::{name_of(*f)}' for formula in formulas if formula.divides for f in formula.functions if f[0] == 'BINARY')};",
        "}\n", "struct FunctionCall {", "  Function function;", "  float p = 0;", "  float q = 0;", "};",
        "// Of an operator that has formulas.", "FunctionCall function_of(Op op, const Attributes& attributes);",
        "\n}  // namespace bowline\n"])


def functions_source(formulas, ops):
    lines = [HEADER, '#include "generated/functions.h"\n', "namespace bowline {\n",
             "FunctionCall function_of(Op op, [[maybe_unused]] const Attributes& attributes) {", "  switch (op) {"]
    for f in formulas:
        get = f"attributes.as<{f.table}>()."
        constants = "".join(f", static_cast<float>({get}{name}())" for name in f.constants)
        for form in (form for form in f.forms if f.op_of(form) in ops):
            numbers = [f"Function::{name_of(form, n)}" for n in f.names]
            lines += [f"    case Op::{f.op_of(form)}: {{"]
            if f.choice:
                lines += [f"      constexpr Function choices[] = {{{', '.join(numbers)}}};",
                          f"      return {{choices[static_cast<size_t>({get}{f.choice}())]{constants}}};", "    }"]
            else:
                lines += [f"      return {{{numbers[0]}{constants}}};", "    }"]
    lines += ["    default:", "      return {Function{}};", "  }", "}", "\n}  // namespace bowline\n"]
    return "\n".join(lines)


def is_whole(formula):
    return {"integers", "truths"} & set(formula.kinds)


def is_floating(formula):
    return "floats" in formula.kinds


def functions_list(formulas, whole, ops):
    """Functions of floats, or of integers and bool, of these operators."""
    lines = [HEADER]
    lines += [f"#ifndef BOWLINE_{form}\n#define BOWLINE_{form}(name)\n#endif" for form in FORMS]
    lines += [f"BOWLINE_{form}({name})" for f in formulas if (is_whole if whole else is_floating)(f)
              for form, name in f.functions if f.op_of(form) in ops and not (whole and form in GRADIENTS)]
    lines += [f"#undef BOWLINE_{form}" for form in FORMS]
    return "\n".join(lines) + "\n"


def formulas_list(formulas, whole):
    return "\n".join([HEADER, *(f'#include "ops/formulas/{f.stem}.h"' for f in formulas if (is_whole if whole else is_floating)(f)), ""])


def functions_shader(formulas, whole):
    """Comparisons if OUT_truth is defined, otherwise all others."""
    number = {f: i for i, f in enumerate(f for formula in formulas for f in formula.functions)}
    lines = [HEADER, f'#include "{"whole" if whole else "formulas"}.glsl"']
    cases = {}
    for guard, compares in (("#ifdef OUT_truth", True), ("#else", False)):
        taken = [f for f in formulas if (is_whole if whole else is_floating)(f) and (f.forms == ["COMPARE"]) == compares]
        lines += [guard, *(f'#include "{f.stem}.h"' for f in taken)]
        cases[guard] = []
        for form, name in (f for formula in taken for f in formula.functions if not (whole and f[0] in GRADIENTS)):
            constants = ", p, q" if form in ("FORWARD", "GRADIENT") else ""
            call = f"{name_of(form, name)}({', '.join(FORMS[form])}{constants})"
            cases[guard] += [f"    case {number[form, name]}u: return {f'F({call})' if compares else call};"]
    lines += ["#endif\n", "// The numbers are the values of the enum Function. A comparison gives 0 or 1.",
              "layout(constant_id = 1) const uint FUNCTION = 0;\n",
              "F call(F a, F b, F c, F p, F q) {", "  switch (FUNCTION) {"]
    for guard, entries in cases.items():
        lines += [guard, *entries]
    return "\n".join([*lines, "#endif", "    default: return a;", "  }", "}", ""])


STEP_TYPES = {"f32": "float", "u32": "uint32_t", "u64": "uint64_t"}


class StepWord:
    """An entry of a head `//! step [writes] name: type = default, ...`. The default is optional.
    """

    def __init__(self, path, entry, written):
        m = re.fullmatch(r"([a-z]\w*): (\w+)(?: = (\S+))?", entry)
        if not m or m.group(2) not in STEP_TYPES:
            fail(f"{path}: '{entry}' is not of the form name: type = default, with type {', '.join(STEP_TYPES)}.")
        self.path, self.written = path, written
        self.name, self.type, self.default = m.groups()
        if self.default is not None and not self.takes(self.default):
            fail(f"{path}: the default {self.default} of per-step scalar {self.name} is not a {self.type}.")

    def takes(self, number):
        if self.type == "f32":
            return re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", number) is not None
        return number.isdecimal() and int(number) < 2 ** int(self.type[1:])

    def default_bits(self):
        if self.default is None:
            return "std::nullopt"
        suffix = "u" if self.type != "f32" else "" if re.fullmatch(r"-?\d+", self.default) else "f"
        return f"step_bits<{STEP_TYPES[self.type]}>({self.default}{suffix})"

    def shape(self):
        return self.type if self.default is None else f"{self.type} = {self.default}"


def read_step_words(files, optimizers=()):
    """Returns {operator: [StepWord]} of op files, given as {operator: path}, and of optimizers. A
    name must have the same type and default in all files.
    """
    words, known = {}, {}
    heads = {op: (path, path.read_text()) for op, path in files.items()}
    for op, (path, text) in (heads | {o.op: (o.path, o.words()) for o in optimizers}).items():
        for kind, entries in re.findall(r"^//! step( writes)? (.*)$", text, re.M):
            words.setdefault(op, []).extend(StepWord(path, e.strip(), bool(kind)) for e in entries.split(","))
        names = [w.name for w in words.get(op, [])]
        for w in words.get(op, []):
            if names.count(w.name) > 1:
                fail(f"{path}: per-step scalar {w.name} occurs twice.")
            other = known.setdefault(w.name, w)
            if w.shape() != other.shape():
                fail(f"{path}: per-step scalar {w.name} is {w.shape()}, but {other.shape()} in {other.path}.")
    return words


STEP_HEADER = "// Generated from the heads of runtime/ops and from runtime/device/program.h by tools/cmake/generate_ops.py.\n"


def step_words_header(words):
    lines = [STEP_HEADER, "#pragma once\n", '#include "core/step_words.h"', '#include "generated/ops.h"\n', "namespace bowline {\n"]
    for op, entries in words.items():
        lines += [f"namespace step::{stem_of(op)} {{"]
        lines += [f"inline constexpr StepWord<{STEP_TYPES[w.type]}> {w.name}{{{i}}};" for i, w in enumerate(entries)]
        lines += ["inline constexpr StepWordInfo kWords[] = {"]
        lines += [f'    {{"{w.name}", StepType::{w.type}, {w.default_bits()}, {str(w.written).lower()}}},' for w in entries]
        lines += ["};", f"}}  // namespace step::{stem_of(op)}\n"]
    lines += ["// The per-step scalars of an operator, in the order of its declaration.",
              "constexpr std::span<const StepWordInfo> step_words(Op op) {", "  switch (op) {"]
    lines += [f"    case Op::{op}:\n      return step::{stem_of(op)}::kWords;" for op in words]
    return "\n".join([*lines, "    default:", "      return {};", "  }", "}", "\n}  // namespace bowline\n"])


def step_head_shader(program):
    """Converts the head of the step buffer and its errors from runtime/device/program.h to GLSL.
    """
    text = strip_comments(program.read_text())
    head = re.search(r"struct StepHead \{([^}]*)\};", text)
    errors = re.search(r"enum class StepError : uint32_t \{([^}]*)\};", text)
    if not head or not errors:
        fail(f"{program}: struct StepHead or enum StepError is missing.")
    lines = [STEP_HEADER, "layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Step {"]
    types = {"uint32_t": "uint", "int32_t": "int", "float": "float"}
    for field in filter(None, (" ".join(f.split()) for f in head.group(1).split(";"))):
        m = re.fullmatch(r"(\w+) (\w+) = \S+", field)
        if not m or m.group(1) not in types:
            fail(f"{program}: '{field}' of StepHead is not of the form type name = value.")
        lines += [f"  {types[m.group(1)]} {m.group(2)};"]
    lines += ["  uint words[];  // those of operators: step_<stem>.glsl", "};\n"]
    for name, number in re.findall(r"(\w+) = (\d+)", errors.group(1)):
        lines += [f"const uint k{''.join(part.capitalize() for part in name.split('_'))} = {number};"] if name != "none" else []
    return "\n".join([*lines, ""])


def step_words_shader(op, words):
    """Returns the members of the push block p, in the order in which a launcher pushes them, and
    macros that read and write the scalars.
    """
    members = " ".join(f"uint at_{w.name};" for w in words)
    lines = [STEP_HEADER, '#include "step.glsl"\n', f"// Of {op}: where its words lie."]
    lines += [f"#define STEP_WORDS Step step; {members}\n"]
    for w in words:
        at = f"p.step.words[p.at_{w.name}]"
        read = {"f32": f"uintBitsToFloat({at})", "u32": at, "u64": f"uvec2({at}, p.step.words[p.at_{w.name} + 1])"}
        written = {"f32": f"{at} = floatBitsToUint(x)", "u32": f"{at} = (x)",
                   "u64": f"{{ {at} = (x).x; p.step.words[p.at_{w.name} + 1] = (x).y; }}"}
        lines += [f"#define step_{w.name} {read[w.type]}"]
        lines += [f"#define set_step_{w.name}(x) {written[w.type]}"] if w.written else []
    return "\n".join([*lines, ""])


HEADER = "// Generated from schemas/ops.fbs and schemas/internal_ops.fbs by tools/cmake/generate_ops.py.\n"


def attribute_tables(ops):
    """Returns {table: [operators with this table]}."""
    used = {}
    for name, table, _ in ops:
        used.setdefault(table, []).append(name)
    return used


def ops_header(file_ops, internal_ops, enums, selection):
    lines = [HEADER, "#pragma once\n", "#include <string_view>\n", '#include "base/status.h"',
             '#include "bowline/tensor.h"', '#include "generated/internal_ops_generated.h"', '#include "generated/optimizers_generated.h"\n',
             "namespace bowline {\n", "enum class Op : uint16_t {", "  Invalid = 0,"]
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
              "// Whether the build contains the operator (BOWLINE_OPS).", "constexpr bool has_op([[maybe_unused]] Op op) {",
              *select_ops.has_op(file_ops + internal_ops, selection.ops), "}",
              "// Whether the build has kernels for the storage dtype.",
              "constexpr bool has_dtype([[maybe_unused]] DType type) {",
              f"  return {select_ops.has_dtype(selection.dtypes)};", "}",
              "// Whether the build has kernels that read quantized weights, and gradients.",
              f"inline constexpr bool kHasQuantized = {str(bool(selection.encodings)).lower()};",
              f"inline constexpr bool kHasTraining = {str(selection.training).lower()};",
              "constexpr bool is_internal(Op op) { return static_cast<uint16_t>(op) > kInternalBase; }",
              "std::string_view name_of(Op op);",
              "// Returns Op::Invalid if no operator has this name.", "Op op_named(std::string_view name);",
              "inline void append_text(std::string& out, Op op) { out += name_of(op); }\n"]
    for t in sorted(attribute_tables(file_ops + internal_ops)):
        lines += [f"using file::{t};", f"using file::{t}T;"]
    lines += [f"using file::{e};" for e in sorted(enums) if e != "DType"]  # bowline.h has that
    lines += ["\n}  // namespace bowline\n"]
    return "\n".join(lines)


def attribute_fields(ops, tables, enums, selected):
    """Generates visitors for all fields of every attribute table."""
    used = attribute_tables(ops)
    lines = [HEADER, "#pragma once\n", "#include <array>", "#include <string_view>\n",
             '#include "generated/ops.h"\n', "namespace bowline {\n",
             "template <class E>", "struct EnumNames;"]
    for e, values in sorted(enums.items()):
        names = ", ".join(f'"{v}"' for v in values)
        lines += ["template <>", f"struct EnumNames<file::{e}> {{",
                  f"  static constexpr std::array<std::string_view, {len(values)}> values = {{{names}}};", "};"]
    lines += ["\nstruct AttributeField {", "  std::string_view name;", "  size_t most;  // entries of a list",
              "  std::string_view feature;  // that a file must list unless the value is `absent`; empty if not needed",
              "  double absent;  // the value of the field in a file without it, if it has a feature",
              "  bool is_demanded;  // a file that uses the field without the feature is refused", "};"]
    features = sorted({field.feature for t in used for field in tables[t] if field.feature})
    lines += [f"inline constexpr std::array<std::string_view, {len(features)}> kAttributeFeatures = {{"
              + ", ".join(f'"{feature}"' for feature in features) + "};"]
    lines += ["\n// Calls visit(field, value) for every field of a table or its object, up to the first error."]
    for t in sorted(used):
        fields = ", ".join(f'{{"{f.name}", {f.most}, "{f.feature}", {f.default if f.feature else 0}, '
                           f'{"true" if f.is_demanded else "false"}}}' for f in tables[t])
        if tables[t]:
            lines += [f"inline constexpr AttributeField kFieldsOf{t}[] = {{{fields}}};"]
        for kind, get in ((f"const file::{t}& t", "t.{}()"), (f"file::{t}T& t", "t.{}")):
            calls = [f"(status = visit(kFieldsOf{t}[{i}], {get.format(f.name)})).ok()" for i, f in enumerate(tables[t])]
            # One Status for all: with sanitizers one per field takes minutes to compile.
            lines += ["template <class Visit>", f"Status visit_fields([[maybe_unused]] {kind}, [[maybe_unused]] Visit&& visit) {{",
                      "  Status status;"]
            lines += [f"  (void)({' && '.join(calls)});"] if calls else []
            lines += ["  return status;", "}"]
    lines += ["\ntemplate <class T>", "struct AttributeTable {};", "// f(AttributeTable<T>()), with the attribute table of the operator.",
              "template <class F>", "auto with_attribute_table(Op op, F&& f) {", "  switch (op) {"]
    used = attribute_tables([(n, t if n in selected else "NoAttributes", number) for n, t, number in ops])
    for t in sorted(used, key=lambda t: t == "NoAttributes"):
        lines += [f"    case Op::{n}:" for n in used[t]]
        lines += ["    case Op::Invalid:"] if t == "NoAttributes" else []
        lines += ["      break;"] if t == "NoAttributes" else [f"      return f(AttributeTable<file::{t}>());"]
    lines += ["  }", "  return f(AttributeTable<file::NoAttributes>());", "}", "\n}  // namespace bowline\n"]
    return "\n".join(lines)


def op_table(ops, derived, selected):
    """Each op file has the namespace bowline::detail::<stem>_op, so local names may repeat between
    files.
    """
    def space(name):
        return f"{stem_of(derived.get(name, name))}_op"
    lines = [HEADER, "#include <array>\n", '#include "graph/op_table.h"\n', "namespace bowline {\n"]
    lines += [f"namespace detail::{space(n)} {{\nextern const OpDef op_{stem_of(n)};\n}}" for n, _, _ in ops if n in selected]
    lines += ["namespace {\n", "// An operator that the build leaves out (BOWLINE_OPS). check_inputs() refuses its nodes.",
              "[[maybe_unused]] constexpr OpDef op_left_out{};\n", "constexpr std::array<std::string_view, kOps> kNames = {"]
    lines += [f'    "{n}",' for n, _, _ in ops]
    lines += ["};\n", "}  // namespace\n",
              "std::string_view name_of(Op op) {",
              '  return op == Op::Invalid ? std::string_view("Invalid") : kNames[static_cast<size_t>(index_of(op))];', "}\n",
              "Op op_named(std::string_view name) {", "  for (int i = 0; i < kOps; ++i) {",
              "    if (kNames[static_cast<size_t>(i)] == name) {", "      return op_at(i);", "    }", "  }",
              "  return Op::Invalid;", "}\n",
              "const OpDef& op_def(Op op) {", "  static constexpr std::array<const OpDef*, kOps> table = {"]
    lines += [f"      &detail::{space(n)}::op_{stem_of(n)}," if n in selected else f"      &op_left_out,  // {n}" for n, _, _ in ops]
    lines += ["  };", "  return *table[static_cast<size_t>(index_of(op))];", "}\n", "}  // namespace bowline\n"]
    return "\n".join(lines)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class Lists:
    """The two op lists of a source tree, with the operators of optimizers and the gradient
    operators that formulas define.
    """

    def __init__(self, root):
        schemas = root / "schemas"
        paths = [schemas / "ops.fbs", schemas / "internal_ops.fbs"]
        self.file_ops, self.internal_ops = read_union(paths[0], "Op"), read_union(paths[1], "InternalOp")
        self.optimizers = optimizers.read_optimizers(root, fail)
        self.internal_ops += [(o.op, o.table, len(self.internal_ops) + 1 + i) for i, o in enumerate(self.optimizers)]
        self.tables, self.enums = read_tables(paths, [optimizers.schema(self.optimizers)])
        self.dtypes = self.enums["DType"]
        self.formulas = [Formula(path, self.ops(), self.tables, self.enums)
                         for path in sorted((root / "runtime/ops/formulas").glob("*.h"))]
        self.derived = {name: f.op for f in self.formulas for name in f.gradients()}
        for f in self.formulas:
            for name in f.gradients():
                self.internal_ops.append((name, f.table, len(self.internal_ops) + 1))
        self.encodings = {"int8", "int4", *formats.names(root)}  # of quantized weights
        self.selection = select_ops.Selection({name for name, _, _ in self.ops()}, set(self.dtypes), self.encodings)

    def ops(self):
        return self.file_ops + self.internal_ops

    def op_files(self, root):
        """{operator: its file}, of those that have one."""
        made = {*self.derived, *(o.op for o in optimizers.formulas_of(self.optimizers))}
        return {n: root / f"runtime/ops/{stem_of(n)}.cpp" for n, _, _ in self.ops() if n not in made}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True, help="the source tree")
    parser.add_argument("--out", type=Path, required=True, help="folder of the generated files")
    parser.add_argument("--kernels", metavar="BACKEND=FOLDER[;FOLDER]", action="append", default=[])
    parser.add_argument("--only", metavar="ITEM", action="append", help="an entry of BOWLINE_OPS: operators to build (select_ops.py)")
    parser.add_argument("--without-training", action="store_true", help="leave out gradients and optimizers; needs --only")
    parser.add_argument("--flatc", default="flatc", help="the program flatc")
    args = parser.parse_args()
    lists = Lists(args.root)
    if args.only:
        lists.selection = select_ops.select(args.root, lists, args.only, not args.without_training, args.flatc, fail)
    ops, tables, enums, formulas, derived = lists.ops(), lists.tables, lists.enums, lists.formulas, lists.derived
    elementwise = {f.op_of(form): f.dtypes(form) for f in formulas for form in f.forms}
    families = {"elementwise": elementwise, "optimizers": {o.op: ["f32", "f16", "bf16"] for o in optimizers.formulas_of(lists.optimizers)}}
    files = lists.op_files(args.root)
    for name, table, _ in ops:
        if table not in tables:
            fail(f"{name}: its attribute table {table} is missing.")
        for path in filter(None, (files.get(name), args.root / f"tests/ops/{stem_of(name)}.cases")):
            if not path.exists():
                fail(f"{name} is in the op list, but {path.relative_to(args.root)} is missing.")
    for path in sorted((args.root / "runtime/ops").glob("*.cpp")):
        if path not in files.values():
            fail(f"{path.relative_to(args.root)} belongs to no operator of the op lists.")
    words = read_step_words(files, lists.optimizers)
    for name in elementwise:
        if name in words:
            fail(f"{files[name]}: {name} has formulas, whose kernels read no per-step scalars.")
    generated = args.out / "generated"
    write(generated / "step_words.h", step_words_header(words))
    write(generated / "step.glsl", step_head_shader(args.root / "runtime/device/program.h"))
    for name in words:
        write(generated / f"step_{stem_of(name)}.glsl", step_words_shader(name, words[name]))
    write(generated / "ops.h", ops_header(lists.file_ops, lists.internal_ops, enums, lists.selection))
    write(generated / "attribute_fields.h", attribute_fields(ops, tables, enums, lists.selection.ops))
    write(generated / "op_table.cpp", op_table(ops, derived, lists.selection.ops))
    write(generated / "functions.h", functions_header(formulas))
    write(generated / "functions.cpp", functions_source(formulas, lists.selection.ops))
    for suffix, whole in (("", False), ("_whole", True)):
        write(generated / f"functions{suffix}.inc", functions_list(formulas, whole, lists.selection.ops))
        write(generated / f"formulas{suffix}.inc", formulas_list(formulas, whole))
        write(generated / f"functions{suffix}.glsl", functions_shader(formulas, whole))
    write(generated / "op_files.txt", "\n".join(str(path) for name, path in files.items() if name in lists.selection.ops) + "\n")
    if args.only:
        write(generated / "ops.fbs", select_ops.reduced_schema(args.root, lists))
        write(generated / "model.fbs", (args.root / "schemas/model.fbs").read_text())
    optimizers.write_all(args.root, generated, write, fail)
    formats.write_all(args.root, generated, lists.selection.encodings, write, fail)
    for spec in args.kernels:
        backend, folders = spec.split("=", 1)
        folder, *extra = [Path(f) for f in folders.split(";")]
        kernel_tables.write_all(generated, backend, [folder, *extra], {n: stem_of(n) for n, _, _ in ops}, lists, families, write, fail)


if __name__ == "__main__":
    main()
