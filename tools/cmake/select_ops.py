"""The operators that a build with BOWLINE_OPS contains.

BOWLINE_OPS is a list. Its entries are

  from:FILE   the operators, dtypes and encodings of weights of a .bowline file
  Name        an operator of schemas/ops.fbs
  adamw, ...  an optimizer; without one the build has all optimizers
  f16, bf16   kernels for this storage dtype; kernels for f32 and integers are always there
  q4_k, ...   a block format (runtime/base/formats)
  int8, int4  these encodings: the build has both if it has one or a block format
  quantized   all encodings of quantized weights

To these operators the build adds what they need: the operators that their gradients consist of, the
fused operators that replace them, and the operators that Bowline itself adds to graphs. All follow
from the source code, which names an operator as Op::Name:

- the gradient in an op file names operators, or calls functions of a header of runtime/ops that
  name them;
- a rewrite (runtime/graph/rewrites) has heads `//! makes A B of C D`: it may add A and B to a graph
  that has C or D;
- the other files of runtime/graph, runtime/plan and runtime/train name what they add themselves.
"""

import json
import re
import struct
import subprocess
import tempfile
import typing
from pathlib import Path

NAMED = r"(?<!has_op\()\bOp::([A-Z]\w*)"
MADE = r"(?:\badd\(|\bmake_node\(|\.op = )\s*" + NAMED
HEADER = "<8sIIQQ"  # magic, format_major, zero, offset and length of the tables


def read_tables(root, path, flatc, fail):
    """Returns the tables of a .bowline file as JSON."""
    path = Path(path)
    if not path.is_file():
        fail(f"BOWLINE_OPS: there is no file {path}.")
    data = path.read_bytes()
    if len(data) < struct.calcsize(HEADER) or not data.startswith(b"BOWLINE1"):
        fail(f"BOWLINE_OPS: {path} is not a .bowline file. 'bowline import' makes one of other formats.")
    _, _, _, offset, length = struct.unpack_from(HEADER, data)
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder, "model.bin")
        tables.write_bytes(data[offset:offset + length])
        done = subprocess.run([flatc, "--json", "--strict-json", "--raw-binary", "-o", folder, "-I", root / "schemas",
                               root / "schemas/model.fbs", "--", tables], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(f"BOWLINE_OPS: flatc cannot read {path}: {done.stdout}{done.stderr}")
        return json.loads(Path(folder, "model.json").read_text(encoding="utf-8", errors="replace"))


def of_file(root, path, flatc, fail):
    """Returns the operators, dtypes and encodings of a .bowline file."""
    model = read_tables(root, path, flatc, fail)
    nodes = [node for graph in model.get("graphs", []) for node in graph.get("nodes", [])]
    values = [value for graph in model.get("graphs", []) for value in graph.get("inputs", [])]
    dtypes = {row.get("dtype", "f32") for row in model.get("storages", []) + values}
    dtypes |= {node["op"]["to"] for node in nodes if "to" in node.get("op", {})}
    encodings = {row.get("encoding", {}).get("name", "plain") for row in model.get("storages", [])}
    return {node["op_type"] for node in nodes}, dtypes, encodings - {"plain"}


def names_in(text, helpers):
    """The operators that a piece of code names, directly or through functions of headers."""
    found = set(re.findall(NAMED, text))
    for word in set(re.findall(r"\b[a-z]\w+(?=[(<])", text)) & helpers.keys():
        found |= helpers[word]
    return found


def read_helpers(root):
    """{function: the operators that it names}, of the headers of runtime/ops."""
    bodies = {}
    for path in sorted((root / "runtime/ops").glob("*.h")):
        for name, body in re.findall(r"^(?!namespace|struct|class|enum)[\w:<>,&* ]*?\b(\w+)\([^;{}]*\)[^;{}]*\{\n(.*?)^\}",
                                     path.read_text(), re.M | re.S):
            bodies[name] = bodies.get(name, "") + body
    helpers = {name: set(re.findall(NAMED, body)) for name, body in bodies.items()}
    changed = True
    while changed:
        changed = False
        for name, body in bodies.items():
            more = names_in(body, helpers) - helpers[name]
            helpers[name] |= more
            changed = changed or bool(more)
    return helpers


def read_rewrites(root, fail):
    """[(made operators, operators that they are made of)] of the heads of the rewrites."""
    rules = []
    for path in sorted((root / "runtime/graph/rewrites").glob("*.cpp")):
        text = path.read_text()
        heads = [(set(made.split()), set(of.split())) for made, of in re.findall(r"^//! makes (.+) of (.+)$", text, re.M)]
        missing = set(re.findall(MADE, text)) - {name for made, _ in heads for name in made}
        if missing:
            fail(f"{path}: it makes {', '.join(sorted(missing))}, which no head '//! makes ... of ...' names.")
        rules += heads
    return rules


def always(root, op_files, training):
    """The operators that Bowline adds to graphs of any model."""
    found = set()
    for folder in ("graph", "plan", "exec", *(["train"] if training else [])):
        for path in sorted((root / "runtime" / folder).glob("*.cpp")) + sorted((root / "runtime" / folder).glob("*.h")):
            if training or not re.match("gradient|differentiator|loss_weight", path.name):
                found |= set(re.findall(NAMED, path.read_text()))
    found |= {op for op, path in op_files.items() if re.search(r"\.role = OpRole::", path.read_text())}
    return found & op_files.keys()


def text_for(path, training):
    """The code of an op file, for a build without training without its gradient."""
    text = path.read_text()
    if not training:
        text = re.sub(r"^[\w:<>]+ (gradient|loss_weight)\(GradientContext.*?^\}", "", text, flags=re.M | re.S)
    return text


class Selection(typing.NamedTuple):
    """What a build contains."""
    ops: set
    dtypes: set
    encodings: set
    training: bool = True


def select(root, lists, items, training, flatc, fail):
    """Returns the Selection of a build with BOWLINE_OPS = items."""
    op_files = lists.op_files(root)
    names = {name for name, _, _ in lists.ops()}
    internal = {name for name, _, _ in lists.internal_ops}
    optimizers = {o.name: o.op for o in lists.optimizers}
    ops, dtypes, encodings = set(), set(), set()
    for item in items:
        if item.startswith("from:"):
            of_ops, of_dtypes, of_encodings = of_file(root, item.removeprefix("from:"), flatc, fail)
            ops |= of_ops
            dtypes |= of_dtypes
            encodings |= of_encodings
        elif item == "quantized":
            encodings |= lists.encodings
        elif item in lists.encodings:
            encodings.add(item)
        elif item in optimizers:
            ops.add(optimizers[item])
        elif item in ("f16", "bf16"):
            dtypes.add(item)
        elif item in names - internal:
            ops.add(item)
        else:
            fail(f"BOWLINE_OPS: '{item}' is not 'all', from:FILE, an operator of schemas/ops.fbs, an optimizer "
                 f"({', '.join(optimizers)}), f16, bf16, an encoding ({', '.join(sorted(lists.encodings))}) or quantized.")
    if training and not ops & set(optimizers.values()):
        ops |= set(optimizers.values())
    ops |= always(root, op_files, training)
    helpers, rewrites = read_helpers(root), read_rewrites(root, fail)
    gradients = {}
    for f in lists.formulas if training else []:
        gradients.setdefault(f.op, set()).update(f.gradients())
    texts = {op: text_for(path, training) for op, path in op_files.items()}
    while True:
        more = set()
        for op in ops:
            more |= gradients.get(op, set()) | names_in(texts.get(op, ""), helpers)
            more |= {lists.derived[op]} if op in lists.derived else set()
        for made, of in rewrites:
            more |= made if of & ops else set()
        more = (more & names) - ops - (set() if training else lists.derived.keys())
        if not more:
            break
        ops |= more
    return Selection(ops, dtypes | (set(lists.dtypes) - {"f16", "bf16"}), encodings, training)


def has_op(ops, selected):
    """Returns the body of the generated function has_op()."""
    if len(selected) == len(ops):
        return ["  return true;"]
    return ["  switch (op) {", *(f"    case Op::{n}:" for n, _, _ in ops if n in selected), "      return true;", "    default:",
            "      return false;", "  }"]


def has_dtype(selected):
    """Returns the expression of the generated function has_dtype()."""
    return " && ".join(f"type != DType::{t}" for t in ("f16", "bf16") if t not in selected) or "true"


def reduced_schema(root, lists):
    """Returns ops.fbs with no attributes for operators that are not selected, so that flatc
    generates no code for them."""
    text = (root / "schemas/ops.fbs").read_text()
    for name, table, number in lists.file_ops:
        if name not in lists.selection.ops:
            text = re.sub(rf"\b{name}\s*:\s*{table}\s*=\s*{number}\b", f"{name}: NoAttributes = {number}", text)
    return text
