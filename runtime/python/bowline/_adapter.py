"""Adapters of a model as objects.

Functions import NumPy when they need it, because its import takes longer than that of the package.
"""

import hashlib

from bowline._error import Error


class Adapter:
    """A LoRA adapter of a model: its matrices as arrays, to exchange them with other programs.

        adapter = bowline.Adapter(model, "mine")
        numpy.savez("mine.npz", **adapter.arrays())

    One thread at a time may use the model and its adapters.
    """

    def __init__(self, model, name):
        """Finds an adapter. Raises Error (bad_argument) if the model does not have it."""
        if name not in model.adapters:
            have = ", ".join(f'"{a}"' for a in model.adapters) or "none"
            raise Error(f'The model has no adapter "{name}". Its adapters: {have}. Call model.add_adapter() first.', "bad_argument")
        self.model = model
        self.name = name

    def __repr__(self):
        return f"bowline.Adapter({self.name!r}, targets={self.targets})"

    def _parameters(self):
        """The matrices by name. Tied matrices have one entry, under the first name."""
        ties, out = set(), {}
        for name, p in self.model.parameters.items():
            if name.endswith((f".{self.name}.lora_a", f".{self.name}.lora_b")) and p["target"] and p["tie"] not in ties:
                ties.add(p["tie"])
                out[name] = p
        return out

    @property
    def targets(self):
        """The names of the parameters that the adapter changes, tied ones included."""
        end = f".{self.name}.lora_a"
        return [p["target"] for name, p in self.model.parameters.items() if name.endswith(end) and p["target"]]

    def arrays(self):
        """Returns copies of the matrices A and B by name. Matrices of tied targets occur once."""
        return {name: self.model[name] for name in self._parameters()}

    def check(self, arrays):
        """Raises Error (bad_argument) if the arrays are not those of such an adapter.

        They must have the names and shapes of arrays(), a float dtype, and finite values.
        """
        import numpy

        own = self._parameters()
        missing = [name for name in own if name not in arrays]
        unknown = [name for name in arrays if name not in own]
        if missing or unknown:
            problem = f'it lacks "{missing[0]}"' if missing else f'it has "{unknown[0]}", which this adapter does not have'
            raise Error(f'The arrays are not of the adapter "{self.name}" of this model: {problem}. '
                        "Make both adapters with the same name, rank and target.", "bad_argument")
        for name, p in own.items():
            array = numpy.asarray(arrays[name])
            if list(array.shape) != p["shape"]:
                raise Error(f'The array "{name}" has the shape {list(array.shape)}, and {p["shape"]} in this model. '
                            "Make both adapters with the same rank, and on the same model.", "bad_argument")
            if array.dtype.kind != "f":
                raise Error(f'The array "{name}" has the dtype {array.dtype}. Pass floats.', "bad_argument")
            if not numpy.isfinite(array).all():
                raise Error(f'The array "{name}" has values that are NaN or infinite. Lower the learning rate of the training.', "bad_argument")

    def set_arrays(self, arrays):
        """Writes the matrices. Raises as check(), and then writes nothing."""
        import numpy

        self.check(arrays)
        for name, p in self._parameters().items():
            dtype = numpy.float16 if p["dtype"] == "f16" else numpy.float32
            self.model[name] = numpy.ascontiguousarray(arrays[name], dtype)

    def base_digest(self):
        """Returns the SHA-256 of all weights of the model that belong to no adapter, as hex digits.

        Adapters fit each other only if their models have the same weights.
        """
        import numpy

        digest, ties = hashlib.sha256(), set()
        roles = {s["tie"]: s["role"] for s in self.model.describe()["storages"]}
        for name, p in sorted(self.model.parameters.items()):
            if p["target"] or p["tie"] in ties or roles[p["tie"]] != "weight":
                continue
            ties.add(p["tie"])
            digest.update(f"{name} {p['dtype']} {p['shape']}".encode())
            digest.update(numpy.ascontiguousarray(self.model[name]).tobytes())
        return digest.hexdigest()

    def save(self, path):
        """Saves the adapter without the model."""
        self.model.save_adapter(self.name, path)

    def set_weight(self, weight):
        """Sets the weight of the adapter. 0 disables it."""
        self.model.set_adapter_weight(self.name, weight)

    def merge(self):
        """Adds the adapter to the values of its targets, and removes it."""
        self.model.merge_adapter(self.name)

    def remove(self):
        """Removes the adapter from the model."""
        self.model.remove_adapter(self.name)
