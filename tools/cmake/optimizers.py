"""Reads the optimizers: one file each in runtime/ops/formulas/optimizers, whose head describes the
optimizer (runtime/ops/formulas/README.md). Writes what follows from them:

  generated/optimizers.fbs         the attribute tables of their operators
  generated/optimizers.cpp         the descriptors (core/optimizers.h)
  generated/optimizers.inc         BOWLINE_OPTIMIZER(Name, stem) for each that has a formula
  generated/optimizer_formulas.inc the formulas as structs, for C++ and CUDA
  generated/optimizer_ops.cpp      the operators of those that have a formula
  generated/update_<stem>.comp     the formula as a shader
"""

import re

HEADER = "// Generated from runtime/ops/formulas/optimizers by tools/cmake/optimizers.py.\n"
FOLDER = "runtime/ops/formulas/optimizers"
MOST_STATES, MOST_NUMBERS, MOST_WORDS = 3, 8, 8  # core/optimizers.h
# The step words of every optimizer, around its own.
FIRST_WORDS, LAST_WORDS = "//! step learning_rate: f32\n", "//! step non_finite: u32 = 0\n//! step writes weights_non_finite: u32 = 0\n"
FORMS = {
    "decay": r"(decoupled|l2) = (\S+)",
    "number": r"(\w+) = (\S+) in ([\[(])([^,]+), ([^\])]+)([\])]): (.+)",
    "flag": r"(\w+): (.+)",
    "state": r"(\w+)( of squares)?( factored)?(?: if (\w+))?",
    "correction": r"(\w+) of (\w+)",
    "step": r"(.+)",
}


class Optimizer:
    """A file of runtime/ops/formulas/optimizers."""

    def __init__(self, path, fail):
        self.path, text = path, path.read_text()
        self.stem = path.stem
        self.op = "".join(part.capitalize() for part in path.stem.split("_"))
        self.name = path.stem.replace("_", "")
        self.table = self.op + "Attributes"
        said = {form: [] for form in FORMS}
        self.order = []  # numbers and flags as they are declared
        for form, rest in re.findall(r"^//! (\w+) (.*)$", text, re.M):
            found = re.fullmatch(FORMS[form], rest) if form in FORMS else None
            if not found:
                fail(f"{path}: '//! {form} {rest}' is not of a form that README.md lists.")
            said[form].append(found.groups())
            self.order += [found.groups()] if form in ("number", "flag") else []
        if len(said["decay"]) != 1:
            fail(f"{path}: one line '//! decay' says what weight decay is.")
        (self.decay, self.default_decay), = said["decay"]
        self.summary = re.sub(r"\n//", "", re.match(r"// \w+: (.*?)\.\s", text, re.S).group(1))
        self.names = [row[0] for row in self.order]
        self.flags = {name for name, _ in said["flag"]}
        self.states = [tuple(part or "" for part in state) for state in said["state"]]
        self.corrections = said["correction"]
        self.own_words = "".join(f"//! step {words}\n" for words, in said["step"])
        for name in [s[3] for s in self.states if s[3]] + [number for _, number in self.corrections]:
            if name not in self.names:
                fail(f"{path}: there is no number or flag {name}.")
        if not 0 < len(self.states) <= MOST_STATES:
            fail(f"{path}: it has {len(self.states)} states; 1 to {MOST_STATES} are possible.")
        if len(self.names) + 2 > MOST_NUMBERS or len(self.read_words()) > MOST_WORDS:
            fail(f"{path}: it has more than {MOST_NUMBERS - 2} numbers and flags, or {MOST_WORDS} per-step scalars.")
        self.has_step = re.search(rf"^STEP\({path.stem}\)", text, re.M) is not None
        self.has_formula = re.search(rf"^UPDATE\({path.stem}\)", text, re.M) is not None
        self.is_factored = any(s[2] for s in self.states)

    def decay_text(self):
        kinds = {"decoupled": "decoupled", "l2": "added to the gradient (L2)"}
        return f"weight decay of matrices, {kinds[self.decay]}"

    def words(self):
        return FIRST_WORDS + self.own_words + LAST_WORDS

    def optional(self):
        """The states that a number decides about."""
        return [i for i, state in enumerate(self.states) if state[3]]

    def read_words(self):
        """[(name, type)] of the step words that a formula reads, in the order of declaration."""
        entries = re.findall(r"(\w+): (\w+)", FIRST_WORDS + self.own_words)
        return list(entries)


def read_optimizers(root, fail):
    return [Optimizer(path, fail) for path in sorted((root / FOLDER).glob("*.h"))]


def schema(optimizers):
    lines = [HEADER, "namespace bowline.file;\n"]
    for o in optimizers:
        lines += [f"table {o.table} {{"]
        lines += [f"  {row[0]}: bool = false;" if row[0] in o.flags else f"  {row[0]}: float = {row[1]};" for row in o.order]
        lines += ["  weight_decay: float = 0;", "  learning_rate_factor: float = 1;", "}"]
    return "\n".join([*lines, ""])


def number_literal(text):
    infinity = "std::numeric_limits<float>::infinity()"
    if text in ("inf", "-inf"):
        return text.replace("inf", infinity)
    return text + ("f" if re.search(r"[.e]", text) else "")


def setting(name, default, low, high, ends, text, is_flag="false"):
    return (f'    {{"{name}", "{text}", {is_flag}, {number_literal(default)}, {number_literal(low)}, {number_literal(high)}, '
            f"{str(ends[0] == '[').lower()}, {str(ends[1] == ']').lower()}}},")


def descriptors(optimizers):
    lines = [HEADER, '#include "core/optimizers.h"\n', "#include <limits>\n", "namespace bowline {", "namespace {\n"]
    for o in optimizers:
        lines += [f"constexpr OptimizerSetting kSettingsOf{o.op}[] = {{"]
        lines += [setting("weight_decay", o.default_decay, "0", "inf", "[)", o.decay_text())]
        lines += [setting("decay_all", "0", "0", "1", "[]", "decay vectors and scalars too", "true")]
        for row in o.order:
            if row[0] in o.flags:
                lines += [setting(row[0], "0", "0", "1", "[]", row[1], "true")]
            else:
                name, default, begin, low, high, end, text = row
                lines += [setting(name, default, low, high, begin + end, text)]
        lines += ["};", f"constexpr OptimizerState kStatesOf{o.op}[] = {{"]
        lines += [f'    {{"{name}", {str(bool(squares)).lower()}, {str(bool(factored)).lower()}, "{needs}"}},'
                  for name, squares, factored, needs in o.states]
        lines += ["};"]
        if o.corrections:
            lines += [f"constexpr OptimizerCorrection kCorrectionsOf{o.op}[] = {{"]
            lines += [f'    {{"{word}", "{number}"}},' for word, number in o.corrections] + ["};"]
    lines += ["\nconstexpr OptimizerInfo kInfos[] = {"]
    lines += [f'    {{"{o.name}", "{o.summary}", kSettingsOf{o.op}}},' for o in optimizers]
    lines += ["};", "constexpr OptimizerDef kDefs[] = {"]
    lines += [f"    {{Op::{o.op}, kInfos[{i}], kStatesOf{o.op}, {f'kCorrectionsOf{o.op}' if o.corrections else '{}'}}},"
              for i, o in enumerate(optimizers)]
    return "\n".join([*lines, "};\n", "}  // namespace\n", "std::span<const OptimizerInfo> optimizers() { return kInfos; }",
                      "std::span<const OptimizerDef> optimizer_defs() { return kDefs; }", "\n}  // namespace bowline\n"])


def formulas_of(optimizers):
    return [o for o in optimizers if o.has_formula]


def list_of(optimizers):
    return "\n".join([HEADER, *(f"BOWLINE_OPTIMIZER({o.op}, {o.stem})" for o in formulas_of(optimizers)), "#undef BOWLINE_OPTIMIZER", ""])


def formula_structs(optimizers):
    """A struct with what is the same for all elements of a step, and apply() for one element or
    vector.
    """
    lines = [HEADER]
    for o in formulas_of(optimizers):
        count = len(o.names)
        reads = [("rate", f"in.f32(0) * in.number({count + 1})"), ("weight_decay", f"in.number({count})")]
        reads += [(name, f"in.{kind}({i})") for i, (name, kind) in enumerate(o.read_words()) if name != "learning_rate"]
        reads += [(name, f"in.{'flag' if name in o.flags else 'number'}({i})") for i, name in enumerate(o.names)]
        flags = [(f"has_{o.states[i][0]}", f"in.flag({o.names.index(o.states[i][3])})") for i in o.optional()]
        optional = sum(1 << i for i in o.optional())
        lines += [f"struct {o.op} {{", f"  static constexpr Op kOp = Op::{o.op};", f"  static constexpr size_t kStates = {len(o.states)};",
                  f"  static constexpr unsigned kOptional = {optional};  // bit i: state i may be missing"]
        lines += [f"  {'bool' if name in o.flags else 'S'} {name};" for name, _ in reads]
        lines += [f"  bool {name};" for name, _ in flags]
        lines += [f"  {o.op}() = default;", "  template <class Read>",
                  f"  BOWLINE_FORMULA explicit {o.op}(const Read& in)",
                  "      : " + ",\n        ".join(f"{name}({value})" for name, value in reads + flags) + " {",
                  *(["    begin_step();"] if o.has_step else []), "  }",
                  f"#define STEP({o.stem}) BOWLINE_FORMULA void begin_step()",
                  f"#define UPDATE({o.stem}) BOWLINE_UPDATE void apply(F& w, const F g"
                  + "".join(f", F& {s[0]}" for s in o.states) + ") const",
                  f'#include "ops/formulas/optimizers/{o.stem}.h"', "#undef STEP", "#undef UPDATE",
                  "  // Of all optimizers alike: the states behind kStates are not used.",
                  f"  BOWLINE_UPDATE void apply_to(F& w, const F g, {', '.join(f'[[maybe_unused]] F& s{i}' for i in range(MOST_STATES))}) const {{",
                  f"    apply(w, g, {', '.join(f's{i}' for i in range(len(o.states)))});", "  }", "};"]
    return "\n".join([*lines, ""])


def op_definitions(optimizers):
    lines = [HEADER, '#include "ops/optimizer.h"\n']
    for o in formulas_of(optimizers):
        needed = len(o.states) - len(o.optional())
        lines += [f"namespace bowline::detail::{o.stem}_op {{", f"extern const OpDef op_{o.stem};",
                  f"const OpDef op_{o.stem} = optimizer::definition<Op::{o.op}>("
                  f'"{o.op}", {needed}, {len(o.optional())}, BOWLINE_ORACLE(optimizer::compute<optimizer::formulas::{o.op}>));',
                  f"}}  // namespace bowline::detail::{o.stem}_op"]
    return "\n".join([*lines, ""])


def shader(o):
    """What shaders/lib/update.glsl runs: the push block, what the formula reads as globals, and the
    formula.
    """
    states = [s[0] for s in o.states]
    numbers = [*o.names, "weight_decay", "learning_rate_factor"]
    reads = [("S rate", "step_learning_rate * p.learning_rate_factor"), ("S weight_decay", "p.weight_decay")]
    reads += [(f"S {n}", f"S(step_{n})") for n, _ in o.read_words() if n != "learning_rate"]
    reads += [(f"bool {n}", f"p.{n} != 0") if n in o.flags else (f"S {n}", f"p.{n}") for n in o.names]
    reads += [(f"bool has_{states[i]}", f"p.{o.states[i][3]} != 0") for i in o.optional()]
    guards = [f"if (has_{s}) " if i in o.optional() else "" for i, s in enumerate(states)]
    return "\n".join([
        "//! variants T=f32,f16,bf16", HEADER.strip(),
        '#include "common.glsl"', '#include "formulas.glsl"', f'#include "step_{o.stem}.glsl"\n',
        "struct Chunk {", "  Floats w;", "  Floats g;", *(f"  Floats {s};" for s in states), "  Elements rounded;", "  uint count;", "  uint padding;", "};",
        "layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Chunks { Chunk v[]; };\n",
        "layout(push_constant, scalar) uniform Push {", "  Chunks chunks;", "  Floats scale;", "  STEP_WORDS", "  uint count;",
        *(f"  float {n};" for n in numbers), "} p;\n", *(f"{declared};" for declared, _ in reads), f"F w, g, {', '.join(states)};",
        f'#include "optimizers/{o.stem}.h"\n',
        "void read_numbers() {", *(f"  {declared.split()[1]} = {value};" for declared, value in reads),
        *(["  begin_step();"] if o.has_step else []), "}",
        "void load_states(Chunk chunk, uint i) {", *(f"  {guard}{s} = chunk.{s}.v[i];" for s, guard in zip(states, guards)), "}",
        "void store_states(Chunk chunk, uint i) {", *(f"  {guard}chunk.{s}.v[i] = {s};" for s, guard in zip(states, guards)), "}",
        '#include "update.glsl"', ""])


def write_all(root, generated, write, fail):
    optimizers = read_optimizers(root, fail)
    write(generated / "optimizers.fbs", schema(optimizers))
    write(generated / "optimizers.cpp", descriptors(optimizers))
    write(generated / "optimizers.inc", list_of(optimizers))
    write(generated / "optimizer_formulas.inc", formula_structs(optimizers))
    write(generated / "optimizer_ops.cpp", op_definitions(optimizers))
    shaders = {generated / f"update_{o.stem}.comp": shader(o) for o in formulas_of(optimizers)}
    for path in set(generated.glob("update_*.comp")) - set(shaders):
        path.unlink()
    for path, text in shaders.items():
        write(path, text)
