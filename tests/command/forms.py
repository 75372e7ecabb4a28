"""Readers of model formats of other tools: safetensors and GGUF."""

import json
import pathlib
import re
import struct

SIZES = {"I32": 4, "F32": 4, "F16": 2, "BF16": 2}
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
# Elements and bytes of a block, by the number of the tensor type.
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2)}
for description in (pathlib.Path(__file__).resolve().parents[2] / "runtime/base/formats").glob("*.h"):
    kind, block, size = re.search(r"//! gguf (\d+) .*\n//! block (\d+) values (\d+) bytes", description.read_text()).groups()
    BLOCKS[int(kind)] = (int(block), int(size))


def read_safetensors(path, of_model=True):
    """Returns dtype, shape and bytes of each tensor. Files of models name the format."""
    content = path.read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    assert length % 8 == 0
    header = json.loads(content[8:8 + length])
    assert header.pop("__metadata__", None) == ({"format": "pt"} if of_model else None)
    tensors = {}
    end = 0
    for name, t in header.items():
        first, last = t["data_offsets"]
        assert first == end and first % SIZES[t["dtype"]] == 0, name
        tensors[name] = (t["dtype"], t["shape"], content[8 + length + first:8 + length + last])
        end = last
    assert 8 + length + end == len(content)
    return tensors


class Gguf:
    """Keys and values, and type, shape (outermost dimension first) and bytes of each tensor."""

    def __init__(self, path):
        self.content, self.at = path.read_bytes(), 0
        assert self.take("<4s") == b"GGUF" and self.take("<I") == 3
        tensors, keys = self.take("<Q"), self.take("<Q")
        self.keys, self.entries = {}, {}
        for _ in range(keys):
            first, key = self.at, self.text()
            self.keys[key] = self.value(self.take("<I"))
            self.entries[key] = self.content[first:self.at]
        placed, first = [], self.at
        for _ in range(tensors):
            name = self.text()
            shape = [self.take("<Q") for _ in range(self.take("<I"))][::-1]
            placed.append((name, self.take("<I"), shape, self.take("<Q")))
        self.listing = self.content[first:self.at]  # the list of the tensors
        begin = (self.at + 31) // 32 * 32
        self.data = self.content[begin:]
        self.tensors = {}
        for name, kind, shape, offset in placed:
            elements, size = BLOCKS[kind]
            count = size
            for dim in shape:
                count *= dim
            self.tensors[name] = (kind, shape, self.content[begin + offset:begin + offset + count // elements])

    def with_keys(self, other, prefix):
        """Returns the file with the keys that begin with `prefix` taken from another file."""
        entries = {key: entry for key, entry in self.entries.items() if not key.startswith(prefix)}
        entries |= {key: entry for key, entry in other.entries.items() if key.startswith(prefix)}
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(entries)) + b"".join(entries.values()) + self.listing
        return head + bytes(-len(head) % 32) + self.data

    def with_values(self, values):
        """Returns the file with additional keys: bool, int, float or str."""
        def packed(value):
            if isinstance(value, str):
                return struct.pack("<IQ", 8, len(value)) + value.encode()
            return struct.pack(*(("<I?", 7) if isinstance(value, bool) else ("<II", 4) if isinstance(value, int) else ("<If", 6)), value)
        entries = self.entries | {key: struct.pack("<Q", len(key)) + key.encode() + packed(value) for key, value in values.items()}
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(entries)) + b"".join(entries.values()) + self.listing
        return head + bytes(-len(head) % 32) + self.data

    def with_places(self, place_of):
        """Returns the file with the offset of each tensor replaced by the offset of another tensor.
        """
        listing, at = bytearray(self.listing), 0
        places, offsets = {}, {}
        for name in self.tensors:
            at += 8 + len(name.encode())
            at += 4 + 8 * len(self.tensors[name][1]) + 4
            offsets[name], places[name] = struct.unpack_from("<Q", listing, at)[0], at
            at += 8
        for name, place in places.items():
            struct.pack_into("<Q", listing, place, offsets[place_of(name)])
        head = self.content[:24] + b"".join(self.entries.values()) + bytes(listing)
        return head + bytes(-len(head) % 32) + self.data

    def take(self, form):
        value = struct.unpack_from(form, self.content, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.take("<Q")
        self.at += length
        return self.content[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, count = self.take("<I"), self.take("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.take(NUMBERS[kind])


def write_gguf(path, keys, tensors):
    """Writes a file in GGUF 3. Keys are bool, int, float or str. Tensors are of f32: pairs of shape
    and bytes.
    """
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def packed(value):
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        return struct.pack(*(("<I?", 7) if isinstance(value, bool) else ("<II", 4) if isinstance(value, int) else ("<If", 6)), value)
    listing, data = b"", b""
    for name, (shape, content) in tensors.items():
        listing += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], 0, len(data))
        data += content + bytes(-len(content) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(k) + packed(v) for k, v in keys.items()) + listing
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_safetensors(path, tensors):
    """Writes f32 tensors by name, each as shape and values."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, numbers) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
