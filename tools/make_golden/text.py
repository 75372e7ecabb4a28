"""Formats values as text, and draws values that are exact in f32."""

import numpy as np
import torch


def draw(*shape, scale=1.0, low=None):
    """Normal numbers in steps of 1/64: exact in f32, f16 mostly, and short to read. With `low` from
    there on.
    """
    x = torch.randn(shape)
    x = (x.abs() + low) if low is not None else x
    return (x * scale * 64).round() / 64


def f32(x):
    """Formats a value as rounded to f32."""
    return float(np.float32(x))


def number(v):
    return f"{v:.10g}"


def numbers(t):
    return "(" + ",".join(number(v) for v in t.detach().to(torch.float64).flatten().tolist()) + ")"


def shape(t):
    return "[" + ",".join(str(d) for d in t.shape) + "]"


def tensor(name, t):
    return f"tensor {name} {shape(t)} {numbers(t)}"
