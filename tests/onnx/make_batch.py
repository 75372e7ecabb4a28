#!/usr/bin/env python3
"""Makes the fixtures of tests/onnx/batch: models exported for a batch of 1.

    make_batch.py [FOLDER]

ONNX Runtime computes the expected outputs row by row, for batches of 1, 2 and 5. The models contain
patterns that exporters write for a fixed batch of 1: shapes and states with a 1, rows without a
batch axis. Needs the packages onnx, onnxruntime and numpy. The inputs are the same in every run.
The outputs may differ between versions of ONNX Runtime.

exit codes: 0 done, 1 a case cannot be made, 2 wrong usage.
"""
import pathlib
import shutil
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(0)
BATCHES = (1, 2, 5)


class Graph:
    """Builds a model node by node.

    `axes` has the batch axis of each input and output. None: the output gets a leading batch axis.
    """

    def __init__(self, opset=17):
        self.opset, self.nodes, self.initializers, self.inputs, self.axes, self.counter = opset, [], [], [], {}, 0

    def input(self, name, shape, dtype=TensorProto.FLOAT, axis=0):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        self.axes[name] = axis
        return name

    def weight(self, *shape):
        return self.constant((RANDOM.standard_normal(shape) * 0.5).astype(np.float32))

    def constant(self, value):
        self.counter += 1
        self.initializers.append(numpy_helper.from_array(np.asarray(value), f"w{self.counter}"))
        return f"w{self.counter}"

    def whole(self, *values):
        return self.constant(np.array(values, np.int64))

    def op(self, kind, *inputs, outputs=1, **attributes):
        self.counter += 1
        names = [f"v{self.counter}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, f"{kind}_{self.counter}", **attributes))
        return names if outputs > 1 else names[0]

    def output(self, value, name, axis=0):
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.axes[name] = axis

    def model(self):
        outputs = [n.output[0] for n in self.nodes if n.output[0] in self.axes]
        graph = helper.make_graph(self.nodes, "batch", self.inputs, [helper.make_empty_tensor_value_info(o) for o in outputs],
                                  self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return model, session, outputs


def images():
    g = Graph()
    x = g.input("x", [1, 2, 6, 6])
    y = g.op("Relu", g.op("Conv", x, g.weight(4, 2, 3, 3), g.weight(4), pads=[1, 1, 1, 1]))
    y = g.op("InstanceNormalization", y, g.weight(4), g.weight(4))
    y = g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    g.output(g.op("Resize", y, "", g.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear"), "larger")
    y = g.op("Reshape", g.op("ConvTranspose", y, g.weight(4, 2, 2, 2), strides=[2, 2]), g.whole(1, -1))
    g.output(g.op("Softmax", g.op("Gemm", y, g.weight(72, 5), g.weight(5)), axis=1), "classes")
    return g


def tokens():
    g = Graph()
    x = g.input("x", [1, 5, 8])
    parts = g.op("Split", g.op("MatMul", x, g.weight(8, 24)), g.whole(8, 8, 8), outputs=3, axis=2)
    q, k, v = (g.op("Transpose", g.op("Reshape", p, g.whole(1, 5, 2, 4)), perm=[0, 2, 1, 3]) for p in parts)
    mask = g.constant(np.triu(np.full((1, 1, 5, 5), -1e9, np.float32), 1))
    scores = g.op("Add", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), mask)
    heads = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    # without a batch axis
    rows = g.op("Reshape", g.op("Transpose", heads, perm=[0, 2, 1, 3]), g.whole(5, 8))
    y = g.op("Add", g.op("Reshape", g.op("MatMul", rows, g.weight(8, 8)), g.whole(1, 5, 8)), x)
    y = g.op("LayerNormalization", y, g.weight(8), g.weight(8))
    y = g.op("Concat", g.weight(1, 1, 8), y, axis=1)  # a class token
    g.output(g.op("Gemm", g.op("Gather", y, g.constant(np.array(0, np.int64)), axis=1), g.weight(8, 3)), "y")
    return g


def recurrent():
    g = Graph()
    x = g.op("Transpose", g.input("x", [1, 4, 3]), perm=[1, 0, 2])
    y, h, _ = g.op("LSTM", x, g.weight(2, 20, 3), g.weight(2, 20, 5), g.weight(2, 40), "", g.weight(2, 1, 5), g.weight(2, 1, 5), outputs=3,
                   hidden_size=5, direction="bidirectional")
    g.output(h, "h", axis=1)
    y = g.op("Transpose", g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.whole(4, 1, 10)), perm=[1, 0, 2])
    g.output(y, "y")
    y = g.op("Transpose", y, perm=[1, 0, 2])
    g.output(g.op("GRU", y, g.weight(1, 12, 10), g.weight(1, 12, 4), hidden_size=4, outputs=2)[1], "gru", axis=1)
    g.output(g.op("ReduceMean", y, axes=[0], keepdims=0), "mean")
    g.output(g.op("RNN", y, g.weight(1, 4, 10), g.weight(1, 4, 4), hidden_size=4, outputs=2)[0], "rnn", axis=2)
    return g


def states():
    """The batch is axis 1 of a recurrent state that the file creates."""
    g = Graph()
    x, state = g.input("x", ["batch", 3]), g.input("state", [2, "batch", 5], axis=1)
    first, second = g.op("Split", state, g.whole(1, 1), outputs=2, axis=0)
    h = g.op("Squeeze", first, g.whole(0))
    y = g.op("Tanh", g.op("Add", g.op("MatMul", x, g.weight(3, 5)), g.op("MatMul", h, g.weight(5, 5))))
    g.output(y, "y")
    g.output(g.op("Concat", second, g.op("Unsqueeze", y, g.whole(0)), axis=0), "next", axis=1)
    return g


def shapes():
    """Shapes that are computed from the input shape."""
    g = Graph()
    x, ids = g.input("x", [1, 3, 4]), g.input("ids", [1, 3], TensorProto.INT64)
    shape = g.op("Shape", x)
    first = g.op("Unsqueeze", g.op("Gather", shape, g.constant(np.array(0, np.int64)), axis=0), g.whole(0))
    y = g.op("Add", x, g.op("Expand", g.weight(1, 1, 4), shape))
    y = g.op("Add", y, g.op("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([0.5], np.float32))))
    y = g.op("Add", y, g.op("Gather", g.weight(9, 4), ids, axis=0))
    flat = g.op("Reshape", y, g.op("Concat", first, g.whole(12), axis=0))
    g.output(g.op("MatMul", flat, g.weight(12, 2)), "flat")
    g.output(g.op("Reshape", flat, g.op("Concat", first, g.whole(4, -1), axis=0)), "again")
    g.output(g.op("ReduceMean", y, axes=[2], keepdims=0), "mean")
    g.output(g.op("Einsum", y, g.weight(4, 2), equation="bij,jk->bik"), "einsum")
    return g


def elements():
    """Operators along an axis other than the batch."""
    g = Graph(13)
    x, ids = g.input("x", [1, 4, 6]), g.input("ids", [1, 4, 6], TensorProto.INT64)
    g.output(g.op("CumSum", x, g.constant(np.array(1, np.int64))), "sum")
    g.output(g.op("TopK", x, g.whole(2), axis=2, outputs=2)[0], "top")
    g.output(g.op("ArgMax", x, axis=1, keepdims=0), "largest")
    g.output(g.op("Pad", x, g.whole(0, 1, 2, 0, 0, 1)), "padded")
    g.output(g.op("Tile", x, g.whole(1, 2, 1)), "tiled")
    g.output(g.op("Slice", x, g.whole(1), g.whole(3), g.whole(2)), "slice")
    g.output(g.op("GatherElements", x, ids, axis=2), "gathered")
    places = g.constant(np.array([[[0, 2, 5], [1, 4, 3], [5, 0, 1], [2, 3, 4]]]))
    g.output(g.op("GatherElements", x, places, axis=2), "places")
    g.output(g.op("ScatterElements", x, places, g.weight(1, 4, 3), axis=2), "scattered")
    g.output(g.op("OneHot", ids, g.whole(6), g.constant(np.array([0, 1], np.float32)), axis=-1), "hot")
    g.output(g.op("Where", g.op("Greater", x, g.constant(np.array(0, np.float32))), x, g.weight(1, 4, 1)), "where")
    return g


def squeezed():
    """Rows that lose their batch axis, and may get it back."""
    g = Graph(13)
    x = g.input("x", [1, 3, 4])
    row = g.op("Squeeze", x, g.whole(0))
    g.output(g.op("Unsqueeze", g.op("Relu", row), g.whole(0)), "back")
    first = g.op("Gather", x, g.constant(np.array(0, np.int64)), axis=0)
    g.output(g.op("MatMul", g.op("Slice", x, g.whole(0), g.whole(1), g.whole(0)), g.weight(4, 2)), "slice")
    g.output(g.op("Unsqueeze", g.op("Add", g.op("MatMul", first, g.weight(4, 2)), g.weight(2)), g.whole(0)), "first")
    g.output(g.op("Softmax", row, axis=1), "lost", axis=None)
    return g


def heads():
    """Attention with time first, as PyTorch exports it: matrix rows, then heads."""
    g = Graph()
    x = g.op("Transpose", g.input("x", [1, 4, 6]), perm=[1, 0, 2])
    rows = g.op("Reshape", x, g.whole(4, 6))

    def part():
        y = g.op("Reshape", g.op("Gemm", rows, g.weight(6, 6), g.weight(6)), g.whole(4, 1, 6))
        return g.op("Transpose", g.op("Reshape", y, g.whole(4, 2, 3)), perm=[1, 0, 2])

    q, k, v = part(), part(), part()
    y = g.op("MatMul", g.op("Softmax", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 1])), axis=-1), v)
    y = g.op("Gemm", g.op("Reshape", g.op("Transpose", y, perm=[1, 0, 2]), g.whole(4, 6)), g.weight(6, 6), g.weight(6))
    g.output(g.op("Transpose", g.op("Reshape", y, g.whole(4, 1, 6)), perm=[1, 0, 2]), "y")
    return g


def sampled():
    """GridSample: a grid per image, a shared grid, and a shared image."""
    g = Graph(20)
    x, grid = g.input("x", [1, 2, 4, 5]), g.input("grid", [1, 3, 2, 2])
    g.output(g.op("GridSample", x, grid, mode="linear"), "own")
    g.output(g.op("GridSample", x, g.weight(1, 3, 4, 2), mode="cubic", padding_mode="border", align_corners=1), "one")
    g.output(g.op("GridSample", x, g.weight(1, 6, 6, 2), mode="nearest"), "nearest")
    g.output(g.op("GridSample", g.weight(1, 3, 4, 4), grid, mode="linear", padding_mode="reflection"), "image")
    return g


def write(folder, name, graph):
    model, session, outputs = graph.model()
    test = folder / f"test_{name}"
    results = {}
    for number, batch in enumerate(BATCHES):
        rows = []
        for _ in range(batch):
            rows.append({})
            for info in graph.inputs:
                tensor = info.type.tensor_type
                shape = [d.dim_value or 1 for d in tensor.shape.dim]
                wholes = tensor.elem_type == TensorProto.INT64
                rows[-1][info.name] = RANDOM.integers(0, 6, shape) if wholes else RANDOM.standard_normal(shape).astype(np.float32)
        results = [session.run(outputs, row) for row in rows]
        inputs = {i.name: np.concatenate([row[i.name] for row in rows], graph.axes[i.name]) for i in graph.inputs}
        expected = {o: np.stack([r[i] for r in results]) if graph.axes[o] is None else np.concatenate([r[i] for r in results], graph.axes[o])
                    for i, o in enumerate(outputs)}
        data = test / f"test_data_set_{number}"
        data.mkdir(parents=True)
        for kind, values in (("input", inputs), ("output", expected)):
            for i, (tensor, value) in enumerate(values.items()):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(value, tensor).SerializeToString())
    for info, value in zip(model.graph.output, results[0]):
        info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim))
    (test / "model.onnx").write_bytes(model.SerializeToString())


def main():
    """Writes every case again."""
    if len(sys.argv) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else here / "batch"
    shutil.rmtree(folder, ignore_errors=True)
    for make in (images, tokens, recurrent, states, shapes, elements, squeezed, heads, sampled):
        try:
            write(folder, make.__name__, make())
        except Exception as error:
            print(f"make_batch.py: {make.__name__}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
