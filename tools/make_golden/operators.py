"""Operators: outputs, and gradients for a random gradient of the outputs."""

import torch
import torch.nn.functional as F

from text import draw, numbers, shape

LINES = []


class Index:
    """An i32 input with its range."""

    def __init__(self, t, low, high):
        self.t, self.low, self.high = t, low, high


class Truth:
    def __init__(self, t):
        self.t = t


def value(x):
    return x.t if isinstance(x, (Index, Truth)) else x


def text(x):
    if isinstance(x, Index):
        return f"{shape(x.t)}{{{x.low}..{x.high}}}={numbers(x.t)}"
    if isinstance(x, Truth):
        return f"{shape(x.t)}:bool={numbers(x.t)}"
    return f"{shape(x)}={numbers(x)}"


def case(op, inputs, f, attributes="", grad=True, without=(), blank=(), options=""):
    """f maps the tensors to one or several outputs. Inputs in `without` get no gradient. Outputs in
    `blank` are not compared.
    """
    given = [value(x) for x in inputs]
    floats = [i for i, x in enumerate(given) if x.dtype.is_floating_point]
    leaves = [x.clone().requires_grad_() if i in floats and i not in without else x for i, x in enumerate(given)]
    out = f(*leaves)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    expected = ["_" if i in blank else numbers(o) for i, o in enumerate(outs)]
    columns = f"{attributes} | {options}" if options else attributes
    LINES.append(f"{op}: | {' '.join(text(x) for x in inputs)} | {columns} -> {' '.join(expected)}")
    wanted = [i for i in floats if i not in without]
    if not grad or not wanted:
        return
    douts = [draw(*o.shape) if i not in blank and o.requires_grad else None for i, o in enumerate(outs)]
    used = [(o, d) for o, d in zip(outs, douts) if d is not None]
    grads = torch.autograd.grad([o for o, _ in used], [leaves[i] for i in wanted], [d for _, d in used], allow_unused=True)
    by_input = {i: (g if g is not None else torch.zeros_like(leaves[i])) for i, g in zip(wanted, grads)}
    LINES.append("dout " + " ".join("_" if d is None else numbers(d) for d in douts))
    LINES.append("din " + " ".join(numbers(by_input[i]) if i in by_input else "_" for i in range(len(inputs))))


def unary():
    def both(op, f, x, attributes="", grad=True):
        case(op, [x], f, attributes, grad)
        case(op, [x.reshape(-1)[:1].reshape(())], f, attributes, grad)

    x = draw(3, 7, scale=2)
    above = draw(3, 7, low=0.25)
    for op, f in (("Relu", torch.relu), ("Silu", F.silu), ("Tanh", torch.tanh), ("Softplus", F.softplus), ("Neg", torch.neg),
                  ("Abs", torch.abs), ("Exp", torch.exp), ("Square", torch.square), ("Erf", torch.erf), ("Sin", torch.sin),
                  ("Cos", torch.cos), ("Sigmoid", torch.sigmoid), ("HardSwish", F.hardswish), ("Floor", torch.floor),
                  ("Round", torch.round), ("Sign", torch.sign)):
        both(op, f, x)
    for op, f in (("Log", torch.log), ("Sqrt", torch.sqrt), ("Rsqrt", torch.rsqrt)):
        both(op, f, above)
    both("Gelu", F.gelu, x, "form=erf")
    both("Gelu", lambda v: F.gelu(v, approximate="tanh"), x, "form=tanh")
    both("Clip", lambda v: v.clamp(-0.75, 1.25), x, "min=-0.75 max=1.25")
    both("LeakyRelu", lambda v: F.leaky_relu(v, 0.125), x, "alpha=0.125")
    both("Elu", lambda v: F.elu(v, 1.5), x, "alpha=1.5")


def binary():
    pairs = [((3, 5), (3, 5)), ((2, 3, 5), (3, 1)), ((1, 7), (3, 1)), ((), (5,)), ((5,), ())]
    for a, b in pairs:
        x, y = draw(*a), draw(*b)
        for op, f in (("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Max", torch.maximum), ("Min", torch.minimum)):
            case(op, [x, y], f)
        case("Div", [x, draw(*b, low=0.5)], torch.div)
        case("Pow", [draw(*a, low=0.5), y], torch.pow)
        # Steps of 0.5 make equal values likely.
        u, v = (x * 2).round() / 2, (y * 2).round() / 2
        for op, f in (("Max", torch.maximum), ("Min", torch.minimum)):
            case(op, [u, v], f)
        for op, f in (("Equal", torch.eq), ("NotEqual", torch.ne), ("Less", torch.lt), ("LessOrEqual", torch.le),
                      ("Greater", torch.gt), ("GreaterOrEqual", torch.ge)):
            case(op, [u, v], f, grad=False)
        p, q = Truth(x > 0), Truth(y > 0)
        for op, f in (("And", torch.logical_and), ("Or", torch.logical_or)):
            case(op, [p, q], f, grad=False)
        case("Not", [p], torch.logical_not, grad=False)
        case("Where", [p, x, y], torch.where)


def layout():
    x = draw(2, 3, 5)
    case("Reshape", [x], lambda v: v.reshape(5, 6), "dims=[5,-1]")
    case("Transpose", [x], lambda v: v.permute(2, 0, 1), "permutation=[2,0,1]")
    case("Slice", [x], lambda v: v[:, :, 1:4], "axis=2 start=1 length=3")
    case("Slice", [x], lambda v: v[:, 1:], "axis=1 start=1")
    case("Concat", [x, draw(2, 1, 5), draw(2, 4, 5)], lambda *v: torch.cat(v, 1), "axis=1")
    case("Split", [draw(3, 11)], lambda v: v.split([5, 1, 5], 1), "axis=1 sizes=[5,1,5]")
    case("Cast", [x], torch.clone, "to=f32")
    case("Cast", [x], lambda v: v.to(torch.int32), "to=i32", grad=False)
    case("Cast", [x], lambda v: v != 0, "to=boolean", grad=False)
    for axes, keep in (([1], False), ([0, 2], True), ([2], True), ([-1, 0], False)):
        attributes = f"axes=[{','.join(map(str, axes))}] keep_dims={'true' if keep else 'false'}"
        case("ReduceSum", [x], lambda v: v.sum(axes, keepdim=keep), attributes)
        case("ReduceMean", [x], lambda v: v.mean(axes, keepdim=keep), attributes)
    case("ReduceSum", [x], torch.sum)
    case("ReduceMean", [x], torch.mean)


def products():
    for ta in (False, True):
        for tb in (False, True):
            a = draw(2, 7, 3) if ta else draw(2, 3, 7)
            b = draw(2, 5, 7) if tb else draw(2, 7, 5)
            case("MatMul", [a, b], lambda u, v: (u.mT if ta else u) @ (v.mT if tb else v),
                 f"transpose_a={'true' if ta else 'false'} transpose_b={'true' if tb else 'false'}")
    case("MatMul", [draw(3, 1, 2, 5), draw(2, 5, 3)], torch.matmul)
    case("Linear", [draw(2, 3, 7), draw(5, 7), draw(5)], F.linear)
    case("Linear", [draw(3, 11), draw(2, 11)], F.linear)
    ids = torch.tensor([[2, 0, 6], [2, 2, 5]])
    case("Embedding", [draw(7, 5), Index(ids, 0, 6)], lambda t, i: F.embedding(i, t))


def rope(x, base=10000.0, rotary=0, interleaved=False, offset=0):
    rotary = rotary or x.shape[-1]
    j = torch.arange(rotary // 2, dtype=torch.float64)
    angle = (torch.arange(x.shape[1], dtype=torch.float64) + offset)[:, None] * base ** (-2 * j / rotary)
    cos, sin = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    part, rest = x[..., :rotary], x[..., rotary:]
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    u, v = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((u, v), -1).flatten(-2) if interleaved else torch.cat((u, v), -1)
    return torch.cat((turned, rest), -1)


def attention(q, k, v, causal=False, scale=None):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2]) if causal else None
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True).transpose(1, 2)


def spine():
    x = draw(2, 3, 7, scale=2)
    case("Softmax", [x], lambda v: F.softmax(v, -1), "axis=-1")
    case("LayerNorm", [x, draw(7), draw(7)], lambda v, g, b: F.layer_norm(v, (7,), g, b, 2.0 ** -7), "eps=0.0078125")
    case("RmsNorm", [x, draw(7)], lambda v, g: F.rms_norm(v, (7,), g, 2.0 ** -7), "eps=0.0078125")
    heads = draw(2, 5, 3, 6)
    case("Rope", [heads], rope)
    case("Rope", [heads], lambda v: rope(v, 500.0, 4, True, 11), "base=500 rotary_dims=4 interleaved=true position_offset=11")
    for causal in (False, True):
        name = "causal=true" if causal else "causal=false"
        case("Attention", [draw(2, 5, 6, 3), draw(2, 5, 2, 3), draw(2, 5, 2, 3)], lambda q, k, v: (attention(q, k, v, causal), q.sum()),
             name, blank=(1,))
        case("Attention", [draw(1, 3, 2, 5), draw(1, 7, 1, 5), draw(1, 7, 1, 5)],
             lambda q, k, v: (attention(q, k, v, causal, 0.25), q.sum()), name + " scale=0.25", blank=(1,))


def losses():
    reductions = ("mean", "sum", "none")
    x = draw(2, 3, 7, scale=2)
    labels = torch.tensor([[1, -100, 4], [0, 6, 6]])
    for reduction in reductions:
        for smoothing in (0.0, 0.125):
            def entropy(v, y):
                loss = F.cross_entropy(v.reshape(-1, 7), y.reshape(-1), reduction=reduction, label_smoothing=smoothing)
                return loss.reshape(2, 3) if reduction == "none" else loss, torch.logsumexp(v.detach(), -1)
            case("CrossEntropy", [x, Index(labels, 0, 6)], entropy, f"reduction={reduction} label_smoothing={smoothing}")
        for weight in (None, draw(7, low=0.25)):
            def likelihood(v, y, w=None):
                loss = F.nll_loss(v.reshape(-1, 7), y.reshape(-1), w, reduction=reduction)
                return loss.reshape(2, 3) if reduction == "none" else loss
            inputs = [F.log_softmax(x, -1).float().double(), Index(labels, 0, 6)] + ([] if weight is None else [weight])
            case("NegativeLogLikelihood", inputs, likelihood, f"reduction={reduction}", without=(2,))
        a, b = draw(3, 5), draw(3, 5)
        case("MeanSquaredError", [a, b], lambda u, v: F.mse_loss(u, v, reduction=reduction), f"reduction={reduction}")
        case("BinaryCrossEntropy", [a * 3, b.abs().clamp(max=1)],
             lambda u, v: F.binary_cross_entropy_with_logits(u, v, reduction=reduction), f"reduction={reduction}")
        case("Huber", [a, b], lambda u, v: F.huber_loss(u, v, reduction=reduction, delta=0.75), f"delta=0.75 reduction={reduction}")


def make():
    LINES.clear()
    for part in (unary, binary, layout, products, spine, losses):
        part()
    return list(LINES)
