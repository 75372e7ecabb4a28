"""import_torch(): modules of PyTorch as models."""

import inspect
import math
import operator
import re

from bowline import _bowline
from bowline._error import Error


class ImportedTorch:
    """The result of import_torch().

    model is the Model. report is a dict:

    - entry, inputs, outputs: the entry point. Inputs and outputs are lists of dicts with name,
      dtype and shape. A dimension is a size or the name of a dimension.
    - ties: lists of the names of parameters that share their storage.
    - unused: names of parameters that the graph does not read. The model does not have them.
    - max_error: the largest difference to PyTorch, by output.
    - tolerance: the allowed difference, as a fraction of max(1, largest value of the output).
    - notes: a list of sentences on what differs from PyTorch.
    """

    def __init__(self, model, report):
        self.model = model
        self.report = report

    def __repr__(self):
        return f"bowline.ImportedTorch(entry={self.report['entry']!r}, max_error={max(self.report['max_error'].values(), default=0):.3g})"


def import_torch(module, example_inputs, dynamic_shapes=None, *, entry="forward", model=None, dropout=False, tolerance=None):
    """Makes a model from a PyTorch module, through torch.export.

    The graph of module.forward() becomes an entry point. The model has the parameters of the module
    under the same names. Parameters that share memory in PyTorch are tied, and buffers are
    constants. The import exports the module in eval mode. Then it runs the module and the model on
    the example inputs, and compares the outputs. The module stays as it was.

        imported = bowline.import_torch(module, (torch.zeros(1, 28, 28),))
        imported.model.save("module.bowline")

    To train the model, export a forward() that returns the loss, with entry="loss", and pass
    loss="output" to the Trainer. model=imported.model adds the entry point to a model of the same
    module.

    Args:
      module: a torch.nn.Module.
      example_inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
        Integers of 64 bits become i32 inputs.
      dynamic_shapes: as for torch.export.export(). A torch.export.Dim becomes a dimension with
        its name and limits. Sessions and trainers get its size in dims. Its size in the example
        inputs must be at least 2.
      entry: the name of the entry point.
      model: adds the entry point to this model. A parameter that it has under the same name keeps
        its values. Add entry points before you quantize the model or add adapters.
      dropout: keeps dropout while a Trainer trains. Without it, dropout is left out.
      tolerance: the allowed difference of an output, as a fraction of max(1, largest value of the
        output). The default is 1e-4, and 0.03 if a parameter has 16 bits.

    Returns:
      An ImportedTorch, with the members model and report.

    Raises:
      bowline.Error: unsupported: torch is not installed, or an operator has no counterpart. The
        message names the operator, the module and the line.
      bowline.Error: bad_argument: an argument is wrong, or torch.export cannot export the module.
      bowline.Error: internal: an output differs from PyTorch by more than the tolerance.
    """
    try:
        import torch
    except ImportError:
        raise Error("import_torch() needs PyTorch, which is not installed. Run: pip install torch", "unsupported") from None
    if not hasattr(torch, "export") or not hasattr(torch.export, "default_decompositions"):
        raise Error(f"import_torch() needs PyTorch 2.6 or newer. This is {torch.__version__}. Run: pip install --upgrade torch", "unsupported")
    args, kwargs = _inputs(torch, module, example_inputs)
    if tolerance is not None and not tolerance >= 0:
        raise Error(f"tolerance is {tolerance}. Pass a number that is not negative, or None.", "bad_argument")
    modes = {m: m.training for m in module.modules()}
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    fast = torch.backends.mha.get_fastpath_enabled()
    module.eval()
    # The fast path of TransformerEncoder is one fused operator.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = _run(torch, module, args, kwargs)
        program = _export(torch, module, args, kwargs, dynamic_shapes)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for m, training in modes.items():
            m.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    return _build(torch, module, program, args, kwargs, dynamic_shapes, expected, entry, model, dropout, tolerance)


def _inputs(torch, module, example_inputs):
    """Returns positional and keyword arguments of the module."""
    if not isinstance(module, torch.nn.Module):
        raise Error(f"module is an object of the type {type(module).__name__}. Pass a torch.nn.Module.", "bad_argument")
    args, kwargs = (), {}
    if isinstance(example_inputs, torch.Tensor):
        args = (example_inputs,)
    elif isinstance(example_inputs, (tuple, list)):
        args = tuple(example_inputs)
    elif isinstance(example_inputs, dict):
        order = list(inspect.signature(module.forward).parameters)
        kwargs = dict(sorted(example_inputs.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
    else:
        raise Error(f"example_inputs is an object of the type {type(example_inputs).__name__}. Pass a tensor of PyTorch, "
                    "a tuple of the positional arguments of forward(), or a dict of its keyword arguments.", "bad_argument")
    from bowline._torch_weights import dtype_of, weights_of

    for name, value in [*((str(i), v) for i, v in enumerate(args)), *kwargs.items()]:
        if isinstance(value, torch.Tensor):
            dtype_of(value, f"The input {name}")
        elif type(value).__module__ == "numpy":
            raise Error(f"The input {name} is a NumPy array. Pass torch.from_numpy(array).", "bad_argument")
    for weight in weights_of(torch, module, ()).values():
        if weight.role == "weight":
            dtype_of(weight.tensor, weight.what)
    return args, kwargs


def _run(torch, module, args, kwargs):
    """Returns the outputs of PyTorch."""
    try:
        with torch.no_grad():
            return module(*args, **kwargs)
    except Exception as error:
        raise Error(f"forward() of the module {type(module).__name__} fails on the example inputs: {type(error).__name__}: {_first_lines(error)}",
                    "bad_argument") from error


def _first_lines(error):
    """The lines of a message of PyTorch that say what is wrong."""
    lines = [line.strip(" -") for line in str(error).split("The error above occurred")[0].splitlines()]
    lines = [re.sub(r" ?For more information.*", "", line) for line in lines if line]
    return " ".join([line for line in lines if line][:3])[:400] or type(error).__name__


def _export(torch, module, args, kwargs, dynamic_shapes):
    from bowline._torch_operators import KEPT

    table = torch.export.default_decompositions()
    for op in list(table):
        if str(op).split(".")[:2][-1] in KEPT:
            del table[op]
    try:
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes, strict=False)
            _keep_dropout(torch, program)
            return program.run_decompositions(table)
    except Exception as error:
        constant = "specialized it to be a constant (1)" in str(error)
        raise Error(f"torch.export cannot export the module {type(module).__name__}: {_first_lines(error)} "
                    + ("Pass example inputs whose dynamic dimensions have a size of at least 2. " if constant else "") + "Call torch.export.export() with the same arguments to see the whole message.", "bad_argument") from error


def _keep_dropout(torch, program):
    """Replaces dropout, which decompositions would remove, by an operator that they keep."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if str(node.target) != "aten.dropout.default":
            continue
        with graph.inserting_before(node):
            kept = graph.call_function(torch.ops.aten.native_dropout.default, (node.args[0], node.args[1], False))
            result = graph.call_function(operator.getitem, (kept, 0))
        for new in (kept, result):
            new.meta.update({k: v for k, v in node.meta.items() if k in ("nn_module_stack", "stack_trace")})
        kept.meta["val"] = (node.meta["val"], node.meta["val"])
        result.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    program.graph_module.recompile()


def _leaf_specs(value, spec):
    """Returns the entry of dynamic_shapes for each value in nested dicts, lists and tuples."""
    if isinstance(value, dict):
        parts = [(v, spec.get(k) if isinstance(spec, dict) else None) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(v, spec[i] if isinstance(spec, (list, tuple)) and i < len(spec) else None) for i, v in enumerate(value)]
    else:
        return [spec]
    return [leaf for v, s in parts for leaf in _leaf_specs(v, s)]


def _dim_names(torch, program, placeholders, args, kwargs, dynamic_shapes):
    """Returns the name of each symbol in shapes: that of its Dim, or of the input and axis."""
    names = {}
    flat = []
    parameters = list(inspect.signature(program.module().forward).parameters) if args else list(kwargs)
    for i, value in enumerate(args or kwargs.values()):
        if isinstance(dynamic_shapes, dict):
            spec = dynamic_shapes.get(parameters[min(i, len(parameters) - 1)])
        else:
            spec = dynamic_shapes[i] if dynamic_shapes and i < len(dynamic_shapes) else None
        flat += _leaf_specs(value, spec)
    for (node, _), spec in zip(placeholders, flat):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                continue
            dim = spec.get(axis) if isinstance(spec, dict) else spec[axis] if isinstance(spec, (tuple, list)) and axis < len(spec) else None
            name = getattr(dim, "__name__", None)
            symbols = size.node.expr.free_symbols
            if len(symbols) == 1 and size.node.expr == next(iter(symbols)):
                fallback = f"{node.name}_{axis}"
                known = names.get(size.node.expr)
                if known is None or (name and known[1]):
                    names[size.node.expr] = (name or fallback, name is None)
    return {symbol: name for symbol, (name, _) in names.items()}


class Walk:
    """Adds the nodes of an exported graph to a GraphBuilder."""

    def __init__(self, torch, model, entry, names, limits, handles, dropout, place_of):
        self.torch = torch
        self.model = model
        self.entry = entry
        self.dropout = dropout
        self.notes = []
        self._names = names
        self._limits = limits
        self._handles = handles
        self._values = {}
        self._constants = {}
        self._streams = 0
        self._place_of = place_of
        self._node = None
        self._graph = _bowline.GraphBuilder(model, entry)

    # What operators use.

    def op(self, name, inputs, **attributes):
        if name == "Reshape":
            attributes["dims"] = self._with_inferred(attributes["dims"])
        module = self._place_of(self._node)[0]
        return self._graph.op(name, inputs, node=f"{module}.{self._node.name}" if module else self._node.name, **attributes)

    def last_outputs(self):
        return self._graph.last_outputs()

    def note(self, sentence):
        if sentence not in self.notes:
            self.notes.append(sentence)

    def next_stream(self):
        self._streams += 1
        return self._streams - 1

    def need(self, condition, node, reason):
        """Refuses a node whose arguments have no counterpart."""
        if not condition:
            raise Error(f"The operator {node.target} of PyTorch cannot be imported: {reason}. {self.call_of(node)} Change this line.", "unsupported")

    def call_of(self, node):
        """A sentence with the module and the line of a node."""
        module, kind, line = self._place_of(node)
        where = f'The module "{module}" ({kind})' if module else f"The module {kind}" if kind else "The module"
        return f"{where} calls it" + (f" in {line}." if line else ".")

    def is_graph_value(self, x):
        return isinstance(x, self.torch.fx.Node) and not isinstance(self._values.get(x), self.torch.Tensor)

    def rank(self, x):
        return self._meta(x).dim() if not isinstance(x, (int, float, bool)) else 0

    def dtype(self, x):
        from bowline._torch_weights import dtype_of

        return dtype_of(self._meta(x), f"A value near the operator {self._node.target} ({self._place_of(self._node)[2]})")

    def dims_of(self, meta):
        """The sizes of a tensor: numbers, names of dimensions, or None for a formula of names."""
        out = []
        for size in meta.shape:
            if isinstance(size, int):
                out.append(size)
                continue
            expr = size.node.expr
            out.append(int(expr) if expr.is_number else self._names.get(expr))
        return out

    def dims(self, x):
        return self.dims_of(self._meta(x))

    def limit(self, size):
        return size if isinstance(size, int) else self._limits.get(size, (1, None))[1]

    def reshape(self, value, node):
        """Reshapes a value to the shape of the node."""
        return self.op("Reshape", [value], dims=self.dims(node))

    def _with_inferred(self, dims):
        """Reshape infers one size. Bowline has no formulas of dimensions."""
        self.need(dims.count(None) <= 1, self._node, "a shape has several products or sums of dynamic dimensions")
        return [-1 if d is None else d for d in dims]

    def flat(self, value, size):
        return self.op("Reshape", [value], dims=[size])

    def shaped(self, value, node):
        """Repeats a value to the shape of the node, by the rules of NumPy."""
        dims = self.dims(node)
        self.need(None not in dims, node, f"its shape {list(self._meta(node).shape)} has products or sums of dynamic dimensions")
        return self.op("Expand", [value], dims=dims) if dims else value

    def value(self, x, dtype=None):
        """Returns the Value of an argument, converted to dtype."""
        torch = self.torch
        if isinstance(x, (bool, int, float)):
            return self._constant_of(torch.tensor(x), dtype or ("bool" if isinstance(x, bool) else "i32" if isinstance(x, int) else "f32"))
        if not isinstance(x, torch.fx.Node) or not isinstance(x.meta.get("val"), torch.Tensor):
            raise Error(f"The operator {self._node.target} of PyTorch cannot be imported: an argument is the size of a dynamic dimension. "
                        f"{self.call_of(self._node)} Pass the value as an input.", "unsupported")
        if x not in self._values:
            self._add_late(x)
        known = self._values[x]
        if isinstance(known, torch.Tensor):
            return self._constant_of(known, dtype)
        if dtype is None or dtype == self.dtype(x):
            return known
        return self.op("Cast", [known], to="boolean" if dtype == "bool" else dtype)

    def like(self, x, node):
        """Returns the Value of an argument in the dtype of the node."""
        return self.value(x, self.dtype(node))

    def as_bool(self, x, node):
        return self.value(x, "bool")

    def common_dtype(self, arguments):
        """The dtype in which PyTorch compares two arguments."""
        metas = [a if isinstance(a, (bool, int, float)) else self._meta(a) for a in arguments]
        return self._bowline_dtype(self.torch.result_type(*metas))

    def scalar(self, number, node):
        """A constant in the dtype of the node."""
        return self._constant_of(self.torch.tensor(number), self.dtype(node))

    def filled(self, number, shape, node):
        return self._constant_of(self.torch.full(shape, float(number)), self.dtype(node))

    def constant(self, tensor):
        return self._constant_of(tensor, None)

    # What the import uses.

    def add_input(self, node, dtype, dims):
        self._values[node] = self._graph.input(node.name, dtype, dims)

    def add_weight(self, node, name):
        self._values[node] = self._graph.parameter(self._handles[name])

    def add_constant(self, node, tensor):
        self._values[node] = tensor

    def add(self, node):
        """Adds a node that calls an operator."""
        from bowline import _torch_images, _torch_shapes  # noqa: F401, register operators
        from bowline._torch_operators import OPERATORS, PERMUTATIONS

        torch = self.torch
        self._node = node
        if str(node.target).startswith("<built-in function getitem"):
            self._values[node] = self._values[node.args[0]][node.args[1]]
            return
        result = node.meta.get("val")
        if not isinstance(result, (torch.Tensor, list, tuple)):
            return  # A size, or a check of sizes.
        if self._is_constant(node):
            arguments = torch.fx.map_arg((node.args, node.kwargs), lambda n: self._values[n])
            with torch.no_grad():
                self._values[node] = node.target(*arguments[0], **dict(arguments[1], **({"device": "cpu"} if "device" in node.kwargs else {})))
            return
        function = OPERATORS.get(str(node.target))
        if function is None:
            raise Error(f"The operator {node.target} of PyTorch has no counterpart in Bowline. {self.call_of(node)} Write this line with other operators, "
                        "or compute it outside of the module and pass the result as an input.", "unsupported")
        # MatMul can transpose its inputs, so many transposes are never needed.
        if str(node.target) not in PERMUTATIONS:
            self._values[node] = function(self, node)

    def _add_late(self, node):
        """Adds a transpose that an operator needs."""
        from bowline._torch_operators import OPERATORS

        reader = self._node
        self._node = node
        self._values[node] = OPERATORS[str(node.target)](self, node)
        self._node = reader

    def add_output(self, name, node):
        self._node = node
        self._graph.output(name, self.value(node))

    def finish(self):
        self._graph.finish()

    def _meta(self, x):
        return x.meta["val"]

    def _bowline_dtype(self, dtype):
        from bowline._torch_weights import dtype_of

        return dtype_of(self.torch.empty(0, dtype=dtype), f"An argument of the operator {self._node.target}")

    def _is_constant(self, node):
        """Whether a node reads only constants and has a fixed size. PyTorch then computes it."""
        torch = self.torch
        if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in node.target.tags:
            return False
        results = node.meta["val"] if isinstance(node.meta["val"], (list, tuple)) else [node.meta["val"]]
        return (all(isinstance(self._values.get(n), torch.Tensor) for n in node.all_input_nodes)
                and all(isinstance(size, int) for r in results for size in r.shape))

    def _constant_of(self, tensor, dtype):
        """Returns the value of a constant. Equal constants are one parameter."""
        from bowline._torch_weights import DTYPES, dtype_of, values_of

        torch = self.torch
        if dtype is not None:
            tensor = tensor.to(next(getattr(torch, name[6:]) for name, d in DTYPES.items() if d == dtype))
        values = values_of(torch, tensor, "A constant")
        key = (str(values.dtype), tuple(values.shape), values.view(torch.uint8).numpy().tobytes() if values.dim() else values.item().__repr__())
        if key not in self._constants:
            number = 0
            while f"{self.entry}.constant_{number}" in self.model.parameters:
                number += 1
            name = f"{self.entry}.constant_{number}"
            handle = self.model.parameter(name, list(values.shape), role="constant", dtype=dtype_of(values, "A constant"))
            self.model[name] = values
            self._constants[key] = self._graph.parameter(handle)
        return self._constants[key]


def _place_of(node):
    """Returns the path and class of the module that calls a node, and its line."""
    module, kind, line = "", "", ""
    stack = node.meta.get("nn_module_stack") or {}
    for path, owner in stack.values():
        module = path
        kind = (owner if isinstance(owner, str) else owner.__name__).split(".")[-1]
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', node.meta.get("stack_trace") or "")
    # The line of the user says more than the line in PyTorch that it calls.
    frames = [f for f in frames if "/torch/" not in f[0]] or frames
    if frames:
        file, number, _, code = frames[-1]
        line = f"{file.split('/')[-1]}, line {number}" + (f" (`{code.strip()}`)" if code.strip() else "")
    return module, kind, line


def _output_names(torch, outputs):
    """Returns the names of the tensors that forward() returns: keys, members or numbers."""
    pairs, _ = torch.utils._pytree.tree_flatten_with_path(outputs)
    if len(pairs) == 1 and not pairs[0][0]:
        return ["output"]
    out = []
    for path, _ in pairs:
        parts = [str(next(getattr(k, a) for a in ("key", "name", "idx") if hasattr(k, a))) for k in path]
        out.append("output_" + "_".join(parts) if parts[0].isdigit() else "_".join(parts))
    return out


def _bounds(constraint):
    """The limits of a dimension. None: there is no maximum."""

    def number(bound):
        try:
            return int(bound)
        except (AttributeError, OverflowError, TypeError, ValueError):
            return None  # infinite

    low, high = (number(constraint.lower), number(constraint.upper)) if constraint is not None else (None, None)
    # torch.export assumes sizes of at least 2, but the graph is right for 1, too.
    return 1 if low is None or low <= 2 else low, None if high is None or high >= 1 << 31 else high


def _build(torch, module, program, args, kwargs, dynamic_shapes, expected, entry, given, dropout, tolerance):
    from bowline._torch_weights import declare, dtype_of, weights_of

    signature = program.graph_signature
    kinds = torch.export.graph_signature.InputKind
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    reads, constants, inputs = {}, {}, []
    for spec in signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind in (kinds.PARAMETER, kinds.BUFFER):
            reads[node] = spec.target
        elif spec.kind == kinds.CONSTANT_TENSOR:
            constants[node] = program.constants[spec.target]
        elif spec.kind == kinds.USER_INPUT:
            inputs.append((node, spec))
        else:
            raise Error(f"The module {type(module).__name__} has an input of the kind {spec.kind.name}, which Bowline does not have.", "unsupported")
    for spec in signature.output_specs:
        if spec.kind.name != "USER_OUTPUT" and spec.kind.name != "LOSS_OUTPUT":
            raise Error(f'forward() of the module {type(module).__name__} changes "{spec.target}". A graph of Bowline has no state of this kind. '
                        "Return the new value as an output, and pass it as an input.", "unsupported")

    used = {target for node, target in reads.items() if node.users}
    statistics = set()
    for node in program.graph.nodes:
        if str(node.target) == "aten._native_batch_norm_legit_no_training.default":
            statistics.update(reads[n] for n in node.args[3:5] if n in reads)
    weights = weights_of(torch, module, statistics)
    model = _bowline.Model() if given is None else given
    handles, unused = declare(torch, model, weights, used)

    names = _dim_names(torch, program, inputs, args, kwargs, dynamic_shapes)
    limits = {}
    for symbol, name in names.items():
        low, high = _bounds(program.range_constraints.get(symbol))
        limits[name] = (low, high)
        model.set_dim_limits(name, min=low, **({} if high is None else {"max": high}))

    walk = Walk(torch, model, entry, names, limits, handles, dropout, _place_of)
    report = {"format": "PyTorch", "entry": entry, "inputs": [], "outputs": []}
    for node, _ in inputs:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        dtype, dims = dtype_of(value, f"The input {node.name}"), walk.dims_of(value)
        if None in dims:
            raise Error(f"The shape {list(value.shape)} of the input {node.name} has a formula of dynamic dimensions. "
                        "Give each axis a torch.export.Dim of its own, or a fixed size.", "unsupported")
        walk.add_input(node, dtype, dims)
        report["inputs"].append({"name": node.name, "dtype": dtype, "shape": dims})
        if value.dtype == torch.int64:
            walk.note("Integers of 64 bits are i32 in Bowline.")
    for node, target in reads.items():
        if node.users and target in handles:
            walk.add_weight(node, target)
    for node, tensor in constants.items():
        walk.add_constant(node, tensor)
    for node in program.graph.nodes:
        if node.op == "call_function":
            walk.add(node)
        elif node.op == "output":
            results = [n for n in node.args[0] if isinstance(n, torch.fx.Node)]
    for name, node in zip(_output_names(torch, expected), results):
        walk.add_output(name, node)
        report["outputs"].append({"name": name, "dtype": walk.dtype(node), "shape": walk.dims(node)})
    walk.finish()

    if tolerance is None:
        small = any(str(w.tensor.dtype) in ("torch.float16", "torch.bfloat16") for w in weights.values())
        tolerance = 0.03 if small else 1e-4
    report["ties"] = [tie for tie in model.ties.values() if set(tie) & set(handles)]
    report["unused"] = unused
    report["max_error"] = _check(torch, model, given, handles, weights, entry, report, args, kwargs, expected, tolerance)
    report["tolerance"] = tolerance
    report["notes"] = walk.notes
    return ImportedTorch(model, report)


def _check(torch, model, given, handles, weights, entry, report, args, kwargs, expected, tolerance):
    """Runs the entry point on the example inputs. Returns the largest difference of each output."""
    from bowline._torch_weights import values_of

    leaves = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    arrays, dims = {}, {}
    for described, tensor in zip(report["inputs"], leaves):
        arrays[described["name"]] = values_of(torch, tensor, f"The input {described['name']}")
        dims.update({d: tensor.shape[i] for i, d in enumerate(described["shape"]) if isinstance(d, str)})
    device = _bowline.Device("cpu")
    # A given model may be on another device, or trained.
    checked = model
    if given is not None:
        checked = model.clone()
        for name in handles:
            checked[name] = values_of(torch, weights[name].tensor, weights[name].what)
    checked.to(device)
    got = _bowline.Session(checked, device, entry, dims).run(arrays)
    errors = {}
    for described, tensor in zip(report["outputs"], torch.utils._pytree.tree_leaves(expected)):
        name = described["name"]
        theirs = tensor.detach().cpu().to(torch.float64)
        ours = torch.from_numpy(got[name]).to(torch.float64)
        if ours.shape != theirs.shape:
            raise Error(f'The output "{name}" has the shape {list(ours.shape)}, and {list(theirs.shape)} in PyTorch. Please report this as a bug.', "internal")
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        difference = torch.where(same, 0.0, (ours - theirs).abs())
        error = difference.max().item() if difference.numel() else 0.0
        finite = theirs[theirs.isfinite()].abs()
        largest = max(1.0, finite.max().item()) if finite.numel() else 1.0
        errors[name] = error
        if math.isnan(error) or error > tolerance * largest:
            raise Error(f'The output "{name}" differs from PyTorch by {error:.3g} on the example inputs. The tolerance {tolerance:.3g} allows '
                        f"{tolerance * largest:.3g}. If the module amplifies rounding errors, pass a larger tolerance. Otherwise, please report "
                        "this as a bug.", "internal")
    return errors
