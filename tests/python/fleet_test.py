"""Tests the exchange of adapters through Flower, and samples/fleet.

usage: fleet_test.py, with the packages bowline, NumPy and flwr on the path

Exit code 77: flwr is not installed.
"""

import logging
import os
import pathlib
import sys
import unittest

import bowline
import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "samples/fleet"))
try:
    import flwr
except ImportError:
    print('skipped: Flower is not installed (pip install "flwr>=1.42")')
    sys.exit(1 if os.environ.get("BOWLINE_STRICT") == "1" else 77)
import fleet
from bowline.flower import SAMPLES, AdapterAverage, arrays_of, client_app, record_of
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

assert flwr


def reply_of(node, adapter, samples, digest=None):
    """A reply of a client with an adapter."""
    question = Message(RecordDict(), node, "train")
    content = {"arrays": record_of(adapter), "metrics": MetricRecord({SAMPLES: samples}),
               "model": ConfigRecord({"base_digest": digest or adapter.base_digest()})}
    return Message(RecordDict(content), reply_to=question)


class Fleet(unittest.TestCase):
    def setUp(self):
        logging.getLogger("flwr").setLevel(logging.ERROR)
        self.base = fleet.make_model()
        self.server = fleet.with_adapter(self.base)
        fleet.InProcess(None, 1)  # sets what messages need

    def filled(self, seed, base=None, **options):
        model = (base or self.base).clone()
        model.add_adapter(fleet.NAME, **({"rank": 8, "alpha": 16, "target": "{first,head}"} | options))
        adapter = bowline.Adapter(model, fleet.NAME)
        draw = numpy.random.default_rng(seed)
        adapter.set_arrays({name: draw.normal(size=a.shape).astype(numpy.float32) for name, a in adapter.arrays().items()})
        return adapter

    def assert_fails(self, part, call):
        with self.assertRaises(bowline.Error) as failed:
            call()
        self.assertEqual(failed.exception.code, "bad_argument")
        self.assertIn(part, str(failed.exception))

    def assert_average(self, record, clients):
        """Compares with the mean in double precision, weighted by samples, one by one."""
        total = sum(samples for _, samples in clients)
        for name, array in arrays_of(record).items():
            inputs = [(a.arrays()[name].astype(numpy.float64), samples) for a, samples in clients]
            for place in numpy.ndindex(array.shape):
                expected = sum(float(values[place]) * samples for values, samples in inputs) / total
                self.assertAlmostEqual(float(array[place]), expected, delta=1e-6, msg=f"{name} {place}")

    def test_the_average_is_weighted_by_samples(self):
        clients = [(self.filled(i), samples) for i, samples in enumerate([1, 7, 40])]
        strategy = AdapterAverage(self.server)
        record, _ = strategy.aggregate_train(1, [reply_of(i, a, n) for i, (a, n) in enumerate(clients)])
        self.assert_average(record, clients)
        self.assertEqual(strategy.refused, [])

    def test_a_tied_weight_is_exchanged_once(self):
        names = ["first.fleet.lora_a", "first.fleet.lora_b", "head.fleet.lora_a", "head.fleet.lora_b"]
        self.assertEqual(sorted(record_of(self.server)), names)
        self.assertEqual(self.server.targets, ["first", "second", "head"])
        values = {name: numpy.full_like(a, 2) for name, a in self.server.arrays().items()}
        self.server.set_arrays(values)
        numpy.testing.assert_array_equal(self.server.model["second.fleet.lora_a"], values["first.fleet.lora_a"])

    def test_adapters_that_do_not_fit_are_left_out(self):
        good = [(self.filled(1), 3), (self.filled(2), 5)]
        other = fleet.make_model()
        other["head"] = other["head"] + 1
        spoiled = self.filled(3)
        spoiled.model["head.fleet.lora_b"] = numpy.full((10, 8), numpy.nan, numpy.float32)
        replies = [reply_of(i, a, n) for i, (a, n) in enumerate(good)]
        replies += [reply_of(10, self.filled(4, rank=4), 9), reply_of(11, self.filled(5, target="head"), 9), reply_of(12, self.filled(6, other), 9),
                    reply_of(13, spoiled, 9), reply_of(14, self.filled(7), 0)]
        strategy = AdapterAverage(self.server)
        record, _ = strategy.aggregate_train(3, replies)
        self.assert_average(record, good)
        reasons = ["has the shape [4, 64], and [8, 64] in this model", 'it lacks "first.fleet.lora_a"', "weights of its model differ",
                   "NaN or infinite", "number of samples is 0"]
        self.assertEqual(len(strategy.refused), len(reasons))
        for (server_round, sentence), client, reason in zip(strategy.refused, range(10, 15), reasons):
            self.assertEqual(server_round, 3)
            self.assertTrue(sentence.startswith(f"The adapter of client {client} was refused. "), sentence)
            self.assertIn(reason, sentence)
        self.assertEqual(strategy.aggregate_train(4, replies[2:]), (None, None))

    def test_a_client_refuses_what_does_not_fit(self):
        context = Context(run_id=0, node_id=1, node_config={}, state=RecordDict(), run_config={})
        question = Message(RecordDict({"arrays": record_of(self.server)}), 1, "train")
        other = self.filled(1, rank=4)
        before = other.arrays()
        self.assert_fails("[8, 64], and [4, 64]", lambda: client_app(lambda _: other, None)(question, context))
        numpy.testing.assert_array_equal(before["head.fleet.lora_b"], other.arrays()["head.fleet.lora_b"])
        for wrong in (None, {"loss": 1.0}, {"samples": 0}, {"samples": 2.5}):
            self.assert_fails('number of "samples"', lambda: client_app(lambda _: self.server, lambda *_: wrong)(question, context))
        answer = client_app(lambda _: self.server, None, lambda *_: {"samples": 2, "loss": 0.5})(Message(question.content, 1, "evaluate"), context)
        self.assertEqual(dict(answer.content["metrics"]), {SAMPLES: 2, "loss": 0.5})

    def test_adapters_as_objects(self):
        self.assert_fails('no adapter "absent". Its adapters: "fleet"', lambda: bowline.Adapter(self.server.model, "absent"))
        self.assert_fails('has "extra"', lambda: self.server.set_arrays(self.server.arrays() | {"extra": numpy.ones(1)}))
        self.assert_fails("dtype int64", lambda: self.server.set_arrays({n: numpy.ones(a.shape, numpy.int64) for n, a in self.server.arrays().items()}))
        adapter = self.filled(1)
        before, a, b = self.base["head"], adapter.arrays()["head.fleet.lora_a"], adapter.arrays()["head.fleet.lora_b"]
        adapter.set_weight(0.5)
        adapter.merge()
        numpy.testing.assert_allclose(adapter.model["head"], before + 0.5 * 16 / 8 * b @ a, rtol=1e-4, atol=1e-5)
        self.assertEqual(adapter.model.adapters, [])

    def test_a_fleet_learns_what_no_base_knew(self):
        for clients, rounds, least in ((4, 12, 0.65), (50, 30, 0.75)):
            strategy, result, accuracies = fleet.run(clients, rounds, ROOT / "samples/data/digits.txt", report=lambda _: None)
            self.assertEqual(strategy.refused, [])
            self.assertEqual(len(accuracies), rounds + 1)
            self.assertLess(accuracies[0], 0.55)
            self.assertGreater(accuracies[-1], least)


if __name__ == "__main__":
    unittest.main(verbosity=2)
