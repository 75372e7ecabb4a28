"""Declares the parameters and buffers of a PyTorch module in a Bowline model, with their ties."""

from bowline._error import Error

# The names of the dtypes of PyTorch in Bowline. Integers of 64 bits become i32: ids and labels are
# i32 in Bowline.
DTYPES = {
    "torch.float32": "f32",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.int8": "i8",
    "torch.uint8": "u8",
    "torch.int32": "i32",
    "torch.int64": "i32",
    "torch.bool": "bool",
}


def dtype_of(tensor, what):
    """Returns the dtype of a tensor in Bowline. `what` begins the sentence of the error."""
    name = str(tensor.dtype)
    if name == "torch.float64":
        raise Error(f"{what} has the dtype float64, which Bowline does not have. Call module.float(), and .float() on inputs.", "unsupported")
    if name not in DTYPES:
        raise Error(f"{what} has the dtype {name[6:]}, which Bowline does not have. Convert it to one of: "
                    + ", ".join(n[6:] for n in DTYPES) + ".", "unsupported")
    return DTYPES[name]


def values_of(torch, tensor, what):
    """Returns the values as a contiguous tensor in host memory, with a dtype of Bowline."""
    dtype_of(tensor, what)
    out = tensor.detach().cpu().contiguous()
    if out.dtype == torch.int64:
        limits = torch.iinfo(torch.int32)
        if out.numel() and not limits.min <= out.min().item() <= out.max().item() <= limits.max:
            raise Error(f"{what} has values that do not fit in 32 bits. Bowline stores integers of PyTorch as i32. Use smaller values.", "unsupported")
        out = out.to(torch.int32)
    return out


class Weight:
    """A parameter or buffer of the module."""

    def __init__(self, name, tensor, role):
        self.name = name
        self.tensor = tensor
        self.role = role
        self.what = f'The {"buffer" if role != "weight" else "parameter"} "{name}"'

    def layout(self):
        t = self.tensor
        return t.storage_offset(), tuple(t.shape), t.stride(), t.dtype

    def places(self, torch):
        """Returns the indices of its elements in the storage."""
        t = self.tensor
        out = torch.full([1] * t.dim(), t.storage_offset(), dtype=torch.int64)
        for axis, (size, step) in enumerate(zip(t.shape, t.stride())):
            shape = [1] * t.dim()
            shape[axis] = size
            out = out + (torch.arange(size) * step).reshape(shape)
        return out.reshape(-1)


def weights_of(torch, module, statistics):
    """Returns all Weights by name. `statistics` are the names of running statistics."""
    out = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        out[name] = Weight(name, tensor, "weight")
    for name, tensor in module.named_buffers(remove_duplicate=False):
        out.setdefault(name, Weight(name, tensor, "running_statistic" if name in statistics else "constant"))
    for weight in out.values():
        t = weight.tensor
        if t.device.type == "meta":
            raise Error(f"{weight.what} has no values: it is on the device meta. Load the values before the import.", "bad_argument")
        if t.layout != torch.strided or t.is_quantized:
            raise Error(f"{weight.what} is sparse or quantized. Import the dense module, then call model.quantize().", "unsupported")
    return out


def _overlapping(torch, weights):
    """Divides weights of one storage into groups that have elements in common."""
    groups = []
    for weight in weights:
        places = weight.places(torch)
        if places.unique().numel() != places.numel():
            raise Error(f"{weight.what} uses elements of its memory more than once (strides {list(weight.tensor.stride())}). "
                        "Call .contiguous() on it before the import.", "unsupported")
        mine = (places, [weight])
        rest = []
        for group in groups:
            if torch.isin(places, group[0]).any():
                mine = (torch.cat([mine[0], group[0]]), group[1] + mine[1])
            else:
                rest.append(group)
        groups = [*rest, mine]
    return [group for _, group in groups]


def _view_in(owner, weight):
    """Returns the arguments of tied_parameter() for a part of the owner, or None."""
    first, t = owner.tensor, weight.tensor
    if not first.is_contiguous() or first.dtype != t.dtype or first.dim() == 0:
        return None
    transpose = not t.is_contiguous()
    if transpose:
        if t.dim() < 2 or not t.transpose(-1, -2).is_contiguous():
            return None
        t = t.transpose(-1, -2)
    row = first[0].numel() if first.shape[0] else 0
    start = t.storage_offset() - first.storage_offset()
    if row == 0 or start < 0 or start % row or t.numel() % row or start + t.numel() > first.numel():
        return None
    rows = t.numel() // row
    whole = start == 0 and rows == first.shape[0]
    shape = list(t.shape)
    return {
        "transpose": transpose,
        "row_start": start // row,
        "rows": -1 if whole else rows,
        "shape": [] if shape == [rows, *first.shape[1:]] else shape,
    }


def _groups(torch, weights):
    """Yields lists of tied weights, each with its view. The owner of the storage is first."""
    storages = {}
    for weight in weights.values():
        t = weight.tensor
        key = (t.device, t.untyped_storage().data_ptr()) if t.numel() else (weight.name,)
        storages.setdefault(key, []).append(weight)
    for sharing in storages.values():
        by_layout = {}
        for weight in sharing:
            by_layout.setdefault(weight.layout(), []).append(weight)
        first_ones = [same[0] for same in by_layout.values()]
        needs_places = len(first_ones) > 1 or not first_ones[0].tensor.is_contiguous()
        for group in _overlapping(torch, first_ones) if needs_places else [first_ones]:
            owner = max(group, key=lambda w: (w.tensor.numel(), w.tensor.is_contiguous(), -list(weights).index(w.name)))
            tied = []
            for weight in group:
                view = None if weight is owner else _view_in(owner, weight)
                if weight is not owner and view is None:
                    raise Error(
                        f'The parameters "{owner.name}" and "{weight.name}" share memory in a way that Bowline has no view for: "{owner.name}" has '
                        f"the shape {list(owner.tensor.shape)} and the strides {list(owner.tensor.stride())}, \"{weight.name}\" has the shape "
                        f"{list(weight.tensor.shape)}, the strides {list(weight.tensor.stride())} and begins {weight.tensor.storage_offset()} elements "
                        "into the memory. A view is a range of rows, which may be reshaped and transposed. Assign a clone() to one of the two, if they "
                        "need not be tied.", "unsupported")
                tied += [(same, view) for same in by_layout[weight.layout()]]
            tied.sort(key=lambda pair: pair[0] is not owner)
            yield tied


def declare(torch, model, weights, used):
    """Declares the weights that the graph reads. Returns their handles, and the names of others."""
    present = model.parameters
    handles, unused = {}, []
    for tied in _groups(torch, weights):
        if not any(weight.name in used for weight, _ in tied):
            unused += [weight.name for weight, _ in tied if weight.role == "weight"]
            continue
        owner = tied[0][0]
        if owner.name in present:
            for weight, _ in tied:
                if weight.name not in present or present[weight.name]["shape"] != list(weight.tensor.shape):
                    raise Error(f'The model has no parameter "{weight.name}" of the shape {list(weight.tensor.shape)}. '
                                "model= must be a model that import_torch() made of the same module.", "bad_argument")
                handles[weight.name] = model.find(weight.name)
            continue
        values = values_of(torch, owner.tensor, owner.what)
        handles[owner.name] = model.parameter(owner.name, list(values.shape), role=owner.role, dtype=dtype_of(owner.tensor, owner.what))
        for weight, view in tied[1:]:
            handles[weight.name] = model.tied_parameter(weight.name, handles[owner.name], **(view or {}))
        model[owner.name] = values
        if owner.role == "weight" and not any(weight.tensor.requires_grad for weight, _ in tied):
            model.freeze(owner.name)
    return handles, unused
