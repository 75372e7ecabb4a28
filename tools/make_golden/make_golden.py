#!/usr/bin/env python3
"""Makes tests/golden/torch: results of PyTorch for operators, optimizers and small models, as data
for tests/torch.

    python3 -m venv venv && venv/bin/pip install torch numpy && venv/bin/python
    tools/make_golden/make_golden.py

All of it on the CPU in double precision, with inputs and hyperparameters that are exact in f32. The
same PyTorch gives the same bytes. The form of the files is described in tests/torch/golden.h. Where
Bowline means another thing than PyTorch, the operator says so, and what stands here is what Bowline
means.
"""

import pathlib

import torch

import models
import networks
import operators
import optimizers
import reductions

SEED = 20261122
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/torch"


def write(name, lines):
    head = f"# Made by tools/make_golden with PyTorch {torch.__version__.split('+')[0]}, seed {SEED}, in double precision.\n"
    (FOLDER / name).write_text(head + "\n".join(lines) + "\n")


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part in (operators, reductions, networks, optimizers, models):
        torch.manual_seed(SEED)
        write(part.__name__ + ".golden", part.make())
    print(f"{sum(p.stat().st_size for p in FOLDER.iterdir())} bytes in {FOLDER}")


if __name__ == "__main__":
    main()
