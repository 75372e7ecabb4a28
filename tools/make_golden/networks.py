"""Convolutions, pooling, channel norms, recurrent layers, masks."""

import torch
import torch.nn.functional as F

import operators
from operators import Index, Truth, case, rope
from text import draw


def convolutions():
    for rank, name in ((1, "1d"), (2, "2d"), (3, "3d")):
        conv, transposed = getattr(F, "conv" + name), getattr(F, "conv_transpose" + name)
        size = ((11,), (7, 5), (5, 4, 3))[rank - 1]
        window = ((3,), (3, 2), (3, 2, 1))[rank - 1]
        batch = 2 if rank < 3 else 1
        for groups, stride, pad, dilation in ((1, 1, 0, 1), (2, 2, 1, 1), (4, 1, 1, 2)):
            each = lambda n, times=rank: "[" + ",".join([str(n)] * times) + "]"
            attributes = f"strides={each(stride)} pads={each(pad, 2 * rank)} dilations={each(dilation)} groups={groups}"
            inputs = [draw(batch, 4, *size), draw(4, 4 // groups, *window), draw(4)]
            if all(s + 2 * pad >= dilation * (w - 1) + 1 for s, w in zip(size, window)):
                case("Conv", inputs, lambda x, w, b: conv(x, w, b, stride, pad, dilation, groups), attributes)
            more = stride - 1
            each_group = 4 // groups
            case("ConvTranspose", [draw(batch, 4, *size), draw(4, each_group, *window), draw(4)],
                 lambda x, w, b: transposed(x, w, b, stride, pad, more, groups, dilation), attributes + f" output_padding={each(more)}")
    case("Conv", [draw(2, 3, 9), draw(5, 3, 4)], lambda x, w: F.conv1d(F.pad(x, (1, 2)), w, stride=2), "strides=[2] pads=[1,2]")


def pools():
    x = draw(2, 3, 9, 7)
    for ceil in (False, True):
        name = f"window=[3,2] strides=[2,3] pads=[1,1,1,1] ceil={'true' if ceil else 'false'}"
        case("MaxPool", [x], lambda v: (F.max_pool2d(v, (3, 2), (2, 3), 1, 1, ceil)), name)
        for count in (False, True):
            case("AveragePool", [x], lambda v: F.avg_pool2d(v, (3, 2), (2, 3), 1, ceil, count),
                 name + f" count_pads={'true' if count else 'false'}")
    case("MaxPool", [draw(2, 3, 11)], lambda v: F.max_pool1d(v, 3, 2, 0, 2), "window=[3] strides=[2] dilations=[2]")
    case("AveragePool", [draw(2, 2, 5, 4, 5)], lambda v: F.avg_pool3d(v, 2, 1), "window=[2,2,2]")
    case("GlobalAveragePool", [x], lambda v: v.mean((2, 3), keepdim=True))


def norms():
    x = draw(3, 4, 5, scale=2)
    scale, bias = draw(4), draw(4)
    mean, variance = draw(4), draw(4, low=0.5)
    eps, momentum = 2.0 ** -7, 0.25

    def batch_norm(training):
        def f(v, s, b, m, r):
            running = [m.detach().clone(), r.detach().clone()]
            y = F.batch_norm(v, *running, s, b, training, momentum, eps)
            used = (v.mean((0, 2)), v.var((0, 2), unbiased=False)) if training else (m, r)
            return y, *running, used[0].detach(), torch.rsqrt(used[1] + eps).detach()
        return f

    for training in (0, 1):
        case("BatchNorm", [x, scale, bias, mean, variance], batch_norm(training == 1), f"eps={eps} momentum={momentum}",
             without=(3, 4), options=f"training={training}")
    case("GroupNorm", [x, scale, bias], lambda v, s, b: F.group_norm(v, 2, s, b, eps), f"groups=2 eps={eps}")
    case("InstanceNorm", [x, scale, bias], lambda v, s, b: F.instance_norm(v, weight=s, bias=b, eps=eps), f"eps={eps}")


def call(module, parameters, *args):
    return torch.func.functional_call(module, parameters, args)


def recurrent():
    steps, batch, h = 5, 3, 4
    for reverse in (False, True):
        turn = (lambda t: t.flip(0)) if reverse else (lambda t: t)
        attributes = f"reverse={'true' if reverse else 'false'}"

        def lstm(gates, w, h0, c0):
            layer = torch.nn.LSTM(4 * h, h, bias=False)
            y, _ = call(layer, {"weight_ih_l0": torch.eye(4 * h), "weight_hh_l0": w}, turn(gates), (h0[None], c0[None]))
            return turn(y), y.sum(), y.sum()

        case("Lstm", [draw(steps, batch, 4 * h), draw(4 * h, h), draw(batch, h), draw(batch, h)], lstm, attributes, blank=(1, 2))

        def gru(gates, w, h0, bias):
            layer = torch.nn.GRU(3 * h, h)
            zeros = torch.zeros(2 * h)
            y, _ = call(layer, {"weight_ih_l0": torch.eye(3 * h), "weight_hh_l0": w, "bias_ih_l0": torch.zeros(3 * h),
                                "bias_hh_l0": torch.cat((zeros, bias))}, turn(gates), h0[None])
            return turn(y), y.sum(), y.sum()

        case("Gru", [draw(steps, batch, 3 * h), draw(3 * h, h), draw(batch, h), draw(h)], gru, attributes, blank=(1, 2))


def masks():
    def masked(q, k, v, mask):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2), q.sum()

    qkv = [draw(2, 5, 4, 3), draw(2, 7, 2, 3), draw(2, 7, 2, 3)]
    additive = draw(2, 1, 5, 7)
    case("Attention", [*qkv, additive], masked, "mask=additive", without=(3,), blank=(1,))
    seen = torch.rand(2, 7) < 0.6
    seen[:, 0] = True
    case("Attention", [*qkv, Truth(seen)], lambda q, k, v, m: masked(q, k, v, m[:, None, None, :]), "mask=padding", blank=(1,))
    lengths = torch.tensor([3, 7])
    case("Attention", [*qkv, Index(lengths, 0, 7)],
         lambda q, k, v, n: masked(q, k, v, (torch.arange(7)[None] < n[:, None])[:, None, None, :]), "mask=lengths", blank=(1,))


def make():
    operators.LINES.clear()
    for part in (convolutions, pools, norms, recurrent, masks):
        part()
    return list(operators.LINES)
