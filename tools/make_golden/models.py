"""Small models: losses of 20 training steps, with the weights and batches."""

import torch
import torch.nn.functional as F

from operators import attention, rope
from text import draw, f32, tensor

STEPS = 20


def run(name, weights, batches, loss_of, optimizer):
    """The lines of a model: weights, batches, and the loss of every step."""
    lines = [f"model {name}"]
    params = {k: torch.nn.Parameter(v.clone()) for k, v in weights.items()}
    lines += [tensor(k, v) for k, v in weights.items()]
    for i, batch in enumerate(batches):
        lines += [tensor(f"{k}.{i}", v) for k, v in batch.items()]
    o = optimizer(list(params.values()))
    losses, norms = [], []
    for i in range(STEPS):
        o.zero_grad()
        loss = loss_of(params, batches[i % len(batches)])
        loss.backward()
        norms.append(torch.sqrt(sum((p.grad * p.grad).sum() for p in params.values() if p.grad is not None)))
        o.step()
        losses.append(loss.detach())
    lines += [tensor("losses", torch.stack(losses)), tensor("norms", torch.stack(norms))]
    return lines


def mlp():
    weights = {"w1": draw(13, 5, scale=0.5), "b1": draw(13, scale=0.1), "w2": draw(3, 13, scale=0.5), "b2": draw(3, scale=0.1)}
    batches = [{"x": draw(11, 5), "labels": torch.randint(0, 3, (11,))} for _ in range(4)]

    def loss(p, b):
        h = torch.tanh(F.linear(b["x"], p["w1"], p["b1"]))
        return F.cross_entropy(F.linear(h, p["w2"], p["b2"]), b["labels"])

    lr, momentum, decay = f32(0.1), f32(0.9), f32(0.01)
    return run("mlp", weights, batches, loss, lambda p: torch.optim.SGD(p, lr, momentum, weight_decay=decay, nesterov=True))


def decoder():
    """Two layers, four query heads that share two of keys and values, RoPE, RMSNorm, gated
    feed-forward, tied embedding.
    """
    vocabulary, c, heads, kv, d = 23, 12, 4, 2, 3
    weights = {"embedding": draw(vocabulary, c, scale=0.5)}
    for i in range(2):
        weights |= {f"norm1.{i}": draw(c, low=0.5, scale=0.5), f"q.{i}": draw(heads * d, c, scale=0.3), f"k.{i}": draw(kv * d, c, scale=0.3),
                    f"v.{i}": draw(kv * d, c, scale=0.3), f"out.{i}": draw(c, heads * d, scale=0.3), f"norm2.{i}": draw(c, low=0.5, scale=0.5),
                    f"gate.{i}": draw(17, c, scale=0.3), f"up.{i}": draw(17, c, scale=0.3), f"down.{i}": draw(c, 17, scale=0.3)}
    weights["norm"] = draw(c, low=0.5, scale=0.5)
    batches = []
    for _ in range(4):
        labels = torch.randint(0, vocabulary, (2, 7))
        labels[1, 5:] = -100
        batches.append({"tokens": torch.randint(0, vocabulary, (2, 7)), "labels": labels})
    eps = 2.0 ** -17

    def loss(p, b):
        x = F.embedding(b["tokens"], p["embedding"])
        for i in range(2):
            h = F.rms_norm(x, (c,), p[f"norm1.{i}"], eps)
            q = rope(F.linear(h, p[f"q.{i}"]).reshape(2, 7, heads, d), rotary=2)
            k = rope(F.linear(h, p[f"k.{i}"]).reshape(2, 7, kv, d), rotary=2)
            v = F.linear(h, p[f"v.{i}"]).reshape(2, 7, kv, d)
            x = x + F.linear(attention(q, k, v, True).reshape(2, 7, heads * d), p[f"out.{i}"])
            h = F.rms_norm(x, (c,), p[f"norm2.{i}"], eps)
            x = x + F.linear(F.silu(F.linear(h, p[f"gate.{i}"])) * F.linear(h, p[f"up.{i}"]), p[f"down.{i}"])
        logits = F.linear(F.rms_norm(x, (c,), p["norm"], eps), p["embedding"])
        return F.cross_entropy(logits.reshape(-1, vocabulary), b["labels"].reshape(-1))

    lr, b1, b2, e, decay = f32(3e-3), f32(0.9), f32(0.99), f32(1e-8), f32(0.1)
    return run("decoder", weights, batches, loss, lambda p: torch.optim.AdamW(p, lr, (b1, b2), e, decay))


def convolutional():
    """Two convolutions with BatchNorm in training, a pool, and a mean over the image."""
    weights = {"conv1": draw(4, 1, 3, 3, scale=0.5), "scale1": draw(4, low=0.5), "bias1": draw(4, scale=0.1),
               "conv2": draw(6, 4, 3, 3, scale=0.3), "scale2": draw(6, low=0.5), "bias2": draw(6, scale=0.1),
               "w": draw(3, 6, scale=0.5), "b": draw(3, scale=0.1)}
    batches = [{"x": draw(5, 1, 7, 9), "labels": torch.randint(0, 3, (5,))} for _ in range(4)]

    def loss(p, b):
        x = F.conv2d(b["x"], p["conv1"], padding=1)
        x = F.relu(F.batch_norm(x, None, None, p["scale1"], p["bias1"], True, 0.1, 2.0 ** -17))
        x = F.conv2d(F.max_pool2d(x, 2), p["conv2"])
        x = F.relu(F.batch_norm(x, None, None, p["scale2"], p["bias2"], True, 0.1, 2.0 ** -17))
        return F.cross_entropy(F.linear(x.mean((2, 3)), p["w"], p["b"]), b["labels"])

    lr, momentum = f32(0.05), f32(0.9)
    return run("convolutional", weights, batches, loss, lambda p: torch.optim.SGD(p, lr, momentum))


def recurrent():
    """A language model with an LSTM layer."""
    vocabulary, c, h = 13, 6, 5
    weights = {"embedding": draw(vocabulary, c, scale=0.5), "w_ih": draw(4 * h, c, scale=0.4), "bias": draw(4 * h, scale=0.1),
               "w_hh": draw(4 * h, h, scale=0.4), "out": draw(vocabulary, h, scale=0.5), "out_bias": draw(vocabulary, scale=0.1)}
    # Time comes first.
    batches = [{"tokens": torch.randint(0, vocabulary, (7, 3)), "labels": torch.randint(0, vocabulary, (7, 3))} for _ in range(4)]

    def loss(p, b):
        layer = torch.nn.LSTM(c, h)
        parameters = {"weight_ih_l0": p["w_ih"], "weight_hh_l0": p["w_hh"], "bias_ih_l0": p["bias"], "bias_hh_l0": torch.zeros(4 * h)}
        y, _ = torch.func.functional_call(layer, parameters, (F.embedding(b["tokens"], p["embedding"]),))
        return F.cross_entropy(F.linear(y, p["out"], p["out_bias"]).reshape(-1, vocabulary), b["labels"].reshape(-1))

    lr, alpha, eps = f32(3e-3), f32(0.9), f32(1e-3)
    return run("recurrent", weights, batches, loss, lambda p: torch.optim.RMSprop(p, lr, alpha, eps))


def make():
    return mlp() + convolutional() + recurrent() + decoder()
