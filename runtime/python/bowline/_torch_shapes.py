"""Operators of PyTorch for shapes, reductions and losses. See _torch_operators.py."""

import math

from bowline._torch_operators import OPERATORS, Arguments, axes_of, operator, permutation_of

# Shapes.


@operator("view.default", "reshape.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims",
          "flatten.using_ints", "unflatten.int")
def reshape(walk, node):
    return walk.reshape(walk.value(node.args[0]), node)


@operator("permute.default", "transpose.int", "t.default")
def permute(walk, node):
    rank, x = walk.rank(node), walk.value(node.args[0])
    order = permutation_of(node, rank) if rank > 1 else list(range(rank))
    return x if order == list(range(rank)) else walk.op("Transpose", [x], permutation=order)


@operator("expand.default")
def expand(walk, node):
    return walk.shaped(walk.value(node.args[0]), node)


@operator("slice.Tensor")
def slice_(walk, node):
    a = Arguments(node)
    x, before, after = walk.value(a.self), walk.dims(a.self), walk.dims(node)
    axis = a.dim % len(before)
    size = before[axis]
    start = 0 if a.start is None else a.start
    walk.need(isinstance(start, int) and isinstance(a.step, int), node, "start and step must be numbers, not sizes of dynamic dimensions")
    if isinstance(size, int):
        start = max(start + size, 0) if start < 0 else min(start, size)
    walk.need(start >= 0, node, f"start ({start}) counts from the end of a dynamic dimension")
    if a.step != 1:
        walk.need(isinstance(after[axis], int), node, f"the step {a.step} needs an axis of fixed size")
        places = [start + a.step * i for i in range(after[axis])]
        return walk.op("Gather", [x, walk.constant(walk.torch.tensor(places, dtype=walk.torch.int32))], axis=axis)
    if before == after:
        return x
    walk.need(after[axis] is not None, node, "the length is a product or sum of dynamic dimensions")
    return walk.op("Slice", [x], axis=axis, start=start, length=after[axis])


@operator("slice_scatter.default")
def slice_scatter(walk, node):
    """A copy of a tensor with other values in a slice."""
    a, dims = Arguments(node), walk.dims(node)
    axis = a.dim % len(dims)
    walk.need(isinstance(dims[axis], int) and a.step == 1, node, "the axis needs a fixed size and the step 1")
    start, end, _ = slice(a.start, a.end).indices(dims[axis])
    whole = walk.like(a.self, node)
    parts = [walk.op("Slice", [whole], axis=axis, start=0, length=start)] if start else []
    parts.append(walk.like(a.src, node))
    if end < dims[axis]:
        parts.append(walk.op("Slice", [whole], axis=axis, start=end, length=dims[axis] - end))
    return walk.op("Concat", parts, axis=axis) if len(parts) > 1 else parts[0]


@operator("select.int")
def select(walk, node):
    a = Arguments(node)
    walk.need(isinstance(a.index, int), node, "the index must be a number, not the size of a dynamic dimension")
    x, dims = walk.value(a.self), walk.dims(a.self)
    axis, index = a.dim % len(dims), a.index
    if index < 0 and not isinstance(dims[axis], int):
        return walk.op("Gather", [x, walk.constant(walk.torch.tensor(index, dtype=walk.torch.int32))], axis=axis)
    index += dims[axis] if index < 0 else 0
    return walk.reshape(walk.op("Slice", [x], axis=axis, start=index, length=1), node)


@operator("cat.default")
def cat(walk, node):
    a = Arguments(node)
    parts = [x for x in a.tensors if walk.rank(x) == walk.rank(node)]
    return walk.op("Concat", [walk.like(x, node) for x in parts], axis=a.dim % walk.rank(node))


@operator("stack.default")
def stack(walk, node):
    a = Arguments(node)
    axis, dims = a.dim % walk.rank(node), walk.dims(a.tensors[0])
    dims.insert(axis, 1)
    return walk.op("Concat", [walk.op("Reshape", [walk.like(x, node)], dims=dims) for x in a.tensors], axis=axis)


@operator("split_with_sizes.default", "split.Tensor", "chunk.default", "unbind.int")
def split(walk, node):
    a = Arguments(node)
    rank = walk.rank(a.self)
    axis = a.dim % rank
    each = str(node.target) == "aten.unbind.int"
    sizes = [1 if each else size for size in (walk.dims_of(v)[axis] if not each else 1 for v in node.meta["val"])]
    walk.need(all(isinstance(size, int) for size in sizes), node, "the sizes must not be dynamic")
    if len(sizes) == 1:
        parts = [walk.value(a.self)]
    else:
        walk.op("Split", [walk.value(a.self)], axis=axis, sizes=sizes)
        parts = walk.last_outputs()
    return [walk.op("Reshape", [p], dims=walk.dims_of(v)) for p, v in zip(parts, node.meta["val"])] if each else parts


@operator("repeat.default")
def repeat(walk, node):
    x, counts = walk.value(node.args[0]), node.args[1]
    walk.need(all(isinstance(n, int) for n in counts), node, "the counts must be numbers")
    extra = len(counts) - walk.rank(node.args[0])
    if extra:
        x = walk.op("Reshape", [x], dims=[1] * extra + walk.dims(node.args[0]))
    return walk.op("Tile", [x], repeats=list(counts))


@operator("flip.default")
def flip(walk, node):
    y, dims = walk.value(node.args[0]), walk.dims(node)
    for axis in axes_of(node.args[1], len(dims)):
        walk.need(isinstance(dims[axis], int), node, "the size of a flipped axis must not be dynamic")
        y = walk.op("Gather", [y, walk.constant(walk.torch.arange(dims[axis] - 1, -1, -1))], axis=axis)
    return y


@operator("index.Tensor")
def index(walk, node):
    x, places = node.args
    given = [(axis, p) for axis, p in enumerate(places) if p is not None]
    walk.need(len(given) == 1, node, "only one axis can be indexed with a tensor")
    walk.need(walk.dtype(given[0][1]) == "i32", node, "the index must be a tensor of integers")
    return walk.op("Gather", [walk.value(x), walk.value(given[0][1])], axis=given[0][0])


@operator("index_select.default")
def index_select(walk, node):
    x, axis, places = node.args
    return walk.op("Gather", [walk.value(x), walk.value(places)], axis=axis % walk.rank(x))


@operator("gather.default")
def gather(walk, node):
    x, axis, places = node.args[:3]
    walk.need(all(a == b for i, (a, b) in enumerate(zip(walk.dims(x), walk.dims(places))) if i != axis % walk.rank(x)), node,
              "the index must have the size of the input on all other axes")
    return walk.op("GatherElements", [walk.value(x), walk.value(places)], axis=axis % walk.rank(x))


@operator("arange.start_step", "arange.default", "arange.start")
def arange(walk, node):
    a = Arguments(node)
    start, step = a.get("start", 0), a.get("step", 1)
    walk.need(start == 0 and step == 1, node, "a range over a dynamic dimension must begin at 0, with step 1")
    [size] = walk.dims(node)
    limit = walk.limit(size)
    walk.need(limit is not None and limit <= 1 << 20, node,
              f'the dimension "{size}" needs a maximum, such as torch.export.Dim("{size}", max=1024)')
    return walk.op("Slice", [walk.constant(walk.torch.arange(limit, dtype=node.meta["val"].dtype))], axis=0, start=0, length=size)


def filled(value):
    def function(walk, node):
        a = Arguments(node)
        return walk.shaped(walk.scalar(a.fill_value if value is None else value, node), node)

    return function


for aten, value in {"full": None, "full_like": None, "zeros": 0, "zeros_like": 0, "ones": 1, "ones_like": 1}.items():
    OPERATORS[f"aten.{aten}.default"] = filled(value)


# Reductions.


def reduction(name):
    def function(walk, node):
        a = Arguments(node)
        rank, x = walk.rank(node.args[0]), walk.like(node.args[0], node)
        axes = axes_of(a.get("dim"), rank)
        return walk.op(name, [x], axes=axes, keep_dims=bool(a.get("keepdim"))) if rank else x

    return function


for aten, name in {
    "sum.default": "ReduceSum", "sum.dim_IntList": "ReduceSum", "mean.default": "ReduceMean", "mean.dim": "ReduceMean",
    "amax.default": "ReduceMax", "amin.default": "ReduceMin", "max.default": "ReduceMax", "min.default": "ReduceMin",
    "prod.default": "ReduceProd", "prod.dim_int": "ReduceProd",
}.items():
    OPERATORS[f"aten.{aten}"] = reduction(name)


@operator("var.correction", "var.dim", "var.default", "std.correction")
def variance(walk, node):
    a = Arguments(node)
    x, dims = walk.value(a.self), walk.dims(a.self)
    axes = axes_of(a.get("dim"), len(dims))
    correction = a.get("correction")
    correction = (1 if a.get("unbiased", True) else 0) if correction is None else correction
    centred = walk.op("Sub", [x, walk.op("ReduceMean", [x], axes=axes, keep_dims=True)])
    y = walk.op("ReduceMean", [walk.op("Square", [centred])], axes=axes, keep_dims=bool(a.get("keepdim")))
    if correction:
        sizes = [dims[axis] for axis in axes]
        walk.need(all(isinstance(size, int) for size in sizes), node, "over a dynamic dimension, correction must be 0")
        count = math.prod(sizes)
        walk.need(count > correction, node, f"{count} elements are too few for the correction {correction}")
        y = walk.op("Mul", [y, walk.scalar(count / (count - correction), node)])
    return walk.op("Sqrt", [y]) if "std" in str(node.target) else y


def position_of_extreme(name):
    def function(walk, node):
        a = Arguments(node)
        walk.need(a.dim is not None, node, "dim must be given")
        return walk.op(name, [walk.value(a.self)], axis=a.dim % walk.rank(a.self), keep_dims=bool(a.keepdim))

    return function


OPERATORS["aten.argmax.default"] = position_of_extreme("ArgMax")
OPERATORS["aten.argmin.default"] = position_of_extreme("ArgMin")


def extreme_and_position(reduce, find):
    def function(walk, node):
        a = Arguments(node)
        x, axis, keep = walk.value(a.self), a.dim % walk.rank(a.self), bool(a.keepdim)
        return [walk.op(reduce, [x], axes=[axis], keep_dims=keep), walk.op(find, [x], axis=axis, keep_dims=keep)]

    return function


OPERATORS["aten.max.dim"] = extreme_and_position("ReduceMax", "ArgMax")
OPERATORS["aten.min.dim"] = extreme_and_position("ReduceMin", "ArgMin")


@operator("cumsum.default")
def cumsum(walk, node):
    return walk.op("CumSum", [walk.like(node.args[0], node)], axis=node.args[1] % walk.rank(node))


@operator("topk.default")
def topk(walk, node):
    a = Arguments(node)
    walk.need(isinstance(a.k, int), node, "k must be a number")
    walk.op("TopK", [walk.value(a.self)], k=a.k, axis=a.dim % walk.rank(a.self), largest=bool(a.largest))
    return walk.last_outputs()


# Losses. The number is the reduction of PyTorch.

REDUCTIONS = ["none", "mean", "sum"]


@operator("cross_entropy_loss.default")
def cross_entropy(walk, node):
    a = Arguments(node)
    walk.need(a.weight is None, node, "weight must be None")
    walk.need(walk.dtype(a.target) == "i32", node, "the target must hold the indices of classes")
    x, rank = walk.value(a.self), walk.rank(a.self)
    if rank > 2:
        x = walk.op("Transpose", [x], permutation=[0, *range(2, rank), 1])
    return walk.op("CrossEntropy", [x, walk.value(a.target)], ignore_index=a.ignore_index, reduction=REDUCTIONS[a.reduction],
                   label_smoothing=float(a.label_smoothing))


def loss(name):
    def function(walk, node):
        a = Arguments(node)
        if name == "BinaryCrossEntropy":
            walk.need(a.weight is None and a.pos_weight is None, node, "weight and pos_weight must be None")
        walk.need(walk.dims(a.self) == walk.dims(a.target), node, "input and target must have the same shape")
        attributes = {"reduction": REDUCTIONS[a.reduction]}
        if name == "Huber":
            attributes["delta"] = float(a.get("beta", a.get("delta")))
        y = walk.op(name, [walk.value(a.self), walk.value(a.target, walk.dtype(a.self))], **attributes)
        if str(node.target).startswith("aten.smooth_l1_loss"):
            y = walk.op("Mul", [y, walk.scalar(1 / a.beta, node)])
        return y

    return function


for aten, name in {"mse_loss": "MeanSquaredError", "huber_loss": "Huber", "smooth_l1_loss": "Huber",
                   "binary_cross_entropy_with_logits": "BinaryCrossEntropy"}.items():
    OPERATORS[f"aten.{aten}.default"] = loss(name)
