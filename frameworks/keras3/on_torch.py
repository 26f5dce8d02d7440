"""Communication of Keras 3 on PyTorch; `on_tensorflow` has the same names for TensorFlow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch

from paceline.errors import UsageError
from paceline.keras3 import same_gradients
from paceline.keras3.settings import Reduction, Settings, exchanged
from paceline.keras3.torch_overlap import Overlap
from paceline.keras3.weighing import unusable

LIBRARY = "torch"  # Horovod's
# Types that Horovod does not support on CPUs are sent as float32.
_CARRIED_AS_FLOAT32 = (torch.bfloat16,)


def takes_part(process_set: Any) -> bool:
    """True if this rank has peers."""
    return bool(process_set.included() and process_set.size() > 1)


def _carried(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype in _CARRIED_AS_FLOAT32 else tensor


def full_names(name: str, count: int) -> list[str]:
    """Names that Horovod gives an allreduce of `name`, or the `count` tensors of a grouped one."""
    if count == 1:
        return [f"allreduce.{name}"]
    return [f"grouped_allreduce.{name}_{number + 1}of{count}" for number in range(count)]


def start(tensors: Sequence[Any], settings: Settings, name: str) -> Callable[[], list[Any]]:
    """Start one message of dense tensors; the returned function waits for it."""
    packed = [settings.compression.compress(_carried(tensor)) for tensor in tensors]
    carried, contexts = [tensor for tensor, _ in packed], [context for _, context in packed]
    options: dict[str, Any] = {
        "name": name,
        "op": settings.op,
        "prescale_factor": settings.prescale,
        "postscale_factor": settings.postscale,
        "process_set": settings.process_set,
    }
    alone = len(carried) == 1
    handle = hvd.allreduce_async(carried[0], **options) if alone else hvd.grouped_allreduce_async(carried, **options)

    def done() -> list[Any]:
        reduced = hvd.synchronize(handle)
        values = [reduced] if alone else reduced
        return [
            settings.compression.decompress(value, context).to(tensor.dtype)
            for value, context, tensor in zip(values, contexts, tensors)
        ]

    return done


def _start_dense(tensors: Sequence[Any], settings: Settings, indices: Sequence[int]) -> Callable[[], list[Any]]:
    """Start one message of the dense gradients of these variables, if any; the returned function waits for it."""
    if not tensors:
        return list
    name = settings.bucket(indices, tensors)
    if settings.encoding is not None:
        settings.encoding.begin(name, lambda: full_names(name, len(tensors)), indices, tensors)
    return start(tensors, settings, name)


def _start_group(
    tensors: Sequence[Any], settings: Settings, indices: Sequence[int], group: Sequence[int]
) -> Callable[[], list[tuple[int, Any]]]:
    """Start one group's messages; the returned function waits for them."""
    dense = [position for position in group if not tensors[position].is_sparse]
    waiting: list[tuple[int, Callable[[], Any]]] = []
    for position in group:
        if tensors[position].is_sparse:
            name = settings.operation("HorovodAllgather", indices[position])
            waiting.append(
                (position, hvd.sparse_allreduce_async(tensors[position], name, settings.op, settings.process_set))
            )
    together = _start_dense([tensors[position] for position in dense], settings, [indices[one] for one in dense])

    def done() -> list[tuple[int, Any]]:
        return [*((position, wait()) for position, wait in waiting), *zip(dense, together())]

    return done


def _placed(group: Sequence[int], wait: Callable[[], list[Any]]) -> list[tuple[int, Any]]:
    return list(zip(group, wait()))


class Reducer(Reduction):
    """Eager reduction; in Keras' own train_step its messages begin during the backward pass."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if self.exchange is None:
            self.overlap = Overlap(lambda message, grads: _start_dense(grads, settings, message))

    def __call__(self, grads: Sequence[Any], keys: Sequence[Any], indices: Sequence[int], key_of: Any) -> list[Any]:
        """Return the reduced gradients."""
        tensors = [grad.to_dense() if self.dense and grad.is_sparse else grad for grad in grads]
        if not takes_part(self._settings.process_set):
            return tensors
        same_gradients.check(LIBRARY, self._settings.process_set, self._settings.name, indices)
        if not tensors:
            return tensors
        groups = self.groups(keys, key_of, indices, tensors)
        if self.exchange is None:
            if self._settings.encoding is not None:
                self._settings.encoding.meet(self._settings.name)
            return self._reduce(tensors, indices, groups)
        buckets = self.exchange.wire.buckets(indices, groups, tensors)
        self.exchange.begin(buckets)
        return exchanged(self.exchange, tensors, buckets, groups)

    def _reduce(self, grads: Sequence[Any], indices: Sequence[int], groups: Sequence[Sequence[int]]) -> list[Any]:
        messages = [tuple(indices[position] for position in group) for group in groups]
        waits = []
        for message, group in zip(messages, groups):
            begun = self.overlap.take(message, [grads[position] for position in group])
            waits.append(
                _start_group(grads, self._settings, indices, group) if begun is None else partial(_placed, group, begun)
            )
        self.overlap.end()
        self.overlap.follow(messages)
        result = list(grads)
        for wait in waits:
            for position, value in wait():
                result[position] = value
        return result

    def scale_local(self, grad: Any) -> Any:
        """Divide a gradient that stays on this rank by the number of ranks, as for its share of an average."""
        return grad / self._settings.process_set.size()


class Accumulator:
    """Sum the gradients of backward_passes_per_step backward passes before reduction, separately for each variable set.

    A pass counts when all of it is done: one that raises leaves sums and count unchanged.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buffers: dict[int, Any] = {}
        self._passes: dict[frozenset[int], int] = {}
        self._due = False

    def add(self, grads: Sequence[Any], indices: Sequence[int], reduce: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Return the reduced sums after the last pass, the sums so far otherwise."""
        settings, key = self._settings, frozenset(indices)
        sums = []
        for grad, index in zip(grads, indices):
            before = self._buffers.get(index)
            sums.append(grad.clone() if before is None else before + grad)
        done = self._passes.get(key, 0) + 1
        self._due = done == settings.backward_passes_per_step
        if not self._due:
            self._buffers.update(zip(indices, sums))
            self._passes[key] = done
            return sums
        sums = reduce(sums)
        self._passes.pop(key, None)
        for index in indices:
            self._buffers.pop(index, None)
        return sums

    def reset(self) -> None:
        """Drop all sums and counts."""
        self._passes.clear()
        self._buffers.clear()

    def when_due(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update` if the last `add` reduced, else `otherwise`."""
        if self._due:
            update()
        else:
            otherwise()


def checked(weight: Any, rank: int) -> float:
    """Return a weight as a number. Raises UsageError if it is negative or not finite."""
    w = float(weight)
    if not 0 <= w < float("inf"):
        raise unusable(w, f"Rank {rank}: ")
    return w


def with_weight(grad: Any, weight: float, dense: bool) -> Any:
    """Return the flattened gradient times a weight, with the weight appended; zeros if the weight is 0.

    Raises UsageError for a sparse gradient unless `dense` is set, and for float16.
    """
    grad = grad.to_dense() if dense and grad.is_sparse else grad
    if grad.is_sparse or grad.dtype == torch.float16:
        kind = "sparse" if grad.is_sparse else "of float16"
        raise UsageError(
            f"A weight was given, and a gradient is {kind}.", "Give sparse_as_dense=True, or use float32 variables."
        )
    tensor = _carried(grad).reshape(-1)
    return torch.cat([tensor * weight if weight else torch.zeros_like(tensor), tensor.new_full((1,), weight)])


def mean_of(flat: Any, grad: Any, divided: bool) -> Any:
    """Return the mean from a result, in the gradient's shape and type; zeros if no rank had weight."""
    body = flat[:-1] if divided or not flat[-1] > 0 else flat[:-1] / flat[-1]
    return body.reshape(grad.shape).to(grad.dtype)


def mean_or(flat: Any, value: Any) -> Any:
    """Return the mean from a result, or `value` if no rank had weight."""
    return mean_of(flat, value, False) if flat[-1] > 0 else value


def tensors_like(arrays: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Convert NumPy arrays to tensors of the variables' types."""
    return [torch.from_numpy(array).to(native(variable).dtype) for array, variable in zip(arrays, variables)]


def finite(tensors: Sequence[Any]) -> bool:
    """True if no tensor has an infinity or a NaN."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def here() -> Any:
    """Return None: PyTorch executes eagerly, without graphs to tell apart."""
    return None


def after_checks() -> AbstractContextManager[Any]:
    """Return an empty context: PyTorch runs checks and updates in program order."""
    return nullcontext()


def native(variable: Any) -> Any:
    """Return the torch.nn.Parameter in a Keras variable."""
    return getattr(variable, "value", variable)


def value(variable: Any) -> Any:
    """Return the tensor in a variable; no gradient flows through it."""
    return native(variable).detach()


def call_named(function: Callable[..., Any], given: inspect.BoundArguments) -> Any:
    """Call one of Horovod's functions with these arguments; the operation keeps its name."""
    return function(*given.args, **given.kwargs)


def average(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Average a float64 array over all ranks."""
    result: np.ndarray[Any, Any] = hvd.allreduce(torch.from_numpy(values), op=hvd.Average, name=name).numpy()
    return result


def broadcast(variables: Sequence[Any], root_rank: int, name: str) -> None:
    """Assign the root's values of Keras variables on all ranks."""
    carried = [_carried(native(variable).detach()).cpu().contiguous() for variable in variables]
    handles = [hvd.broadcast_async(tensor, root_rank, f"{name}_{index}") for index, tensor in enumerate(carried)]
    for variable, handle in zip(variables, handles):
        variable.assign(hvd.synchronize(handle).to(native(variable).dtype))


def gather_object(value: Any, name: str) -> list[Any]:
    """Gather `value` of every rank, ordered by rank."""
    return list(hvd.allgather_object(value, name=name))


def broadcast_object(value: Any, root_rank: int, name: str) -> Any:
    """Return the root's `value` on all ranks."""
    return hvd.broadcast_object(value, root_rank, name=name)
