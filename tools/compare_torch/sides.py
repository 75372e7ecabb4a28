"""Shared by all comparisons: runs both sides as separate processes in turn, and compares losses.
"""

import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(__file__).resolve().parent / "compare_torch.py"
GEMM = 768
OPTIMIZER = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
WEIGHT_DECAY = 0.1  # of storages of rank 2 and more


class Failure(Exception):
    """An error with a message for the user."""


def run(command, threads=None):
    """Runs a command; returns (its output, its peak resident set in MiB)."""
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen([str(part) for part in command], stdout=output, stderr=errors,
                                       preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        except OSError as error:
            raise Failure(f"{command[0]} cannot be started: {error.strerror}.") from error
        # Until exec() the peak counts the pages of this process, too. So this process does not
        # import torch.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if process.returncode != 0:
        raise Failure(f"Command ended with {process.returncode}: {' '.join(map(str, command))}\n"
                      + "\n".join(texts).strip())
    return texts[0], usage.ru_maxrss / 1024


def parse_json(text, command):
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failure(f"Output of {command} is not JSON: {text.strip()[:200]}") from error


class Torch:
    """Runs PyTorch or ONNX Runtime: calls this program in a separate process, because only that
    process imports them.
    """

    def __init__(self, options):
        self.options = options

    def __call__(self, kind, **task):
        o = self.options
        text, peak = run([sys.executable, PROGRAM, "--worker", json.dumps({"kind": kind, **task}),
                          "--threads", o.threads, "--heads", o.heads, "--eps", o.eps, "--gelu", o.gelu,
                          "--rope-base", o.rope_base] + ["--fused"] * o.fused, o.threads)
        return json.loads(text), peak


class Bowline:
    """Bowline's side: the command."""

    def __init__(self, options):
        self.options = options

    def __call__(self, *arguments):
        return run([self.options.bowline, *arguments], self.options.threads)

    def bench(self, *arguments):
        """Returns (the JSON object that `bowline bench` prints, peak in MiB)."""
        text, peak = self("bench", *arguments, "-o", "json")
        result = parse_json(text, "bowline bench")
        return (result[0] if isinstance(result, list) else result), peak

    def inputs_of(self, model):
        """The names of the inputs of the model's only entry point."""
        text, _ = self("inspect", model, "-o", "json")
        return {given["name"] for given in parse_json(text, "bowline inspect")["entry_points"][0]["inputs"]}

    def nets(self, *arguments):
        """Runs compare_nets; returns (the JSON object that it prints, peak in MiB)."""
        text, peak = run([self.options.nets, *arguments], self.options.threads)
        return (parse_json(text, "compare_nets") if text else None), peak

    def export(self, model, folder):
        self("export", model, "--weights", folder)
        return folder

    def train(self, batch, seq, device):
        return ("train", self.options.model, "--batch", batch, "--seq", seq, "--device", device)


def work_gemm(task, options):
    """Returns PyTorch's version and its rate of a matrix product a b^T of `size` cubed in `dtype`,
    f32 if there is none.
    """
    import torch

    torch.set_num_threads(options.threads)
    size, device = task["size"], task["device"]
    dtype = torch.bfloat16 if task.get("dtype") == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    times = []
    for _ in range(60):
        start = time.perf_counter()
        a @ b.T
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return {"gflops": 2 * size**3 / statistics.median(times[10:]) / 1e9, "version": torch.__version__,
            "threads": torch.get_num_threads()}


def cpu_name():
    found = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else "not named"


def print_machine(torch):
    """Prints the CPU, PyTorch's version and its rate of a matrix product; returns the rate,
    GFLOP/s.
    """
    gemm, _ = torch("gemm", size=GEMM, device="cpu")
    print(f"CPU: {cpu_name()}\nPyTorch {gemm['version']}, {gemm['threads']} threads, f32 GEMM {GEMM} cubed: "
          f"{gemm['gflops']:.0f} GFLOP/s", flush=True)
    return gemm["gflops"]


def relative_errors(ours, theirs):
    return [abs(a - b) / abs(b) if b else math.inf for a, b in zip(ours, theirs)]


def update_error(before, ours, theirs):
    """Compares two updates {name: tensor}: the norm of their difference relative to PyTorch's norm,
    all in
    all and of the worst.
    """
    rows = []
    for key, start in before.items():
        update = theirs[key].detach().double() - start.double()
        difference = (ours[key] - start).double() - update
        rows.append((key, difference.norm().item() ** 2, update.norm().item() ** 2))
    difference, length = sum(d for _, d, _ in rows), sum(n for _, _, n in rows)
    # A parameter without a gradient, such as the bias of a norm before another norm, changes only
    # by rounding errors.
    worst = max(((math.sqrt(d / n), key) for key, d, n in rows if n > 1e-12 * length), default=(math.inf, ""))
    return {"update_error": math.sqrt(difference / length) if length else math.inf,
            "worst_storage": worst[1], "worst_storage_error": worst[0]}


def judge(where, ours, result, steps, tolerance):
    """Prints the errors of losses and update, and raises if they are too large."""
    theirs = result["losses"]
    if len(ours) != steps:
        raise Failure(f"{where}: bowline wrote {len(ours)} losses for {steps} steps.")
    losses = relative_errors(ours, theirs)
    print(f"agreement, {where}: first loss {losses[0]:.1e}, losses {max(losses):.1e}, "
          f"update {result['update_error']:.1e} (worst storage: {result['worst_storage']} "
          f"{result['worst_storage_error']:.1e})", flush=True)
    # `not <=` rather than `>`, so that a NaN fails; max() would hide it.
    if not losses[0] <= tolerance:
        raise Failure(f"{where}: the loss of the first batch differs, {ours[0]:.9g} and {theirs[0]:.9g} in "
                      "PyTorch. Weights, batch or model are not the same.")
    step = next((i for i, error in enumerate(losses) if not error <= tolerance), None)
    if step is not None:
        raise Failure(f"{where}: the loss of step {step + 1} differs, {ours[step]:.9g} and "
                      f"{theirs[step]:.9g} in PyTorch.")
    if not result["update_error"] <= tolerance:
        raise Failure(f"{where}: the update after {steps} steps differs by {result['update_error']:.1e}, most "
                      f"in {result['worst_storage']}.")


def median_time(once, least=5, seconds=1.0, warmup=3):
    """Returns the median time of once(i) in ms, over at least `seconds`."""
    for i in range(warmup):
        once(i)
    times = []
    while len(times) < least or sum(times) < seconds:
        start = time.perf_counter()
        once(len(times))
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def in_turn(runs, sides):
    """Returns the median of every result of each side, and its peak in MiB. None if a side is
    missing; the reason is printed.
    """
    results = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            result, peak = side()
            if "missing" in result:
                if not results[name]:
                    print(f"{name}: {result['missing']}", flush=True)
                results[name] = None
                continue
            results[name].append({**result, "peak_mib": peak})
        sides = {name: side for name, side in sides.items() if results[name] is not None}
    return {name: runs and {key: statistics.median(r[key] for r in runs) if isinstance(runs[0][key], (int, float)) else runs[0][key]
                            for key in runs[0]} for name, runs in results.items()}


def line(what, results, key, peer, aim):
    ours, theirs = results["Bowline"], results[peer]
    if theirs is None:
        return
    print(f"{what}: Bowline {ours[key]:.3f} ms, peak {ours['peak_mib']:.0f} MiB; {peer} {theirs[key]:.3f} ms, peak "
          f"{theirs['peak_mib']:.0f} MiB; {peer}'s time over Bowline's {theirs[key] / ours[key]:.2f} (aim: at least {aim:.2f})", flush=True)


def adamw(values, **more):
    """The optimizer of `bowline bench train`."""
    import torch

    return torch.optim.AdamW([{"params": [v for v in values if v.dim() >= 2], "weight_decay": WEIGHT_DECAY},
                              {"params": [v for v in values if v.dim() < 2], "weight_decay": 0}], **OPTIMIZER, **more)


def update(optimizer, loss):
    """Trains a step on the loss of a batch; returns the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(trainer, batches, steps):
    """Returns the losses of the steps."""
    return [update(trainer.optimizer, trainer.loss(batches[i % len(batches)])) for i in range(steps)]


def time_training(optimizer, loss_of, batches, least=5):
    """Returns the median time of training steps, and the loss of the first."""
    losses = []
    time_ms = median_time(lambda i: losses.append(update(optimizer, loss_of(batches[i % len(batches)]))), least)
    return {"time_ms": time_ms, "loss": losses[0]}


def onnx_session(model, options):
    """An ONNX Runtime session of a file or its bytes."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
