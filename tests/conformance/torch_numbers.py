#!/usr/bin/env python3
"""Prints case lines with values from PyTorch in double precision, as a second source besides the
oracles.

The lines are in tests/ops/*.cases under "Expected values from PyTorch". Run the script again when
the definition of an operator changes."""

import torch
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)


def draw(*shape, scale=1.0):
    # Sixteenths are exact in f32 and short to read.
    return (torch.randn(*shape) * scale * 16).round() / 16


def text(t):
    return "(" + ",".join(f"{v:.9g}" for v in t.detach().flatten().tolist()) + ")"


def shape(t):
    return "[" + ",".join(str(d) for d in t.shape) + "]"


def given(t, index=""):
    return f"{shape(t)}{index}={text(t)}"


def line(op, inputs, attributes, outputs):
    print(f"{op}: | {' '.join(inputs)} | {attributes} -> {' '.join(o if isinstance(o, str) else text(o) for o in outputs)}")


def grads(f, inputs):
    """Returns the output, a random gradient of it, and the gradients of the inputs."""
    inputs = [t.clone().requires_grad_() for t in inputs]
    y = f(*inputs)
    dy = draw(*y.shape)
    return y, dy, torch.autograd.grad(y, inputs, dy)


def unary():
    x = draw(7, scale=2)
    for name, f, attributes in [("silu", F.silu, ""), ("tanh", torch.tanh, ""), ("gelu", F.gelu, "form=erf"),
                                ("gelu", lambda v: F.gelu(v, approximate="tanh"), "form=tanh")]:
        y, dy, d = grads(f, [x])
        line(name, [given(x)], attributes, [y])
        if name != "tanh":
            line(name + "_grad", [given(x), given(dy)], attributes, d)


def norms():
    x, gamma, beta = draw(2, 5), draw(5), draw(5)
    y, dy, d = grads(lambda a, g, b: F.layer_norm(a, (5,), g, b, 1e-3), [x, gamma, beta])
    eps = "eps=0.001"
    line("layer_norm", [given(x), given(gamma), given(beta)], eps, [y])
    line("layer_norm_grad", [given(x), given(gamma), given(dy)], eps, d)
    y, dy, d = grads(lambda a, g: a / torch.sqrt((a * a).mean(-1, keepdim=True) + 1e-3) * g, [x, gamma])
    line("rms_norm", [given(x), given(gamma)], eps, [y])
    line("rms_norm_grad", [given(x), given(gamma), given(dy)], eps, d)


def losses():
    x, labels = draw(4, 5, scale=2), torch.tensor([1, -100, 4, 0])
    for reduction in ("mean", "sum"):
        v = x.clone().requires_grad_()
        loss = F.cross_entropy(v, labels, ignore_index=-100, reduction=reduction)
        (d,) = torch.autograd.grad(loss * 0.5, v)
        index = given(labels, "{0..4}")
        line("cross_entropy", [given(x), index], f"reduction={reduction}", [loss, torch.logsumexp(x, -1)])
        line("cross_entropy_grad", [given(x), index, "=CrossEntropy.1(0,1)", "[]=(0.5)"], f"reduction={reduction}", [d])
    x = draw(2, 4)
    y, dy, d = grads(lambda v: F.softmax(v, -1), [x])
    line("softmax", [given(x)], "axis=-1", [y])


def attention():
    q, k, v = draw(1, 3, 4, 2), draw(1, 4, 2, 2), draw(1, 4, 2, 2)

    def f(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        mask = torch.ones(3, 4, dtype=torch.bool).tril(1)
        return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)

    y, dy, d = grads(f, [q, k, v])
    inputs = [given(q), given(k), given(v)]
    line("attention", inputs, "causal=true", [y, "_"])
    line("attention_grad", inputs + ["=Attention.0(0,1,2)", "=Attention.1(0,1,2)", given(dy)], "causal=true", d)


def linear_and_embedding():
    x, w, b = draw(2, 3), draw(4, 3), draw(4)
    line("linear", [given(x), given(w), given(b)], "", [F.linear(x, w, b)])
    a, c = draw(2, 2, 3), draw(2, 4, 3)
    line("mat_mul", [given(a), given(c)], "transpose_b=true", [a @ c.transpose(1, 2)])
    table, ids = draw(3, 2), torch.tensor([2, 0, 2])
    y, dy, d = grads(lambda t: F.embedding(ids, t), [table])
    line("embedding_grad", [given(ids, "{0..2}"), given(dy)], "rows=3", d)


def sizes(values):
    return "[" + ",".join(str(v) for v in values) + "]"


def convolutions():
    cases = [(F.conv1d, F.conv_transpose1d, 1, 1), (F.conv2d, F.conv_transpose2d, 2, 1), (F.conv2d, F.conv_transpose2d, 2, 2),
             (F.conv3d, F.conv_transpose3d, 3, 1)]
    for forward, back, rank, groups in cases:
        stride, pad, dilation = [2, 1, 2][:rank], [1, 2, 0][:rank], [1, 2, 1][:rank]
        settings = f"strides={sizes(stride)} pads={sizes(pad + pad)} dilations={sizes(dilation)} groups={groups}"
        x, w, b = draw(1, 2, *[4, 3, 3][:rank]), draw(2, 2 // groups, *[2] * rank), draw(2)
        y, dy, d = grads(lambda a, k, c: forward(a, k, c, stride, pad, dilation, groups), [x, w, b])
        line("conv", [given(x), given(w), given(b)], settings, [y])
        line("conv_input_grad", [given(w), given(dy)], f"{settings} dims={shape(x)}", [d[0]])
        line("conv_weight_grad", [given(x), given(dy)], f"{settings} dims={shape(w)}", [d[1]])
        more = [1] + [0] * (rank - 1)
        y = back(x, w, b if groups == 1 else None, stride, [0] * rank, more, groups, dilation)
        line("conv_transpose", [given(x), given(w)] + [given(b)] * (groups == 1),
             f"strides={sizes(stride)} dilations={sizes(dilation)} groups={groups} output_padding={sizes(more)}", [y])


def pools():
    for rank, maximum, average in ((1, F.max_pool1d, F.avg_pool1d), (2, F.max_pool2d, F.avg_pool2d), (3, F.max_pool3d, F.avg_pool3d)):
        window, stride, pad = [3, 2, 2][:rank], [2, 2, 1][:rank], [1, 0, 1][:rank]
        settings = f"window={sizes(window)} strides={sizes(stride)} pads={sizes(pad + pad)} ceil=true"
        x = draw(1, 1, *[6, 3, 2][:rank])
        y, dy, d = grads(lambda v: maximum(v, window, stride, pad, ceil_mode=True), [x])
        line("max_pool", [given(x)], settings, [y])
        line("max_pool_grad", [given(x), given(y), given(dy)], settings, d)
        for pads in (False, True):
            y, dy, d = grads(lambda v: average(v, window, stride, pad, ceil_mode=True, count_include_pad=pads), [x])
            counted = f"{settings} count_pads={'true' if pads else 'false'}"
            line("average_pool", [given(x)], counted, [y])
            line("average_pool_grad", [given(dy)], f"{counted} dims={shape(x)}", d)


def channel_norms():
    x, scale, bias, mean, variance = draw(3, 2, 2), draw(2), draw(2), draw(2), draw(2).abs() + 0.5
    for training in (False, True):
        m, v = mean.clone(), variance.clone()
        y, dy, d = grads(lambda a, s, b: F.batch_norm(a, m, v, s, b, training, 0.25, 1e-3), [x, scale, bias])
        m, v = mean.clone(), variance.clone()
        F.batch_norm(x, m, v, scale, bias, training, 0.25, 1e-3)
        inputs = [given(t) for t in (x, scale, bias, mean, variance)]
        words = f"training={1 if training else 0}"
        line("batch_norm", inputs, f"eps=0.001 momentum=0.25 | {words}", [y, m, v])
        of = x.mean((0, 2)) if training else mean
        inverse = 1 / torch.sqrt((x.var((0, 2), unbiased=False) if training else variance) + 1e-3)
        line("batch_norm_grad", [given(x), given(scale), given(dy), given(of), given(inverse)], f" | {words}", d)
    x, scale, bias = draw(2, 4, 2), draw(4), draw(4)
    y, dy, d = grads(lambda a, s, b: F.group_norm(a, 2, s, b, 1e-3), [x, scale, bias])
    line("group_norm", [given(x), given(scale), given(bias)], "groups=2 eps=0.001", [y])
    line("group_norm_grad", [given(x), given(scale), given(dy)], "groups=2 eps=0.001", d)
    y = F.instance_norm(x, None, None, scale, bias, True, 0.1, 1e-3)
    line("instance_norm", [given(x), given(scale), given(bias)], "eps=0.001", [y])


def optimizers():
    w, g1, g2 = draw(3), draw(3), draw(3)
    p = torch.nn.Parameter(w.clone())
    o = torch.optim.AdamW([p], lr=0.125, betas=(0.5, 0.75), eps=0.0625, weight_decay=0.25)
    for g in (g1, g2):
        p.grad = g.clone()
        before = p.detach().clone()
        state = {k: (v.clone() if torch.is_tensor(v) else v) for k, v in o.state[p].items()} if o.state[p] else None
        o.step()
    s = o.state[p]
    print(f"adam_w: | ([3])={text(before)} ([3])={text(g2)} [1]=(1) ([3])={text(state['exp_avg'])} ([3])={text(state['exp_avg_sq'])} "
          f"| beta1=0.5 beta2=0.75 eps=0.0625 weight_decay=0.25 | learning_rate=0.125 bias_correction1=0.75 "
          f"bias_correction2=0.4375 -> {text(p)} {text(s['exp_avg'])} {text(s['exp_avg_sq'])}")
    for nesterov in (False, True):
        p = torch.nn.Parameter(w.clone())
        o = torch.optim.SGD([p], lr=0.125, momentum=0.5, weight_decay=0.25, nesterov=nesterov)
        for g in (g1, g2):
            p.grad = g.clone()
            before = p.detach().clone()
            buffer = o.state[p]["momentum_buffer"].clone() if o.state[p] else None
            o.step()
        print(f"sgd: | ([3])={text(before)} ([3])={text(g2)} [1]=(1) ([3])={text(buffer)} | momentum=0.5 weight_decay=0.25 "
              f"nesterov={'true' if nesterov else 'false'} | learning_rate=0.125 update=2 -> {text(p)} {text(o.state[p]['momentum_buffer'])}")


def reductions():
    x = draw(2, 5)
    y, dy, d = grads(lambda v: v.prod(-1), [x])
    line("reduce_prod", [given(x)], "axes=[1]", [y])
    line("reduce_prod_grad", [given(x), given(dy)], "axes=[1]", d)
    line("reduce_max", [given(x)], "axes=[0]", [x.amax(0)])
    line("reduce_min", [given(x)], "axes=[0,1]", [x.amin((0, 1))])
    line("cum_sum", [given(x)], "axis=1", [x.cumsum(1)])
    y, dy, d = grads(lambda v: F.log_softmax(v, -1), [x])
    line("log_softmax", [given(x)], "", [y])
    line("log_softmax_grad", [given(y), given(dy)], "", d)
    odd = torch.tensor([3.0, float("nan"), -1.0, float("inf"), 0.5, -2.0])
    for largest in (True, False):
        values, indices = odd.topk(4, largest=largest)
        line("top_k", [given(odd)], f"k=4 largest={str(largest).lower()}", [values, indices])
    line("arg_max", [given(odd)], "axis=0", [odd.argmax()])
    line("arg_min", [given(odd)], "axis=0", [odd.argmin()])


def gathers_and_pads():
    x = draw(3, 4)
    rows = torch.tensor([2, 0, 2])
    line("gather", [given(x), given(rows, "{0..2}")], "axis=0", [x[rows]])
    places = torch.tensor([[1, 0], [3, 3], [0, 2]])
    line("gather_elements", [given(x), given(places, "{0..3}")], "axis=1", [x.gather(1, places)])
    u = draw(3, 2)
    for name, f in [("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")]:
        line("scatter_elements", [given(x), given(places, "{0..3}"), given(u)], f"axis=1 reduction={name}",
             [x.scatter_reduce(1, places, u, f)])
    for mode, f in [("constant", "constant"), ("edge", "replicate"), ("reflect", "reflect"), ("wrap", "circular")]:
        y, dy, d = grads(lambda v: F.pad(v[None], (2, 1), f)[0], [x])
        line("pad", [given(x)], f"begin=[0,2] end=[0,1] mode={mode}", [y])
        line("pad_grad", [given(dy)], f"begin=[0,2] end=[0,1] mode={mode}", d)
    line("pad", [given(x)], "begin=[-1,2] end=[1,-2] value=7", [F.pad(x, (2, -2, -1, 1), value=7)])
    line("tile", [given(u)], "repeats=[1,2]", [u.tile(1, 2)])
    line("one_hot", [given(places, "{0..3}")], "depth=4", [F.one_hot(places, 4)])
    a, b = torch.tensor([7, -7, 9, -128]), torch.tensor([2, 2, -4, 3])
    line("div", [given(a, ":i32"), given(b, ":i32")], "", [torch.div(a, b, rounding_mode="trunc")])


def recurrent():
    steps, batch, units = 3, 2, 2
    for gates, name, cell in ((4, "lstm", torch.nn.LSTMCell), (3, "gru", torch.nn.GRUCell)):
        # The gates pass unchanged, because the weight of the input is the identity.
        n = gates * units
        module = cell(n, units)
        x, w, h0, c0, bias = draw(steps, batch, n), draw(n, units), draw(batch, units), draw(batch, units), draw(units)
        with torch.no_grad():
            module.weight_ih.copy_(torch.eye(n)), module.bias_ih.zero_()
            module.bias_hh.copy_(torch.zeros(n) if name == "lstm" else torch.cat([torch.zeros(2 * units), bias]))
            module.weight_hh.copy_(w)
        inputs = [t.clone().requires_grad_() for t in (x, h0, c0)]
        h, c, ys, cs, before = inputs[1], inputs[2], [], [], []
        for t in range(steps):
            before.append(h)
            if name == "lstm":
                h, c = module(inputs[0][t], (h, c))
            else:
                h = module(inputs[0][t], h)
            ys.append(h), cs.append(c)
        y, c, before = torch.stack(ys), torch.stack(cs), torch.stack(before)
        dy, dc = draw(*y.shape), draw(*y.shape)
        product = before @ w.T
        if name == "lstm":
            d = torch.autograd.grad((y * dy).sum() + (c * dc).sum(), inputs)
            i, f, g, o = (x + product).chunk(4, -1)
            activations = torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], -1)
            line("lstm", [given(x), given(w), given(h0), f"{shape(c0)}:f32={text(c0)}"], "", [y, c, activations])
            line("lstm_grad", [given(activations), given(w), f"{shape(c0)}:f32={text(c0)}", f"{shape(c)}:f32={text(c)}", given(dy),
                               f"{shape(dc)}:f32={text(dc)}"], "", d)
        else:
            d = torch.autograd.grad((y * dy).sum(), inputs[:2])
            r, z = ((x + product)[..., k * units:(k + 1) * units].sigmoid() for k in range(2))
            made = product[..., 2 * units:] + bias
            activations = torch.cat([r, z, (x[..., 2 * units:] + r * made).tanh()], -1)
            line("gru", [given(x), given(w), given(h0), given(bias)], "", [y, activations, made])
            line("gru_grad", [given(activations), given(made), given(w), given(h0), given(y), given(dy)], "", [d[0], "_", d[1]])


def masks():
    q, k, v, added = draw(2, 3, 2, 2), draw(2, 4, 2, 2), draw(2, 4, 2, 2), draw(2, 1, 3, 4)
    f = lambda q, k, v, mask: F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), mask).transpose(1, 2)
    y, dy, d = grads(lambda q, k, v: f(q, k, v, added), [q, k, v])
    inputs, rest = [given(q), given(k), given(v)], ["=Attention.0(0,1,2,6)", "=Attention.1(0,1,2,6)"]
    line("attention", inputs + [given(added)], "mask=additive", [y, "_"])
    line("attention_grad", inputs + rest + [given(dy), given(added)], "mask=additive", d)
    lengths = torch.tensor([2, 4])
    shown = (torch.arange(4) < lengths[:, None])[:, None, None, :]
    y, dy, d = grads(lambda q, k, v: f(q, k, v, shown), [q, k, v])
    line("attention", inputs + [given(lengths, ":i32")], "mask=lengths", [y, "_"])
    line("attention_grad", inputs + rest + [given(dy), given(lengths, ":i32")], "mask=lengths", d)


def caps_and_windows():
    q, k, v = draw(1, 3, 4, 2), draw(1, 5, 2, 2), draw(1, 5, 2, 2)

    def f(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = 1.5 * torch.tanh(q @ k.transpose(2, 3) * 0.75 / 1.5)
        shown = torch.ones(3, 5, dtype=torch.bool).tril(2).triu(1)
        return (scores.masked_fill(~shown, -torch.inf).softmax(-1) @ v).transpose(1, 2)

    y, dy, d = grads(f, [q, k, v])
    inputs = [given(q), given(k), given(v)]
    attributes = "causal=true scale=0.75 softcap=1.5 window=2"
    line("attention", inputs, attributes, [y, "_"])
    line("attention_grad", inputs + ["=Attention.0(0,1,2)", "=Attention.1(0,1,2)", given(dy)], attributes, d)


print(f"# PyTorch {torch.__version__}")
for part in (unary, norms, losses, attention, linear_and_embedding, optimizers, convolutions, pools, channel_norms,
             reductions, gathers_and_pads, recurrent, masks, caps_and_windows):
    part()
