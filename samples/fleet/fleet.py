#!/usr/bin/env python3
"""Trains one adapter with many clients, through Flower: each client has digits of two kinds only.

usage: fleet.py [--clients N] [--rounds N] [--digits FILE]

It needs the Python packages bowline, flwr and NumPy. All clients run in this process, one after
another. The guide samples/guides/fleet.md says what changes for clients on other machines.
"""

import argparse
import logging
import pathlib

import bowline
import numpy
from bowline.flower import AdapterAverage, arrays_of, client_app
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

NAME = "fleet"


def read_digits(path):
    """Returns images as rows of 64 pixels, and labels. Each letter of a line is a pixel, A to Q."""
    lines = pathlib.Path(path).read_text().split()
    pixels = numpy.array([[ord(c) - ord("A") for c in line[:64]] for line in lines], numpy.float32) / 16
    return pixels, numpy.array([int(line[64]) for line in lines], numpy.int32)


def make_model():
    """Returns a network of three layers. The first two share one matrix."""
    model = bowline.Model()
    first = model.parameter("first", [64, 64], init="normal", scale=0.15)
    second = model.tied_parameter("second", first)
    head = model.parameter("head", [10, 64], init="normal", scale=0.15)
    for entry in ("forward", "loss"):
        graph = bowline.GraphBuilder(model, entry)
        x = graph.input("x", "f32", ["batch", 64])
        for weight in (first, second):
            x = graph.op("Relu", [graph.op("Linear", [x, graph.parameter(weight)])])
        scores = graph.op("Linear", [x, graph.parameter(head)])
        if entry == "forward":
            graph.output("scores", scores)
        else:
            graph.output("loss", graph.op("CrossEntropy", [scores, graph.input("y", "i32", ["batch"])]))
        graph.finish()
    model.materialize(0)
    return model


def train_on(model, device, x, y, steps, learning_rate):
    """Trains on all rows at once. Returns the last loss."""
    model.to(device)
    trainer = bowline.Trainer(model, device, dims={"batch": len(y)}, learning_rate=learning_rate)
    return [trainer.step([{"x": x, "y": y}])["loss"] for _ in range(steps)][-1]


def accuracy(model, device, x, y):
    model.to(device)
    session = bowline.Session(model, device, "forward", {"batch": len(y)})
    return float((session.run({"x": x})["scores"].argmax(axis=1) == y).mean())


def with_adapter(base):
    """Returns a copy of the base with an adapter, as each client and the server have it."""
    model = base.clone()
    model.add_adapter(NAME, rank=8, alpha=16, target="{first,head}")
    return bowline.Adapter(model, NAME)


def divide(labels, clients):
    """Returns the rows of each client: two slices of the rows that are sorted by label."""
    slices = numpy.array_split(numpy.argsort(labels, kind="stable"), 2 * clients)
    order = numpy.random.default_rng(0).permutation(2 * clients)
    return [numpy.concatenate([slices[order[2 * i]], slices[order[2 * i + 1]]]) for i in range(clients)]


class InProcess(Grid):
    """Sends messages to ClientApps in this process. Node i is client i - 1."""

    def __init__(self, app, clients):
        self._app = app
        self._clients = clients
        self.sent_bytes = 0
        # In a deployment, Flower sets them. Messages carry them.
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0

    def set_run(self, run):
        pass

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return range(1, self._clients + 1)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            context = Context(run_id=0, node_id=node, node_config={"client": node - 1}, state=RecordDict(), run_config={})
            try:
                replies.append(self._app(message, context))
                self.sent_bytes += sum(len(array.data) for array in replies[-1].content["arrays"].values())
            except bowline.Error as error:
                replies.append(Message(Error(code=0, reason=str(error)), reply_to=message))
        return replies


def run(clients, rounds, digits, report=print):
    """Simulates the fleet. Returns the strategy, the result, and the accuracy after each round."""
    device = bowline.Device("cpu", threads=1)
    x, y = read_digits(digits)
    test = numpy.arange(len(y)) % 5 == 0
    base = make_model()
    # The base knows only the first half of the digits well.
    known = ~test & (y < 5)
    train_on(base, device, x[known], y[known], steps=30, learning_rate=0.01)
    own = numpy.flatnonzero(~test)
    rows = [own[r] for r in divide(y[own], clients)]

    def load(context):
        return with_adapter(base)

    def train(adapter, config, context):
        mine = rows[context.node_config["client"]]
        loss = train_on(adapter.model, device, x[mine], y[mine], steps=5, learning_rate=0.02)
        return {"samples": len(mine), "loss": float(loss)}

    server = with_adapter(base)
    strategy = AdapterAverage(server, fraction_evaluate=0.0)
    grid = InProcess(client_app(load, train), clients)
    accuracies = []

    def evaluate(server_round, arrays):
        server.set_arrays(arrays_of(arrays))
        accuracies.append(accuracy(server.model, device, x[test], y[test]))
        report(f"round {server_round}: accuracy {accuracies[-1]:.3f}")

    result = strategy.start(grid, strategy.initial_arrays(), num_rounds=rounds, evaluate_fn=evaluate)
    report(f"{clients} clients sent {grid.sent_bytes / clients / rounds / 1024:.1f} KiB each per round")
    return strategy, result, accuracies


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=50, help="number of clients [50]")
    parser.add_argument("--rounds", type=int, default=30, help="number of rounds [30]")
    parser.add_argument("--digits", default=pathlib.Path(__file__).resolve().parent.parent / "data/digits.txt", help="the data")
    args = parser.parse_args()
    if args.clients < 2 or args.rounds < 1:
        parser.error("a fleet has at least 2 clients and 1 round.")
    logging.getLogger("flwr").setLevel(logging.WARNING)
    run(args.clients, args.rounds, args.digits)


if __name__ == "__main__":
    main()
