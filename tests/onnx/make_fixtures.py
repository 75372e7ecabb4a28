#!/usr/bin/env python3
"""Makes tests/onnx/fixtures: small PyTorch models exported to ONNX with a loss.

    python3 -m venv venv && venv/bin/pip install torch numpy onnx onnxscript
    venv/bin/python tests/onnx/make_fixtures.py

Each <name>.onnx has the inputs x and labels and the outputs loss and scores. <name>.losses has
lines "step loss" of 300 PyTorch steps (SGD with momentum, double precision). A last line
"held_out loss" is for an unseen batch in evaluation mode. The batches come from a small generator
that tests/onnx/training_test.cpp has too.
"""

import pathlib
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures"
BATCH, CLASSES, STEPS = 8, 4, 300
SHOWN = (1, 2, 5, 20, 60, 150, 300)


class Generator:
    """Random values in [-0.5, 0.5) with 24 bits."""

    def __init__(self):
        self.state = 1

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self.state >> 8) / (1 << 24) - 0.5

    def batch(self, shape):
        """Each class adds a constant to every fourth element."""
        count = int(np.prod(shape))
        x, labels = np.zeros((BATCH, count)), np.zeros(BATCH, np.int64)
        for i in range(BATCH):
            labels[i] = int((self.next() + 0.5) * CLASSES)
            for j in range(count):
                x[i, j] = 2 * self.next() + (0.375 if j % CLASSES == labels[i] else 0)
        x = x.astype(np.float32).astype(np.float64)
        return torch.tensor(x.reshape(BATCH, *shape)), torch.tensor(labels)


class Frozen(nn.Module):
    """Convolutions with BatchNorm in evaluation mode during training."""
    shape, evaluation = (1, 8, 8), True

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.features(x))


class Batched(Frozen):
    """As Frozen, with batch statistics."""
    evaluation = False


class Separable(nn.Module):
    """A block of MobileNet with a residual, in training mode."""
    shape, evaluation = (4, 6, 6), False

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
                                   nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block(x)
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """An encoder layer with LayerNorm, a learned position and a transposed, scaled weight."""
    shape, evaluation = (6, 8), True

    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.randn(6, 8) * 0.1)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Parameter(torch.randn(8, 16) * 0.2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = x + self.position
        q, k, v = (t.reshape(-1, 6, 2, 4).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        a = torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(-1, 6, 8))
        x = x + F.gelu(self.up(self.second(x))) @ (self.down * 2).T
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    """An LSTM and a GRU, whose gates the importer reorders."""
    shape, evaluation = (5, 8), True

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 6, batch_first=True), nn.GRU(6, 6, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


class Gated(nn.Module):
    """Gated convolutions over time, PReLU and a scale per channel."""
    shape, evaluation = (4, 12), True

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 16, 3, dilation=2)
        self.act, self.gain = nn.PReLU(8), nn.Parameter(torch.full((8,), 0.5))
        self.head = nn.Linear(8 * 8, CLASSES)

    def forward(self, x):
        a, gate = self.conv(x).chunk(2, 1)
        x = self.act(a) * torch.sigmoid(gate) * self.gain[:, None]
        return self.head(x.flatten(1))


class Weighted(nn.Module):
    """A loss with class weights in a buffer."""
    shape, evaluation = (6,), True

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, CLASSES))
        self.register_buffer("classes", torch.tensor([0.5, 4.0, 1.0, 2.0]))

    def forward(self, x):
        return self.layers(x)


class Shared(Weighted):
    """The class weights also scale the scores. Only this use gives them a gradient."""

    def __init__(self):
        super().__init__()
        self.classes = nn.Parameter(self._buffers.pop("classes"))

    def forward(self, x):
        return self.layers(x) * self.classes


def loss_of(model, x, labels):
    classes = getattr(model, "classes", None)
    return F.cross_entropy(model(x), labels, None if classes is None else classes.detach())


def with_loss(path, classes):
    """Adds the loss of the scores to the exported graph."""
    model = onnx.load(path)
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("labels", TensorProto.INT64, ["batch"]))
    inputs = ["scores", "labels"] + (["classes"] if classes is not None else [])
    if classes is not None and "classes" not in [tensor.name for tensor in graph.initializer]:
        graph.initializer.append(numpy_helper.from_array(classes.detach().numpy(), "classes"))
    graph.node.append(helper.make_node("SoftmaxCrossEntropyLoss", inputs, ["loss"], reduction="mean"))
    graph.output.insert(0, helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    del graph.value_info[:]
    model.producer_version = ""
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, path)


def export(name, model, dynamo):
    path = FOLDER / f"{name}.onnx"
    x = torch.randn(BATCH, *model.shape)
    if dynamo:
        torch.onnx.export(model, (x,), path, dynamo=True, input_names=["x"], output_names=["scores"],
                          dynamic_shapes=({0: "batch"},), external_data=False)
    else:
        mode = torch.onnx.TrainingMode.PRESERVE
        torch.onnx.export(model, (x,), path, dynamo=False, opset_version=17, input_names=["x"], output_names=["scores"],
                          dynamic_axes={"x": {0: "batch"}}, training=mode, do_constant_folding=False)
    with_loss(path, getattr(model, "classes", None))


def train(name, model):
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data, lines = Generator(), []
    for step in range(1, STEPS + 1):
        x, labels = data.batch(model.shape)
        loss = loss_of(model, x, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in SHOWN:
            lines.append(f"{step} {loss.item():.8f}")
    x, labels = data.batch(model.shape)
    model.eval()
    lines.append(f"held_out {loss_of(model, x, labels).item():.8f}")
    (FOLDER / f"{name}.losses").write_text("\n".join(lines) + "\n")
    print(name, "; ".join(lines))


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for kind, dynamo in ((Frozen, False), (Batched, False), (Separable, False), (Attention, False), (Recurrent, False), (Gated, True),
                          (Weighted, False), (Shared, False)):
        torch.manual_seed(20261125)
        model = kind()
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                with torch.no_grad():
                    layer.running_mean.normal_(0, 0.1)
                    layer.running_var.uniform_(0.5, 1.5)
                    layer.weight.uniform_(0.8, 1.2)
                    layer.bias.normal_(0, 0.1)
        model.train(not kind.evaluation)
        name = kind.__name__.lower()
        export(name, model, dynamo)
        train(name, model)


if __name__ == "__main__":
    main()
