"""Tests import_torch(): models, ties, training, refused modules.

usage: torch_test.py, with the packages bowline, NumPy and PyTorch on the path

Exit code 77: PyTorch is not installed.
"""

import logging
import os
import sys
import unittest
import warnings

import bowline
import numpy

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed (pip install torch)")
    sys.exit(1 if os.environ.get("BOWLINE_STRICT") else 77)
from torch import nn
from torch.nn import functional as F

WIDTH = 16
BATCH, SEQ = torch.export.Dim("batch"), torch.export.Dim("seq", max=12)


class Gpt(nn.Module):
    """A small language model whose head is tied to its embedding."""

    def __init__(self, vocab=23):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, WIDTH), nn.Embedding(12, WIDTH)
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        batch, seq = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(seq))
        parts = [p.view(batch, seq, 2, WIDTH // 2).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, dim=-1)]
        y = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(batch, seq, WIDTH)
        return self.head(x + self.out(y))


class Loss(nn.Module):
    """Runs a model of a test and returns the loss."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, labels):
        scores = self.inner(x)
        return F.cross_entropy(scores.flatten(0, -2), labels.flatten())


def cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, stride=2, groups=2),
                         nn.GroupNorm(2, 6), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3))


class Shared(nn.Module):
    """A ModuleList that holds one layer three times, and another one once."""

    def __init__(self):
        super().__init__()
        layer = nn.Linear(5, 5)
        self.layers = nn.ModuleList([layer, layer, nn.Linear(5, 5), layer])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Two(nn.Module):
    """Two matrices, which the test makes share memory."""

    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = nn.Parameter(a), nn.Parameter(b)

    def forward(self, x):
        return x @ self.a, F.linear(x, self.b)


class Zoo(nn.Module):
    """Runs a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def norms(x):
    return (F.layer_norm(x, x.shape[-1:]), F.layer_norm(x, x.shape[-2:], torch.ones(x.shape[-2:]), eps=1e-3), F.rms_norm(x, x.shape[-1:], eps=1e-5),
            F.instance_norm(x), x.var(-1), x.var((0, 1), correction=0, keepdim=True), x.std(1), x / x.norm(dim=-1, keepdim=True))


def activations(x):
    return (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.relu6(3 * x), F.hardswish(x), F.leaky_relu(x, 0.2), F.elu(x, 0.5), F.softplus(x),
            torch.sigmoid(x), x.clamp(-0.5), x.clamp(max=0.5), torch.erf(x), F.hardtanh(x), F.mish(x), F.softmax(x, 0), F.log_softmax(x, 1),
            F.glu(x, 1), F.selu(x), F.celu(x, 0.5), F.softplus(x, beta=2, threshold=1), F.logsigmoid(x))


def arithmetic(x, y):
    return (x + y, 2 - x, x.sub(y, alpha=3), x * y, x / (y.abs() + 1), 1 / (1 + x.square()), x**2, x**3, 2**x, (x.abs() + 0.1) ** -0.5, torch.exp(x),
            torch.rsqrt(x.abs() + 1), torch.maximum(x, y), torch.where(x > y, x, 0.0), x.masked_fill((x < 0) & ~(y < 0), -1), x == x.round(),
            torch.floor(x), torch.sin(x) * torch.cos(y), (x > 0).float().sum(), x.sum(1), x.mean(), x.amax(0), x.min(), x.argmax(1), *x.max(1),
            x.cumsum(0), torch.floor_divide(x, 0.3), x % 0.7, torch.fmod(x, -0.7), torch.ceil(x), torch.trunc(3 * x), torch.frac(x), torch.exp2(x),
            torch.log2(x.abs() + 1), torch.log10(x.abs() + 1), torch.tan(x), torch.isnan(torch.log(x)), torch.isinf(1 / x.round()),
            torch.log1p(1e-5 * x) * 1e5, torch.log1p(x.abs()), torch.expm1(1e-5 * x) * 1e5, torch.expm1(x), torch.nan_to_num(torch.log(x)))


def shapes(x):
    return (x.reshape(2, -1), x.permute(2, 0, 1), x[:, 1:3], x[..., ::2], x[:, -1], x[1], x.unsqueeze(1).expand(-1, 3, -1, -1), torch.cat([x, x[:1]]),
            torch.stack([x, x], -1), *x.split([1, 3], 1), *x.unbind(0), x.chunk(2, -1)[1], F.pad(x, (1, 2, 0, 1), value=3), x.flatten(1),
            x[:, [2, 0]], x.index_select(2, torch.tensor([3, 0])), torch.gather(x, 1, x.argmax(1, keepdim=True)), x.topk(2).values, x.flip(1),
            x.roll(1, 2), x.squeeze(), x.repeat(1, 2, 1), torch.einsum("abc,dbc->ad", x, x), x + torch.tril(torch.ones(4, 4)), x.new_zeros(3) + 1)


def products(x):
    return (x @ x.transpose(1, 2), x[0] @ x[1].T, x @ x[0, 0], x[0, 0] @ x[1], torch.bmm(x, x), torch.baddbmm(x, x, x), torch.addmm(x[0], x[0], x[1]),
            torch.baddbmm(x, x, x, beta=0.5, alpha=-2), F.bilinear(x, 2 * x, torch.arange(48.0).view(3, 4, 4)), F.linear(x[0, 0], x[1]), torch.outer(x[0, 0], x[0, 1]))


def attention(x):
    q = x.view(2, 4, 2, 4).transpose(1, 2)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    return (F.scaled_dot_product_attention(q, q, q, attn_mask=mask), F.scaled_dot_product_attention(q, q, q, attn_mask=mask.float(), scale=0.3),
            F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x, attn_mask=mask.expand(2, 4, 4)))


def windows(x):
    return (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False), F.max_pool2d(x, 3, 1, 1, 1), F.max_pool1d(x[0], 2),
            F.adaptive_avg_pool2d(x, 2), F.conv_transpose2d(x, torch.ones(2, 3, 2, 2), stride=2), F.conv1d(x[0], torch.ones(3, 6, 2)),
            F.adaptive_avg_pool2d(x, (4, 5)), F.pad(x, (1, 2, 2, 1), mode="circular"), F.local_response_norm(x, 2))


def images(x):
    return (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(4, 11)), F.interpolate(x, scale_factor=1.3, mode="nearest-exact"),
            F.interpolate(x, scale_factor=1.7, mode="bilinear"), F.interpolate(x, size=(4, 11), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(4, 11), mode="bicubic"), F.interpolate(x[0], scale_factor=2, mode="linear"))


def losses(x, y):
    labels = torch.tensor([1, 0, -100])
    return (F.mse_loss(x, y), F.huber_loss(x, y, delta=0.5), F.smooth_l1_loss(x, y, beta=0.5), F.l1_loss(x, y, reduction="sum"),
            F.binary_cross_entropy_with_logits(x, (y > 0).float()), F.cross_entropy(x, labels, label_smoothing=0.1),
            F.cross_entropy(x.T[None], labels[None], reduction="none"))


class Torch(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        self.device = bowline.Device("cpu", threads=1)

    def assert_fails(self, code, parts, *args, **named):
        with self.assertRaises(bowline.Error) as failed:
            bowline.import_torch(*args, **named)
        for part in parts:
            self.assertIn(part, str(failed.exception))
        self.assertEqual(failed.exception.code, code)

    def run_model(self, imported, inputs, dims):
        imported.model.to(self.device)
        session = bowline.Session(imported.model, self.device, imported.report["entry"], dims)
        return session.run({name: numpy.ascontiguousarray(value.numpy().astype(numpy.int32) if value.dtype == torch.int64 else value.numpy())
                            for name, value in inputs.items()})

    def test_a_language_model_keeps_its_tie_and_takes_other_sizes(self):
        module = Gpt()
        imported = bowline.import_torch(module, (torch.zeros(2, 4, dtype=torch.int64),), ({0: BATCH, 1: SEQ},))
        self.assertEqual(imported.report["ties"], [["tokens.weight", "head.weight"]])
        self.assertEqual(imported.report["inputs"], [{"name": "ids", "dtype": "i32", "shape": ["batch", "seq"]}])
        self.assertTrue(imported.model.same_storage("tokens.weight", "head.weight"))
        self.assertEqual({n for n in imported.model.parameters if "constant" not in n}, set(dict(module.named_parameters(remove_duplicate=False))))
        for batch, seq in ((1, 1), (3, 12)):
            ids = torch.randint(0, 23, (batch, seq))
            got = self.run_model(imported, {"ids": ids}, {"batch": batch, "seq": seq})["output"]
            numpy.testing.assert_allclose(got, module(ids).detach().numpy(), rtol=1e-4, atol=1e-5)
        self.assert_fails("bad_argument", ["module Gpt fails on the example inputs: IndexError"], module, (torch.zeros(2, 13, dtype=torch.int64),), ({0: BATCH, 1: SEQ},))
        self.assert_fails("unsupported", ['"seq" needs a maximum'], module, (torch.zeros(2, 4, dtype=torch.int64),),
                          ({0: BATCH, 1: torch.export.Dim("seq")},))

    def test_training_takes_the_steps_of_pytorch(self):
        for module, x, labels in ((Gpt(), torch.randint(0, 23, (2, 4)), torch.randint(0, 23, (2, 4))),
                                  (Shared(), torch.randn(3, 5), torch.tensor([1, 4, 0]))):
            loss = Loss(module)
            imported = bowline.import_torch(loss, (x, labels), entry="loss")
            model = imported.model
            model.to(self.device)
            trainer = bowline.Trainer(model, self.device, loss="output", optimizer="sgd", learning_rate=0.1)
            optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
            ours = [x.numpy().astype(numpy.int32) if x.dtype == torch.int64 else x.numpy(), labels.numpy().astype(numpy.int32)]
            for _ in range(3):
                optimizer.zero_grad()
                theirs = loss(x, labels)
                theirs.backward()
                optimizer.step()
                self.assertAlmostEqual(trainer.step([dict(zip(["x", "labels"], ours))])["loss"], theirs.item(), places=4)
            for name, value in loss.named_parameters(remove_duplicate=False):
                numpy.testing.assert_allclose(model[name], value.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=name)

    def test_two_entry_points_share_the_parameters(self):
        module = cnn()
        loss = Loss(module)
        x, labels = torch.randn(2, 1, 10, 10), torch.tensor([2, 0])
        first = bowline.import_torch(loss, (x, labels), entry="loss")
        again = bowline.import_torch(loss, {"labels": labels, "x": x}, entry="again", model=first.model)
        self.assertIs(again.model, first.model)
        names = [n for n in first.model.parameters if "constant" not in n]
        self.assertEqual(sorted(names), sorted(n for n in loss.state_dict() if "num_batches" not in n))
        self.assertEqual(first.report["unused"], [])
        wide = Loss(cnn())
        wide.inner[10] = nn.Linear(6, 4)
        self.assert_fails("bad_argument", ['no parameter "inner.10.weight" of the shape [4, 6]'], wide, (x, labels), entry="wide", model=first.model)
        first.model["inner.10.weight"] = numpy.zeros((3, 6), numpy.float32)
        bowline.import_torch(loss, (x, labels), entry="later", model=first.model)
        self.assertEqual(first.model["inner.10.weight"].any(), False)

    def test_a_cnn_with_a_dynamic_batch(self):
        module = cnn().eval()
        module[1].running_mean.uniform_()
        imported = bowline.import_torch(module, torch.randn(2, 1, 10, 10), ({0: BATCH},))
        self.assertEqual(imported.report["outputs"], [{"name": "output", "dtype": "f32", "shape": ["batch", 3]}])
        x = torch.randn(5, 1, 10, 10)
        numpy.testing.assert_allclose(self.run_model(imported, {"input": x}, {"batch": 5})["output"], module(x).detach().numpy(), rtol=1e-4, atol=1e-5)

    def test_products_of_dynamic_dimensions(self):
        def heads(x):
            q = x.reshape(x.shape[0] * 2, -1, 4)
            return F.scaled_dot_product_attention(q, q, q).reshape(x.shape)

        class Module(nn.Module):
            def forward(self, inputs):
                return heads(inputs["x"])

        class Mean(nn.Module):
            def forward(self, x):
                return x / x.shape[0]

        imported = bowline.import_torch(Module(), ({"x": torch.randn(3, 6, 4)},), ({"x": {0: BATCH}},))
        self.assertEqual(imported.report["inputs"], [{"name": "inputs_x", "dtype": "f32", "shape": ["batch", 6, 4]}])
        x = torch.randn(5, 6, 4)
        got = self.run_model(imported, {"inputs_x": x}, {"batch": 5})["output"]
        numpy.testing.assert_allclose(got, heads(x).numpy(), rtol=1e-4, atol=1e-5)
        self.assert_fails("unsupported", ["aten.div.Tensor", "size of a dynamic dimension"], Mean(), torch.ones(3, 4), ({0: BATCH},))

    def test_transformer_encoders(self):
        for first in (True, False):
            layer = nn.TransformerEncoderLayer(WIDTH, 4, 32, batch_first=True, norm_first=first, activation="gelu")
            module = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
            imported = bowline.import_torch(module, torch.randn(2, 5, WIDTH), ({0: BATCH, 1: SEQ},))
            x = torch.randn(3, 7, WIDTH)
            got = self.run_model(imported, {"src": x}, {"batch": 3, "seq": 7})["output"]
            numpy.testing.assert_allclose(got, module(x).numpy(), rtol=1e-4, atol=1e-5)

    def test_a_transposed_weight_can_have_an_adapter(self):
        table = nn.Embedding(9, WIDTH)
        module = Zoo(lambda ids: table(ids) @ table.weight.T)
        module.table = table
        model = bowline.import_torch(module, torch.zeros(2, 3, dtype=torch.int64)).model
        self.assertEqual(model.add_adapter("mine", rank=2, target="table.weight")["targets"], ["table.weight"])

    def test_ties_of_a_module_list(self):
        imported = bowline.import_torch(Shared(), torch.randn(2, 5))
        names = [[f"layers.{i}.{part}" for i in (0, 1, 3)] for part in ("weight", "bias")]
        self.assertEqual(sorted(imported.report["ties"]), sorted(names))

    def test_ties_through_views(self):
        base = torch.randn(4, 6)
        transposed = Two(base, base)
        transposed.b = nn.Parameter(transposed.a.detach().t())
        rows = Two(base, base)
        rows.b = nn.Parameter(rows.a.detach()[1:3].reshape(3, 4))
        apart = Two(base, base)
        storage = torch.randn(8, 4)
        apart.a, apart.b = nn.Parameter(storage[:4]), nn.Parameter(storage[4:])
        for module, tied in ((transposed, True), (rows, True), (apart, False)):
            x = torch.randn(2, 4)
            model = bowline.import_torch(module, x).model
            self.assertEqual(bool(model.ties), tied)
            if tied:
                self.assertTrue(model.same_storage("a", "b"))
                model["a"] = 2 * model["a"]
                numpy.testing.assert_array_equal(model["b"], 2 * module.b.detach().numpy())
        columns = Two(base, base)
        columns.b = nn.Parameter(columns.a.detach()[:, :4])
        self.assert_fails("unsupported", ['"a" and "b" share memory', "strides [6, 1]", "clone()"], columns, torch.randn(2, 4))
        repeated = Two(base, torch.ones(1, 4).expand(5, 4))
        self.assert_fails("unsupported", ['"b" uses elements of its memory more than once'], repeated, torch.randn(2, 4))

    def test_operators(self):
        x = torch.randn(2, 4, 4)
        for function, inputs in ((norms, (x,)), (activations, (x,)), (arithmetic, (x, torch.randn(2, 4, 4))), (shapes, (x,)), (products, (x,)),
                                 (attention, (torch.randn(2, 4, 8),)), (windows, (torch.randn(6, 2, 6, 6),)),
                                 (images, (torch.randn(2, 3, 6, 7),)),
                                 (losses, (torch.randn(3, 4), torch.randn(3, 4)))):
            with self.subTest(function.__name__):
                if function is attention:
                    inputs = (torch.randn(2, 4, 8),)
                report = bowline.import_torch(Zoo(function), inputs).report
                self.assertEqual(len(report["max_error"]), len(function(*inputs)))

    def test_norms_without_weights(self):
        for module in (nn.BatchNorm2d(3, affine=False), nn.InstanceNorm2d(3), nn.GroupNorm(3, 3, affine=False), nn.LayerNorm(5, elementwise_affine=False)):
            with self.subTest(module):
                bowline.import_torch(module, torch.randn(2, 3, 4, 5))

    def test_outputs_and_frozen_and_small_weights(self):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.unused = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(3, 3)
                self.first.requires_grad_(False)
                self.register_buffer("scale", torch.tensor([2.0, 3.0]))

            def forward(self, x, *, mask=None):
                return {"scores": self.second(self.first(x)) * self.scale, "rest": [x, x + 1]}

        imported = bowline.import_torch(Module(), (torch.randn(2, 4),))
        self.assertEqual([o["name"] for o in imported.report["outputs"]], ["scores", "rest_0", "rest_1"])
        self.assertEqual(imported.report["unused"], ["unused.weight", "unused.bias"])
        self.assertIn("scale", imported.model.parameters)
        half = bowline.import_torch(Module().bfloat16(), torch.randn(2, 4).bfloat16())
        self.assertEqual({s["dtype"] for n, s in half.model.parameters.items() if "first" in n}, {"bf16"})
        self.assertEqual(half.report["tolerance"], 0.03)

    def test_dropout_runs_in_training_only(self):
        module = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 3)).train()
        loss = Loss(module)
        x, labels = torch.randn(2, 4), torch.tensor([0, 1])
        for dropout in (False, True):
            model = bowline.import_torch(loss, (x, labels), entry="loss", dropout=dropout).model
            model.to(self.device)
            trainer = bowline.Trainer(model, self.device, loss="output", optimizer="sgd", learning_rate=0.0)
            batch = {"x": x.numpy(), "labels": labels.numpy().astype(numpy.int32)}
            self.assertEqual(len({trainer.step([batch])["loss"] for _ in range(3)}), 3 if dropout else 1)
        self.assertTrue(module.training and module[1].training)

    def test_refused_modules(self):
        x = torch.randn(2, 4)

        class Fourier(nn.Module):
            def forward(self, x):
                return torch.fft.fft(x).real

        self.assert_fails("unsupported", ["aten._fft_r2c.default", 'module "1" (Fourier)', "torch_test.py, line", "torch.fft.fft(x).real"],
                          nn.Sequential(nn.Linear(4, 4), Fourier()), x)
        self.assert_fails("unsupported", ["aten.rand", "no counterpart"], Zoo(lambda x: x + torch.rand(2, 4)), x)
        self.assert_fails("unsupported", ["input 0 has the dtype float64", ".float()"], nn.Linear(4, 4), x.double())
        self.assert_fails("unsupported", ['parameter "weight" has the dtype float64', "module.float()"], nn.Linear(4, 4).double(), {"input": x})
        self.assert_fails("unsupported", ["int16"], nn.ReLU(), x.to(torch.int16))
        self.assert_fails("unsupported", ["do not fit in 32 bits"], Zoo(lambda x: x + 1), torch.tensor([1 << 40]))
        counter = nn.BatchNorm1d(4, affine=False)
        counter.forward = lambda x: x + counter.running_mean.add_(1)
        self.assert_fails("unsupported", ['changes "running_mean"'], counter, x)
        self.assertEqual(counter.running_mean.sum(), 0)
        self.assert_fails("bad_argument", ["NumPy array"], nn.ReLU(), (x.numpy(),))
        self.assert_fails("bad_argument", ["type int", "tuple of the positional arguments"], nn.ReLU(), 3)
        self.assert_fails("bad_argument", ["type function", "torch.nn.Module"], F.relu, x)
        self.assert_fails("bad_argument", ["torch.export cannot export the module Zoo"], Zoo(lambda x: x if x.sum() > 0 else -x), x)
        self.assert_fails("bad_argument", ["dynamic dimensions have a size of at least 2"], nn.ReLU(), x[:1], ({0: BATCH},))
        self.assert_fails("bad_argument", ["tolerance is -1"], nn.ReLU(), x, tolerance=-1)
        self.assert_fails("bad_argument", ["on the device meta"], nn.Linear(4, 4, device="meta"), x)

    def test_a_wrong_result_is_an_error_with_the_difference(self):
        from bowline import _torch_operators

        right = _torch_operators.OPERATORS["aten.relu.default"]
        _torch_operators.OPERATORS["aten.relu.default"] = _torch_operators.unary("Neg")
        try:
            self.assert_fails("internal", ['"output" differs from PyTorch by 2 ', "allows 0.0001"], nn.ReLU(), torch.tensor([1.0, -1.0, 1.0, 0.5]))
            self.assertEqual(bowline.import_torch(nn.ReLU(), torch.ones(1), tolerance=3).report["max_error"], {"output": 2})
        finally:
            _torch_operators.OPERATORS["aten.relu.default"] = right


if __name__ == "__main__":
    logging.disable()  # torch.export writes the graphs that it refuses
    unittest.main(verbosity=2)
