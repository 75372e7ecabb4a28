#!/usr/bin/env python3
"""Compares Bowline with PyTorch eager: same model, weights, batches, optimizer and threads,
measured in turn.

First both sides train the model for some steps from the same weights on the same batches. If losses
and weight updates agree, times are measured: one process per run, the two sides in turn. A run
reports the median of its steps, and a figure is the median of the runs. Memory is the peak resident
set of the process.

  text       a training step of the transformer of samples/finetune_text
  lstm       a training step of a language model of one LSTM layer: 256 wide, 16 rows of 64 bytes
  mobilenet  a training step of MobileNetV2 on 8 images of 96 x 96, and inference of one, also in
             ONNX Runtime where it is installed (pip install onnxruntime)
  encoder    a training step of a classifier over the sentence encoder in --encoder, batch 16 x 128;
             one of embeddings on 32 pairs of texts; and the embedding of one text of 32 tokens,
             also in ONNX Runtime (pip install transformers sentence-transformers onnxruntime
             onnxscript)
  decoder    the shape of SmolLM2-135M: prompts and tokens in bf16, q8_0 and q4_0 beside llama.cpp,
             and a LoRA step beside PEFT (pip install transformers peft llama-cpp-python)
  gpt2       a training step of GPT-2 124M in bf16 on the GPU of --cuda, of 1 x 256, 4 x 1024 and
             32 x 1024 tokens, beside PyTorch eager and torch.compile
  onnx       inference of the ONNX models in --onnx beside ONNX Runtime (pip install onnx
             onnxruntime)

The times of lstm and mobilenet are printed beside the floor: operations at the rate of the fastest
matrix product, and bytes at the bandwidth of the largest copy. Data in the caches can be faster.
"""

import argparse
import importlib.util
import json
import pathlib
import sys

import gpt2
import language
import nets
import onnx_models
import sides
import text
from sides import ROOT, Failure

WORK = {"gemm": sides.work_gemm, **text.WORK, **nets.WORK, **language.WORK, **gpt2.WORK, **onnx_models.WORK}
NETS = {"text": text.compare, "lstm": nets.compare, "mobilenet": nets.compare, "encoder": language.compare, "decoder": language.compare,
        "gpt2": gpt2.compare, "onnx": onnx_models.compare}


def parse():
    parser = argparse.ArgumentParser(
        prog="compare_torch.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples: tools/compare_torch/run --vulkan\n"
               "          tools/compare_torch/run --net lstm mobilenet --runs 3\n\n"
               "exit codes: 0 measured, 1 a command failed or the two sides do not agree, 2 wrong usage")
    add = parser.add_argument
    add("--net", nargs="+", choices=NETS, default=["text"], metavar="NET", help=f"{', '.join(NETS)} (default: text)")
    add("--model", type=pathlib.Path, default=ROOT / "samples/finetune_text/base.bowline", metavar="FILE",
        help="model file of text (default: the base model of samples/finetune_text)")
    add("--encoder", type=pathlib.Path, metavar="FOLDER",
        help="folder of transformers with the model of encoder, such as samples/classify/get_model prints")
    add("--onnx", type=pathlib.Path, nargs="+", metavar="FOLDER",
        help="folders of onnx, each with model.onnx and test_data_set_0/input_*.pb as ONNX's own tests have them")
    add("--bowline", type=pathlib.Path, default=ROOT / "build/release/bin/bowline", metavar="FILE",
        help="the command (default: build/release/bin/bowline)")
    add("--nets", type=pathlib.Path, metavar="FILE",
        help="the program that trains lstm and mobilenet (default: compare_nets beside the command)")
    add("--text", type=pathlib.Path, default=ROOT / "samples/data/kjv.txt", metavar="FILE",
        help="text that the batches are taken from (default: samples/data/kjv.txt)")
    add("--vulkan", nargs="?", const="vulkan:0", metavar="DEVICE",
        help="text: compare this device too, with PyTorch on the CPU (default device: vulkan:0)")
    add("--cuda", nargs="?", const="cuda:0", metavar="DEVICE",
        help="compare this device, with PyTorch on the same GPU; text, gpt2, lstm, mobilenet (default device: cuda:0)")
    add("--no-cpu", dest="cpu", action="store_false", help="text: leave the comparison on the CPU out")
    add("--torch-only", action="store_true", help="text: measure PyTorch alone, on random weights")
    add("--runs", type=int, default=7, help="runs of each side per shape (default: %(default)s)")
    add("--threads", type=int, default=2,
        help="threads of PyTorch, and CPUs that either side may use (default: %(default)s)")
    add("--tolerance", type=float, default=1e-4,
        help="largest relative error of losses and update on the CPU (default: %(default)s)")
    add("--vulkan-tolerance", type=float, default=1e-3, help="the same for --vulkan and --cuda (default: %(default)s)")
    add("--net-tolerance", type=float, default=1e-3, help="the same for lstm and mobilenet (default: %(default)s)")
    add("--heads", type=int, default=4, help="attention heads (default: %(default)s)")
    add("--eps", type=float, default=1e-5, help="of RmsNorm (default: %(default)s)")
    add("--rope-base", type=float, default=10000.0, help="of the rotary embedding (default: %(default)s)")
    add("--gelu", choices=("none", "tanh"), default="none",
        help="form of GELU: none is the exact one (default: %(default)s)")
    add("--fused", action="store_true", help="use PyTorch's fused AdamW, which is not its default")
    add("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.runs < 1 or options.threads < 1 or options.heads < 1:
        parser.error("--runs, --threads and --heads are at least 1")
    given = {"--vulkan": options.vulkan, "--cuda": options.cuda, "--no-cpu": not options.cpu, "--torch-only": options.torch_only}
    on_gpu = ("text", "gpt2", "lstm", "mobilenet")
    for flag in (flag for flag, value in given.items() if value):
        nets = on_gpu if flag == "--cuda" else ("text",)
        if not set(nets) & set(options.net):
            parser.error(f"{flag} is for {', '.join(nets)}, which --net leaves out")
    if "encoder" in options.net and options.encoder is None:
        parser.error("encoder needs --encoder FOLDER; samples/classify/get_model prints one")
    if ("onnx" in options.net) != (options.onnx is not None):
        parser.error("--net onnx and --onnx FOLDER go together")
    options.nets = options.nets or options.bowline.parent / "compare_nets"
    options.python = sys.executable
    return options


def main():
    options = parse()
    try:
        if options.worker:
            task = json.loads(options.worker)
            print(json.dumps(WORK[task["kind"]](task, options)))
            return
        if importlib.util.find_spec("torch") is None:
            raise Failure(f"PyTorch is not installed for {sys.executable}. tools/compare_torch/run installs it into a virtual "
                          "environment of its own; or: pip install torch.")
        for net in dict.fromkeys(options.net):
            NETS[net](options, net)
    except (Failure, OSError) as error:
        sys.exit(f"compare_torch: {error}")


if __name__ == "__main__":
    main()
