#!/usr/bin/env python3
"""Writes the backend tests of the installed `onnx` package in the form that onnx_nodes reads.

    make_nodes.py FOLDER
    make_nodes.py --version

FOLDER/node and FOLDER/simple get a folder per test: model.onnx, test_data_set_<n>/input_<i>.pb and
output_<i>.pb. FOLDER/version has the package version; an up-to-date folder is not written again.
The data is random with a fixed seed, or comes from the package.

exit codes: 0 done, 1 the folder cannot be written, 77 the package `onnx` is missing.
"""
import pathlib
import shutil
import sys
import warnings


def message_of(value, info):
    """Converts a value of the package (array, list, optional or message) to an ONNX message."""
    from onnx import TensorProto, numpy_helper
    if isinstance(value, TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(value, info.name)


def write(case, folder):
    """Creates the folder and writes a test."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        graph = case.model.graph
        for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            for i, value in enumerate(values):
                (data / f"{kind}_{i}.pb").write_bytes(message_of(value, infos[i]).SerializeToString())


def main():
    """Imports the package first: a missing package has another exit code than a failed write."""
    arguments = sys.argv[1:]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        import onnx
        from onnx.backend.test.case import model, node
    except ImportError as error:
        print(f"make_nodes.py: the package onnx is missing ({error}); pip install onnx", file=sys.stderr)
        return 77
    if arguments[0] == "--version":
        print(onnx.__version__)
        return 0
    target = pathlib.Path(arguments[0])
    if (target / "version").is_file() and (target / "version").read_text() == onnx.__version__:
        return 0
    import numpy
    numpy.random.seed(0)
    shutil.rmtree(target, ignore_errors=True)
    warnings.simplefilter("ignore")
    for case in [*node.collect_testcases(), *model.collect_testcases()]:
        if case.kind in ("node", "simple"):
            write(case, target / case.kind / case.name)
    (target / "version").write_text(onnx.__version__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
