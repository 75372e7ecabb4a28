#!/usr/bin/env python3
"""Opens what `bowline export` writes with transformers, the package gguf and llama.cpp, and
compares logits and bytes.

The models are those of tests/gguf/data; logits_*.f32 there are those of transformers with the
numbers that each file says. The adapters are those of tests/peft/fixtures, the tokenizers those of
tests/text/data.
"""

import argparse
import json
import pathlib
import shutil
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
ADAPTERS = ROOT / "tests/peft/fixtures"
TOKENIZERS = ROOT / "tests/text/data"
VERSES = ROOT / "samples/data/kjv.txt"
MODELS = ["llama_f32", "llama_f16", "llama_bf16", "llama_q8_0", "llama_q4_0", "llama_q4_1", "llama_q4_k", "llama_q6_k", "llama_rope",
          "gemma2_f32", "gemma2_bf16", "gemma2_q8_0"]
ENCODED = {"q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "rope"}  # types of some matrices
# Types that Bowline writes unchanged.
SAME_BYTES = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k"}
TOKENS = np.arange(24).reshape(2, 12) * 5 % 64
PAIRS = TOKENS.reshape(12, 2)
# Logits are up to 10. transformers computes with the same values in the same order.
TRANSFORMERS_TOLERANCE, LLAMA_TOLERANCE = 1e-5, 1e-3

failures = 0


def report(what, difference, tolerance):
    global failures
    good = difference <= tolerance
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {what}: {difference:.2e} (at most {tolerance:.0e})", flush=True)


def expected(name):
    return np.fromfile(DATA / f"logits_{name.removeprefix('llama_')}.f32", dtype="<f4").reshape(2, 12, -1)


def run(bowline, *arguments):
    done = subprocess.run([bowline, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bowline {' '.join(map(str, arguments))} fails:\n{done.stderr}")


def transformers_logits(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    with torch.no_grad():
        return model(torch.from_numpy(TOKENS)).logits.numpy()


def in_blocks(x, size, stored):
    """x in blocks of `size` elements that are whole multiples, at most 127, of a scale; `stored` is
    what becomes of the scale.
    """
    blocks = x.reshape(-1, size)
    scale = blocks.abs().amax(1, keepdim=True) / 127
    wholes = torch.where(scale == 0, 0.0, blocks * (1 / scale)).round()
    return (wholes * stored(scale)).reshape(x.shape)


# The rounding of llama.cpp for the inputs of a matrix, by the type of the matrix.
ROUNDED = {
    "F32": lambda x: x,
    "F16": lambda x: x.half().float(),
    "BF16": lambda x: x.bfloat16().float(),
    **dict.fromkeys(("Q8_0", "Q4_0", "Q5_0", "IQ4_NL"), lambda x: in_blocks(x, 32, lambda scale: scale.half().float())),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"), lambda x: in_blocks(x, 256, lambda scale: scale)),
}


def rounded_logits(folder, path, tokens):
    """Those of transformers where the inputs of matrices are rounded as llama.cpp rounds them for
    the types in the file `path`. Its GELU is a table, from numbers in 16 bits to numbers in 16
    bits."""
    halved = lambda x: x.half().float()
    reader = gguf.GGUFReader(path)
    types = {t.name: t.tensor_type.name for t in reader.tensors}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == model.config.model_type)
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            own = names.get_name(f"{name}.weight", try_suffixes=(".weight",))
            rounded = ROUNDED[types.get(own, types["token_embd.weight"])]
            module.register_forward_pre_hook(lambda _, inputs, rounded=rounded: (rounded(inputs[0]),))
        elif type(module).__name__.startswith("GELU"):
            module.register_forward_pre_hook(lambda _, inputs: (halved(inputs[0]),))
            module.register_forward_hook(lambda _, inputs, output: halved(output))
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()


def llama_logits(path, tokens, adapter=None):
    model = llama_cpp.Llama(str(path), lora_path=None if adapter is None else str(adapter), logits_all=True, n_ctx=16, n_threads=1, n_gpu_layers=0, type_k=llama_cpp.GGML_TYPE_F32,
                            type_v=llama_cpp.GGML_TYPE_F32, verbose=False)
    out = []
    for row in tokens:
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
    source, kind = DATA / f"{name}.gguf", name.partition("_")[2]
    model, hf, out = folder / f"{name}.bowline", folder / name, folder / f"{name}.gguf"
    run(bowline, "import", source, "--out", model)
    run(bowline, "export", model, "--to", "hf", "--out", hf, *(["--dtype", "f32"] if kind in ENCODED else []))
    report(f"{name}: logits of transformers", np.abs(transformers_logits(hf) - expected(name)).max(), TRANSFORMERS_TOLERANCE)
    run(bowline, "export", model, "--to", "gguf", "--out", out)
    if kind in SAME_BYTES:
        compare_bytes(out, source)
    if llama_cpp is None:
        print(f"--   {name}: llama-cpp-python is not installed")
        return
    # If a value is between two steps of 8 bits, the last bit of a sum decides. The row and all
    # later rows then differ by up to a step, so the texts are short. A wrong weight would show in
    # most texts.
    tokens = PAIRS if kind in ENCODED else TOKENS
    # With Q4_1 llama.cpp also rounds sums over the inputs, which rounding the inputs cannot
    # reproduce. So an f32 export is compared.
    paths = [source, out]
    if kind == "q4_1":
        paths = [folder / f"{name}_f32.gguf"]
        run(bowline, "export", model, "--to", "gguf", "--dtype", "f32", "--out", paths[0])
    for path in paths:
        by_row = np.abs(llama_logits(path, tokens) - rounded_logits(hf, path, tokens)).max(-1)
        report(f"{'source' if path == source else 'exported'} {name}: logits of llama.cpp",
               np.quantile(by_row, 0.75) if kind in ENCODED else by_row.max(), LLAMA_TOLERANCE)
    if kind in SAME_BYTES:
        report(f"{name}: logits of llama.cpp, exported and source",
               np.abs(llama_logits(source, TOKENS) - llama_logits(out, TOKENS)).max(), 0)


def compare_made(bowline, kind, folder):
    """Reads a file that llama.cpp quantized, and writes it for transformers."""
    model, plain, made, hf = (folder / f"made_{kind}{end}" for end in (".bowline", "_f32.gguf", ".gguf", ""))
    run(bowline, "import", DATA / "llama_q4_k.gguf", "--out", model)  # 256 columns
    run(bowline, "export", model, "--to", "gguf", "--dtype", "f32", "--out", plain)
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    settings.nthread = 1
    if llama_cpp.llama_model_quantize(str(plain).encode(), str(made).encode(), settings) != 0:
        sys.exit(f"llama.cpp cannot make a file of {kind}.")
    run(bowline, "import", made, "--out", model, "--force")
    run(bowline, "export", model, "--to", "hf", "--out", hf, "--dtype", "f32")
    by_row = np.abs(llama_logits(made, PAIRS) - rounded_logits(hf, made, PAIRS)).max(-1)
    report(f"made by llama.cpp, {kind}: its logits", np.quantile(by_row, 0.75), LLAMA_TOLERANCE)


def compare_mixture(bowline, folder):
    """Quantizes the model of compare_made() as llama.cpp did: the same types, and values that are
    as close to the original.
    """
    plain, made = folder / "made_Q4_K_M_f32.gguf", folder / "made_Q4_K_M.gguf"
    model, ours = folder / "mixture.bowline", folder / "mixture.gguf"
    run(bowline, "import", plain, "--out", model)
    run(bowline, "quantize", model, "--encoding", "q4_k_m", "--out", model, "--force")
    run(bowline, "export", model, "--to", "gguf", "--out", ours)
    original, *both = ({t.name: t for t in gguf.GGUFReader(path).tensors} for path in (plain, ours, made))
    report("q4_k_m: tensors of another type than llama.cpp's",
           sum(both[0][name].tensor_type != t.tensor_type for name, t in both[1].items()), 0)
    for name, right in original.items():
        wrong = [np.sqrt(np.mean((gguf.quants.dequantize(b[name].data, b[name].tensor_type) - right.data) ** 2)) for b in both]
        if wrong[1] > 0:
            report(f"q4_k_m: RMS error of {name}, over llama.cpp's ({wrong[0]:.2e}, {wrong[1]:.2e})", wrong[0] / wrong[1], 1)


def compare_adapter(bowline, name, folder):
    """An adapter of peft, as a GGUF file, over its model in llama.cpp: the logits are those of
    peft.
    """
    fixture = json.loads((ADAPTERS / "expected.json").read_text())
    wanted = fixture["adapters"][name]
    tokens = np.array(fixture["tokens"]).reshape(2, 8)
    model, base = folder / "base.bowline", folder / "base.gguf"
    adapter, written = folder / f"{name}.bowline", folder / f"{name}.gguf"
    run(bowline, "import", ADAPTERS / wanted["model"], "--out", model, "--force")
    run(bowline, "import", ADAPTERS / name, "--base", model, "--out", adapter)
    run(bowline, "export", model, "--to", "gguf", "--out", base, "--force")
    run(bowline, "export", model, "--adapter", adapter, "--to", "gguf-lora", "--out", written)
    logits = np.array(wanted["logits"]).reshape(2, 8, -1)
    report(f"adapter {name}: logits of llama.cpp", np.abs(llama_logits(base, tokens, written) - logits).max(), LLAMA_TOLERANCE)


def compare_tokenizer(bowline, name, folder):
    """Writes a tokenizer.json as GGUF keys. llama.cpp must give the ids of prose that Bowline gives
    with
    tokenizer.json.
    """
    source, model, out, texts = folder / name, folder / f"{name}.bowline", folder / f"{name}.gguf", folder / "verses"
    sizes = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=1280)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).save_pretrained(source)
    shutil.copy(TOKENIZERS / f"{name}.json", source / "tokenizer.json")
    run(bowline, "import", source, "--out", model)
    run(bowline, "export", model, "--to", "gguf", "--out", out)
    lines = [line for line in VERSES.read_text().splitlines() if line][:2000]
    texts.write_text("".join(line + "\n" for line in lines))
    rows = subprocess.run([bowline, "tokenize", source, "--file", texts, "--lines", "-o", "json"], check=True, capture_output=True).stdout
    vocabulary = llama_cpp.Llama(str(out), vocab_only=True, verbose=False)
    theirs = [vocabulary.tokenize(line.encode(), add_bos=True, special=True) for line in lines]
    different = sum(json.loads(row)["ids"] != ids for row, ids in zip(rows.splitlines(), theirs, strict=True))
    report(f"tokenizer {name}: verses of {len(lines)} that llama.cpp cuts otherwise", different, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowline", default=str(ROOT / "build/release/bin/bowline"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            compare(arguments.bowline, name, pathlib.Path(folder))
        # Not Q5_K_M: its matrix of 32 columns becomes Q5_1, whose inputs are rounded as for Q4_1.
        for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q6_K", "IQ4_NL", "IQ4_XS") if llama_cpp else ():
            compare_made(arguments.bowline, kind, pathlib.Path(folder))
        if llama_cpp:
            compare_mixture(arguments.bowline, pathlib.Path(folder))
        for name in ("llama_qv", "llama_some_layers", "llama_tables") if llama_cpp else ():
            compare_adapter(arguments.bowline, name, pathlib.Path(folder))
        for name in ("smollm", "llama3", "qwen", "t5") if llama_cpp else ():
            compare_tokenizer(arguments.bowline, name, pathlib.Path(folder))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
