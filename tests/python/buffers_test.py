"""Tests buffers of devices, DLPack, and submitted runs of the Python package.

usage: buffers_test.py, with the package bowline and NumPy on the path; PyTorch is optional
"""

import asyncio
import ctypes
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import bowline
import numpy

HOST = (1, 0)  # kDLCPU
HAS_TORCH = importlib.util.find_spec("torch") is not None


def device_names():
    """Returns the first usable device of each kind that computes."""
    names = {}
    for device in bowline.devices():
        if not device["unusable"] and device["computes"]:
            names.setdefault(device["name"].split(":")[0], device["name"])
    return list(names.values())


def scaled(device, factor=2.0, dims=(2, 3), dynamic=False):
    """Returns a session whose output y is factor * x."""
    model = bowline.Model()
    weight = model.parameter("w", [1], init="ones")
    if dynamic:
        model.set_dim_limits("rows", max=8, dynamic=True)
    graph = bowline.GraphBuilder(model, "forward")
    graph.output("y", graph.op("Mul", [graph.input("x", "f32", ["rows" if dynamic else dims[0], *dims[1:]]), graph.parameter(weight)]))
    graph.finish()
    model.materialize(1)
    model["w"] = numpy.array([factor], numpy.float32)
    model.to(device)
    return bowline.Session(model, device, "forward", {"rows": 8} if dynamic else {})


def slow(device, times=40):
    """Returns a session whose runs take a while, and its input."""
    size = 256
    model = bowline.Model()
    weight = model.parameter("w", [size, size], init="normal", scale=0.01)
    graph = bowline.GraphBuilder(model, "forward")
    value = graph.input("x", "f32", [size, size])
    for _ in range(times):
        value = graph.op("Linear", [value, graph.parameter(weight)])
    graph.output("y", value)
    graph.finish()
    model.materialize(1)
    model.to(device)
    return bowline.Session(model, device), {"x": numpy.ones((size, size), numpy.float32)}


def counted(shape=(2, 3)):
    return numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape) - 2


class Checks(unittest.TestCase):
    def assert_fails(self, code, part, call):
        with self.assertRaises(bowline.Error) as failed:
            call()
        self.assertEqual(failed.exception.code, code)
        self.assertIn(part, str(failed.exception))
        return failed.exception


class Buffers(Checks):
    def test_a_buffer_keeps_an_array(self):
        for name in device_names():
            with self.subTest(device=name):
                device = bowline.Device(name)
                before = device.counters()["live_bytes"]
                buffer = bowline.DeviceBuffer(device, (2, 3))
                self.assertEqual((buffer.shape, buffer.dtype, buffer.bytes, buffer.device.name), ((2, 3), "f32", 24, device.name))
                self.assertGreaterEqual(device.counters()["live_bytes"], before + 24)
                numpy.testing.assert_array_equal(buffer.read(), numpy.zeros((2, 3), numpy.float32))
                buffer.write(counted())
                numpy.testing.assert_array_equal(buffer.read(), counted())
                self.assertIn("f32[2,3]", repr(buffer))
                for dtype in (numpy.float16, numpy.int8, numpy.uint8, numpy.int32, numpy.int64, bool):
                    values = numpy.array([1, 0, 1]).astype(dtype)
                    copy = bowline.DeviceBuffer.from_array(device, values)
                    self.assertEqual(copy.read().dtype, values.dtype)
                    numpy.testing.assert_array_equal(copy.read(), values)
                for shape in ((), (0,), (3, 0, 2)):
                    self.assertEqual(bowline.DeviceBuffer(device, shape).read().shape, shape)
                del buffer, copy
                gc.collect()
                self.assertEqual(device.counters()["live_bytes"], before)

    def test_outputs_in_buffers_feed_other_runs(self):
        for name in device_names():
            with self.subTest(device=name):
                device = bowline.Device(name)
                double, triple = scaled(device), scaled(device, 3)
                between, out = (bowline.DeviceBuffer(device, (2, 3)) for _ in range(2))
                given = double.run({"x": counted()}, {"y": between})
                self.assertIs(given["y"], between)
                triple.run({"x": between}, {"y": out})
                numpy.testing.assert_array_equal(out.read(), 6 * counted())
                numpy.testing.assert_array_equal(triple.run({"x": out})["y"], 18 * counted())
                double.run({"x": out}, {"y": out})  # the same buffer
                numpy.testing.assert_array_equal(out.read(), 12 * counted())

    def test_a_smaller_run_writes_its_part(self):
        device = bowline.Device("cpu")
        session = scaled(device, dims=(8, 3), dynamic=True)
        buffer = bowline.DeviceBuffer(device, (5, 3))
        session.run({"x": counted((5, 3))}, {"y": buffer})
        numpy.testing.assert_array_equal(buffer.read(), 2 * counted((5, 3)))
        self.assert_fails("bad_argument", "Output \"y\" is f32[5,3], not f32[4,3]",
                          lambda: session.run({"x": counted((4, 3))}, {"y": buffer}))

    def test_outputs_go_to_given_arrays(self):
        session = scaled(bowline.Device("cpu"))
        array = numpy.zeros((2, 3), numpy.float32)
        self.assertIs(session.run({"x": counted()}, {"y": array})["y"], array)
        numpy.testing.assert_array_equal(array, 2 * counted())
        self.assertEqual(list(session.run({"x": counted()}, {"y": None})), ["y"])
        self.assertEqual(session.run({"x": counted()}, {}), {})
        array.setflags(write=False)
        self.assert_fails("bad_argument", "read-only", lambda: session.run({"x": counted()}, {"y": array}))
        self.assert_fails("bad_argument", "no output \"z\"", lambda: session.run({"x": counted()}, {"z": None}))
        self.assert_fails("bad_argument", "row-major", lambda: session.run({"x": counted()}, {"y": numpy.zeros((3, 2), numpy.float32).T}))

    def test_a_buffer_keeps_its_device_and_a_session_its_buffers(self):
        session = scaled(bowline.Device("cpu"))
        buffer = bowline.DeviceBuffer(bowline.Device("cpu"), (2, 3))
        gc.collect()
        buffer.write(counted())
        numpy.testing.assert_array_equal(buffer.read(), counted())
        self.assert_fails("bad_argument", "opened by another call", lambda: session.run({"x": buffer}))

    def test_wrong_buffers_are_refused(self):
        device = bowline.Device("cpu", memory_budget=64 << 20)
        buffer = bowline.DeviceBuffer(device, (2, 3))
        self.assert_fails("bad_argument", "negative", lambda: bowline.DeviceBuffer(device, (2, -3)))
        self.assert_fails("bad_argument", "too many bytes", lambda: bowline.DeviceBuffer(device, (1 << 40, 1 << 40)))
        self.assert_fails("bad_argument", "9 dimensions", lambda: bowline.DeviceBuffer(device, (1,) * 9))
        self.assert_fails("bad_argument", "no dtype \"f31\"", lambda: bowline.DeviceBuffer(device, (1,), "f31"))
        self.assert_fails("over_budget", "memory budget", lambda: bowline.DeviceBuffer(device, (1 << 40,)))
        self.assert_fails("bad_argument", "The array is f32[3,2], but the buffer is f32[2,3].", lambda: buffer.write(counted((3, 2))))
        self.assert_fails("bad_argument", "i32[2,3]", lambda: buffer.write(counted().astype(numpy.int32)))
        self.assert_fails("bad_argument", "in a buffer", lambda: buffer.write(buffer))
        self.assert_fails("bad_argument", "not an array", lambda: buffer.write([1, 2]))
        model = bowline.Model()
        model.parameter("w", [2, 3], init="ones")
        model.materialize(1)
        with self.assertRaisesRegex(bowline.Error, "in a buffer of a device"):
            model["w"] = buffer
        self.assert_fails("out_of_memory", "", lambda: bowline.DeviceBuffer(bowline.Device("cpu"), (1 << 60,)))


class Dlpack(Checks):
    def test_the_cpu_shares_its_memory(self):
        device = bowline.Device("cpu")
        buffer = bowline.DeviceBuffer(device, (2, 3))
        self.assertEqual(buffer.__dlpack_device__(), HOST)
        view = numpy.from_dlpack(buffer)
        self.assertEqual((view.shape, view.dtype), ((2, 3), numpy.float32))
        self.assertEqual(view.ctypes.data % 64, 0)
        view[...] = counted()
        numpy.testing.assert_array_equal(buffer.read(), counted())
        numpy.testing.assert_array_equal(scaled(device).run({"x": buffer})["y"], 2 * counted())
        scaled(device, 5).run({"x": counted()}, {"y": buffer})
        numpy.testing.assert_array_equal(view, 5 * counted())
        del buffer, device
        gc.collect()
        view += 1  # the view keeps the memory
        numpy.testing.assert_array_equal(view, 5 * counted() + 1)

    def test_memory_is_freed_after_the_last_view(self):
        device = bowline.Device("cpu")
        before = device.counters()["live_bytes"]
        view = numpy.from_dlpack(bowline.DeviceBuffer(device, (100,)))
        gc.collect()
        self.assertGreater(device.counters()["live_bytes"], before)
        del view
        self.assertEqual(device.counters()["live_bytes"], before)
        capsule = bowline.DeviceBuffer(device, (100,)).__dlpack__()  # that nobody takes
        del capsule
        self.assertEqual(device.counters()["live_bytes"], before)

    def test_arguments_follow_the_standard(self):
        def name_and_flags(capsule):
            name = ctypes.pythonapi.PyCapsule_GetName
            name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            if name(capsule) != b"dltensor_versioned":
                return name(capsule), None
            # DLManagedTensorVersioned: two uint32, two pointers, and the flags.
            return name(capsule), ctypes.c_uint64.from_address(pointer(capsule, name(capsule)) + 24).value

        buffer = bowline.DeviceBuffer.from_array(bowline.Device("cpu"), counted())
        self.assertEqual(name_and_flags(buffer.__dlpack__()), (b"dltensor", None))
        self.assertEqual(name_and_flags(buffer.__dlpack__(max_version=(0, 8))), (b"dltensor", None))
        self.assertEqual(name_and_flags(buffer.__dlpack__(max_version=(1, 0))), (b"dltensor_versioned", 0))
        self.assertEqual(name_and_flags(buffer.__dlpack__(max_version=(1, 0), copy=True)), (b"dltensor_versioned", 2))
        self.assertEqual(name_and_flags(buffer.__dlpack__(max_version=(1, 0), dl_device=HOST, copy=False)), (b"dltensor_versioned", 0))
        copy = numpy.from_dlpack(buffer, copy=True)
        copy[...] = 0
        numpy.testing.assert_array_equal(buffer.read(), counted())
        error = self.assert_fails("unsupported", "dl_device", lambda: buffer.__dlpack__(dl_device=(2, 0)))
        self.assertIsInstance(error, BufferError)
        error = self.assert_fails("bad_argument", "stream", lambda: buffer.__dlpack__(stream=1))
        self.assertIsInstance(error, BufferError)
        with self.assertRaises(TypeError):
            buffer.__dlpack__(None)

    def test_other_devices_export_copies_alone(self):
        names = [name for name in device_names() if name != "cpu"]
        for name in [*names, "null"]:
            with self.subTest(device=name):
                buffer = bowline.DeviceBuffer.from_array(bowline.Device(name), counted())
                self.assertIsInstance(self.assert_fails("unsupported", name, buffer.__dlpack_device__), BufferError)
                self.assert_fails("unsupported", "read()", buffer.__dlpack__)
                self.assert_fails("unsupported", "needs a copy", lambda: buffer.__dlpack__(dl_device=HOST, copy=False))
                numpy.testing.assert_array_equal(numpy.from_dlpack(buffer, device="cpu"), counted())

    @unittest.skipUnless(HAS_TORCH, "needs PyTorch")
    def test_torch_shares_the_memory_of_the_cpu(self):
        import torch
        device = bowline.Device("cpu")
        buffer = bowline.DeviceBuffer(device, (2, 3))
        view = torch.from_dlpack(buffer)
        view += 7
        numpy.testing.assert_array_equal(buffer.read(), numpy.full((2, 3), 7, numpy.float32))
        out = torch.zeros(2, 3)
        session = scaled(device)
        self.assertIs(session.run({"x": view}, {"y": out})["y"], out)
        self.assertTrue(torch.equal(out, 2 * view))
        half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
        there = bowline.DeviceBuffer.from_array(device, half)
        self.assertEqual(there.dtype, "bf16")
        self.assertTrue(torch.equal(torch.from_dlpack(there), half))
        numpy.testing.assert_array_equal(there.read(), half.float().numpy())


class Runs(Checks):
    def test_submitted_runs_keep_their_order(self):
        for name in device_names():
            with self.subTest(device=name):
                device = bowline.Device(name)
                session = scaled(device)
                buffer = bowline.DeviceBuffer.from_array(device, counted())
                runs = [session.submit({"x": buffer}, {"y": buffer}) for _ in range(5)]
                arrays = [session.submit({"x": counted() + i}) for i in range(5)]
                self.assertIs(runs[-1].wait()["y"], buffer)
                numpy.testing.assert_array_equal(buffer.read(), 32 * counted())
                for i, run in enumerate(arrays):
                    numpy.testing.assert_array_equal(run.wait()["y"], 2 * (counted() + i))
                    self.assertTrue(run.done)
                numpy.testing.assert_array_equal(arrays[0].wait(timeout=0)["y"], 2 * counted())
                self.assertEqual(session.counters()["submits"], 10)

    def test_errors_come_from_wait(self):
        session = scaled(bowline.Device("cpu"))
        run = session.submit({"x": numpy.zeros((9, 9), numpy.float32)})
        for _ in range(2):
            self.assert_fails("bad_argument", "not f32[2,3]", run.wait)
        self.assert_fails("bad_argument", "not an array", lambda: session.submit({"x": 1}))
        numpy.testing.assert_array_equal(session.run({"x": counted()})["y"], 2 * counted())

    def test_submit_returns_while_runs_are_pending(self):
        session, x = slow(bowline.Device("cpu"))
        expected = session.run(x)["y"]
        runs = [session.submit(x) for _ in range(3)]
        self.assertFalse(runs[-1].done)
        with self.assertRaisesRegex(TimeoutError, "after 0.0 seconds. It continues"):
            runs[-1].wait(0)
        numpy.testing.assert_array_equal(runs[-1].wait()["y"], expected)

    def test_too_many_runs_are_refused(self):
        session, x = slow(bowline.Device("cpu"))
        runs = []
        with self.assertRaises(bowline.Error) as failed:
            for _ in range(1000):
                runs.append(session.submit(x, []))
        self.assertEqual(failed.exception.code, "bad_argument")
        self.assertIn("64 runs are pending", str(failed.exception))
        for run in runs:
            run.cancel()
        self.assert_fails("cancelled", "cancelled", runs[-1].wait)
        self.assertEqual(session.submit(x, []).wait(), {})

    def test_a_run_is_cancelled_alone(self):
        session, x = slow(bowline.Device("cpu"))
        expected = session.run(x)["y"]
        first, second, third = (session.submit(x) for _ in range(3))
        second.cancel()
        self.assert_fails("cancelled", "cancelled before it began", second.wait)
        for run in (first, third):
            numpy.testing.assert_array_equal(run.wait()["y"], expected)
        third.cancel()
        third.wait()

    def test_dropped_runs_keep_their_arrays(self):
        session, x = slow(bowline.Device("cpu"))
        expected = session.run(x)["y"]
        out = numpy.zeros((256, 256), numpy.float32)
        arrays = []
        for _ in range(3):
            source = numpy.ones((256, 256), numpy.float32)
            arrays.append(weakref.ref(source))
            session.submit({"x": source}, {"y": out})
            del source
        last = session.submit({"x": numpy.ones((256, 256), numpy.float32)})
        gc.collect()
        self.assertIsNotNone(arrays[-1]())
        numpy.testing.assert_array_equal(last.wait()["y"], expected)
        numpy.testing.assert_array_equal(out, expected)
        self.assertEqual([a() for a in arrays], [None] * 3)

    def test_a_pending_run_keeps_its_session(self):
        session, x = slow(bowline.Device("cpu"))
        expected = session.run(x)["y"]
        run = session.submit(x)
        del session
        gc.collect()
        numpy.testing.assert_array_equal(run.wait()["y"], expected)

    def test_the_end_of_a_session_cancels_dropped_runs(self):
        session, x = slow(bowline.Device("cpu"), 400)
        array = weakref.ref(x["x"])
        for _ in range(20):
            session.submit(x)
        begin = time.monotonic()
        del session, x
        gc.collect()
        self.assertIsNone(array())
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_model_is_protected_while_runs_are_pending(self):
        device = bowline.Device("cpu")
        model = bowline.Model()
        weight = model.parameter("w", [512, 512], init="normal", scale=0.01)
        graph = bowline.GraphBuilder(model, "forward")
        value = graph.input("x", "f32", [512, 512])
        for _ in range(20):
            value = graph.op("Linear", [value, graph.parameter(weight)])
        graph.output("y", value)
        graph.finish()
        model.materialize(1)
        model.to(device)
        session = bowline.Session(model, device)
        run = session.submit({"x": numpy.ones((512, 512), numpy.float32)})
        with self.assertRaises(bowline.Error) as failed:
            model["w"] = numpy.zeros((512, 512), numpy.float32)
        self.assertEqual(failed.exception.code, "bad_argument")
        run.wait()
        model["w"] = numpy.zeros((512, 512), numpy.float32)

    def test_coroutines_wait(self):
        session, x = slow(bowline.Device("cpu"))
        expected = session.run(x)["y"]

        async def run_all():
            runs = [session.submit(x) for _ in range(3)]
            ticks = 0

            async def tick():
                nonlocal ticks
                while not runs[-1].done:
                    ticks += 1
                    await asyncio.sleep(0.001)

            *results, _ = await asyncio.gather(*(self.awaited(run) for run in runs), tick())
            self.assertGreater(ticks, 1)
            return results

        for result in asyncio.run(run_all()):
            numpy.testing.assert_array_equal(result["y"], expected)

    @staticmethod
    async def awaited(run):
        return await run

    def test_a_cancelled_task_cancels_its_run(self):
        session, x = slow(bowline.Device("cpu"))

        async def run_one():
            first, second = session.submit(x), session.submit(x)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.awaited(second), 0.001)
            await first
            return second

        self.assert_fails("cancelled", "cancelled", asyncio.run(run_one()).wait)

    def test_other_threads_run_during_wait(self):
        session, x = slow(bowline.Device("cpu"), 200)
        run = session.submit(x)
        ended = threading.Event()
        ticks = []

        def tick():
            while not ended.is_set():
                ticks.append(run.done)
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        run.wait()
        ended.set()
        thread.join()
        self.assertGreater(ticks.count(False), 1)

    @unittest.skipUnless(hasattr(signal, "pthread_kill"), "needs signals")
    def test_ctrl_c_ends_wait_and_not_the_run(self):
        session, x = slow(bowline.Device("cpu"), 400)
        runs = [session.submit(x) for _ in range(3)]
        main = threading.get_ident()
        thread = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            runs[-1].wait()
        thread.join()
        self.assertEqual(runs[-1].wait()["y"].shape, (256, 256))

    def test_a_process_may_end_while_runs_are_pending(self):
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import bowline, buffers_test\n"
                "session, x = buffers_test.slow(bowline.Device('cpu'), 200)\n"
                "kept = [session.submit(x) for _ in range(9)]\n"
                "cycle = [kept, session]; cycle.append(cycle)\n"
                "print('end')\n")
        done = subprocess.run([sys.executable, "-c", code, os.path.dirname(os.path.abspath(__file__))], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "end"), done.stderr)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork()")
    def test_a_child_process_cannot_wait(self):
        session, x = slow(bowline.Device("cpu"), 400)
        run = session.submit(x)
        child = os.fork()
        if child == 0:
            try:
                run.wait()
                os._exit(1)
            except bowline.Error as error:
                os._exit(0 if error.code == "device_lost" else 2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        run.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
