"""Writes an ONNX model: nodes, f32 initializers and integer attributes. Field numbers are those of
onnx.proto.
"""

OPSET = 15
FLOAT, INT, INTS = 1, 2, 7


def varint(value):
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def field(number, content):
    """Encodes a protobuf field: bytes, texts and messages with their length, integers as
    varints."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(name, value):
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, INT)
    return field(1, name) + b"".join(field(8, v) for v in value) + field(20, INTS)


def value_info(name, shape):
    dims = b"".join(field(1, field(1, dim)) for dim in shape)
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, dims)))


class OnnxFile:
    def __init__(self):
        self.graph, self.nodes = field(2, "graph"), 0

    def initializer(self, name, shape, data):
        """`data` is f32, little endian."""
        dims = b"".join(field(1, dim) for dim in shape)
        self.graph += field(5, dims + field(2, FLOAT) + field(8, name) + field(9, data))

    def input(self, name, shape):
        self.graph += field(11, value_info(name, shape))
        return name

    def node(self, op, inputs, **attributes):
        """Adds a node; returns the name of its output."""
        output = f"value{self.nodes}"
        self.nodes += 1
        parts = [field(1, i) for i in inputs] + [field(2, output), field(3, output), field(4, op)]
        parts += [field(5, attribute(name, value)) for name, value in attributes.items()]
        self.graph += field(1, b"".join(parts))
        return output

    def finish(self, output, shape):
        """Returns the bytes of the file. `output` is the output of the model."""
        graph = self.graph + field(12, value_info(output, shape))
        return field(1, 8) + field(7, graph) + field(8, field(2, OPSET))
