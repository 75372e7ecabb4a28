#!/usr/bin/env python3
"""Writes the backend tests of the installed `onnx` package, as onnx_nodes reads them.

    make_nodes.py FOLDER
    make_nodes.py --version

FOLDER/node and FOLDER/simple get a folder for each test: model.onnx, test_data_set_<n>/input_<i>.pb
and output_<i>.pb. FOLDER/version has the version of the package; a folder that has it already is
left as it is. Data is random, from a fixed seed, or as the package ships it.

exit codes: 0 done, 1 it cannot be written, 77 there is no package `onnx`.
"""
import pathlib
import shutil
import sys
import warnings


def message_of(value, info):
    """A value of the package (an array, a list, an optional one, or a message already) as a message
    of ONNX.
    """
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
    """One test; the folder is made."""
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
    """Asks for the package first, so that a machine without it is told apart from one where writing
    fails.
    """
    arguments = sys.argv[1:]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        import onnx
        from onnx.backend.test.case import model, node
    except ImportError as error:
        print(f"make_nodes.py: there is no package onnx ({error}); pip install onnx", file=sys.stderr)
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
