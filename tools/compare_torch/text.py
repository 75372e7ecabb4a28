"""The tied byte-level transformer of samples/finetune_text, trained by both sides.

Rows x + attention(norm(x)) and x + mlp(norm(x)), RmsNorm, rotary embedding on both halves of a
head, causal attention, GELU, no biases, the embedding also the head. Its sizes come from the
weights, what weights do not tell from the options.
"""

import math
import pathlib
import random
import re
import struct
import tempfile

from nets import read_parameters
from sides import (GEMM, Bowline, Failure, Torch, adamw, in_turn, judge, print_machine, time_training, train, update_error)

STEPS = 20
# (batch, seq): goals for Bowline's time as a ratio to PyTorch's, and for its memory in MiB.
AIMS = {(8, 256): (1.25, 174), (1, 256): (1.0, 60), (1, 64): (1.0, 50)}
AIM_VULKAN_GEMM, AIM_VULKAN_STEP = 0.14, 15
AIM_BF16_GEMM, AIM_BF16_STEP = 0.8, 1.2
GEMM_CUDA = 4096
# Both sides on a GPU: PyTorch's time divided by Bowline's.
AIM_CUDA_STEP = {(1, 256): 3}

# The role of a parameter by its name. The first group is the index of the block. Storages are [out,
# in].
NAMES = {
    "embedding": r"(?:token_)?embedding(?:\.weight)?",
    "head": r"(?:lm_)?head(?:\.weight)?",
    "final_norm": r"(?:final_norm|norm)(?:\.gamma|\.weight)?",
    "attention_norm": r"blocks?\.(\d+)\.(?:attention_norm|norm1)(?:\.gamma|\.weight)?",
    "qkv": r"blocks?\.(\d+)\.(?:attention\.)?qkv(?:\.weight)?",
    "q": r"blocks?\.(\d+)\.(?:attention\.)?(?:q|query)(?:\.weight)?",
    "k": r"blocks?\.(\d+)\.(?:attention\.)?(?:k|key)(?:\.weight)?",
    "v": r"blocks?\.(\d+)\.(?:attention\.)?(?:v|value)(?:\.weight)?",
    "out": r"blocks?\.(\d+)\.(?:attention\.)?(?:out|output|projection)(?:\.weight)?",
    "mlp_norm": r"blocks?\.(\d+)\.(?:mlp_norm|norm2)(?:\.gamma|\.weight)?",
    "up": r"blocks?\.(\d+)\.(?:mlp\.)?up(?:\.weight)?",
    "down": r"blocks?\.(\d+)\.(?:mlp\.)?down(?:\.weight)?",
}


# ------------------------------------------------------------------------------- PyTorch's side


def role_of(name):
    """Returns (role, block or None) of a parameter."""
    for role, pattern in NAMES.items():
        match = re.fullmatch(pattern, name)
        if match:
            return role, int(match[1]) if match.groups() else None
    raise Failure(f"Parameter '{name}' is not one of the model's known names (table NAMES).")


def read_weights(folder):
    """Returns {(role, block): tensor} of an exported model, q, k and v joined; checks that the head
    is tied.
    """
    import torch

    found, ties = {}, {}
    for name, (shape, data, tie) in read_parameters(folder).items():
        if len(data) != 4 * math.prod(shape):
            raise Failure(f"Storage {tie} has {len(data)} bytes; the shape of parameter '{name}' is {shape}.")
        key = role_of(name)
        found[key] = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)
        ties[key] = tie
    if ties.get(("head", None), ties.get(("embedding", None))) != ties.get(("embedding", None)):
        raise Failure("The head is not tied to the embedding.")
    found.pop(("head", None), None)
    for block in sorted({block for _, block in found if block is not None}):
        if ("qkv", block) not in found:
            found["qkv", block] = torch.cat([found.pop((part, block)) for part in "qkv"])
    return found


def random_weights(blocks=5, channels=128, seed=1):
    """Random weights as in a new sample model, to measure PyTorch alone."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator) * 0.08

    weights = {("embedding", None): normal(256, channels), ("final_norm", None): torch.ones(channels)}
    for block in range(blocks):
        weights["attention_norm", block] = torch.ones(channels)
        weights["qkv", block] = normal(3 * channels, channels)
        weights["out", block] = normal(channels, channels)
        weights["mlp_norm", block] = torch.ones(channels)
        weights["up", block] = normal(4 * channels, channels)
        weights["down", block] = normal(channels, 4 * channels)
    return weights


class Trainer:
    """One model in PyTorch with its optimizer; step() trains on one batch of tokens [batch, seq +
    1].
    """

    def __init__(self, weights, seq, options, device="cpu"):
        import torch

        torch.set_num_threads(options.threads)
        self.device = device
        self.heads, self.eps, self.gelu = options.heads, options.eps, options.gelu
        self.weights = {key: value.to(device, copy=True).requires_grad_() for key, value in weights.items()}
        self.blocks = 1 + max(block for _, block in weights if block is not None)
        half = weights["embedding", None].shape[1] // self.heads // 2
        # In double: an f32 angle of 255 has an error of 1e-5, which would be visible in the update.
        frequencies = options.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.outer(torch.arange(seq, dtype=torch.float64), frequencies)
        dtype = weights["embedding", None].dtype
        self.cos, self.sin = angles.cos().to(device, dtype), angles.sin().to(device, dtype)
        self.optimizer = adamw(self.weights.values(), fused=options.fused)

    def rotate(self, x):
        import torch

        a, b = x.chunk(2, -1)
        return torch.cat((a * self.cos - b * self.sin, b * self.cos + a * self.sin), -1)

    def loss(self, tokens):
        import torch.nn.functional as F

        tokens = tokens.to(self.device)
        w, (batch, seq) = self.weights, (tokens.shape[0], tokens.shape[1] - 1)
        embedding = w["embedding", None]
        x = F.embedding(tokens[:, :-1], embedding)
        channels = x.shape[-1]
        for block in range(self.blocks):
            normed = F.rms_norm(x, (channels,), w["attention_norm", block], self.eps)
            q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2)
                       for part in F.linear(normed, w["qkv", block]).split(channels, -1))
            y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, seq, channels), w["out", block])
            normed = F.rms_norm(x, (channels,), w["mlp_norm", block], self.eps)
            y = F.gelu(F.linear(normed, w["up", block]), approximate=self.gelu)
            x = x + F.linear(y, w["down", block])
        x = F.rms_norm(x, (channels,), w["final_norm", None], self.eps)
        return F.cross_entropy(F.linear(x, embedding).flatten(0, 1), tokens[:, 1:].flatten())


def read_tokens(path, batch, seq):
    """Returns the batches of a token file: int64 [steps, batch, seq + 1]."""
    import torch

    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.int32)
    return data.reshape(-1, batch, seq + 1).long()


def work_agree(task, options):
    """Trains the exported model on the same batches; returns PyTorch's losses and the errors of the
    update.

    PyTorch computes in double here, so that what differs is Bowline's rounding and not the sum of
    both.
    """
    before, after = (read_weights(pathlib.Path(task[key])) for key in ("before", "after"))
    trainer = Trainer({key: value.double() for key, value in before.items()}, task["seq"], options)
    batches = read_tokens(pathlib.Path(task["tokens"]), task["batch"], task["seq"])
    losses = train(trainer, batches, len(batches))

    def named(weights):
        return {role if block is None else f"block {block} {role}": value for (role, block), value in weights.items()}

    return {"losses": losses, **update_error(named(before), named(after), named(trainer.weights))}


def work_time(task, options):
    """Returns the median time of a training step; steps for at least one second."""
    weights = read_weights(pathlib.Path(task["before"])) if task["before"] else random_weights()
    trainer = Trainer(weights, task["seq"], options, task["device"])
    batches = read_tokens(pathlib.Path(task["tokens"]), task["batch"], task["seq"])
    return time_training(trainer.optimizer, trainer.loss, batches)


WORK = {"agree": work_agree, "time": work_time}

# ----------------------------------------------------------------------------------- both sides


def make_tokens(text, batch, seq, path):
    """Writes the token file: STEPS batches of random windows of the text, i32 little endian."""
    pick = random.Random(f"{batch} {seq}")
    with path.open("wb") as file:
        for _ in range(STEPS * batch):
            start = pick.randrange(len(text) - seq)
            file.write(struct.pack(f"<{seq + 1}i", *text[start : start + seq + 1]))


def agree(bowline, torch, folder, before, shape, device, tolerance):
    """Trains on both sides, prints the errors, and raises if they are too large."""
    batch, seq = shape
    work = folder / f"{device.replace(':', '_')}_{batch}x{seq}"
    work.mkdir()
    tokens = folder / f"tokens_{batch}x{seq}.bin"
    bowline("bench", *bowline.train(batch, seq, device), "--steps", STEPS, "--tokens", tokens,
            "--dump-losses", work / "losses.txt", "--save-model", work / "after.bowline")
    ours = [float(line) for line in (work / "losses.txt").read_text().split()]
    result, _ = torch("agree", before=str(before), tokens=str(tokens), batch=batch, seq=seq,
                      after=str(bowline.export(work / "after.bowline", work / "after")))
    judge(f"{device}, batch {batch} x {seq}", ours, result, STEPS, tolerance)


def compare(options, _net):
    text = options.text.read_bytes()
    torch, bowline = Torch(options), Bowline(options)
    with tempfile.TemporaryDirectory(prefix="compare_torch_") as name:
        folder = pathlib.Path(name)
        for shape in AIMS:
            if len(text) <= max(shape):
                raise Failure(f"Text {options.text} has {len(text)} bytes; a window has {max(shape) + 1}.")
            make_tokens(text, *shape, folder / f"tokens_{shape[0]}x{shape[1]}.bin")

        before = None
        if not options.torch_only:
            before = bowline.export(options.model, folder / "before")
            for shape in AIMS if options.cpu else ():
                agree(bowline, torch, folder, before, shape, "cpu", options.tolerance)
            if options.cuda:
                agree(bowline, torch, folder, before, (1, 256), options.cuda, options.vulkan_tolerance)
            if options.vulkan:
                agree(bowline, torch, folder, before, (8, 256), options.vulkan, options.vulkan_tolerance)

        def step_of_torch(shape, device="cpu"):
            return torch("time", before=str(before) if before else "", batch=shape[0], seq=shape[1], device=device,
                         tokens=str(folder / f"tokens_{shape[0]}x{shape[1]}.bin"))

        if options.cpu:
            compare_cpu(options, bowline, torch, step_of_torch)
        if options.vulkan and not options.torch_only:
            compare_vulkan(options, bowline, torch, step_of_torch)
        if options.cuda and not options.torch_only:
            compare_cuda(options, bowline, torch, step_of_torch)


def compare_cpu(options, bowline, torch, step_of_torch):
    print_machine(torch)
    if not options.torch_only:
        compare_products(options, bowline, torch, "cpu", "cpu", GEMM, f" (aim with AVX512_BF16: at least {AIM_BF16_GEMM})", "bf16")
        compare_precisions(options, bowline)
    print(f"training step, cpu: median of {options.runs} runs, the sides in turn")
    for shape, (aim_ratio, aim_mib) in AIMS.items():
        sides = {"PyTorch": lambda: step_of_torch(shape)}
        if not options.torch_only:
            sides["Bowline"] = lambda: bowline.bench(*bowline.train(*shape, "cpu"))
        results = in_turn(options.runs, sides)
        line = f"{shape[0]} x {shape[1]:3}: " + ", ".join(
            f"{side} {r['time_ms']:.2f} ms, peak {r['peak_mib']:.0f} MiB" for side, r in results.items())
        if "Bowline" in results:
            line += (f"; ratio {results['Bowline']['time_ms'] / results['PyTorch']['time_ms']:.3f} "
                     f"(aim: {aim_ratio}, {aim_mib} MiB)")
        print(line, flush=True)


def compare_products(options, bowline, torch, device, torch_device, size, aim, dtype="f32"):
    """Compares matrix products, the sides in turn."""
    def product():
        result, peak = bowline.bench("matmul", "--m", size, "--n", size, "--k", size, "--layout", "nt", "--dtype", dtype, "--device", device)
        return {"gflops": result["gflops"]}, peak

    rates = in_turn(options.runs, {"PyTorch": lambda: torch("gemm", size=size, device=torch_device, dtype=dtype), "Bowline": product})
    theirs, ours = rates["PyTorch"]["gflops"], rates["Bowline"]["gflops"]
    where = " on the CPU" if torch_device != device else ""
    print(f"{device}, {dtype} GEMM {size} cubed: PyTorch{where} {theirs:.0f} GFLOP/s, Bowline {ours:.1f} GFLOP/s; ratio "
          f"{ours / theirs:.3f}{aim}", flush=True)


def compare_precisions(options, bowline):
    """Bowline's training step in bf16 with its own in f32, in turn."""
    results = in_turn(options.runs, {
        compute: lambda compute=compute: bowline.bench(*bowline.train(8, 256, "cpu"), "--compute", compute, "--no-floor")
        for compute in ("f32", "bf16")})
    f32, bf16 = (results[compute]["time_ms"] for compute in ("f32", "bf16"))
    print(f"cpu, training step 8 x 256: Bowline in f32 {f32:.2f} ms, computed in bf16 {bf16:.2f} ms; {f32 / bf16:.2f} times "
          f"as fast (aim with AVX512_BF16: at least {AIM_BF16_STEP})", flush=True)


def compare_vulkan(options, bowline, torch, step_of_torch):
    compare_products(options, bowline, torch, options.vulkan, "cpu", GEMM, f" (aim: at least {AIM_VULKAN_GEMM})")
    results = in_turn(options.runs, {
        "PyTorch": lambda: step_of_torch((8, 256)),
        "Bowline": lambda: bowline.bench(*bowline.train(8, 256, options.vulkan))})
    theirs, ours = results["PyTorch"]["time_ms"], results["Bowline"]["time_ms"]
    print(f"{options.vulkan}, training step 8 x 256: PyTorch on the CPU {theirs:.2f} ms, Bowline {ours:.2f} ms, "
          f"peak {results['Bowline']['peak_mib']:.0f} MiB; ratio {ours / theirs:.2f} (aim: {AIM_VULKAN_STEP})", flush=True)


def compare_cuda(options, bowline, torch, step_of_torch):
    """Both sides on one GPU."""
    # Allows a trial of the comparison without a GPU.
    device = options.cuda if options.cuda.startswith("cuda") else "cpu"
    compare_products(options, bowline, torch, options.cuda, device, GEMM_CUDA if device == options.cuda else 64, "")
    for shape in AIMS:
        results = in_turn(options.runs, {
            "PyTorch": lambda: step_of_torch(shape, device),
            "Bowline": lambda: bowline.bench(*bowline.train(*shape, options.cuda))})
        theirs, ours = results["PyTorch"]["time_ms"], results["Bowline"]["time_ms"]
        aim = f" (aim: at least {AIM_CUDA_STEP[shape]})" if shape in AIM_CUDA_STEP else ""
        print(f"{options.cuda}, training step {shape[0]} x {shape[1]}: PyTorch {theirs:.3f} ms, Bowline {ours:.3f} ms; "
              f"PyTorch's time over Bowline's {theirs / ours:.2f}{aim}", flush=True)
