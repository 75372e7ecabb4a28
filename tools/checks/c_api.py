#!/usr/bin/env python3
"""Checks that the C interface has every function and every member of the public C++ headers.

A function of a class has the prefix of its handle: Model::tie() is model_tie. A function whose
first parameter is a Model has that prefix, too. A struct whose comment says "As bowline::X" has all
members of X. The exceptions below state what the C interface has instead.

Compares also with tests/c/interface.txt, which lists the members of all tables and structs in their
order: programs that were compiled earlier rely on it. New members may only follow the old ones.

usage: c_api.py            prints a sentence per difference; exit code 1 if there is any
       c_api.py --update   adds new members to tests/c/interface.txt
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/cmake"))

from generate_c_api import tables_of  # noqa: E402
from generate_json import COMMENT, NAMESPACE, TYPE, end_of, members_of, statements  # noqa: E402

INTERFACE = ROOT / "tests/c/interface.txt"
PREFIXES = {"Device": "device", "Model": "model", "GraphBuilder": "builder", "Session": "session", "Trainer": "trainer",
            "Tokenizer": "tokenizer", "Decoder": "decoder", "ChatTemplate": "chat_template", "Generator": "generator",
            "StopStrings": "stop_strings", "SpecialTokens": "special_tokens", "DeviceBuffer": "device_buffer",
            "PendingRun": "pending_run", "DeviceSemaphore": "device_semaphore"}
# What the C interface has instead of a function or member. A key with a type is for the overload
# whose first parameter has this type.
INSTEAD = {
    "name_of(ImportFormat)": "import_format_name", "name_of(ImportTask)": "import_task_name",
    "name_of(ImportProgress::Part)": "import_part_name",
    "ImportedModel::not_finite": "model_not_finite", "RunRequest::done": "session_submit",
    "ModelReader::read": "model_open_reader",
    "name_of": "code_name", "size_of": "dtype_size", "tune": "tune_session",
    "Status::ok": "error_code", "Status::code": "error_code", "Status::message": "error_message",
    "Budget::of_file": "file_budget_init", "Budget::of_plan": "plan_budget_init",
}
# Functions that C does not need, with the reason.
LEFT_OUT = {
    "Status::at": "callbacks write the whole sentence", "Status::as": "callbacks choose the code",
    "Result": "errors are codes", "TensorShape": "a shape is an array", "is_training": "reports name the roles",
    "Init": "the kind is a number", "TieReport::text": "the report has all items", "QuantizeReport::text": "the report has all items",
    "ProcessGroup": "the C interface trains with one process",
    "name_of(ImportedTensor::Use)": "the report has the name",
    "HostAllocator::allocate": "bowline_device_options has it", "HostAllocator::free": "bowline_device_options has it",
}
# Members of C++ structs with another form in C.
OTHER_MEMBERS = {
    "bowline::StepScalar": {"value": "integer"}, "bowline::Attribute": {"value": "kind"},
    "bowline::DeviceOptions": {"allocator": "allocate"},
    # The C interface trains with one process.
    "bowline::TrainOptions": {"gradient_sum": None, "processes": None},
    # Parameters of trainer_save() and trainer_resume().
    "bowline::Progress": {"config": None, "notes": None},
}
STRUCT = re.compile(r"/// (?:As|[^\n]*, as) (bowline::\w[\w:]*)[^\n]*\n(?:///[^\n]*\n)*typedef struct (\w+) \{(.*?)\n\} \2;", re.DOTALL)
ANY_STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\n\} \1;", re.DOTALL)
FUNCTION = re.compile(r"(~?\w+|operator\S+)\(")


def headers():
    runtime = ROOT / "runtime"
    for path in [*sorted((runtime / "bowline").glob("*.h")), runtime / "text/bowline_text.h", ROOT / "tools/import/bowline_import.h"]:
        text = COMMENT.sub("", path.read_text(encoding="utf-8"))
        text = re.sub(r"^\s*#.*$", "", re.sub(r"^\s*#define (.*\\\n)*.*$", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
        while found := NAMESPACE.search(text):
            end = end_of(text, found.end())
            if "detail" not in found[1]:
                yield found[1], text[found.end():end - 1]
            text = text[:found.start()] + text[end:]


def function_of(statement):
    """Returns the name and the first parameter of a declared function, or None."""
    line = " ".join(statement.split())
    line = re.sub(r"^(public|private|protected): ?", "", re.sub(r"\[\[[^\]]*\]\] ?", "", line))
    found = FUNCTION.search(re.sub(r"<[^()]*>", "", line.split(" = ")[0]))
    if not found or line.startswith(("std::function<", "using ", "friend ", "template ", "explicit ", "struct ", "enum ")):
        return None
    return found[1], line[line.index("(") + 1:]


def functions(text, scope=""):
    """Yields the public functions of a namespace or class: (class, name, first parameter)."""
    while found := TYPE.search(text):
        end = end_of(text, found.end())
        body = text[found.end():end - 1]
        if found[1] != "enum class":
            yield from functions(re.split(r"\b(?:private|protected):", body)[0], found[2])
        text = text[:found.start()] + text[end + 1:]
    for statement in statements(text):
        if (function := function_of(statement)) and function[0] not in (scope, f"~{scope}") and not function[0].startswith("operator"):
            yield scope, *function


def missing_functions(members):
    for namespace, text in headers():
        for scope, name, parameter in functions(text):
            full = f"{scope}::{name}" if scope else name
            typed = f"{full}({re.sub(r'[ ,)].*', '', parameter)})"
            if {full, typed, scope} & LEFT_OUT.keys():
                continue
            if scope and scope not in PREFIXES and full not in INSTEAD:
                yield f"{namespace}::{full}() has no counterpart in C, and no reason in c_api.py."
                continue
            prefix = PREFIXES.get(scope) or ("model" if re.match(r"(const )?Model&", parameter) else "")
            wanted = INSTEAD.get(typed) or INSTEAD.get(full) or (f"{prefix}_{name}" if prefix else name)
            if wanted not in members:
                yield f"{namespace}::{full}() has no counterpart in C: {wanted} is missing."


def missing_callables(c_text, members):
    """A std::function of a struct that C does not have: a function takes its place."""
    in_c = {name for name, _, _ in STRUCT.findall(c_text)}
    for namespace, text in headers():
        at = 0
        while found := TYPE.search(text, at):
            at = end_of(text, found.end())
            if found[1] != "struct" or f"{namespace}::{found[2]}" in in_c:
                continue
            for name in re.findall(r"std::function<[^;]*> (\w+)[ ;]", text[found.end():at - 1]):
                full = f"{found[2]}::{name}"
                if full not in LEFT_OUT and INSTEAD.get(full) not in members:
                    yield f"{namespace}::{full} has no counterpart in C: {INSTEAD.get(full, 'its entry in c_api.py')} is missing."


def missing_members(c_text):
    structs = {}
    for namespace, text in headers():
        at = 0
        while found := TYPE.search(text, at):
            at = end_of(text, found.end())
            if found[1] == "struct":
                body = re.sub(r"std::function<[^;]*>", "int", text[found.end():at - 1])
                structs[f"{namespace}::{found[2]}"] = members_of(TYPE.sub("", re.sub(r"ValueSource|LoadHook", "int", body.replace("*", "").replace("&", ""))))
    for name, c_name, body in STRUCT.findall(c_text):
        if name not in structs:
            yield f"{c_name}: there is no struct {name}."
            continue
        has = set(re.findall(r"(\w+)(?:\[\])?;", re.sub(r"//[^\n]*", "", body)))
        for member in structs[name] or []:
            wanted = OTHER_MEMBERS.get(name, {}).get(member, member)
            if wanted is not None and wanted not in has:
                yield f"{c_name} lacks the member {member} of {name}."


def interface(c_text, tables):
    """Returns a line per table and struct: its name, then its members with their types."""
    lines = {}
    for name, body in ANY_STRUCT.findall(c_text):
        if name in tables:
            lines[name] = [f"{result} {member}({parameters})" for result, member, parameters in tables[name]]
        else:
            lines[name] = [" ".join(m.split()) for m in re.sub(r"//[^\n]*", "", body).split(";") if m.strip()]
    return lines


def read_interface():
    lines = {}
    for line in INTERFACE.read_text(encoding="utf-8").splitlines() if INTERFACE.exists() else []:
        if line and not line.startswith(("#", " ")):
            lines[line] = []
        elif line.startswith("  "):
            lines[list(lines)[-1]].append(line[2:])
    return lines


def broken_interface(now):
    for name, members in read_interface().items():
        new = now.get(name)
        if new is None:
            yield f"{name} is gone. Programs that were compiled with it would no longer run."
        elif new[:len(members)] != members:
            changed = next((a for a, b in zip(members, [*new, *[""] * len(members)]) if a != b), members[-1])
            yield f"{name}: \"{changed}\" was changed, moved or removed. Add new members at the end instead."
        elif len(new) > len(members):
            yield f"{name} has new members. Run tools/checks/c_api.py --update to accept them."
    for name in now.keys() - read_interface().keys():
        yield f"{name} is new. Run tools/checks/c_api.py --update to accept it."


def self_test(c_text, members, now):
    """Each kind of gap that is put into the interface is found."""
    lost = {"model_tie", "model_quantize", "generator_next", "import_part_name", "model_import_adapter", "model_not_finite"}
    kept = members - lost
    found = {re.search(r"(\w+) is missing", line)[1] for line in [*missing_functions(kept), *missing_callables(c_text, kept)]}
    changed = {**now, "bowline_view": ["int x", *now["bowline_view"]], "bowline_new": ["size_t size"]}
    fewer = c_text.replace("  float clip_norm;", "").replace("  double label_smoothing;", "")
    texts = [*missing_members(fewer), *broken_interface(changed)]
    if found != lost or any(sum(name in t for t in texts) != 1 for name in ("clip_norm", "label_smoothing")) or \
            not any("was changed" in t for t in texts) or not any("is new" in t for t in texts):
        sys.exit(f"c_api.py does not find its seeded gaps: {found}, {texts}")


def main():
    c_headers = sorted((ROOT / "runtime/c/bowline_c").glob("*.h"))
    c_text = "\n".join(h.read_text(encoding="utf-8") for h in c_headers)
    tables = tables_of(c_text)
    members = {name for table in tables.values() for _, name, _ in table}
    if len(members) < 100:
        sys.exit("c_api.py: the tables of the C interface were not found.")
    now = interface(c_text, tables)
    if "--update" in sys.argv[1:]:
        lost = [line for line in broken_interface(now) if "--update" not in line]
        if lost:
            sys.exit("\n".join(lost))
        note = "# The members of the C interface in their order, kept by tools/checks/c_api.py.\n"
        INTERFACE.write_text(note + "".join(f"{n}\n" + "".join(f"  {m}\n" for m in now[n]) for n in sorted(now)), encoding="utf-8")
        return
    self_test(c_text, members, now)
    wrong = [*missing_functions(members), *missing_callables(c_text, members), *missing_members(c_text), *broken_interface(now)]
    print("\n".join(wrong) or f"The C interface has {len(members)} functions, one for each of the C++ headers.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
