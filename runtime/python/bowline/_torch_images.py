"""Operators of PyTorch on images and signals: convolutions, pools and interpolation."""

from bowline._torch_operators import INTERPOLATIONS, OPERATORS, Arguments, operator


def spatial(values, rank):
    """One entry for each spatial axis. A single entry is for all."""
    values = [values] if isinstance(values, int) else list(values)
    return values * rank if len(values) == 1 else values


@operator("convolution.default")
def convolution(walk, node):
    a = Arguments(node)
    rank = walk.rank(a.input) - 2
    pads = spatial(a.padding, rank)
    inputs = [walk.value(a.input), walk.value(a.weight)] + ([] if a.bias is None else [walk.value(a.bias)])
    attributes = {"strides": spatial(a.stride, rank), "pads": pads * 2, "dilations": spatial(a.dilation, rank), "groups": a.groups}
    if a.transposed:
        return walk.op("ConvTranspose", inputs, output_padding=spatial(a.output_padding, rank), **attributes)
    return walk.op("Conv", inputs, **attributes)


def batched(walk, node, x, rank, function):
    """Calls function with a Value that has an axis of the batch."""
    if walk.rank(x) == rank + 2:
        return function(walk.value(x))
    return walk.reshape(function(walk.op("Reshape", [walk.value(x)], dims=[1, *walk.dims(x)])), node)


def pool(name, rank):
    def function(walk, node):
        a = Arguments(node)
        window = spatial(a.kernel_size, rank)
        attributes = {"window": window, "strides": spatial(a.stride, rank) if a.stride else window, "pads": spatial(a.padding, rank) * 2,
                      "ceil": bool(a.ceil_mode)}
        if name == "MaxPool":
            attributes["dilations"] = spatial(a.dilation, rank)
        else:
            walk.need(a.get("divisor_override") is None, node, "divisor_override must be None")
            attributes["count_pads"] = bool(a.count_include_pad)
        return batched(walk, node, a.self, rank, lambda x: walk.op(name, [x], **attributes))

    return function


for rank in (1, 2, 3):
    OPERATORS[f"aten.avg_pool{rank}d.default"] = pool("AveragePool", rank)
    OPERATORS[f"aten.max_pool{rank}d.default"] = pool("MaxPool", rank)
    if rank > 1:
        OPERATORS[f"aten.max_pool{rank}d_with_indices.default"] = lambda walk, node, rank=rank: [pool("MaxPool", rank)(walk, node)]


@operator("adaptive_avg_pool1d.default", "_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_average_pool(walk, node):
    a = Arguments(node)
    size = [a.output_size] if isinstance(a.output_size, int) else list(a.output_size)
    dims = walk.dims(a.self)[-len(size):]
    if all(s == 1 for s in size):
        rank = walk.rank(a.self)
        return walk.op("ReduceMean", [walk.value(a.self)], axes=list(range(rank - len(size), rank)), keep_dims=True)
    walk.need(all(isinstance(d, int) for d in dims), node, f"the size {dims} of the input must be fixed")
    if all(d % s == 0 for d, s in zip(dims, size)):
        window = [d // s for d, s in zip(dims, size)]
        return batched(walk, node, a.self, len(size), lambda x: walk.op("AveragePool", [x], window=window, strides=window))
    pool = walk.torch.nn.functional.adaptive_avg_pool1d
    return along_last_axes(walk, a.self, [pool(walk.torch.eye(d)[:, None], s)[:, 0] for d, s in zip(dims, size)])


def along_last_axes(walk, x, matrices):
    """Multiplies each of the last axes by a matrix [size of the axis, new size]."""
    y, rank = walk.value(x), walk.rank(x)
    for i, m in enumerate(reversed(matrices)):
        m = walk.constant(m.to(x.meta["val"].dtype))
        order = list(range(rank))
        order[rank - 1], order[rank - 1 - i] = order[rank - 1 - i], order[rank - 1]
        y = walk.op("MatMul", [walk.op("Transpose", [y], permutation=order) if i else y, m])
        y = walk.op("Transpose", [y], permutation=order) if i else y
    return y


def interpolate(mode):
    def function(walk, node):
        a = Arguments(node)
        torch, count = walk.torch, walk.rank(node.args[0]) - 2
        old, new = walk.dims(node.args[0])[2:], walk.dims(node)[2:]
        walk.need(all(isinstance(size, int) for size in [*old, *new]), node, "the sizes of the image must be fixed")
        options = {"mode": mode}
        if not mode.startswith("nearest"):
            options["align_corners"] = a.align_corners

        def resized(rows, i):
            """Interpolates rows [n, size] as PyTorch does."""
            target = {"scale_factor": a.scale_factors[i]} if a.scale_factors else {"size": new[i]}
            if mode != "bicubic":
                return torch.nn.functional.interpolate(rows[:, None], **target, **options)[:, 0]
            target = {key: (1, value) for key, value in target.items()}
            return torch.nn.functional.interpolate(rows[:, None, None], **target, **options)[:, 0, 0]

        if not mode.startswith("nearest"):
            return along_last_axes(walk, node.args[0], [resized(torch.eye(old[i]), i) for i in range(count)])
        y = walk.value(node.args[0])
        for i in range(count):
            indices = resized(torch.arange(old[i], dtype=torch.float32)[None], i)[0]
            y = walk.op("Gather", [y, walk.constant(indices.to(torch.int32))], axis=i + 2)
        return y

    return function


for aten, mode in INTERPOLATIONS.items():
    OPERATORS[f"aten.{aten}.vec"] = interpolate(mode)


@operator("constant_pad_nd.default")
def pad(walk, node):
    a = Arguments(node)
    rank = walk.rank(a.self)
    begin, end = [0] * rank, [0] * rank
    for i in range(len(a.pad) // 2):
        begin[rank - 1 - i], end[rank - 1 - i] = a.pad[2 * i], a.pad[2 * i + 1]
    return walk.op("Pad", [walk.value(a.self)], begin=begin, end=end, value=float(a.value))
