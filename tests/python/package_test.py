"""Tests the Python package: models, ties, sessions, training, errors, text.

usage: package_test.py, with the package bowline and NumPy on the path
"""

import _thread
import gc
import importlib
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import bowline
import numpy

BATCH = 8
TESTS = pathlib.Path(__file__).resolve().parent.parent


def build(tied=False):
    """Returns a model with the entry points "loss" and "forward": two layers, 4 -> 4 -> 4."""
    model = bowline.Model()
    first = model.parameter("first", [4, 4], init="normal", scale=0.5)
    second = model.tied_parameter("second", first) if tied else model.parameter("second", [4, 4], init="normal", scale=0.5)
    bias = model.parameter("bias", [4])
    for name in ["forward", "loss"]:
        graph = bowline.GraphBuilder(model, name)
        x = graph.input("x", "f32", ["batch", 4])
        hidden = graph.op("Relu", [graph.op("Linear", [x, graph.parameter(first), graph.parameter(bias)])])
        logits = graph.op("Linear", [hidden, graph.parameter(second)], node="head")
        if name == "forward":
            graph.output("logits", logits)
        else:
            graph.output("loss", graph.op("CrossEntropy", [logits, graph.input("y", "i32", ["batch"])]))
        graph.finish()
    model.materialize(1)
    return model


def data():
    draw = numpy.random.default_rng(0)
    x = draw.normal(size=(BATCH, 4)).astype(numpy.float32)
    return {"x": x, "y": x.argmax(axis=1).astype(numpy.int32)}


def reference(model, x):
    hidden = numpy.maximum(x @ model["first"].T + model["bias"], 0)
    return hidden @ model["second"].T


class Package(unittest.TestCase):
    def setUp(self):
        self.device = bowline.Device("cpu", threads=1)

    def moved(self, model):
        model.to(self.device)
        return self.device

    def trained(self, model, steps=40, **options):
        model.to(self.device)
        trainer = bowline.Trainer(model, self.device, dims={"batch": BATCH}, learning_rate=0.05, **options)
        losses = [trainer.step([data()])["loss"] for _ in range(steps)]
        return trainer, losses

    def assert_fails(self, code, part, call):
        with self.assertRaises(bowline.Error) as failed:
            call()
        self.assertEqual(failed.exception.code, code)
        self.assertIn(part, str(failed.exception))

    def test_a_run_computes_what_numpy_computes(self):
        model = build()
        model.to(self.device)
        session = bowline.Session(model, self.device, "forward", {"batch": BATCH})
        x = data()["x"]
        numpy.testing.assert_allclose(session.run({"x": x})["logits"], reference(model, x), rtol=1e-5, atol=1e-6)

    def test_the_shapes_of_dynamic_dimensions_are_those_of_the_inputs(self):
        model = bowline.Model()
        model.set_dim_limits("batch", max=64, dynamic=True)
        graph = bowline.GraphBuilder(model, "forward")
        graph.output("y", graph.op("Relu", [graph.input("x", "f32", ["batch", 2])]))
        graph.finish()
        model.to(self.device)
        session = bowline.Session(model, self.device, "forward", {"batch": 64})
        for rows in (1, 5, 64):
            x = numpy.full((rows, 2), -1, numpy.float32)
            self.assertEqual(session.run({"x": x})["y"].shape, (rows, 2))
        self.assert_fails("bad_argument", "", lambda: session.run({"x": numpy.zeros((65, 2), numpy.float32)}))

    def test_outputs_have_the_new_shape_after_a_resize(self):
        model = bowline.Model()
        weight = model.parameter("w", [4, 2], init="ones")
        graph = bowline.GraphBuilder(model, "forward")
        graph.output("y", graph.op("Linear", [graph.input("x", "f32", [1, 2]), graph.parameter(weight)]))
        graph.finish()
        model.materialize(1)
        model.to(self.device)
        session = bowline.Session(model, self.device)
        x = numpy.ones((1, 2), numpy.float32)
        self.assertEqual(session.run({"x": x})["y"].shape, (1, 4))
        model.resize("w", 6)
        self.assertEqual(session.run({"x": x})["y"].shape, (1, 6))
        model.resize("w", 3)
        self.assertEqual(session.submit({"x": x}).wait()["y"].shape, (1, 3))

    def test_training_lowers_the_loss_and_keeps_ties(self):
        model = build(tied=True)
        self.assertEqual(model.ties, {0: ["first", "second"]})
        _, losses = self.trained(model)
        self.assertLess(losses[-1], 0.7 * losses[0])
        numpy.testing.assert_array_equal(model["first"], model["second"])
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "tied.bowline")
            model.save(path)
            opened = bowline.Model.open(path)
        self.assertTrue(opened.same_storage("first", "second"))
        numpy.testing.assert_array_equal(opened["second"], model["second"])

    def test_a_write_reaches_all_tied_parameters_until_untie(self):
        model = build(tied=True)
        ones = numpy.ones((4, 4), numpy.float32)
        model["second"] = ones
        numpy.testing.assert_array_equal(model["first"], ones)
        self.assertEqual(model.untie("second"), 64)
        model["second"] = 2 * ones
        numpy.testing.assert_array_equal(model["first"], ones)

    def test_a_checkpoint_continues_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "step.bowline")
            first = build()
            trainer, _ = self.trained(first, 5)
            trainer.save(path, data_cursor=7, config={"run": "a"})
            losses = [trainer.step([data()])["loss"] for _ in range(3)]
            second = build()
            second.to(self.device)
            again = bowline.Trainer(second, self.device, dims={"batch": BATCH}, learning_rate=0.05)
            progress = again.resume(path)
            self.assertEqual((progress["step"], progress["data_cursor"], progress["config"]), (5, 7, {"run": "a"}))
            self.assertEqual([again.step([data()])["loss"] for _ in range(3)], losses)

    def test_a_gradient_hook_changes_the_gradient(self):
        model = build()
        trainer, _ = self.trained(model, 1, optimizer="sgd")
        before = model["first"]
        seen = []

        def hook(info, gradient):
            seen.append((info["parameters"], gradient.shape))
            gradient[...] = 0

        trainer.set_gradient_hook(hook)
        trainer.step([data()])
        self.assertIn((["first"], (4, 4)), seen)
        numpy.testing.assert_array_equal(model["first"], before)

    def test_an_exception_of_a_hook_reaches_the_caller(self):
        trainer, _ = self.trained(build(), 1)

        def hook(info, gradient):
            raise KeyError("mine")

        trainer.set_gradient_hook(hook)
        with self.assertRaisesRegex(KeyError, "mine"):
            trainer.step([data()])
        trainer.set_gradient_hook(None)
        trainer.restart_step()
        self.assertTrue(numpy.isfinite(trainer.step([data()])["loss"]))

    def test_another_thread_cancels_a_session(self):
        model = build()
        model.to(self.device)
        session = bowline.Session(model, self.device, "forward", {"batch": BATCH})
        x = {"x": data()["x"]}
        right = session.run(x)["logits"]
        thread = threading.Thread(target=session.cancel)
        thread.start()
        thread.join()
        self.assert_fails("cancelled", "The run was cancelled.", lambda: session.run(x))
        numpy.testing.assert_array_equal(session.run(x)["logits"], right)

    def test_a_model_that_serves_takes_the_values_of_one_that_trains(self):
        served = build(tied=True)
        trained = build(tied=True)
        self.trained(trained, steps=3)
        self.assertFalse(numpy.array_equal(served["first"], trained["first"]))
        served.copy_values_from(trained)
        for name in ("first", "second", "bias"):
            numpy.testing.assert_array_equal(served[name], trained[name])
        self.assertEqual(served.ties, {0: ["first", "second"]})
        self.assert_fails("bad_argument", "has no parameter", lambda: served.copy_values_from(bowline.Model()))

    def test_a_paused_trainer_continues_with_the_same_bits(self):
        def trained(pauses):
            model = build()
            trainer, losses = self.trained(model, steps=2)
            if pauses:
                with tempfile.TemporaryDirectory() as folder:
                    path = str(pathlib.Path(folder) / "paused.bowline")
                    trainer.pause(path, data_cursor=2)
                    self.assertEqual(trainer.state, "paused")
                    self.assert_fails("bad_argument", "is paused", lambda: trainer.step([data()]))
                    model.to(self.device)
                    self.assertEqual(trainer.resume(path)["data_cursor"], 2)
            return [*losses, trainer.step([data()])["loss"]], model["first"]

        once, first = trained(False)
        again, second = trained(True)
        self.assertEqual(once, again)
        numpy.testing.assert_array_equal(first, second)

    def test_options_of_the_cpu(self):
        messages = []
        device = bowline.Device("cpu", threads=2, nice=1, max_load=0.5, log=lambda level, text: messages.append((level, text)))
        self.assertEqual(messages[0][0], "info")
        self.assertIn("Opened device cpu", messages[0][1])
        model = build()
        model.to(device)
        session = bowline.Session(model, device, "forward", {"batch": BATCH})
        self.assertIn("New plan of", messages[1][1])
        x = data()["x"]
        numpy.testing.assert_allclose(session.run({"x": x})["logits"], reference(model, x), rtol=1e-5, atol=1e-6)
        bowline.Device("cpu", log=lambda level: None)  # its exception is ignored
        self.assert_fails("bad_argument", "max_load", lambda: bowline.Device("cpu", max_load=0))

    def test_wrong_arrays_are_refused(self):
        model = build()
        model.to(self.device)
        session = bowline.Session(model, self.device, "forward", {"batch": 4})
        x = numpy.zeros((4, 4), numpy.float32)
        self.assert_fails("bad_argument", "row-major", lambda: session.run({"x": numpy.zeros((4, 8), numpy.float32)[:, ::2]}))
        self.assert_fails("bad_argument", "dtype", lambda: session.run({"x": x.astype(numpy.complex64)}))
        self.assert_fails("bad_argument", "not f32[4,4]", lambda: session.run({"x": x[:3]}))
        self.assert_fails("bad_argument", "not an array", lambda: session.run({"x": [1, 2]}))
        self.assert_fails("bad_argument", "no output \"z\"", lambda: session.run({"x": x}, ["z"]))
        self.assert_fails("bad_argument", "dtype", lambda: model.cast("f31"))
        self.assert_fails("io_error", "nowhere", lambda: bowline.Model.open("nowhere.bowline"))
        self.assert_fails("bad_argument", "learning_rate_factor",
                          lambda: bowline.Trainer(model, self.device, dims={"batch": 4}, groups=[{"pattern": "*", "decay": 1}]))

    def test_a_read_only_array_is_an_input(self):
        model = build()
        model.to(self.device)
        session = bowline.Session(model, self.device, "forward", {"batch": BATCH})
        x = data()["x"]
        expected = session.run({"x": x})["logits"]
        x.setflags(write=False)
        numpy.testing.assert_array_equal(session.run({"x": x})["logits"], expected)

    def test_other_threads_run_during_a_run(self):
        model = bowline.Model()
        weight = model.parameter("w", [1024, 1024], init="normal", scale=0.01)
        graph = bowline.GraphBuilder(model, "forward")
        graph.output("y", graph.op("Linear", [graph.input("x", "f32", [2048, 1024]), graph.parameter(weight)]))
        graph.finish()
        model.materialize(1)
        model.to(self.device)
        session = bowline.Session(model, self.device)
        x = numpy.ones((2048, 1024), numpy.float32)
        session.run({"x": x}, [])
        ended = threading.Event()
        ticks = []

        def tick():
            while not ended.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        start = time.monotonic()
        session.run({"x": x}, [])
        end = time.monotonic()
        ended.set()
        thread.join()
        margin = (end - start) / 5
        self.assertTrue(any(start + margin < t < end - margin for t in ticks))

    def test_ctrl_c_ends_a_step_between_micro_batches(self):
        model, count = build(), 10000
        batches = [data()] * count
        trainer, _ = self.trained(model, 0, accumulation=count)
        called = threading.Event()

        def press():
            called.wait()
            _thread.interrupt_main()

        thread = threading.Thread(target=press)
        thread.start()
        before = model["first"]
        with self.assertRaises(KeyboardInterrupt):
            called.set()
            trainer.step(batches)
        thread.join()
        self.assertEqual(trainer.steps, 0)
        self.assertLess(trainer.accumulated, count)
        numpy.testing.assert_array_equal(model["first"], before)
        expected = build()
        other, _ = self.trained(expected, 0, accumulation=count)
        self.assertEqual(trainer.step(batches)["loss"], other.step(batches)["loss"])
        numpy.testing.assert_array_equal(model["first"], expected["first"])
        self.assert_fails("bad_argument", "", lambda: trainer.step(batches[1:]))

    def test_sessions_keep_their_model_and_device(self):
        model = build()
        model.to(self.device)
        session = bowline.Session(model, self.device, "forward", {"batch": BATCH})
        x = data()["x"]
        expected = reference(model, x)
        self.device = model = None
        gc.collect()
        numpy.testing.assert_allclose(session.run({"x": x})["logits"], expected, rtol=1e-5, atol=1e-6)

    def test_quantize_and_adapters(self):
        model = build()
        self.assertEqual(model.quantize("int8 block row", "first")["storages"], 1)
        model.add_adapter("mine", rank=2, target="second")
        self.assertEqual(model.adapters, ["mine"])
        self.assertIn("second.mine.lora_a", model.parameters)
        model.merge_adapter("mine")
        self.assertEqual(model.adapters, [])

    def test_text(self):
        tokenizer = bowline.Tokenizer.of_bytes()
        self.assertEqual(tokenizer.encode("hé"), [104, 195, 169])
        self.assertEqual(tokenizer.decode([104, 195, 169]), "hé")
        self.assertEqual(len(tokenizer), 256)
        text = bowline.ChatTemplate.named("chatml").render([{"role": "user", "content": "hi"}])
        self.assertEqual(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        self.assert_fails("bad_argument", "role", lambda: bowline.ChatTemplate.named("chatml").render([{"content": "hi"}]))
        template = bowline.ChatTemplate.from_text("{{ tools[0].name }} {{ think }} {{ messages[0].calls | tojson }} {{ messages[0].content is defined }}")
        text = template.render([{"role": "assistant", "calls": [{"x": 1.5}]}], tools=[{"name": "f"}], variables={"think": False})
        self.assertEqual(text, 'f False [{"x": 1.5}] False')

    def test_optional_packages_are_loaded_late_and_named_if_absent(self):
        done = subprocess.run([sys.executable, "-c", "import bowline, sys; print(sorted({'numpy', 'torch', 'flwr'} & set(sys.modules)))"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "[]")
        with unittest.mock.patch.dict(sys.modules, {"torch": None, "flwr": None, "flwr.app": None}):
            self.assert_fails("unsupported", "pip install torch", lambda: bowline.import_torch(None, None))
            with self.assertRaisesRegex(ImportError, "pip install \"flwr"):
                importlib.import_module("bowline.flower")

    def test_bf16_is_read_as_float32(self):
        model = build()
        expected = model["first"]
        model.cast("bf16")
        self.assertEqual(model["first"].dtype, numpy.float32)
        numpy.testing.assert_allclose(model["first"], expected, rtol=2**-8)

    def test_imports(self):
        if "Not in this package" in bowline.import_model.__doc__:
            self.skipTest("built with BOWLINE_IMPORT=OFF")
        folder = TESTS / "import/fixtures/llama"
        imported = bowline.import_model(str(folder), dtype="f32")
        self.assertEqual((imported.report["format"], imported.report["task"]), ("Hugging Face", "generate"))
        self.assertEqual({t["use"] for t in imported.report["tensors"]}, {"taken"})
        session = bowline.Session(imported.model, self.moved(imported.model), "forward", {"batch": 1, "seq": 3})
        logits = session.run({"tokens": numpy.array([[0, 2, 1]], numpy.int32)})["logits"]
        self.assertTrue(numpy.isfinite(logits).all())
        self.assertEqual(imported.not_finite(), [])
        try:
            onnx = bowline.import_model(str(TESTS / "onnx/fixtures/shared.onnx"), dims={"batch": 2}, entry="main", tie_equal=True)
            self.assertEqual((onnx.report["format"], onnx.report["task"], onnx.report["tensors"]), ("ONNX", None, []))
        except bowline.Error as error:
            self.assertIn("has no reader of ONNX", str(error))
        base = bowline.import_model(str(TESTS / "peft/fixtures/llama")).model
        self.assertTrue(bowline.import_adapter(base, str(TESTS / "peft/fixtures/llama_qv"), "mine")["targets"])
        self.assertEqual(base.adapters, ["mine"])
        self.assert_fails("bad_file", "cannot be read", lambda: bowline.import_model("absent"))
        self.assert_fails("bad_argument", "--entry has no effect", lambda: bowline.import_model(str(folder), entry="main"))
        self.assert_fails("bad_argument", "no task", lambda: bowline.import_model(str(folder), task="sing"))

    def test_imports_report_progress_and_end_early(self):
        if "Not in this package" in bowline.import_model.__doc__:
            self.skipTest("built with BOWLINE_IMPORT=OFF")
        folder = str(TESTS / "import/fixtures/llama")
        calls = []
        bowline.import_model(folder, progress=lambda *at: calls.append(at))
        self.assertEqual(calls[0], ("files", 0, 1))
        self.assertEqual({part for part, _, _ in calls}, {"files", "tensors"})
        self.assertTrue(all(done < total for part, done, total in calls if part == "tensors"))
        self.assert_fails("cancelled", "The import was cancelled.", lambda: bowline.import_model(folder, progress=lambda *at: False))

        def fail(part, done, total):
            raise KeyError(part)

        with self.assertRaisesRegex(KeyError, "files"):
            bowline.import_model(folder, progress=fail)
        with self.assertRaises(KeyboardInterrupt):
            bowline.import_model(folder, progress=lambda *at: _thread.interrupt_main())
        bowline.import_model(folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
