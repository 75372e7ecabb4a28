#!/usr/bin/env python3
"""Makes the fixtures of tests/onnx/runtime: operators with outputs that ONNX Runtime computes.

    make_runtime.py [FOLDER]

Covers operators of ONNX Runtime and some of ONNX. Needs the packages onnx, onnxruntime and numpy.
Each case is a node with random inputs in the form that onnx_nodes reads: NAME/model.onnx and
NAME/test_data_set_0. The inputs are the same in every run. The outputs may differ between versions
of ONNX Runtime.

exit codes: 0 done, 1 a case cannot be made, 2 wrong usage.
"""
import pathlib
import shutil
import sys

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
STANDARD = {"ConvInteger", "DynamicQuantizeLinear", "Einsum", "GridSample", "MatMulInteger", "NonMaxSuppression", "QLinearConv", "Resize", "STFT", "Slice",
            "Acosh", "Asinh", "Atanh", "BatchNormalization", "ConvTranspose", "Cosh", "Gemm", "LRN", "LpNormalization", "Mod", "OneHot", "Pad", "Pow", "ReduceL2", "ReduceLogSumExp", "Shrink", "Sinh"}
RANDOM = np.random.default_rng(0)


def reals(*shape):
    """Random values around 0."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(dtype, *shape):
    """Random values from the whole range of an integer dtype."""
    info = np.iinfo(dtype)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(dtype)


def scale(value):
    """A scalar scale."""
    return np.array(value, np.float32)


def quantized(dtype, *shape, step=0.0517):
    """A tensor with its scale and zero point.

    No multiple of one of these scales lies halfway between two integers of another scale.
    """
    return [whole(dtype, *shape), scale(step), np.array(3 if dtype == np.int8 else 120, dtype)]


def packed(n, k, bits, block):
    """Weights of MatMulNBits with their scales and zero points."""
    blocks = (k + block - 1) // block
    values = whole(np.uint8, n, blocks, block * bits // 8)
    scales = (0.02 + 0.02 * RANDOM.random(n * blocks)).astype(np.float32)
    zeros = whole(np.uint8, n * ((blocks * bits + 7) // 8))
    return values, scales, zeros


def cases():
    """Yields name, operator, inputs, number of outputs, attributes. `fixed`: initializers."""
    row, wide = reals(2, 3, 8), reals(2, 3, 4, 8)
    yield "gelu", "Gelu", [wide], 1, {}
    yield "bias_gelu", "BiasGelu", [wide, reals(8)], 1, {}
    yield "fast_gelu", "FastGelu", [wide], 1, {}
    yield "fast_gelu_bias", "FastGelu", [wide, reals(8)], 1, {}
    yield "quick_gelu", "QuickGelu", [wide], 1, {"alpha": 1.5}
    yield "fused_matmul", "FusedMatMul", [reals(2, 5, 3), reals(2, 5, 4)], 1, {"transA": 1, "alpha": 0.5}
    yield "fused_matmul_b", "FusedMatMul", [reals(3, 5), reals(4, 5)], 1, {"transB": 1, "alpha": 2.0}
    norm = {"epsilon": 1e-5}
    yield "skip_layer_norm", "SkipLayerNormalization", [row, reals(2, 3, 8), reals(8), reals(8), reals(8)], 4, norm
    yield "skip_layer_norm_plain", "SkipLayerNormalization", [row, reals(2, 3, 8), reals(8)], 1, norm
    yield "skip_simplified", "SkipSimplifiedLayerNormalization", [row, reals(2, 3, 8), reals(8)], 4, norm
    yield "skip_simplified_bias", "SkipSimplifiedLayerNormalization", [row, reals(2, 3, 8), reals(8), reals(8)], 4, norm
    for dtype in (np.uint8, np.int8):
        name = np.dtype(dtype).name
        a, b = quantized(dtype, 2, 3, 4), quantized(dtype, 3, 4, step=0.0311)
        zero = np.array(5, dtype)
        yield f"qlinear_add_{name}", "QLinearAdd", a + b + [scale(0.1013), zero], 1, {}
        yield f"qlinear_mul_{name}", "QLinearMul", a + b + [scale(0.2039), zero], 1, {}
        yield f"qlinear_sigmoid_{name}", "QLinearSigmoid", a + [scale(1 / 256), np.array(0, dtype)], 1, {}
        yield f"qlinear_leaky_relu_{name}", "QLinearLeakyRelu", a + [scale(0.0419), zero], 1, {"alpha": 0.2}
        image = quantized(dtype, 1, 3, 4, 5)
        yield f"qlinear_global_average_pool_{name}", "QLinearGlobalAveragePool", image + [scale(0.0207), zero], 1, {}
        yield f"qlinear_concat_{name}", "QLinearConcat", [scale(0.1013), zero] + a + quantized(dtype, 2, 5, 4), 1, {"axis": 1}
    image = quantized(np.uint8, 1, 4, 5, 3)
    yield "qlinear_global_average_pool_last", "QLinearGlobalAveragePool", image + [scale(0.0207), np.array(9, np.uint8)], 1, {"channels_last": 1}
    for bits, k, block in ((4, 64, 32), (4, 40, 16), (8, 64, 32)):
        values, scales, zeros = packed(6, k, bits, block)
        attributes = {"K": k, "N": 6, "bits": bits, "block_size": block}
        inputs = [reals(2, 3, k), values, scales]
        yield f"matmul_{bits}bits_{k}", "MatMulNBits", inputs, 1, attributes
        yield f"matmul_{bits}bits_{k}_zeros", "MatMulNBits", inputs + [zeros], 1, attributes
    angles = RANDOM.random((7, 4)).astype(np.float32) * 3
    positions = np.array([[0, 3, 5], [1, 2, 6]], np.int64)
    for interleaved in (0, 1):
        inputs = [reals(2, 3, 16), positions, np.cos(angles), np.sin(angles)]
        yield f"rotary_{interleaved}", "RotaryEmbedding", inputs, 1, {"interleaved": interleaved}
    inputs = [reals(2, 2, 3, 8), np.array([2], np.int64), np.cos(angles), np.sin(angles)]
    yield "rotary_offset", "RotaryEmbedding", inputs, 1, {}
    # Sums with more products than f32 holds exactly. The weights have 7 bits: with 8 bits ONNX
    # Runtime saturates sums on processors without VNNI.
    image, filters = whole(np.uint8, 1, 40, 5, 6), whole(np.int8, 3, 40, 3, 3) >> 1
    zeros = [np.array(117, np.uint8), np.array(3, np.int8)]
    yield "conv_integer", "ConvInteger", [image, filters, zeros[0]], 1, {"pads": [1, 1, 1, 1]}
    rows, columns = whole(np.uint8, 2, 6000), whole(np.int8, 6000, 2) & 63
    yield "matmul_integer", "MatMulInteger", [rows, columns], 1, {}
    inputs = [image, scale(0.0103), zeros[0], filters, scale(0.0211), zeros[1], scale(0.3019), np.array(130, np.uint8)]
    yield "qlinear_conv", "QLinearConv", inputs + [RANDOM.integers(-9999, 9999, 3).astype(np.int32)], 1, {}
    # A signal without an axis of real and imaginary parts.
    yield "stft", "STFT", [reals(2, 40), np.array(8, np.int64), reals(16)], 1, {"onesided": 1}
    # The ONNX node tests have Einsum only in f64.
    for number, (equation, *shapes) in enumerate((
            ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
            ("...ij,...jk->...ik", (2, 1, 3, 4), (1, 5, 4, 2)), ("i,j->ij", (3,), (4,)), ("ij->ji", (3, 4)),
            ("ii->i", (4, 4)), ("bii->b", (2, 3, 3)), ("ij->", (3, 4)), ("ba,ca", (2, 3), (4, 3)),
            ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("abc,cd,b->ad", (2, 3, 4), (4, 5), (3,)), ("...i->...", (2, 3, 4)),
            ("bnij,bnij->bn", (2, 3, 4, 5), (2, 3, 4, 5)))):
        yield f"einsum_{number}", "Einsum", [reals(*shape) for shape in shapes], 1, {"equation": equation}
    # If all elements are zero the scale is 1.
    yield "dynamic_quantize_zeros", "DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], 3, {}
    for directions, direction, per in ((1, "forward", (1,)), (1, "reverse", (1, 20)), (2, "bidirectional", (2, 20))):
        weights = [whole(np.int8, directions, n, 20) >> 1 for n in (6, 5)]
        scales = [[(0.005 + 0.01 * RANDOM.random(per)).astype(np.float32), np.zeros(per, np.int8)] for _ in range(2)]
        inputs = [reals(4, 1, 6), *weights, reals(directions, 40), None, reals(directions, 1, 5), np.zeros((directions, 1, 5), np.float32), None]
        yield f"dynamic_quantize_lstm_{direction}", "DynamicQuantizeLSTM", inputs + scales[0] + scales[1], 3, {"hidden_size": 5, "direction": direction}
    # With a negative step, the start is clamped to the first element.
    places = [np.array(v, np.int64) for v in ([-8, 9], [-100, 100], [1, 0], [-1, 1])]
    yield "slice_start_outside", "Slice", [reals(5, 7, 2)] + places, 1, {}
    # 1 / 0.4 is 2.5 in f32, and slightly less in f64.
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "round_prefer_ceil"}
    yield "resize_nearest_f32", "Resize", [reals(1, 2, 4, 7), None, np.array([1, 1, 1.3, 0.4], np.float32)], 1, nearest
    single = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    yield "resize_to_one", "Resize", [reals(1, 2, 4, 7), None, None, np.array([1, 2, 1, 5], np.int64)], 1, single
    for centre in (0, 1):
        inputs = [RANDOM.random((2, 9, 4)).astype(np.float32), RANDOM.random((2, 3, 9)).astype(np.float32)]
        limits = [np.array([4], np.int64), np.array([0.3], np.float32), np.array([0.2], np.float32)]
        yield f"boxes_{centre}", "NonMaxSuppression", inputs + limits, 1, {"center_point_box": centre}
    # Values far from 0, near 0 and outside of the domain, in f32 and f16.
    far = np.array([0, 1e-7, -1e-4, 0.5, -3, 88.9, -89, 300, -1e5, 1e20, np.inf, -np.inf], np.float32)
    for dtype in (np.float32, np.float16):
        name = np.dtype(dtype).name
        with np.errstate(over="ignore"):
            yield f"asinh_far_{name}", "Asinh", [far.astype(dtype)], 1, {}
            yield f"acosh_far_{name}", "Acosh", [np.array([1, 1.5, 300, 1e5, np.inf, 0.5, -5000, -np.inf]).astype(dtype)], 1, {}
            yield f"sinh_far_{name}", "Sinh", [np.array([0, 1e-4, -0.5, 11.5, -9, 88.9, -100, np.inf]).astype(dtype)], 1, {}
            yield f"cosh_far_{name}", "Cosh", [np.array([0, 1e-4, -0.5, 11.5, -9, 88.9, -100, np.inf]).astype(dtype)], 1, {}
            yield f"atanh_near_{name}", "Atanh", [np.array([0, 1e-7, -1e-4, 0.003, 0.5, -0.999, 1]).astype(dtype)], 1, {}
    # Squares of f16 values are computed in f32.
    large = np.array([[300, -300, 20], [1e-4, 2e-4, 3e-4]], np.float16)
    yield "reduce_l2_float16", "ReduceL2", [large], 1, {"axes": [1]}
    yield "lp_normalization_float16", "LpNormalization", [large], 1, {"axis": 1}
    yield "lrn_float16", "LRN", [large.reshape(1, 6, 1, 1)], 1, {"size": 3}
    # Integers that f32 cannot represent.
    yield "pad_whole", "Pad", [whole(np.int32, 2, 3), np.array([0, 1, 1, 0], np.int64), np.array(16777217, np.int32)], 1, {}
    yield "pow_whole", "Pow", [np.array([6, -5, 8, 3, 0], np.int32), np.array(10, np.int32)], 1, {}
    yield "shrink_whole", "Shrink", [np.array([5, -5, 1, 0, -1], np.int32)], 1, {"lambd": 0.8, "bias": 0.5}
    yield "one_hot_far", "OneHot", [np.array([2**32 + 1, 1, -1, -2**33], np.int64), np.array(3, np.int64), np.array([2, 7], np.float32)], 1, {}
    infinite = np.array([[1, np.inf, 2], [-np.inf, -np.inf, -np.inf], [0, -np.inf, 3]], np.float32)
    yield "log_sum_exp_infinite", "ReduceLogSumExp", [infinite], 1, {"axes": [1]}
    yield "conv_transpose_wanted", "ConvTranspose", [reals(1, 1, 4), reals(1, 1, 3)], 1, {"auto_pad": "VALID", "output_shape": [3]}
    # Without an arrow, a letter that occurs twice in a term is summed.
    for equation, *shapes in (("ii", (3, 3)), ("bii", (2, 3, 3)), ("aab,b", (2, 2, 3), (3,))):
        yield f"einsum_without_arrow_{equation.replace(',', '_')}", "Einsum", [reals(*shape) for shape in shapes], 1, {"equation": equation}
    # align_corners uses the actual output size, not the size before rounding.
    for mode in ("linear", "cubic"):
        corners = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
        yield f"resize_corners_{mode}", "Resize", [reals(1, 2, 5, 7), None, np.array([1, 1, 0.7, 1.5], np.float32)], 1, corners
    # With border padding each neighbour is moved to the border, not the position.
    for align in (0, 1):
        grid = (3 * RANDOM.random((1, 4, 5, 2)) - 1.5).astype(np.float32)
        yield f"grid_cubic_border_{align}", "GridSample", [reals(1, 2, 4, 5), grid], 1, {"mode": "bicubic", "padding_mode": "border", "align_corners": align}
    # Exponents that are not known when the model is read: products of integers that f32 cannot
    # represent.
    bases = np.array([6, -5, 7, 0, 1, -1, -1, 2, 3, 0, 1, -1, 2, -7, 5000], np.int32)
    exponents = np.array([11, 13, 0, 0, 999, 999, 998, 30, 19, 5, -3, -3, -3, -2, 2])
    yield "pow_each_int32", "Pow", [bases, exponents.astype(np.int32)], 1, {}
    yield "pow_each_int64", "Pow", [np.array([[7], [-3]]), np.array([0, 1, 2, 17, 18])], 1, {}
    # Intermediate values of 16-bit operators that overflow f16, or need more digits.
    half = np.float16
    channels = [np.array(v, half) for v in ([1, 2], [0, 1], [1000, -30000], [0.01, 4])]
    yield "batch_normalization_float16", "BatchNormalization", [np.array([[1001, -30010]], half), *channels], 1, {}
    yield "gemm_alpha_float16", "Gemm", [np.array([[300, 300]], half), np.array([[200], [200]], half)], 1, {"alpha": 0.5}
    three = [np.array(v, half) for v in ([300, 2], [300, 3], [0.01, 4])]
    yield "einsum_three_float16", "Einsum", three, 1, {"equation": "i,i,i->i"}
    row = np.array([[[40000, 1, 2, 3]]], half)
    yield "skip_layer_norm_float16", "SkipLayerNormalization", [row, row, np.ones(4, half)], 1, {}
    yield "skip_simplified_float16", "SkipSimplifiedLayerNormalization", [row, row, np.ones(4, half)], 1, {}
    # Quotients that round to an integer, or have more digits than f32.
    dividends = np.array([1, -1, 0.3, 7, -1e6, 3e10, -1e20, 2.5, -2.5, 0, 4], np.float32)
    divisors = np.array([0.1, 0.1, -0.1, 360, 0.7, 3.1415927, 0.3, np.inf, 5, 2, -0.0], np.float32)
    yield "mod_quotients", "Mod", [dividends, divisors], 1, {"fmod": 1}
    small = np.abs(dividends) < 6e4
    yield "mod_quotients_float16", "Mod", [dividends[small].astype(half), divisors[small].astype(half)], 1, {"fmod": 1}
    # 2.6 times 5 and 0.7 times 10 are below an integer unless they are rounded to f32.
    for mode in ("nearest", "linear"):
        yield f"resize_scale_rounded_{mode}", "Resize", [reals(1, 2, 5, 10), None, np.array([1, 1, 2.6, 0.7], np.float32)], 1, {"mode": mode}
    tenths = (0.1 * np.arange(-40, 40)).astype(np.float32)
    yield "mod_tenths", "Mod", [tenths, np.array(0.1, np.float32)], 1, {"fmod": 1}


def write(folder, name, op, inputs, outputs, attributes):
    """Writes a case. Packed weights and the exponent of pow_whole are initializers."""
    names = ["" if v is None else f"in{i}" for i, v in enumerate(inputs)]
    fixed = {i for i in range(1, len(inputs)) if op == "MatMulNBits" or name == "pow_whole"}
    wanted = ["" if op.startswith("Skip") and i in (1, 2) else f"out{i}" for i in range(outputs)]
    node = helper.make_node(op, names, wanted, domain="" if op in STANDARD else MICROSOFT, **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for i, (n, v) in enumerate(zip(names, inputs)) if n and i not in fixed]
    initializers = [numpy_helper.from_array(inputs[i], names[i]) for i in sorted(fixed)]
    kept = [o for o in wanted if o]

    def model_with(outs):
        graph = helper.make_graph([node], name, infos, outs, initializers)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    open_outputs = [helper.make_empty_tensor_value_info(o) for o in kept]
    session = onnxruntime.InferenceSession(model_with(open_outputs).SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {n: v for i, (n, v) in enumerate(zip(names, inputs)) if n and i not in fixed}
    results = session.run(kept, feeds)
    known = [helper.make_tensor_value_info(o, helper.np_dtype_to_tensor_dtype(r.dtype), r.shape) for o, r in zip(kept, results)]
    data = folder / f"test_{name}" / "test_data_set_0"
    data.mkdir(parents=True)
    (data.parent / "model.onnx").write_bytes(model_with(known).SerializeToString())
    for kind, values in (("input", list(feeds.items())), ("output", list(zip(kept, results)))):
        for i, (tensor, value) in enumerate(values):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(value, tensor).SerializeToString())


def main():
    """Writes every case again."""
    if len(sys.argv) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else here / "runtime"
    shutil.rmtree(folder, ignore_errors=True)
    for case in cases():
        try:
            write(folder, *case)
        except Exception as error:
            print(f"make_runtime.py: {case[0]}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
