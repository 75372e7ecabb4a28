"""Inference of ONNX models on both sides. A folder has the layout of the ONNX backend tests:
model.onnx and test_data_set_0/input_*.pb.

The import gets the shapes of these inputs, and the values of scalar inputs. First the outputs of
both sides must agree. Then both are timed in turn. A figure is the median of the runs; the summary
is the geometric mean.
"""

import math
import pathlib
import re
import statistics
import tempfile

from sides import Bowline, Failure, Torch, in_turn, median_time, onnx_session

AIM_EACH, AIM_MEAN = 1.3, 1.0  # Bowline's time over ONNX Runtime's, at most
MOST_ERROR = 1e-3  # of the largest element of an output, or of this where all are smaller
LEAST_OUTPUT = 1e-4


def session(task, options):
    """Returns an ONNX Runtime session of the model, and its inputs by name."""
    import onnx

    folder = pathlib.Path(task["folder"])
    made = onnx_session(folder / "model.onnx", options)
    tensors = [onnx.TensorProto.FromString(file.read_bytes()) for file in sorted((folder / "test_data_set_0").glob("input_*.pb"))]
    if not tensors:
        raise Failure(f"{folder} has no test_data_set_0/input_*.pb.")
    return made, {t.name: onnx.numpy_helper.to_array(t) for t in tensors}


def work_models_read(task, options):
    """Writes inputs and ONNX Runtime's outputs as NumPy files. Returns the flags for import and run
    of Bowline.
    """
    import numpy

    made, inputs = session(task, options)
    out = pathlib.Path(task["out"])
    told = {"shapes": [], "given": [], "inputs": [], "outputs": []}
    for i, (name, value) in enumerate(inputs.items()):
        if value.ndim == 0:
            told["given"].append(f"{name}={value.item()}")
            continue
        told["shapes"].append(f"{name}={','.join(map(str, value.shape))}")
        numpy.save(out / f"in{i}.npy", value)
        told["inputs"].append(f"{name}=@{out}/in{i}.npy")
    for i, (output, value) in enumerate(zip(made.get_outputs(), made.run(None, inputs))):
        numpy.save(out / f"theirs{i}.npy", value)
        told["outputs"].append(f"{output.name}=@{out}/ours{i}.npy")
    return told


def work_models_agree(task, options):
    """Returns the largest error of an output, relative to its largest element."""
    import numpy

    worst = 0.0
    for i in range(task["outputs"]):
        ours, theirs = (numpy.load(f"{task['out']}/{side}{i}.npy").astype(numpy.float64) for side in ("ours", "theirs"))
        if ours.size != theirs.size:
            return {"error": math.inf}
        error = numpy.abs(ours.reshape(theirs.shape) - theirs).max(initial=0) / max(numpy.abs(theirs).max(initial=0), LEAST_OUTPUT)
        worst = max(worst, float(error)) if error == error else math.inf
    return {"error": worst}


def work_models_infer(task, options):
    made, inputs = session(task, options)
    return {"time_ms": median_time(lambda _: made.run(None, inputs), 9, 0.3)}


WORK = {"models_read": work_models_read, "models_agree": work_models_agree, "models_infer": work_models_infer}


def flags(flag, values):
    return [part for value in values for part in (flag, value)]


def compare_one(options, folder, name):
    """Returns Bowline's time divided by ONNX Runtime's."""
    torch, bowline = Torch(options), Bowline(options)
    with tempfile.TemporaryDirectory(prefix="compare_torch_") as out:
        model = f"{out}/model.bowline"
        told, _ = torch("models_read", folder=str(folder), out=out)
        bowline("import", folder / "model.onnx", "--out", model, *flags("--shape", told["shapes"]), *flags("--given", told["given"]))
        read = bowline.inputs_of(model)  # a graph may not read an input, such as a length
        inputs = flags("--input", [given for given in told["inputs"] if given.partition("=")[0] in read])
        bowline("run", model, *inputs, *flags("--output", told["outputs"]), "--device", "cpu")
        error = torch("models_agree", out=out, outputs=len(told["outputs"]))[0]["error"]
        if not error <= MOST_ERROR:
            raise Failure(f"{name}: an output differs from ONNX Runtime's by {error:.1e} of its largest element.")
        results = in_turn(options.runs, {
            "ONNX Runtime": lambda: torch("models_infer", folder=str(folder)),
            "Bowline": lambda: bowline.bench("run", model, *inputs, "--device", "cpu", "--threads", options.threads)})
        ratio = results["Bowline"]["time_ms"] / results["ONNX Runtime"]["time_ms"]
        sides = ", ".join(f"{side} {r['time_ms']:.3f} ms, peak {r['peak_mib']:.0f} MiB" for side, r in results.items())
        print(f"{name}: agreement {error:.1e}, {sides}; Bowline's time over ONNX Runtime's: {ratio:.2f}", flush=True)
        return ratio


def compare(options, _net):
    ratios = []
    for folder in options.onnx:
        name = folder.resolve().name
        try:
            ratios.append(compare_one(options, folder, name))
        except Failure as error:
            print(f"{name}: left out: {re.sub(chr(10), ' ', str(error))}", flush=True)
    if not ratios:
        raise Failure("None of the models could be compared.")
    print(f"{len(ratios)} models on {options.threads} threads: Bowline's time over ONNX Runtime's is {statistics.geometric_mean(ratios):.2f} "
          f"in the geometric mean (aim: at most {AIM_MEAN}), {max(ratios):.2f} at most (aim: {AIM_EACH})")
