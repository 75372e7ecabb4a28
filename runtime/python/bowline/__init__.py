"""Runs and fine-tunes neural networks on the CPU, on GPUs with Vulkan, and on NVIDIA GPUs.

Example: runs a model whose input is "x" and whose output is "y".

    import bowline
    import numpy

    device = bowline.Device("best")
    model = bowline.Model.open("model.bowline")
    model.to(device)
    session = bowline.Session(model, device, "forward", {"batch": 1})
    y = session.run({"x": numpy.zeros((1, 4), numpy.float32)})["y"]

Arrays are NumPy arrays, or objects with DLPack in host memory, such as CPU tensors of PyTorch. They
must be contiguous and row-major, and are not copied. A DeviceBuffer is an array in the memory of a
device. The functions raise bowline.Error.

One thread at a time may use a model with its sessions, trainers and generators. Session.submit()
starts a run and returns at once.
"""

from bowline._bowline import (
    ChatTemplate,
    Device,
    DeviceBuffer,
    Generator,
    GraphBuilder,
    Model,
    Parameter,
    PendingRun,
    Session,
    Tokenizer,
    Trainer,
    Value,
    devices,
    import_adapter,
    import_model,
    optimizers,
    version,
)
from bowline._adapter import Adapter
from bowline._error import Error
from bowline._torch import ImportedTorch, import_torch

__version__ = version().split(" ")[0]
__all__ = [
    "Adapter",
    "ChatTemplate",
    "Device",
    "DeviceBuffer",
    "Error",
    "Generator",
    "GraphBuilder",
    "ImportedTorch",
    "Model",
    "Parameter",
    "PendingRun",
    "Session",
    "Tokenizer",
    "Trainer",
    "Value",
    "devices",
    "import_adapter",
    "import_model",
    "import_torch",
    "optimizers",
    "version",
]
