"""Federated training with Flower (the package flwr): clients exchange adapters, never base weights.

A client trains the adapter that the server sends, and returns its matrices and the number of its
samples. The server averages the matrices, weighted by samples. Install the package flwr, or
`pip install "bowline[flower]"`.

    app = client_app(load, train)       # in the client app
    strategy = AdapterAverage(adapter)  # in the server app
    result = strategy.start(grid, strategy.initial_arrays(), num_rounds=3)
    adapter.set_arrays(arrays_of(result.arrays))

The average of the matrices A and of the matrices B is not the average of the products B A. Clients
that train for long between two rounds therefore lose accuracy.
"""

import logging

from bowline._error import Error

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg
except ImportError as error:
    raise ImportError('bowline.flower needs the package flwr. Run: pip install "flwr>=1.42"') from error

SAMPLES = "num-examples"


def record_of(adapter):
    """Returns the matrices of an Adapter as an ArrayRecord."""
    return ArrayRecord({name: Array(array) for name, array in adapter.arrays().items()})


def arrays_of(record):
    """Returns the arrays of an ArrayRecord by name."""
    return {name: array.numpy() for name, array in record.items()}


def _metrics(name, metrics):
    if not isinstance(metrics, dict) or not isinstance(metrics.get("samples"), int) or metrics["samples"] < 1:
        raise Error(f'{name} returned {metrics!r}. Return a dict with the number of "samples", at least 1, and other metrics.', "bad_argument")
    return MetricRecord({SAMPLES: metrics["samples"], **{k: v for k, v in metrics.items() if k != "samples"}})


def client_app(load, train, evaluate=None):
    """Returns a ClientApp of Flower that trains an adapter.

    Args:
      load: load(context) returns the bowline.Adapter of this client.
      train: train(adapter, config, context) trains it. It returns a dict with the number of
        "samples" and other metrics. config is a dict from the server.
      evaluate: evaluate(adapter, config, context) returns such a dict, without training.

    If the adapter of the server does not fit the model of the client, the client raises an Error.
    """
    app = ClientApp()

    def received(message, context):
        adapter = load(context)
        adapter.set_arrays(arrays_of(message.content["arrays"]))
        return adapter, dict(message.content["config"]) if "config" in message.content else {}

    @app.train()
    def on_train(message, context):
        adapter, config = received(message, context)
        metrics = _metrics("train()", train(adapter, config, context))
        content = {"arrays": record_of(adapter), "metrics": metrics, "model": ConfigRecord({"base_digest": adapter.base_digest()})}
        return Message(content=RecordDict(content), reply_to=message)

    if evaluate is not None:
        @app.evaluate()
        def on_evaluate(message, context):
            adapter, config = received(message, context)
            return Message(content=RecordDict({"metrics": _metrics("evaluate()", evaluate(adapter, config, context))}), reply_to=message)

    return app


class AdapterAverage(FedAvg):
    """Averages adapters, weighted by the samples of the clients.

    It leaves out the adapter of a client if its names, its shapes or the weights of its model
    differ, or if a value is not finite. `refused` lists the reasons as pairs of round and sentence.
    If no adapter is left, the adapter of the round before stays.
    """

    def __init__(self, adapter, **options):
        """adapter: the bowline.Adapter of the server. options: as for FedAvg of Flower."""
        super().__init__(weighted_by_key=SAMPLES, **options)
        self.adapter = adapter
        self.refused = []
        self._digest = adapter.base_digest()

    def initial_arrays(self):
        """Returns the matrices of the adapter of the server."""
        return record_of(self.adapter)

    def aggregate_train(self, server_round, replies):
        """Called by Flower after each round."""
        kept = []
        for reply in replies:
            try:
                if not reply.has_error():
                    self._check(reply.content)
                kept.append(reply)
            except Error as error:
                sentence = f"The adapter of client {reply.metadata.src_node_id} was refused. {error}"
                self.refused.append((server_round, sentence))
                logging.getLogger("flwr").warning(sentence)
        if not kept:
            return None, None
        return super().aggregate_train(server_round, kept)

    def _check(self, content):
        for part in ("arrays", "metrics", "model"):
            if part not in content:
                raise Error(f'The reply has no "{part}". Use client_app() in the client.', "bad_argument")
        self.adapter.check(arrays_of(content["arrays"]))
        if content["model"]["base_digest"] != self._digest:
            raise Error("The weights of its model differ from those of the server. Give both the same model file.", "bad_argument")
        samples = content["metrics"].get(SAMPLES)
        if not isinstance(samples, int) or samples < 1:
            raise Error(f"The number of samples is {samples!r}. It must be at least 1.", "bad_argument")
