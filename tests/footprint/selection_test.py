#!/usr/bin/env python3
"""Tests what a build with BOWLINE_OPS contains: its operators (tools/cmake/select_ops.py) and its
shaders (tools/cmake/compile_shaders.py)."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools/cmake"))
import compile_shaders  # noqa: E402
import formats  # noqa: E402
import generate_ops  # noqa: E402
import select_ops  # noqa: E402

FLATC = os.environ.get("FLATC", "flatc")
MODEL = f"from:{ROOT}/samples/finetune_text/base.bowline"


class Refused(Exception):
    pass


def refuse(sentence):
    raise Refused(sentence)


def select(*items, training=True):
    return select_ops.select(ROOT, generate_ops.Lists(ROOT), items, training, FLATC, refuse)


class Selection(unittest.TestCase):
    def test_a_file_gives_its_operators_and_those_of_its_training(self):
        found = select(MODEL)
        # Of the file, of gradients, of the helpers that gradients call, of fused nodes, of adapters
        # and of the trainer.
        self.assertLessEqual({"Attention", "RmsNorm", "AttentionGrad", "GeluGrad", "SumTo", "MatMul", "FusedMatMul",
                              "FusedLinearCrossEntropy", "PackedAttention", "Dropout", "AccumulateGrad", "ClipByGlobalNorm",
                              "Copy", "AdamW", "Sgd"}, found.ops)
        self.assertFalse({"Conv", "Lstm", "LayerNorm", "FusedConv"} & found.ops)
        self.assertFalse({"f16", "bf16"} & found.dtypes)
        self.assertEqual(set(), found.encodings)

    def test_without_training_there_are_no_gradients_and_optimizers(self):
        found = select(MODEL, training=False)
        self.assertIn("FusedNormMatMul", found.ops)
        self.assertEqual([], [op for op in found.ops if op.endswith("Grad")])
        self.assertFalse({"AdamW", "ClipByGlobalNorm", "ScatterElements"} & found.ops)

    def test_operators_are_named(self):
        found = select("Conv", "BatchNorm", "adamw", "bf16", "q4_k")
        self.assertLessEqual({"ConvWeightGrad", "ConvInputGrad", "BatchNormGrad", "FusedConv", "PackConvWeight"}, found.ops)
        self.assertFalse({"Sgd", "Attention"} & found.ops)
        self.assertIn("bf16", found.dtypes)
        self.assertNotIn("f16", found.dtypes)
        self.assertEqual({"q4_k"}, found.encodings)
        self.assertLessEqual({"int8", "int4", "q4_k", "mxfp4"}, select("quantized").encodings)

    def test_other_entries_are_refused(self):
        with tempfile.NamedTemporaryFile(suffix=".bowline") as file:
            file.write(b"text, not a model")
            file.flush()
            for items, words in ((["Linaer"], "'Linaer' is not"), (["LinearGrad"], "is not"), ([f"from:{file.name}"], "is not a .bowline file"),
                                 (["from:/no/such/file"], "there is no file /no/such/file")):
                with self.subTest(items), self.assertRaisesRegex(Refused, words):
                    select(*items)


class Formats(unittest.TestCase):
    def test_formats_of_the_build_are_numbered_from_one(self):
        written = {}
        formats.write_all(ROOT, pathlib.Path(), {"int8", "q8_0", "q4_k"}, lambda path, text: written.update({path.name: text}), refuse)
        rows = {name: re.findall(r"^BOWLINE_FORMAT\((\w+), (\d+),", text, re.M) for name, text in written.items()}
        self.assertEqual([("q4_k", "1"), ("q8_0", "2")], rows["formats.inc"])
        others = {name for name, number in rows["all_formats.inc"] if number == "0"}
        self.assertEqual(set(formats.names(ROOT)) - {"q4_k", "q8_0"}, others)
        self.assertEqual([("1", "q4_k"), ("2", "q8_0")], re.findall(r"case (\d+)u:\n *(\w+)_scales", written["formats.glsl"]))


class Configuration(unittest.TestCase):
    def test_cmake_passes_all_entries(self):
        with tempfile.TemporaryDirectory() as folder:
            off = [f"-DBOWLINE_{part}=OFF" for part in ("CUDA", "VULKAN", "TEXT", "C", "MPI", "IMPORT", "TOOLS", "TESTS")]
            subprocess.run([os.environ.get("CMAKE", "cmake"), "-S", ROOT, "-B", folder, "-DBOWLINE_OPS=Relu;q8_0", *off],
                           check=True, capture_output=True)
            generated = pathlib.Path(folder, "generated_tree/generated")
            self.assertEqual(["q8_0"], re.findall(r"^BOWLINE_FORMAT\((\w+)", (generated / "formats.inc").read_text(), re.M))
            self.assertIn("/relu.cpp", (generated / "op_files.txt").read_text())


SHADERS = [name for path in (ROOT / "shaders").glob("*.comp") for name, _ in compile_shaders.variants(path)]


def unused(parts, *kernels):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join([parts, *(str(ROOT / f"backends/vulkan/kernels/{k}.cpp") for k in kernels), ""]))
        file.flush()
        return compile_shaders.unused(SHADERS, pathlib.Path(file.name), ROOT / "backends/vulkan")


class Shaders(unittest.TestCase):
    def test_dependencies_in_a_folder_with_spaces(self):
        """Else each build compiles all shaders again."""
        self.assertEqual(compile_shaders.depfile_of("/my clone/relu.spv", ["/my clone/relu.comp", "/lib#1/a.glsl"]),
                         "/my\\ clone/relu.spv: /my\\ clone/relu.comp /lib\\#1/a.glsl\n")

    def test_the_backend_names_every_variant(self):
        self.assertFalse(unused("a_dtype_that_no_shader_has"))

    def test_variants_of_dtypes_and_of_quantized_weights_are_left_out(self):
        found = unused("bf16 codes")
        self.assertLessEqual({"norm_rms_bf16", "matvec_bf16_plain", "matvec_f32_codes", "write_codes_f16"}, found)
        self.assertFalse({"norm_rms_f16", "norm_rms_f32", "matvec_f32_plain", "cast_2_4"} & found)

    def test_variants_of_kernels_are_left_out_unless_others_use_them(self):
        found = unused("", "recurrent", "losses")
        self.assertLessEqual({"recurrent_lstm_f32", "recurrent_grad_gru_f16", "cross_entropy_rows_f32"}, found)
        self.assertFalse([name for name in found if name.startswith(("matmul", "norm", "reduce"))])


if __name__ == "__main__":
    unittest.main()
