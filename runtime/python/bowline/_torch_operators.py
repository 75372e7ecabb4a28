"""Operators of PyTorch (ATen) as operators of Bowline.

OPERATORS maps the name of an ATen operator to a function. It gets the Walk and the node of the
graph, and returns the Value of the result, or a list of Values if the operator has several results.
The result must have the shape of the node, and its dtype as _torch_weights.DTYPES says.
"""

import math

# Operators that torch.export must not decompose, because Bowline has one operator for each.
KEPT = [
    "cross_entropy_loss", "group_norm", "instance_norm", "layer_norm", "linear",
    "matmul", "native_dropout", "rms_norm", "scaled_dot_product_attention", "silu", "softplus", "hardswish", "leaky_relu", "elu", "huber_loss",
    "smooth_l1_loss", "mse_loss", "binary_cross_entropy_with_logits",
]
# How PyTorch interpolates, by operator: the mode of torch.nn.functional.interpolate() for one axis.
INTERPOLATIONS = {
    **{f"upsample_nearest{rank}d": "nearest" for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": "nearest-exact" for rank in (1, 2, 3)},
    "upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear", "upsample_bicubic2d": "bicubic",
}
KEPT += INTERPOLATIONS

PERMUTATIONS = ("aten.permute.default", "aten.transpose.int", "aten.t.default")

OPERATORS = {}


def operator(*names):
    def add(function):
        for name in names:
            OPERATORS[f"aten.{name}"] = function
        return function

    return add


class Arguments:
    """The arguments of a node by name. An argument that the node does not give has its default."""

    def __init__(self, node):
        self._values = {}
        for i, argument in enumerate(node.target._schema.arguments):
            if i < len(node.args):
                value = node.args[i]
            else:
                value = node.kwargs.get(argument.name, argument.default_value)
            self._values[argument.name] = value

    def __getattr__(self, name):
        return self._values[name]

    def get(self, name, default=None):
        return self._values.get(name, default)


def axes_of(axes, rank):
    axes = list(range(rank)) if axes is None or axes == [] else [axes] if isinstance(axes, int) else list(axes)
    return sorted(axis % rank for axis in axes) if rank else []


# Elementwise operators.


def unary(name, **attributes):
    def function(walk, node):
        return walk.op(name, [walk.like(node.args[0], node)], **attributes)

    return function


for aten, name in {
    "relu": "Relu", "silu": "Silu", "tanh": "Tanh", "sigmoid": "Sigmoid", "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log",
    "sqrt": "Sqrt", "rsqrt": "Rsqrt", "sin": "Sin", "cos": "Cos", "erf": "Erf", "floor": "Floor", "round": "Round", "sign": "Sign",
    "hardswish": "HardSwish",
}.items():
    OPERATORS[f"aten.{aten}.default"] = unary(name)
OPERATORS["aten.relu6.default"] = unary("Clip", min=0.0, max=6.0)


@operator("gelu.default")
def gelu(walk, node):
    return walk.op("Gelu", [walk.value(node.args[0])], form="tanh" if Arguments(node).approximate == "tanh" else "erf")


@operator("leaky_relu.default")
def leaky_relu(walk, node):
    return walk.op("LeakyRelu", [walk.value(node.args[0])], alpha=float(Arguments(node).negative_slope))


def scaled(walk, value, factor, node):
    return value if factor == 1 else walk.op("Mul", [value, walk.scalar(factor, node)])


@operator("elu.default")
def elu(walk, node):
    a = Arguments(node)
    walk.need(a.input_scale == 1, node, "input_scale must be 1")
    return scaled(walk, walk.op("Elu", [walk.value(a.self)], alpha=float(a.alpha)), a.scale, node)


@operator("softplus.default")
def softplus(walk, node):
    a = Arguments(node)
    x = walk.value(a.self)
    times = scaled(walk, x, a.beta, node)
    y = scaled(walk, walk.op("Softplus", [times]), 1 / a.beta, node)
    # From 20 on, x and softplus(x) are the same in f32.
    return y if a.threshold >= 20 else walk.op("Where", [walk.op("Greater", [times, walk.scalar(a.threshold, node)]), x, y])


@operator("log1p.default")
def log1p(walk, node):
    """log(u) + (x - (u - 1)) / u with u = 1 + x: the last term is the rounding error of u."""
    x, one = walk.like(node.args[0], node), walk.scalar(1, node)
    u = walk.op("Add", [x, one])
    lost = walk.op("Sub", [x, walk.op("Sub", [u, one])])
    # At x = -1, u is 0 and the result -infinity.
    tiny = walk.scalar(walk.torch.finfo(node.meta["val"].dtype).tiny, node)
    return walk.op("Add", [walk.op("Log", [u]), walk.op("Div", [lost, walk.op("Max", [u, tiny])])])


@operator("expm1.default")
def expm1(walk, node):
    """tanh(x / 2) (exp(x) + 1), which is exact near 0."""
    x = walk.like(node.args[0], node)
    half = walk.op("Tanh", [walk.op("Mul", [x, walk.scalar(0.5, node)])])
    return walk.op("Mul", [half, walk.op("Add", [walk.op("Exp", [x]), walk.scalar(1, node)])])


@operator("exp2.default")
def exp2(walk, node):
    return walk.op("Exp", [scaled(walk, walk.like(node.args[0], node), math.log(2), node)])


@operator("log2.default", "log10.default")
def log_of_base(walk, node):
    factor = 1 / math.log(2 if str(node.target) == "aten.log2.default" else 10)
    return scaled(walk, walk.op("Log", [walk.like(node.args[0], node)]), factor, node)


@operator("tan.default")
def tan(walk, node):
    x = walk.like(node.args[0], node)
    return walk.op("Div", [walk.op("Sin", [x]), walk.op("Cos", [x])])


@operator("ceil.default")
def ceil(walk, node):
    return walk.op("Neg", [walk.op("Floor", [walk.op("Neg", [walk.like(node.args[0], node)])])])


def truncated(walk, x):
    return walk.op("Mul", [walk.op("Sign", [x]), walk.op("Floor", [walk.op("Abs", [x])])])


@operator("trunc.default")
def trunc(walk, node):
    return truncated(walk, walk.like(node.args[0], node))


@operator("remainder.Scalar", "remainder.Tensor", "fmod.Scalar", "fmod.Tensor")
def remainder(walk, node):
    """The remainder has the sign of the divisor, and that of fmod the sign of x."""
    walk.need(walk.dtype(node) in ("f32", "f16", "bf16"), node, "only floats are divided")
    x, y = walk.like(node.args[0], node), walk.like(node.args[1], node)
    quotient = walk.op("Div", [x, y])
    whole = truncated(walk, quotient) if "fmod" in str(node.target) else walk.op("Floor", [quotient])
    return walk.op("Sub", [x, walk.op("Mul", [whole, y])])


@operator("isnan.default")
def isnan(walk, node):
    x = walk.value(node.args[0])
    return walk.op("NotEqual", [x, x])


@operator("isinf.default")
def isinf(walk, node):
    x = walk.value(node.args[0])
    return walk.op("Equal", [walk.op("Abs", [x]), walk.value(math.inf, walk.dtype(node.args[0]))])


@operator("clamp.default", "hardtanh.default", "clamp_min.default")
def clamp(walk, node):
    a = Arguments(node)
    low, high = a.get("min", a.get("min_val")), a.get("max", a.get("max_val"))
    return walk.op("Clip", [walk.like(a.self, node)], min=-math.inf if low is None else float(low),
                   max=math.inf if high is None else float(high))


@operator("reciprocal.default")
def reciprocal(walk, node):
    return walk.op("Div", [walk.scalar(1, node), walk.like(node.args[0], node)])


@operator("logical_not.default", "bitwise_not.default")
def logical_not(walk, node):
    return walk.op("Not", [walk.as_bool(node.args[0], node)])


@operator("pow.Tensor_Scalar")
def pow_scalar(walk, node):
    x, exponent = walk.like(node.args[0], node), node.args[1]
    names = {2: "Square", 0.5: "Sqrt", -0.5: "Rsqrt"}
    if exponent in names:
        return walk.op(names[exponent], [x])
    return walk.op("Pow", [x, walk.scalar(exponent, node)])


def binary(name):
    def function(walk, node):
        return walk.op(name, [walk.like(node.args[0], node), walk.like(node.args[1], node)])

    return function


for aten, name in {"mul": "Mul", "div": "Div"}.items():
    OPERATORS[f"aten.{aten}.Tensor"] = OPERATORS[f"aten.{aten}.Scalar"] = binary(name)
for aten, name in {"maximum.default": "Max", "minimum.default": "Min", "pow.Tensor_Tensor": "Pow", "pow.Scalar": "Pow"}.items():
    OPERATORS[f"aten.{aten}"] = binary(name)


def scaled_second(name):
    def function(walk, node):
        a, b = node.args[:2]
        if str(node.target) == "aten.rsub.Scalar":
            a, b = b, a
        second = walk.like(b, node)
        alpha = Arguments(node).alpha
        if alpha != 1:
            second = walk.op("Mul", [second, walk.scalar(alpha, node)])
        return walk.op(name, [walk.like(a, node), second])

    return function


for aten, name in {"add": "Add", "sub": "Sub"}.items():
    OPERATORS[f"aten.{aten}.Tensor"] = OPERATORS[f"aten.{aten}.Scalar"] = scaled_second(name)


@operator("rsub.Scalar")
def rsub(walk, node):
    walk.need(Arguments(node).alpha == 1, node, "alpha must be 1")
    return walk.op("Sub", [walk.like(node.args[1], node), walk.like(node.args[0], node)])


@operator("div.Tensor_mode", "floor_divide.default")
def divide_and_round(walk, node):
    mode = node.kwargs.get("rounding_mode", "floor")
    walk.need(mode in (None, "floor") and walk.dtype(node) in ("f32", "f16", "bf16"), node,
              "only floats are divided, without rounding_mode or with \"floor\"")
    y = walk.op("Div", [walk.like(node.args[0], node), walk.like(node.args[1], node)])
    return y if mode is None else walk.op("Floor", [y])


def comparison(name):
    def function(walk, node):
        dtype = walk.common_dtype(node.args[:2])
        return walk.op(name, [walk.value(x, dtype) for x in node.args[:2]])

    return function


for aten, name in {"eq": "Equal", "ne": "NotEqual", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}.items():
    OPERATORS[f"aten.{aten}.Tensor"] = OPERATORS[f"aten.{aten}.Scalar"] = comparison(name)


def of_truth_values(name):
    def function(walk, node):
        return walk.op(name, [walk.as_bool(x, node) for x in node.args[:2]])

    return function


for aten, name in {"logical_and.default": "And", "logical_or.default": "Or", "bitwise_and.Tensor": "And", "bitwise_or.Tensor": "Or"}.items():
    OPERATORS[f"aten.{aten}"] = of_truth_values(name)


@operator("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(walk, node):
    condition, a, b = node.args
    return walk.shaped(walk.op("Where", [walk.as_bool(condition, node), walk.like(a, node), walk.like(b, node)]), node)


@operator("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(walk, node):
    x, mask, value = node.args
    return walk.op("Where", [walk.as_bool(mask, node), walk.like(value, node), walk.like(x, node)])


# Operators that keep or convert the values.


@operator("clone.default", "alias.default", "lift_fresh_copy.default", "contiguous.default", "_to_copy.default", "to.dtype",
          "to.dtype_layout", "to.device", "type_as.default")
def copy(walk, node):
    return walk.like(node.args[0], node)


@operator("native_dropout.default")
def dropout(walk, node):
    x, rate = walk.value(node.args[0]), node.args[1]
    if not walk.dropout or rate == 0:
        return [x]
    return [walk.op("Dropout", [x], rate=float(rate), stream=walk.next_stream())]


@operator("copy.default")
def copied(walk, node):
    return walk.shaped(walk.like(node.args[1], node), node)


@operator("detach.default")
def detach(walk, node):
    return walk.op("StopGradient", [walk.value(node.args[0])])


# Matrix products.


@operator("linear.default")
def linear(walk, node):
    a = Arguments(node)
    x, inputs = walk.value(a.input), [walk.value(a.weight)]
    if a.bias is not None:
        inputs.append(walk.value(a.bias))
    if walk.rank(a.input) == 1:
        return walk.reshape(walk.op("Linear", [walk.op("Reshape", [x], dims=[1, -1]), *inputs]), node)
    return walk.op("Linear", [x, *inputs])


def permutation_of(node, rank):
    name, args = str(node.target), node.args
    if name == "aten.permute.default":
        return [axis % rank for axis in args[1]]
    a, b = (0, 1) if name == "aten.t.default" else args[1:3]
    order = list(range(rank))
    if rank:
        order[a % rank], order[b % rank] = b % rank, a % rank
    return order


def matrix(walk, x):
    """Returns the Value of a matrix, and whether the product must transpose it."""
    if walk.is_graph_value(x) and str(x.target) in PERMUTATIONS:
        rank = walk.rank(x)
        permutation = permutation_of(x, rank)
        if permutation == [*range(rank - 2), rank - 1, rank - 2] and walk.is_graph_value(x.args[0]):
            return walk.value(x.args[0]), True
    return walk.value(x), False


@operator("mm.default", "bmm.default", "matmul.default")
def matmul(walk, node):
    a, b = node.args[:2]
    left, right = walk.rank(a), walk.rank(b)
    if left >= 2 and right >= 2:
        (x, transpose_a), (y, transpose_b) = matrix(walk, a), matrix(walk, b)
        return walk.op("MatMul", [x, y], transpose_a=transpose_a, transpose_b=transpose_b)
    x, y = walk.value(a), walk.value(b)
    if left == 1:
        x = walk.op("Reshape", [x], dims=[1, *walk.dims(a)])
    if right == 1:
        y = walk.op("Reshape", [y], dims=[*walk.dims(b), 1])
    return walk.reshape(walk.op("MatMul", [x, y]), node)


@operator("addmm.default", "baddbmm.default")
def addmm(walk, node):
    a = Arguments(node)
    (x, transpose_a), (y, transpose_b) = matrix(walk, node.args[1]), matrix(walk, node.args[2])
    product = walk.op("MatMul", [x, y], transpose_a=transpose_a, transpose_b=transpose_b)
    return walk.op("Add", [scaled(walk, product, a.alpha, node), scaled(walk, walk.value(a.self), a.beta, node)])


@operator("_trilinear.default")
def trilinear(walk, node):
    """Sums a product of three arguments over some axes. The arguments first get new axes."""
    product = None
    for x, axes in zip(node.args[:3], node.args[3:6]):
        dims = walk.dims(x)
        for axis in sorted(axes):
            dims.insert(axis, 1)
        y = walk.op("Reshape", [walk.value(x)], dims=dims)
        product = y if product is None else walk.op("Mul", [product, y])
    return walk.op("ReduceSum", [product], axes=list(node.args[6]))


@operator("embedding.default")
def embedding(walk, node):
    a = Arguments(node)
    walk.need(not a.scale_grad_by_freq and not a.sparse, node, "scale_grad_by_freq and sparse must be False")
    if a.padding_idx >= 0:
        walk.note("Bowline trains the row padding_idx of an embedding. PyTorch keeps it.")
    return walk.op("Embedding", [walk.value(a.weight), walk.value(a.indices)])


# Norms.


def scale_and_shift(walk, node, weight, bias, size):
    """The values of weight and bias, which may be None."""
    return [walk.filled(1, [size], node.args[0]) if weight is None else walk.value(weight),
            walk.filled(0, [size], node.args[0]) if bias is None else walk.value(bias)]


def on_last_axes(walk, node, count, function):
    """Calls function with a Value whose last axis holds the last `count` axes."""
    x = node.args[0]
    if count == 1:
        return function(walk.value(x))
    dims = walk.dims(x)
    flat = walk.op("Reshape", [walk.value(x)], dims=[*dims[:-count], math.prod(dims[-count:])])
    return walk.reshape(function(flat), node)


@operator("layer_norm.default")
def layer_norm(walk, node):
    a = Arguments(node)
    size = math.prod(a.normalized_shape)
    parts = [walk.flat(v, size) if len(a.normalized_shape) > 1 else v
             for v in scale_and_shift(walk, node, a.weight, a.bias, size)]
    return on_last_axes(walk, node, len(a.normalized_shape), lambda x: walk.op("LayerNorm", [x, *parts], eps=float(a.eps)))


@operator("rms_norm.default")
def rms_norm(walk, node):
    a = Arguments(node)
    size = math.prod(a.normalized_shape)
    weight = walk.filled(1, [size], node) if a.weight is None else walk.flat(walk.value(a.weight), size)
    eps = walk.torch.finfo(node.meta["val"].dtype).eps if a.eps is None else a.eps
    return on_last_axes(walk, node, len(a.normalized_shape), lambda x: walk.op("RmsNorm", [x, weight], eps=float(eps)))


@operator("_native_batch_norm_legit_no_training.default")
def batch_norm(walk, node):
    a = Arguments(node)
    parts = scale_and_shift(walk, node, a.weight, a.bias, walk.dims(a.input)[1])
    return [walk.op("BatchNorm", [walk.value(a.input), *parts, walk.value(a.running_mean), walk.value(a.running_var)],
                    eps=float(a.eps), momentum=float(a.momentum))]


@operator("group_norm.default")
def group_norm(walk, node):
    a = Arguments(node)
    parts = scale_and_shift(walk, node, a.weight, a.bias, walk.dims(a.input)[1])
    return walk.op("GroupNorm", [walk.value(a.input), *parts], groups=a.num_groups, eps=float(a.eps))


@operator("instance_norm.default")
def instance_norm(walk, node):
    a = Arguments(node)
    walk.need(a.use_input_stats, node, "it must use the statistics of the input")
    parts = scale_and_shift(walk, node, a.weight, a.bias, walk.dims(a.input)[1])
    return walk.op("InstanceNorm", [walk.value(a.input), *parts], eps=float(a.eps))


# Attention and Softmax.


@operator("scaled_dot_product_attention.default")
def attention(walk, node):
    a = Arguments(node)
    rank = walk.rank(a.query)
    q_dims, k_dims, v_dims = walk.dims(a.query), walk.dims(a.key), walk.dims(a.value)
    walk.need(rank in (3, 4) and walk.rank(a.key) == walk.rank(a.value) == rank, node, f"query, key and value must have 3 or 4 axes, not {rank}")
    walk.need(q_dims[-1] == v_dims[-1], node, f"the sizes of query and value ({q_dims[-1]}, {v_dims[-1]}) must be equal")
    walk.need(not a.is_causal or q_dims[-2] == k_dims[-2], node, f"is_causal=True needs as many queries as keys, not {q_dims[-2]} and {k_dims[-2]}")
    walk.need(rank == 3 or q_dims[1] == k_dims[1] or a.get("enable_gqa"), node, "query and key must have the same number of heads")

    def heads_behind(x, dims):
        if rank == 3:
            return walk.op("Reshape", [walk.value(x)], dims=[dims[0], dims[1], 1, dims[2]])
        return walk.op("Transpose", [walk.value(x)], permutation=[0, 2, 1, 3])

    inputs = [heads_behind(a.query, q_dims), heads_behind(a.key, k_dims), heads_behind(a.value, v_dims)]
    mask = "none"
    if a.attn_mask is not None:
        mask = "additive"
        added = walk.value(a.attn_mask)
        if walk.dtype(a.attn_mask) == "bool":
            added = walk.op("Where", [added, walk.scalar(0, node), walk.scalar(-math.inf, node)])
        else:
            added = walk.value(a.attn_mask, walk.dtype(node))
        if rank == 3 and walk.rank(a.attn_mask) == 3:
            dims = walk.dims(a.attn_mask)
            added = walk.op("Reshape", [added], dims=[dims[0], 1, *dims[1:]])
        inputs.append(added)
    y = walk.op("Attention", inputs, causal=bool(a.is_causal), scale=0.0 if a.scale is None else float(a.scale), mask=mask)
    return walk.reshape(y, node) if rank == 3 else walk.op("Transpose", [y], permutation=[0, 2, 1, 3])


def on_last_axis(walk, node, axis, name):
    rank, x = walk.rank(node), walk.like(node.args[0], node)
    axis %= max(rank, 1)
    if axis == rank - 1:
        return walk.op(name, [x])
    order = list(range(rank))
    order[axis], order[-1] = rank - 1, axis
    return walk.op("Transpose", [walk.op(name, [walk.op("Transpose", [x], permutation=order)])], permutation=order)


@operator("_softmax.default", "softmax.int")
def softmax(walk, node):
    return on_last_axis(walk, node, node.args[1], "Softmax")


@operator("_log_softmax.default", "log_softmax.int")
def log_softmax(walk, node):
    return on_last_axis(walk, node, node.args[1], "LogSoftmax")
