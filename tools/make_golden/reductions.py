"""Reductions, gathers and layout."""

import torch
import torch.nn.functional as F

import operators
from operators import Index, case
from text import draw


def flag(b):
    return "true" if b else "false"


def reductions():
    x = draw(2, 3, 5)
    equal = (x * 2).round() / 2
    for axes in ([1], [0, 2], [2]):
        for keep in (False, True):
            attributes = f"axes=[{','.join(map(str, axes))}] keep_dims={flag(keep)}"
            case("ReduceMax", [equal], lambda v: v.amax(axes, keep), attributes)
            case("ReduceMin", [equal], lambda v: v.amin(axes, keep), attributes)
    for axis in (0, 1, 2):
        case("ReduceProd", [equal], lambda v: v.prod(axis), f"axes=[{axis}]")
        for op, f in (("ArgMax", torch.argmax), ("ArgMin", torch.argmin)):
            case(op, [x], lambda v: f(v, axis), f"axis={axis}", grad=False)
        case("CumSum", [x], lambda v: v.cumsum(axis), f"axis={axis}")
        case("CumSum", [x], lambda v: v.flip(axis).cumsum(axis).flip(axis), f"axis={axis} reverse=true")
        for largest in (False, True):
            case("TopK", [x], lambda v: v.topk(2, axis, largest), f"k=2 axis={axis} largest={flag(largest)}")
    case("LogSoftmax", [draw(3, 7, scale=2)], lambda v: F.log_softmax(v, -1), "axis=-1")


def gathers():
    x = draw(3, 5, 4)
    ids = torch.tensor([[0, 2, 2], [1, 0, 1]])
    for axis in (0, 1, 2):
        case("Gather", [x, Index(ids, 0, 2)], lambda v, i: v.index_select(axis, i.flatten()).unflatten(axis, i.shape), f"axis={axis}")
        elements = torch.randint(0, x.shape[axis], (2, 3, 4))
        case("GatherElements", [x, Index(elements, 0, x.shape[axis] - 1)], lambda v, i: v.gather(axis, i), f"axis={axis}")
        case("ScatterElements", [x, Index(elements, 0, x.shape[axis] - 1), draw(2, 3, 4)], lambda v, i, u: v.scatter_add(axis, i, u),
             f"axis={axis} reduction=add")
        # Each index occurs once: PyTorch gives the gradient to all elements with equal indices.
        once = torch.stack([torch.randperm(x.shape[axis])[:3] for _ in range(x.numel() // x.shape[axis])])
        once = once.reshape(*[d for a, d in enumerate(x.shape) if a != axis], 3).movedim(-1, axis)
        case("ScatterElements", [x, Index(once, 0, x.shape[axis] - 1), draw(*once.shape)], lambda v, i, u: v.scatter(axis, i, u),
             f"axis={axis} reduction=none")
        for name, how in (("mul", "prod"), ("max", "amax"), ("min", "amin")):
            case("ScatterElements", [x, Index(elements, 0, x.shape[axis] - 1), draw(2, 3, 4)],
                 lambda v, i, u: v.scatter_reduce(axis, i, u, how), f"axis={axis} reduction={name}", grad=False)
    case("OneHot", [Index(ids, 0, 2)], lambda i: F.one_hot(i, 3).to(torch.float64), "depth=3", grad=False)


def layout():
    x = draw(2, 3, 5)
    case("Pad", [x], lambda v: F.pad(v, (2, 1, 0, 3, 1, 0), value=0.5), "begin=[1,0,2] end=[0,3,1] value=0.5")
    case("Pad", [x], lambda v: F.pad(v, (-1, 2, 0, -1)), "begin=[0,0,-1] end=[0,-1,2]")
    for mode, name in (("edge", "replicate"), ("reflect", "reflect"), ("wrap", "circular")):
        case("Pad", [x], lambda v: F.pad(v, (3, 2), name), f"begin=[0,0,3] end=[0,0,2] mode={mode}")
    case("Tile", [x], lambda v: v.tile(2, 1, 3), "repeats=[2,1,3]")
    case("Expand", [draw(3, 1, 5)], lambda v: v.expand(2, 3, 7, 5), "dims=[2,3,7,5]")


def make():
    operators.LINES.clear()
    for part in (reductions, gathers, layout):
        part()
    return list(operators.LINES)
