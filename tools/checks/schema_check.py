#!/usr/bin/env python3
"""Checks that the file schemas can still read files of released schemas.

Compares schemas/{model,ops}.fbs with every schemas/released/<version>/: fields, enum values and
union members are only appended; types, defaults, numbers, identifier and root stay; no structs, no
required, no force_align (schemas/README.md). `flatc --conform` 2.0.8 accepts nine of the nineteen
breaking changes that --self-test tries.
"""

import pathlib
import re
import sys

FILES = ("ops.fbs", "model.fbs")


class Schema:
    """Tables, enums and unions by name, each as a list in the order of the text."""

    def __init__(self, text):
        text = re.sub(r"//[^\n]*", "", text)
        self.tables = {m[1]: self.fields(m[2]) for m in re.finditer(r"\btable\s+(\w+)\s*\{([^}]*)\}", text)}
        self.enums = {m[1]: (m[2], self.values(m[3]))
                      for m in re.finditer(r"\benum\s+(\w+)\s*:\s*(\w+)\s*\{([^}]*)\}", text)}
        self.unions = {m[1]: re.findall(r"(\w+)\s*:\s*(\w+)\s*=\s*(\d+)", m[2])
                       for m in re.finditer(r"\bunion\s+(\w+)\s*\{([^}]*)\}", text)}
        self.structs = re.findall(r"\bstruct\s+(\w+)", text)
        self.identifier = re.findall(r"\bfile_identifier\s+\"(\w+)\"", text)
        self.root = re.findall(r"\broot_type\s+(\w+)", text)
        self.namespace = re.findall(r"\bnamespace\s+([\w.]+)", text)

    @staticmethod
    def fields(body):
        """[(name, type, default, attributes)]"""
        form = r"(\w+)\s*:\s*(\[?[\w.]+\]?)\s*(?:=\s*([^;(\s]+))?\s*(?:\(([^)]*)\))?\s*;"
        return [(m[1], m[2], m[3] or "", m[4] or "") for m in re.finditer(form, body)]

    @staticmethod
    def values(body):
        """[(name, number)], with numbers counted on where they are not written."""
        out, following = [], 0
        for name, number in re.findall(r"(\w+)\s*(?:=\s*(-?\d+))?", body):
            following = int(number) if number else following
            out.append((name, following))
            following += 1
        return out


def check_appended(kind, name, old, new):
    if len(new) < len(old):
        yield f"{kind} {name} has lost {', '.join(str(o[0]) for o in old[len(new):])}."
    for before, after in zip(old, new):
        if before != after:
            yield f"{kind} {name}: {' '.join(map(str, before))} has become {' '.join(map(str, after))}."


def check_pair(old, new):
    """Yields sentences about changes in `new` that break files of `old`."""
    for name, fields in old.tables.items():
        if name not in new.tables:
            yield f"Table {name} is gone."
        else:
            stripped = [[f[:3] for f in fields_] for fields_ in (fields, new.tables[name])]
            yield from check_appended("Table", name, *stripped)
    for name, (base, values) in old.enums.items():
        if name not in new.enums:
            yield f"Enum {name} is gone."
            continue
        if new.enums[name][0] != base:
            yield f"Enum {name} is {new.enums[name][0]}, no longer {base}."
        yield from check_appended("Enum", name, values, new.enums[name][1])
    for name, members in old.unions.items():
        if name not in new.unions:
            yield f"Union {name} is gone."
        else:
            yield from check_appended("Union", name, members, new.unions[name])
    for what in ("identifier", "root", "namespace"):
        if getattr(old, what) != getattr(new, what):
            yield f"The {what} {getattr(old, what)} has become {getattr(new, what)}."


def check_rules(schema):
    """Rules for all schemas, released or not."""
    for name in schema.structs:
        yield f"{name} is a struct; a struct cannot grow."
    for name, fields in schema.tables.items():
        for field in fields:
            for word in ("required", "force_align", "key", "id"):
                if re.search(rf"\b{word}\b", field[3]):
                    yield f"{name}.{field[0]} is marked {word}."
    for name, members in schema.unions.items():
        for i, member in enumerate(members):
            if int(member[2]) != i + 1:
                yield f"Union {name}: {member[0]} has number {member[2]}, not {i + 1}."


def check_tree(root):
    for path in (root / "schemas").glob("*.fbs"):
        for sentence in check_rules(Schema(path.read_text())):
            yield f"schemas/{path.name}: {sentence}"
    versions = sorted(p for p in (root / "schemas/released").iterdir() if p.is_dir())
    if not versions:
        yield "schemas/released is empty."
    for version in versions:
        for name in FILES:
            old, new = Schema((version / name).read_text()), Schema((root / "schemas" / name).read_text())
            for sentence in check_pair(old, new):
                yield f"schemas/{name} breaks files of format {version.name}: {sentence}"


# One breaking change per entry: (what, file, pattern, replacement).
BREAKING = (
    ("a field is removed", "model.fbs", r"  owner: int = -1;[^\n]*\n", ""),
    ("a field is retyped", "model.fbs", r"slot: uint = 0;", "slot: ulong = 0;"),
    ("fields are reordered", "model.fbs", r"(name: string;) (tie: uint;)", r"\2 \1"),
    ("a field is put before others", "model.fbs", r"table Sibling \{", "table Sibling { hash: ulong;"),
    ("a default is changed", "model.fbs", r"trainable: bool = true", "trainable: bool = false"),
    ("a default is dropped", "model.fbs", r"rows: long = -1", "rows: long"),
    ("a field is made required", "model.fbs", r"path: string;", "path: string (required);"),
    ("a vector is aligned by force", "model.fbs", r"digest: \[ubyte\];", "digest: [ubyte] (force_align: 16);"),
    ("enum values are swapped", "ops.fbs", r"f16 = 1, bf16 = 2", "bf16 = 1, f16 = 2"),
    ("an enum value is removed", "ops.fbs", r", boolean = 7", ""),
    ("an enum changes its base type", "model.fbs", r"enum Role : ubyte", "enum Role : ushort"),
    ("a union member is removed", "ops.fbs", r",\s*\w+: \w+ = \d+(\s*\})", r"\1"),
    ("a union member gets another table", "ops.fbs", r"Gelu: GeluAttributes", "Gelu: NoAttributes"),
    ("union members are swapped", "ops.fbs", r"Add: NoAttributes = 1,\s*Sub: NoAttributes = 2",
     "Sub: NoAttributes = 1, Add: NoAttributes = 2"),
    ("the identifier is changed", "model.fbs", r'file_identifier "BWLN";', 'file_identifier "BWL2";'),
    ("the identifier is dropped", "model.fbs", r'file_identifier "BWLN";', ""),
    ("the root is changed", "model.fbs", r"root_type Model", "root_type Graph"),
    ("a struct is added", "model.fbs", r"table Setting", "struct Pair { a: int; b: int; }\ntable Setting"),
    ("a table is removed", "model.fbs", r"table Base \{[^}]*\}", ""),
)
HARMLESS = (
    ("a field is appended", "model.fbs", r"(table Sibling \{[^}]*)\}", r"\1 hash: ulong; }"),
    ("a field is deprecated", "model.fbs", r"plan_hash: ulong = 0;", "plan_hash: ulong = 0 (deprecated);"),
    ("an enum value is appended", "ops.fbs", r"boolean = 7", "boolean = 7, f8 = 8"),
    ("a union member is appended", "ops.fbs", r"= (\d+)(\s*\}\s*)\Z",
     lambda m: f"= {m[1]}, Exp: NoAttributes = {int(m[1]) + 1}{m[2]}"),
    ("a comment is changed", "ops.fbs", r"// A dim of -1", "// One of -1"),
)


def self_test(root):
    for expected, changes in ((True, BREAKING), (False, HARMLESS)):
        for what, name, pattern, replacement in changes:
            old = (root / "schemas" / name).read_text()
            new, count = re.subn(pattern, replacement, old, count=1)
            schema = Schema(new)
            found = [*check_rules(schema), *check_pair(Schema(old), schema)]
            if count != 1:
                yield f"self test: the pattern of \"{what}\" is not in {name}."
            elif bool(found) != expected:
                yield f"self test: \"{what}\" is {'not found' if expected else 'refused: ' + found[0]}."


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    sentences = [*check_tree(root), *(self_test(root) if "--self-test" in sys.argv[1:] else [])]
    for sentence in sentences:
        print(sentence)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
