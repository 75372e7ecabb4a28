"""A language model with an LSTM layer, and MobileNetV2, on both sides. Inference of MobileNetV2
also runs in ONNX Runtime.

lstm       Embedding [256, 256], one LSTM layer of 256, Linear to 256 bytes without bias, AdamW; 16
           rows of 64 bytes of the text. PyTorch's second gate bias stays zero, because Bowline has
           only one bias.
mobilenet  MobileNetV2 of width 1 on 96 x 96 pixels, 1000 classes, SGD with momentum 0.9, batch 8,
           random pixels; its inference at batch 1, with the weights and running statistics after
           the steps that were compared.

compare_nets (nets.cpp) has the same networks on Bowline's side and makes the weights.
"""

import array
import json
import math
import pathlib
import random
import struct
import tempfile

from onnx_file import OnnxFile
from sides import (GEMM, Bowline, Failure, Torch, adamw, in_turn, judge, line, median_time, onnx_session, print_machine, time_training,
                   train, update_error)

HIDDEN, LSTM_BATCH, SEQ = 256, 16, 64
SIDE, CLASSES, IMAGES = 96, 1000, 8
# Expansion, channels, number of blocks, stride of the first block.
BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
# Goals for PyTorch's time divided by Bowline's, and for inference also ONNX Runtime's.
AIM = {"lstm": 1.2, "mobilenet": 1.0}
AIM_INFERENCE, AIM_INFERENCE_ONNX = 1.5, 1.0
AIM_CUDA = 0.8
# With learning rates above 1e-4 MobileNetV2 is chaotic: PyTorch in f32 drifts from PyTorch in
# double as fast as Bowline does.
STEPS = {"lstm": 20, "mobilenet": 4}
BATCHES = 4
MOST_LOGIT_ERROR = 1e-4  # of the largest logit


# ------------------------------------------------------------------------------- the networks


def mobilenet(of, x):
    """Builds MobileNetV2 from the operators of `of`. x is a tensor of these operators."""
    number = 0

    def layer(x, channels_in, channels, size, stride, groups, bounded):
        nonlocal number
        x = of.layer(x, f"layer{number}", channels_in, channels, size, stride, groups)
        number += 1
        return of.relu6(x) if bounded else x

    channels = 32
    x = layer(x, 3, channels, 3, 2, 1, True)
    for expansion, channels_out, count, first_stride in BLOCKS:
        for i in range(count):
            stride, wide = (first_stride if i == 0 else 1), channels * expansion
            y = x if expansion == 1 else layer(x, channels, wide, 1, 1, 1, True)
            y = layer(y, wide, wide, 3, stride, wide, True)
            y = layer(y, wide, channels_out, 1, 1, 1, False)
            x = of.add(x, y) if stride == 1 and channels == channels_out else y
            channels = channels_out
    return of.head(layer(x, channels, 1280, 1, 1, 1, True))


class Counting:
    """Counts the multiply-adds and output elements for an image. A tensor is represented by its
    side length.
    """

    def __init__(self):
        self.products, self.elements, self.weights = 1280 * CLASSES, 0, 1280 * CLASSES + CLASSES

    def layer(self, x, _name, channels_in, channels, size, stride, groups):
        x = (x + stride - 1) // stride
        weights = channels * channels_in // groups * size * size
        self.products += weights * x * x
        self.elements += channels * x * x
        self.weights += weights + 2 * channels
        return x

    def relu6(self, x):
        return x

    def add(self, x, _):
        return x

    def head(self, x):
        return x


class TorchOperators:
    def __init__(self, weights, training):
        self.weights, self.training = weights, training

    def layer(self, x, name, _in, _out, size, stride, groups):
        import torch.nn.functional as F

        w = self.weights
        x = F.conv2d(x, w[name + ".window"], stride=stride, padding=size // 2, groups=groups)
        return F.batch_norm(x, w[name + ".mean"], w[name + ".variance"], w[name + ".scale"], w[name + ".bias"],
                            self.training, 0.1, 1e-5)

    def relu6(self, x):
        import torch.nn.functional as F

        return F.relu6(x)

    def add(self, x, y):
        return x + y

    def head(self, x):
        import torch.nn.functional as F

        return F.linear(x.mean((2, 3)), self.weights["head"], self.weights["head.bias"])


class OnnxOperators:
    """A tensor is represented by its name in the file."""

    def __init__(self, weights):
        self.file = OnnxFile()
        for name, (shape, data, _) in weights.items():
            self.file.initializer(name, shape, data)
        self.file.initializer("zero", [], struct.pack("<f", 0))
        self.file.initializer("six", [], struct.pack("<f", 6))

    def layer(self, x, name, _in, _out, size, stride, groups):
        x = self.file.node("Conv", [x, name + ".window"], pads=[size // 2] * 4, strides=[stride] * 2, group=groups)
        return self.file.node("BatchNormalization", [x, *(f"{name}.{part}" for part in ("scale", "bias", "mean", "variance"))])

    def relu6(self, x):
        return self.file.node("Clip", [x, "zero", "six"])

    def add(self, x, y):
        return self.file.node("Add", [x, y])

    def head(self, x):
        x = self.file.node("Flatten", [self.file.node("GlobalAveragePool", [x])])
        return self.file.node("Gemm", [x, "head", "head.bias"], transB=1)


def floor_ms(net, batch, training, machine):
    """Returns the minimum time at the measured rates, with its parts. Products: forward, and in
    training twice as many backward. Activations: the output of each layer is written and read; in
    training also its gradient, and the input again. Weights: read once; in training gradients,
    weights and moments are read and written. In the lstm, the table of 256 embeddings is multiplied
    first, and rows of the product are gathered."""
    if net == "lstm":
        tokens, moments = LSTM_BATCH * SEQ, 2
        weights = 4 * HIDDEN * (2 * HIDDEN + 1) + 2 * 256 * HIDDEN
        products = tokens * (4 * HIDDEN * HIDDEN + 256 * HIDDEN) + 256 * 4 * HIDDEN * HIDDEN
        elements = tokens * (4 * HIDDEN + HIDDEN + 256) + 256 * 4 * HIDDEN
    else:
        counting, moments = Counting(), 1
        mobilenet(counting, SIDE)
        weights, products, elements = counting.weights, batch * counting.products, batch * counting.elements
    flops = 2 * products * (3 if training else 1)
    moved = 4 * (elements * (5 if training else 2) + weights * (4 + 2 * moments if training else 1))
    return (1e3 * (flops / machine["floor_flops"] + moved / machine["floor_bandwidth"]),
            f"{flops / 1e9:.2f} GFLOP / F + {moved / 1e6:.1f} MB / BW")


# ------------------------------------------------------------------------------- PyTorch's side


def read_parameters(folder):
    """Returns {name: (shape, bytes, tie index)} of an exported model."""
    folder = pathlib.Path(folder)
    return {row["name"]: (row["shape"], (folder / f"storage_{row['tie']}.bin").read_bytes(), row["tie"])
            for row in json.loads((folder / "parameters.json").read_text())}


def read_tensors(folder, dtype, device="cpu"):
    import torch

    return {name: torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape).to(device, dtype)
            for name, (shape, data, _) in read_parameters(folder).items()}


class LstmTrainer:
    def __init__(self, folder, dtype, device="cpu"):
        import torch

        self.weights = {name: torch.nn.Parameter(value) for name, value in read_tensors(folder, dtype, device).items()}
        w = self.weights
        self.layer = torch.nn.LSTM(HIDDEN, HIDDEN, dtype=dtype, device=device)
        self.layer.weight_ih_l0, self.layer.weight_hh_l0, self.layer.bias_ih_l0 = w["w_in"], w["w"], w["b"]
        torch.nn.init.zeros_(self.layer.bias_hh_l0).requires_grad_(False)
        self.layer.flatten_parameters()
        self.optimizer = adamw(w.values())

    def loss(self, columns):
        import torch.nn.functional as F

        x, _ = self.layer(F.embedding(columns[:-1], self.weights["embedding"]))
        return F.cross_entropy(F.linear(x, self.weights["head"]).flatten(0, 1), columns[1:].flatten())


class MobilenetTrainer:
    def __init__(self, folder, dtype, device="cpu"):
        import torch

        self.weights = {name: value if name.endswith((".mean", ".variance")) else value.requires_grad_()
                        for name, value in read_tensors(folder, dtype, device).items()}
        self.optimizer = torch.optim.SGD([v for v in self.weights.values() if v.requires_grad], lr=1e-4, momentum=0.9)

    def loss(self, batch):
        import torch.nn.functional as F

        images, labels = batch
        return F.cross_entropy(mobilenet(TorchOperators(self.weights, True), images), labels)


def read_batches(task, dtype, device="cpu"):
    import torch

    data = bytearray(pathlib.Path(task["data"]).read_bytes())
    if task["net"] == "lstm":
        return list(torch.frombuffer(data, dtype=torch.int32).reshape(-1, SEQ + 1, LSTM_BATCH).long().to(device))
    pixels = task["batch"] * 3 * SIDE * SIDE
    words = torch.frombuffer(data, dtype=torch.int32).reshape(-1, pixels + task["batch"]).to(device)
    return [(row[:pixels].view(torch.float32).reshape(task["batch"], 3, SIDE, SIDE).to(dtype), row[pixels:].long())
            for row in words]


TRAINERS = {"lstm": LstmTrainer, "mobilenet": MobilenetTrainer}


def work_agree(task, options):
    """Returns PyTorch's losses and the errors of Bowline's update. PyTorch computes in double, so
    that the differences are only Bowline's rounding errors."""
    import torch

    torch.set_num_threads(options.threads)
    before, after = (read_tensors(task[key], torch.float64) for key in ("before", "after"))
    trainer = TRAINERS[task["net"]](task["before"], torch.float64)
    losses = train(trainer, read_batches(task, torch.float64), STEPS[task["net"]])
    return {"losses": losses, **update_error(before, after, trainer.weights)}


def work_train(task, options):
    import torch

    torch.set_num_threads(options.threads)
    trainer = TRAINERS[task["net"]](task["before"], torch.float32, task["device"])
    return time_training(trainer.optimizer, trainer.loss, read_batches(task, torch.float32, task["device"]), 9)


def work_infer(task, options):
    import torch

    torch.set_num_threads(options.threads)
    operators = TorchOperators(read_tensors(task["weights"], torch.float32), False)
    images, _ = read_batches(task, torch.float32)[0]
    with torch.inference_mode():
        return {"time_ms": median_time(lambda _: mobilenet(operators, images), 9),
                "logits": mobilenet(operators, images).flatten().tolist()}


def work_infer_onnx(task, options):
    """Runs the inference in ONNX Runtime. Returns {"missing": reason} if it is not installed."""
    try:
        import numpy
        import onnxruntime
    except ImportError as error:
        return {"missing": f"ONNX Runtime is not installed for {task['python']} ({error}); pip install onnxruntime"}
    operators = OnnxOperators(read_parameters(task["weights"]))
    logits = mobilenet(operators, operators.file.input("images", [task["batch"], 3, SIDE, SIDE]))
    session = onnx_session(operators.file.finish(logits, [task["batch"], CLASSES]), options)
    pixels = task["batch"] * 3 * SIDE * SIDE
    images = numpy.fromfile(task["data"], dtype=numpy.float32, count=pixels).reshape(task["batch"], 3, SIDE, SIDE)
    return {"time_ms": median_time(lambda _: session.run(None, {"images": images}), 9), "version": onnxruntime.__version__,
            "logits": session.run(None, {"images": images})[0].flatten().tolist()}


WORK = {"net_agree": work_agree, "net_train": work_train, "net_infer": work_infer, "net_infer_onnx": work_infer_onnx}

# ----------------------------------------------------------------------------------- both sides


def make_data(net, batch, text, path):
    """Writes the batches: random windows of the text for lstm, random pixels and labels for
    mobilenet.
    """
    pick = random.Random(f"{net} {batch}")
    if net == "lstm":
        starts = [[pick.randrange(len(text) - SEQ) for _ in range(batch)] for _ in range(BATCHES)]
        path.write_bytes(b"".join(struct.pack(f"<{batch}i", *(text[s + t] for s in row)) for row in starts for t in range(SEQ + 1)))
        return
    with path.open("wb") as file:
        for _ in range(BATCHES):
            pixels = array.array("f", (2 * pick.random() - 1 for _ in range(batch * 3 * SIDE * SIDE)))
            pixels.tofile(file)
            array.array("i", (pick.randrange(CLASSES) for _ in range(batch))).tofile(file)


def compare(options, net):
    torch, bowline = Torch(options), Bowline(options)
    text = options.text.read_bytes()
    if len(text) <= SEQ:
        raise Failure(f"Text {options.text} has {len(text)} bytes; a window has {SEQ + 1}.")
    with tempfile.TemporaryDirectory(prefix="compare_torch_") as name:
        folder = pathlib.Path(name)
        data, model, after = folder / "data.bin", folder / "before.bowline", folder / "after.bowline"
        batch = LSTM_BATCH if net == "lstm" else IMAGES
        make_data(net, batch, text, data)
        bowline.nets("make", net, model)
        task = {"net": net, "batch": batch, "data": str(data), "before": str(bowline.export(model, folder / "before"))}
        steps = ("train", net, model, "--data", data, "--batch", batch) + (("--seq", SEQ) if net == "lstm" else ())
        device = options.cuda or "cpu"
        steps += ("--device", device)
        result, _ = bowline.nets(*steps, "--steps", STEPS[net], "--save", after)
        trained = bowline.export(after, folder / "after")
        theirs, _ = torch("net_agree", **task, after=str(trained))
        judge(f"{net}, {device}, batch {batch}", result["losses"], theirs, STEPS[net], options.net_tolerance)
        # Allows a trial of the comparison without a GPU.
        torch_device = device if device.startswith("cuda:") else "cpu"
        sides = {"PyTorch": lambda: torch("net_train", **task, device=torch_device), "Bowline": lambda: bowline.nets(*steps)}
        if options.cuda:
            line(f"{net} training step, {device}, batch {batch}", in_turn(options.runs, sides), "time_ms", "PyTorch", AIM_CUDA)
            return

        print_machine(torch)
        machine, _ = bowline.bench("matmul", "--m", GEMM, "--n", GEMM, "--k", GEMM, "--device", "cpu")
        print(f"floor: F = {machine['floor_flops'] / 1e9:.0f} GFLOP/s, BW = {machine['floor_bandwidth'] / 1e9:.1f} GB/s, "
              "the fastest product and copy of Bowline", flush=True)
        what = f"batch {batch} x {SEQ}" if net == "lstm" else f"{SIDE} x {SIDE}, batch {batch}"
        print_rows(f"{net} training step, {what}", floor_ms(net, batch, True, machine), {"PyTorch": AIM[net]}, in_turn(
            options.runs, sides))
        if net == "mobilenet":
            make_data(net, 1, text, data)
            compare_inference(options, torch, bowline, folder, trained, machine)


def compare_inference(options, torch, bowline, folder, trained, machine):
    task = {"net": "mobilenet", "batch": 1, "data": str(folder / "data.bin"), "weights": str(trained)}
    command = ("run", "mobilenet", folder / "after.bowline", "--data", task["data"])
    bowline.nets(*command, "--steps", 1, "--result", folder / "logits.bin")
    ours = struct.unpack(f"<{CLASSES}f", (folder / "logits.bin").read_bytes())
    aims = {"PyTorch": AIM_INFERENCE, "ONNX Runtime": AIM_INFERENCE_ONNX}
    results = in_turn(options.runs, {
        "PyTorch": lambda: torch("net_infer", **task), "Bowline": lambda: bowline.nets(*command),
        "ONNX Runtime": lambda: torch("net_infer_onnx", **task, python=options.python)})
    for peer in (name for name in aims if results[name]):
        theirs = results[peer]["logits"]
        error = max(abs(a - b) for a, b in zip(ours, theirs)) / max(map(abs, theirs))
        print(f"agreement, mobilenet inference with {peer}: logits {error:.1e} of the largest")
        if not error <= MOST_LOGIT_ERROR or math.isnan(sum(ours)):
            raise Failure(f"mobilenet inference: the logits differ from {peer}'s by {error:.1e} of the largest one.")
    print_rows(f"mobilenet inference, {SIDE} x {SIDE}, batch 1", floor_ms("mobilenet", 1, False, machine), aims, results)


def print_rows(what, floor, aims, results):
    """Prints the lower limit of Bowline's time, and each peer's time divided by Bowline's."""
    print(f"{what}: floor {floor[0]:.2f} ms ({floor[1]}), Bowline reaches {100 * floor[0] / results['Bowline']['time_ms']:.0f} percent of it")
    for peer, aim in aims.items():
        line("  time", results, "time_ms", peer, aim)
