"""Optimizers: 100 steps on two weights with weight decay and clipping. All optimizers get the same
gradients."""

import torch

from text import draw, f32, number, tensor

STEPS = 100
KEPT = (1, 2, 10, 100)


class Lion(torch.optim.Optimizer):
    """Lion, which PyTorch lacks: Chen et al., 2023, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                b1, b2 = group["betas"]
                direction = (b1 * m + (1 - b1) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * direction)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


# name, options of Bowline, and the PyTorch optimizer with the same options
def recipes():
    lr, decay, clip = f32(0.01), f32(0.1), f32(2.5)
    b1, b2, eps = f32(0.9), f32(0.99), f32(1e-8)
    alpha, momentum = f32(0.95), f32(0.75)
    O = torch.optim
    return [
        ("adamw", {"beta1": b1, "beta2": b2, "eps": eps, "weight_decay": decay}, clip,
         lambda p: O.AdamW(p, lr, (b1, b2), eps, decay)),
        ("sgd", {"momentum": momentum, "weight_decay": decay}, clip, lambda p: O.SGD(p, lr, momentum, weight_decay=decay)),
        ("sgd", {"momentum": momentum, "nesterov": 1, "weight_decay": decay}, 0,
         lambda p: O.SGD(p, lr, momentum, weight_decay=decay, nesterov=True)),
        ("adagrad", {"learning_rate_decay": f32(0.01), "eps": f32(1e-10), "weight_decay": decay}, clip,
         lambda p: O.Adagrad(p, lr, f32(0.01), decay, 0, f32(1e-10))),
        ("rmsprop", {"alpha": alpha, "eps": eps, "weight_decay": decay}, clip, lambda p: O.RMSprop(p, lr, alpha, eps, decay)),
        ("rmsprop", {"alpha": alpha, "eps": f32(1e-3), "momentum": momentum, "centered": 1, "weight_decay": decay}, 0,
         lambda p: O.RMSprop(p, lr, alpha, f32(1e-3), decay, momentum, True)),
        ("adafactor", {"beta2_decay": f32(-0.8), "eps": f32(1e-7), "eps2": f32(1e-3), "update_clip": 1, "weight_decay": decay}, clip,
         lambda p: O.Adafactor(p, lr, f32(-0.8), (f32(1e-7), f32(1e-3)), 1.0, decay)),
        ("lion", {"beta1": b1, "beta2": b2, "weight_decay": decay}, clip, lambda p: Lion(p, lr, (b1, b2), decay)),
    ]


def clip_to(params, most):
    """ClipByGlobalNorm. torch.nn.utils.clip_grad_norm_ divides by the norm + 1e-6."""
    norm = torch.sqrt(sum((p.grad * p.grad).sum() for p in params))
    if most > 0 and norm > most:
        for p in params:
            p.grad.mul_(most / norm)
    return norm


def make():
    start = [draw(5, 3), draw(7)]
    gradients = [[draw(5, 3), draw(7)] for _ in range(STEPS)]
    lines = [f"steps {STEPS}", tensor("w", start[0]), tensor("b", start[1])]
    for i, (g, h) in enumerate(gradients):
        lines += [tensor(f"gw.{i}", g), tensor(f"gb.{i}", h)]
    for name, options, clip, optimizer in recipes():
        params = [torch.nn.Parameter(t.clone()) for t in start]
        o = optimizer(params)
        lines.append(f"optimizer {name} learning_rate={number(f32(0.01))} clip_norm={number(clip)} "
                     + " ".join(f"{k}={v!r}" for k, v in options.items()))
        norms = []
        for i, pair in enumerate(gradients):
            for p, g in zip(params, pair):
                p.grad = g.clone()
            norms.append(clip_to(params, clip))
            o.step()
            if i + 1 in KEPT:
                lines += [tensor(f"w.{i + 1}", params[0]), tensor(f"b.{i + 1}", params[1])]
        lines.append(tensor("norms", torch.stack(norms)))
    return lines
