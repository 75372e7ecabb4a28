#!/usr/bin/env python3
"""Prints case lines with numbers made by PyTorch in double precision: a second opinion on the oracles.

The lines stand in tests/ops/*.cases under "Numbers of PyTorch". Run again after a change of what an operator means."""

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
    """Output, its random gradient, gradients of the inputs."""
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
    print(f"adam_w: | ([3])={text(before)} ([3])={text(g2)} ([3])={text(state['exp_avg'])} ([3])={text(state['exp_avg_sq'])} [1]=(1) "
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
              f"nesterov={'true' if nesterov else 'false'} | learning_rate=0.125 -> {text(p)} {text(o.state[p]['momentum_buffer'])}")


def recurrent():
    steps, batch, units = 3, 2, 2
    for gates, name, cell in ((4, "lstm", torch.nn.LSTMCell), (3, "gru", torch.nn.GRUCell)):
        # The gates come as they are: the weight of the input is the identity.
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


print(f"# PyTorch {torch.__version__}")
for part in (unary, norms, losses, attention, linear_and_embedding, optimizers, recurrent, masks):
    part()
