"""The training step of GPT-2 124M on a GPU: bf16, AdamW, random weights and tokens.

PyTorch runs eagerly and with torch.compile: bf16 autocast over f32 weights, fused AdamW,
scaled_dot_product_attention, and a vocabulary padded to 50,304, which is faster. Bowline trains the
skeleton that `tools/scale/make_shape gpt2-124m` describes, with --compute bf16. Only times and
memory are compared; the net `text` compares results.
"""

import pathlib
import subprocess
import sys
import tempfile

from sides import ROOT, Bowline, Failure, Torch, adamw, in_turn, time_training

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 12, 768, 12, 1024, 50304
SHAPES = ((1, 256), (4, 1024), (32, 1024))
TRIAL = ((1, 16),)  # of a machine without a GPU
# PyTorch's time divided by Bowline's.
AIM = {("eager", (1, 256)): 5, ("compiled", (1, 256)): 2, ("compiled", (4, 1024)): 1.2, ("compiled", (32, 1024)): 1.05}


def build(torch, device):
    """Returns the module: tokens [batch, seq + 1] to the loss."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, seq, _ = x.shape
            q, k, v = (part.view(batch, seq, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(WIDTH, -1))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, seq, WIDTH))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
            for weight in (w for w in self.parameters() if w.dim() > 1):
                nn.init.normal_(weight, std=0.02)

        def forward(self, tokens):
            x = self.tokens(tokens[:, :-1]) + self.positions.weight[:tokens.shape[1] - 1]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    torch.manual_seed(1)
    return Gpt2().to(device)


def work_gpt2(task, options):
    import torch

    torch.set_num_threads(options.threads)
    device, batch, seq = task["device"], task["batch"], task["seq"]
    on_gpu = device.startswith("cuda")
    model = build(torch, device)
    call = torch.compile(model) if task["how"] == "compiled" else model

    def loss(tokens):
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
            return call(tokens)

    batches = torch.randint(50257, (4, batch, seq + 1), device=device)
    result = time_training(adamw(list(model.parameters()), fused=on_gpu), loss, batches)
    return result | {"gpu_mib": torch.cuda.max_memory_reserved() / 2**20 if on_gpu else 0}


WORK = {"gpt2": work_gpt2}


def skeleton(bowline, folder):
    made = subprocess.run([sys.executable, ROOT / "tools/scale/make_shape", "gpt2-124m", folder / "gpt2", "--config-only"], check=False,
                          capture_output=True, text=True)
    if made.returncode != 0:
        raise Failure(f"tools/scale/make_shape failed: {made.stderr.strip()}")
    bowline("import", folder / "gpt2", "--skeleton", "--out", folder / "gpt2.bowline")
    return folder / "gpt2.bowline"


def compare(options, _net):
    if not options.cuda:
        raise Failure("gpt2 needs --cuda: it compares a GPU.")
    # Allows a trial of the comparison without a GPU.
    is_trial = not options.cuda.startswith("cuda:")
    torch, bowline = Torch(options), Bowline(options)
    with tempfile.TemporaryDirectory(prefix="compare_torch_") as name:
        model = skeleton(bowline, pathlib.Path(name))
        for shape in TRIAL if is_trial else SHAPES:
            def step_of_torch(how, shape=shape):
                return torch("gpt2", how=how, batch=shape[0], seq=shape[1], device="cpu" if is_trial else options.cuda)

            def step_of_bowline(shape=shape):
                result, peak = bowline.bench("train", model, "--batch", shape[0], "--seq", shape[1], "--compute", "bf16", "--device",
                                             options.cuda, "--no-floor")
                return {"time_ms": result["time_ms"], "gpu_mib": result["counted_bytes"] / 2**20}, peak

            peers = ["eager"] if is_trial else ["eager", "compiled"]
            sides = {how: lambda how=how: step_of_torch(how) for how in peers}
            results = in_turn(options.runs, sides | {"Bowline": step_of_bowline})
            ours = results["Bowline"]
            print(f"{options.cuda}, GPT-2 124M, {shape[0]} x {shape[1]}, bf16: Bowline {ours['time_ms']:.3f} ms, {ours['gpu_mib']:.0f} MiB",
                  flush=True)
            for how in peers:
                theirs = results[how]
                aim = f" (aim: at least {AIM[how, shape]})" if (how, shape) in AIM else ""
                print(f"  PyTorch {how} {theirs['time_ms']:.3f} ms, {theirs['gpu_mib']:.0f} MiB; PyTorch's time over Bowline's "
                      f"{theirs['time_ms'] / ours['time_ms']:.2f}{aim}", flush=True)
