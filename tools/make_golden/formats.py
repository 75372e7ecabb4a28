#!/usr/bin/env python3
"""Makes the files of tests/gguf/data/formats: blocks of every format with the values that PyPI's
gguf decodes, and values with the blocks that llama.cpp's quantizer makes of them.

usage: formats.py FOLDER [NAME...]

  <name>.gguf    tensors: blocks (random, some with scales that are denormal, infinite or NaN),
                 expected (F32, what gguf.quants makes of them), values (F32), llama (what
                 ggml_quantize_chunk makes of values). The keys made.* name the versions, and the
                 SHA-256 of ggml's library.

Needs gguf and llama-cpp-python of PyPI. All values are random numbers of fixed seeds.
"""

import ctypes
import hashlib
import importlib.metadata
import pathlib
import re
import sys

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(llama_cpp.__file__).parent / "lib/libggml-base.so"
# Bits of f16 scales: denormals, infinities, quiet and signaling NaN, the largest value.
SCALES = [0x0001, 0x83FF, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x7BFF, 0x8000]


def formats():
    """{name: (type, offsets of f16 scales)} from the descriptions."""
    out = {}
    for path in sorted((ROOT / "runtime/base/formats").glob("*.h")):
        text = path.read_text()
        halves = re.search(r"^//! halves (.*)$", text, re.M)
        out[path.stem] = (T(int(re.search(r"^//! gguf (\d+)", text, re.M)[1])), [int(n) for n in halves[1].split()] if halves else [])
    return out


def drawn_blocks(kind, halves, draw):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (max(6, 1024 // block), size), dtype=np.uint8)
    for at in halves:  # finite scales for half of the blocks, then unusual ones
        scales = draw.normal(0, 0.01, len(blocks)).astype(np.float16).view(np.uint16)
        unusual = np.resize(np.array(SCALES, np.uint16), len(blocks) // 2)
        scales[len(blocks) - len(unusual):] = unusual
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks


def quantized(ggml, kind, values):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((values.shape[0], values.shape[1] // block * size), np.uint8)
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    ggml.ggml_quantize_chunk(int(kind), values.ctypes.data, out.ctypes.data, 0, *values.shape, None)
    return out


def make(folder, name, kind, halves, ggml):
    draw = np.random.default_rng(100 + int(kind))
    blocks = drawn_blocks(kind, halves, draw)
    values = draw.normal(0, 0.02, (2, 512)).astype(np.float32)
    values[1] *= np.where(draw.random(512) < 0.03, 8, 1).astype(np.float32)  # outliers
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama", use_temp_file=False)
    writer.add_string("made.gguf", importlib.metadata.version("gguf"))
    writer.add_string("made.llama_cpp_python", importlib.metadata.version("llama-cpp-python"))
    writer.add_string("made.ggml_sha256", hashlib.sha256(LIBRARY.read_bytes()).hexdigest())
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, kind)
    for tensor, data, raw in (("blocks", blocks, kind), ("expected", expected, None), ("values", values, None),
                              ("llama", quantized(ggml, kind, values), kind)):
        writer.add_tensor(tensor, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    ggml = ctypes.CDLL(str(LIBRARY))
    for name, (kind, halves) in formats().items():
        if not sys.argv[2:] or name in sys.argv[2:]:
            make(folder, name, kind, halves, ggml)


if __name__ == "__main__":
    main()
