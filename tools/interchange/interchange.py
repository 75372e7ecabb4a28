#!/usr/bin/env python3
"""Opens what `bowline export` writes with transformers, the package gguf and llama.cpp, and compares logits and bytes.

The models are those of tests/gguf/data; logits_*.f32 there are those of transformers with the numbers that each file says.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers

try:
    import llama_cpp
except ImportError:
    llama_cpp = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/gguf/data"
MODELS = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "rope"]
ENCODED = {"q8_0", "q4_0", "q4_k", "q6_k", "rope"}  # of these some matrices
SAME_BYTES = {"f32", "f16", "bf16", "q8_0", "q4_0"}  # what Bowline writes as it was
TOKENS = np.arange(24).reshape(2, 12) * 5 % 64
# Logits are up to 10. transformers computes the same numbers in the same order; llama.cpp rounds activations to 8 bits for quantized matrices.
TRANSFORMERS_TOLERANCE, LLAMA_TOLERANCE = 1e-5, 1e-3
LLAMA_QUANTIZED_TOLERANCE = 0.1

failures = 0


def report(what, difference, tolerance):
    global failures
    good = difference <= tolerance
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {what}: {difference:.2e} (at most {tolerance:.0e})", flush=True)


def expected(name):
    return np.fromfile(DATA / f"logits_{name}.f32", dtype="<f4").reshape(2, 12, -1)


def run(bowline, *arguments):
    done = subprocess.run([bowline, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bowline {' '.join(map(str, arguments))} fails:\n{done.stderr}")


def transformers_logits(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    with torch.no_grad():
        return model(torch.from_numpy(TOKENS)).logits.numpy()


def llama_logits(path):
    model = llama_cpp.Llama(str(path), logits_all=True, n_ctx=16, n_threads=1, n_gpu_layers=0, verbose=False)
    out = []
    for row in TOKENS:
        model.reset()
        model.eval(row.tolist())
        out.append(np.array(model.scores[:len(row)]))
    return np.stack(out)


def compare_bytes(path, source):
    written, read = gguf.GGUFReader(path), gguf.GGUFReader(source)
    tensors = {t.name: (t.tensor_type, t.shape.tolist(), t.data.tobytes()) for t in written.tensors}
    wanted = {t.name: (t.tensor_type, t.shape.tolist(), t.data.tobytes()) for t in read.tensors}
    different = sum(tensors.get(name) != value for name, value in wanted.items()) + len(tensors.keys() - wanted.keys())
    report(f"{source.name}: tensors that the package gguf reads otherwise", different, 0)


def compare(bowline, name, folder):
    source = DATA / f"llama_{name}.gguf"
    model, hf, out = folder / f"{name}.bowline", folder / name, folder / f"{name}.gguf"
    run(bowline, "import", source, "--out", model)
    run(bowline, "export", model, "--to", "hf", "--out", hf, *(["--dtype", "f32"] if name in ENCODED else []))
    report(f"llama_{name}: logits of transformers", np.abs(transformers_logits(hf) - expected(name)).max(), TRANSFORMERS_TOLERANCE)
    run(bowline, "export", model, "--to", "gguf", "--out", out)
    if name in SAME_BYTES:
        compare_bytes(out, source)
    if llama_cpp is None:
        print(f"--   llama_{name}: llama-cpp-python is not installed")
        return
    for path in (source, out):
        # What llama.cpp computes with 8-bit activations differs from the numbers of the file as that rounding does.
        plain = name in ("f32", "f16", "bf16") or (path == out and name not in ENCODED)
        tolerance = LLAMA_TOLERANCE if plain else LLAMA_QUANTIZED_TOLERANCE
        report(f"{'exported' if path == out else 'source'} llama_{name}: logits of llama.cpp", np.abs(llama_logits(path) - expected(name)).max(), tolerance)
    report(f"llama_{name}: logits of llama.cpp, exported and source",
           np.abs(llama_logits(source) - llama_logits(out)).max(), 0 if name in SAME_BYTES else LLAMA_QUANTIZED_TOLERANCE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowline", default=str(ROOT / "build/release/bin/bowline"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            compare(arguments.bowline, name, pathlib.Path(folder))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
