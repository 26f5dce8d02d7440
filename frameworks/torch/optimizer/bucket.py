"""The bucket: gradients that are exchanged in one operation. A gradient exchanged alone is a bucket of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from paceline.exchange.base import Exchange
from paceline.exchange.wire import Answer
from paceline.exchange.wire import Bucket as Identity
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.hooks import Hooked
from paceline.torch.optimizer.weighing import Weighing, check_type, divide, rounded, scale, times, with_weight
from paceline.torch.state.transfer import TRANSFER_DTYPE

DENSE = 0  # of Gradient.sparse_dims
UNCOUNTED = -1


class Gradient(Hooked):
    """The gradient of one parameter, and its state within the current update.

    Gradients are counted and looked up by these objects, not by tensors: a tensor's hash is a call of Python.
    """

    def __init__(self, parameter: Tensor, name: str, generation: int = 0) -> None:
        super().__init__(parameter)
        self.name = name
        self.generation = generation  # how many of other shapes had this name before, where the library keeps shapes
        self.count = 0  # backward passes since the last update
        self.fresh = False  # True if parameter.grad was None before the first of them
        self.small = False  # True if it belongs in a flat bucket, should it be dense
        self.sparse_dims: int | None = None  # agreed by the ranks (agreement.py); None: not yet
        self.idle = False  # True if no rank had it at the last check (agreement.py)
        self.owned = False  # True if no other optimizer combines it (reduction.py)
        self.last_bucket: Sequence[str] = ()  # names in its last bucket, including its own
        self.submitted: Tensor | None = None  # parameter.grad when it was submitted,
        self.version = 0  # and its count of writes at that time
        # For a frozen parameter in a flat bucket:
        self.waiting = 0  # results to come of updates to which it contributed zeros
        self.owed: Tensor | None = None  # results of updates while it was frozen, to be added to a later gradient

    @property
    def active(self) -> bool:
        """True if it takes part in this update. A frozen parameter does only if its gradient came before."""
        return self.count > 0 or self.parameter.requires_grad

    def outgoing(self, always_dense: bool) -> Tensor:
        """Return the tensor to submit, in the ranks' layout and a type of Horovod's; zeros without gradient."""
        parameter = self.parameter
        gradient = parameter.grad
        dims = DENSE if always_dense or self.sparse_dims is None else self.sparse_dims
        if gradient is None and dims != DENSE:
            gradient = _no_rows(parameter, dims)
        elif gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter)
        elif gradient.is_sparse and dims == DENSE:
            gradient = gradient.to_dense()
        elif not gradient.is_sparse and dims != DENSE:
            gradient = gradient.to_sparse(dims)
        if gradient.dtype in TRANSFER_DTYPE:
            gradient = gradient.to(TRANSFER_DTYPE[gradient.dtype])
        return gradient if gradient.is_sparse else gradient.contiguous()

    def store(self, result: Tensor | None) -> None:
        """Set the gradient to `result`; None removes it."""
        parameter = self.parameter
        gradient = parameter.grad
        if gradient is result:
            return
        if result is None:
            parameter.grad = None
            return
        dims = self.sparse_dims
        # Results that were in flight are in CPU memory, wherever the parameter is. The layout is unknown only if a
        # resumed run drains before its first step.
        if dims is None:
            dims = result.sparse_dim() if result.is_sparse else DENSE
        if dims != DENSE:
            sparse = result if result.is_sparse else result.to_sparse(dims)
            parameter.grad = sparse.to(parameter.device, parameter.dtype)
        elif gradient is None or gradient.is_sparse:
            parameter.grad = result.to(parameter.device, parameter.dtype)
        else:
            gradient.copy_(result)

    def changed(self) -> str:
        """Return the kind of change since submission, "" without one. torch does not count writes through `.data`."""
        gradient = self.parameter.grad
        if gradient is not self.submitted:
            return "none" if gradient is None else "another tensor"
        if self.version != UNCOUNTED and gradient is not None and gradient._version != self.version:
            return "other values in it"
        return ""

    @property
    def memory(self) -> int | None:
        """Address of the storage of a dense gradient, which may be a script's buffer for several gradients."""
        gradient = self.parameter.grad
        return (
            gradient.untyped_storage().data_ptr() if gradient is not None and gradient.layout == torch.strided else None
        )


class Bucket:
    """Gradients that are exchanged in one operation, which is named after the first of them."""

    # True if gradients are copied into one common tensor.
    flat = False

    def __init__(self, gradients: Sequence[Gradient], always_dense: bool = False) -> None:
        """`always_dense`: sparse gradients are sent as dense ones."""
        self.gradients = tuple(gradients)
        self.names = tuple(gradient.name for gradient in gradients)
        self.always_dense = always_dense
        self.complete = 0  # number of gradients that are ready in this update,
        self.awaited = 0  # out of this number
        self.weighed = False  # True if this rank's weight is appended to the tensors,
        self.apart = False  # or the weight is sent separately: a codec would round it, shards would lack it
        self.total: Tensor | None = None  # total weight of all ranks for the last results
        self._parts: dict[tuple[Gradient, ...], Bucket] = {}
        # The library knows the shapes that a name had before.
        generation = sum(gradient.generation for gradient in gradients)
        self._suffix = f".{generation}" if generation else ""
        # Exchanges identify the bucket by this; it outlives the parameters.
        self.identity = Identity(self.names[0] + self._suffix, self.names)

    def active(self) -> Bucket:
        """Return the bucket of the active gradients."""
        if len(self.gradients) == 1:
            return self
        active = tuple(gradient for gradient in self.gradients if gradient.active)
        if not active or len(active) == len(self.gradients):
            return self
        if active not in self._parts:
            self._parts[active] = Bucket(active, self.always_dense)
        return self._parts[active]

    @property
    def idle(self) -> bool:
        """True if no rank has any of its gradients in this update."""
        return all(gradient.idle for gradient in self.gradients)

    def submit(self, exchange: Exchange, watched: bool, weighing: Weighing | None = None) -> Answer:
        """Submit the gradients. `watched`: until the results are stored no script may change a gradient.

        Raises UsageError for gradients that cannot be sent with a weight.
        """
        wire: Any = exchange.wire
        encodes = weighing is not None and wire.encodes(self.identity)
        if encodes and not exchange.settings.synchronous:
            raise rounded(self.names[0])
        self.apart = weighing is not None and (encodes or wire.cuts(self.identity))
        self.weighed = weighing is not None and not self.apart
        tensors = self.outgoing() if weighing is None else self.outgoing_with(weighing)
        if wire.tried is not None:
            factor = 1.0 if weighing is None else weighing.factor / weighing.weight if weighing.weight else 0.0
            for gradient in self.gradients:
                wire.tried.keep(gradient.parameter, factor)
        if watched:
            # Horovod without GPU operations copies results to GPUs by torch, which counts that like a script's write.
            counted = not tensors[0].is_cuda or horovod.nccl_built()
            for gradient in self.gradients:
                grad = gradient.submitted = gradient.parameter.grad
                counts = grad is not None and counted and not grad.is_inference()
                gradient.version = grad._version if counts else UNCOUNTED
        answer = exchange.start(self.identity, tensors)
        if weighing is None or not self.apart:
            return answer
        alone = Identity(f"{self.identity.name}.weight", (self.names[0],))
        total = wire.start(alone, [torch.tensor([weighing.weight], dtype=torch.float64)], exact=True)
        return lambda: [*(answer() or ()), *total()]

    def outgoing(self) -> list[Tensor]:
        """Return the tensors to submit, which may be overwritten; zeros where there is no gradient."""
        return [gradient.outgoing(self.always_dense) for gradient in self.gradients]

    def outgoing_with(self, weighing: Weighing) -> list[Tensor]:
        """Return the tensors to submit, each followed by the weight. Raises UsageError for types without weights."""
        tensors = self.outgoing()
        for gradient, tensor in zip(self.gradients, tensors, strict=True):
            check_type(gradient.name, tensor)
        if self.apart:
            return [times(tensor, weighing.factor) for tensor in tensors]
        return [with_weight(tensor, weighing) for tensor in tensors]

    def store(self, results: Sequence[Tensor] | None, lag: int | None, divided: bool = False) -> None:
        """Store the results of `submit` as gradients; None removes the gradients.

        `lag`: delay of the results in updates (Exchange.lag). `divided`: results are already divided by the total
        weight (Exchange.divides).
        """
        if results is not None and self.apart:
            *results, (self.total,) = results
            for result in results if self.total > 0 else ():
                result.div_(self.total)
        if results is not None and self.weighed:
            totals = [result[-1] if divided else divide(result) for result in results]
            self.total = totals[0]
        self._store(results, lag)

    def _store(self, results: Sequence[Tensor] | None, lag: int | None) -> None:
        for gradient, result in zip(self.gradients, results or [None] * len(self.gradients), strict=True):
            if result is not None and self.weighed:
                result = result[:-1].view(gradient.parameter.shape)
            gradient.store(result)

    def changed(self, everyone: Iterable[Gradient]) -> str:
        """Name the first gradient that a script has changed since `submit`, and its change; "" without a change.

        `everyone`: all gradients of the optimizer.
        """
        for gradient in self.gradients:
            if not gradient.active or not (found := gradient.changed()):
                continue
            if self.flat:
                return f"{gradient.name!r} or of one that travels with it was changed (found {found})"
            # torch has one count of writes for a buffer of several gradients.
            buffer = gradient.memory if gradient.parameter.grad is gradient.submitted else None
            if buffer is None or all(one.memory != buffer for one in everyone if one is not gradient):
                return f"{gradient.name!r} was changed (found {found})"
        return ""


class FlatBucket(Bucket):
    """Small dense gradients that are parts of one tensor; exchanges handle this tensor as one gradient.

    A gradient that the backward pass has allocated is copied in, and `parameter.grad` becomes the part, a view: the
    result is then in its place. A gradient that existed before, as after zero_grad(set_to_none=False), keeps its
    tensor: if it is the part, nothing is copied, else the result is copied back into it. An update that allocates
    gradients uses new memory, so that references of a script to an earlier gradient do not change.

    A frozen parameter contributes zeros. A result of such an update is not its gradient; results owed to it are kept.
    """

    flat = True

    def __init__(self, gradients: Sequence[Gradient]) -> None:
        super().__init__(gradients, always_dense=True)
        self.name = f"{self.names[0]}+{len(gradients) - 1}{self._suffix}"
        self.identity = Identity(self.name, (self.name,))
        self._flat = torch.empty(0)
        self._slots: Sequence[Tensor] = [self._flat] * len(gradients)

    def active(self) -> Bucket:
        """Return the bucket itself, because frozen parameters contribute zeros."""
        return self

    def outgoing(self) -> list[Tensor]:
        """Return the flat tensor, with the gradients copied in where they are not views of it."""
        grads = [gradient.parameter.grad for gradient in self.gradients]
        behind = self._flat.numel() - sum([slot.numel() for slot in self._slots])
        if behind != self.weighed or any(grad is not slot for grad, slot in zip(grads, self._slots, strict=True)):
            self._gather(grads)
        return [self._flat]

    def outgoing_with(self, weighing: Weighing) -> list[Tensor]:
        """Return the flat tensor to submit, with the weight at its end."""
        (flat,) = self.outgoing()
        check_type(self.names[0], flat)
        if self.apart:
            return [times(flat, weighing.factor)]
        scale(flat, weighing)
        return [flat]

    def _gather(self, grads: Sequence[Tensor | None]) -> None:
        parameters = [gradient.parameter for gradient in self.gradients]
        first = parameters[0]
        # Parts of a model may have changed their type or device since.
        dtype, alike = first.dtype, all(one.dtype is first.dtype and one.is_cpu for one in parameters)
        for other in () if alike else parameters:
            dtype = torch.promote_types(dtype, other.dtype)
        self._flat = torch.empty(sum([one.numel() for one in parameters]) + self.weighed, dtype=dtype)
        self._slots = _unflatten_dense_tensors(self._flat, parameters)
        targets, sources = [], []
        for gradient, grad, slot in zip(self.gradients, grads, self._slots, strict=True):
            if grad is None or not gradient.active:
                slot.zero_()
            else:
                targets.append(slot)
                sources.append(grad.to_dense() if grad.is_sparse else grad)
        if targets:
            torch._foreach_copy_(targets, sources)
        for gradient, grad, slot in zip(self.gradients, grads, self._slots, strict=True):
            if grad is None or gradient.fresh or grad.is_sparse:
                if alike and gradient.active:
                    gradient.parameter.grad = slot
                elif grad is not None:
                    gradient.parameter.grad = grad.clone()  # its memory may be in use elsewhere (hooks.lent)

    def _store(self, results: Sequence[Tensor] | None, lag: int | None) -> None:
        if results is not None and results[0] is not self._flat:
            self._flat.copy_(results[0])
        for gradient, slot in zip(self.gradients, self._slots, strict=True):
            if not gradient.active or gradient.waiting:
                self._store_nothing(gradient, slot, lag, answered=results is not None)
            elif results is None:
                gradient.parameter.grad = None
            elif gradient.parameter.grad is not slot:
                gradient.store(slot)
            if gradient.owed is not None and gradient.active and results is not None:
                gradient.parameter.grad.add_(gradient.owed)
                gradient.owed = None

    def _store_nothing(self, gradient: Gradient, slot: Tensor, lag: int | None, answered: bool) -> None:
        if lag is None:
            if answered:
                gradient.owed = slot.clone() if gradient.owed is None else gradient.owed + slot
            return
        if not gradient.active:
            gradient.waiting = lag + 1
        else:
            gradient.parameter.grad = None
        gradient.waiting -= 1

    def split(self, value: Any) -> dict[str, Any]:
        """Return the exchange's values in flight and the owed results, by name of the gradient.

        `value`: an array for the whole bucket, or a dict with arrays.
        """
        found: dict[str, Any] = {}
        start = 0
        for gradient in self.gradients:
            end, shape = start + gradient.parameter.numel(), tuple(gradient.parameter.shape)

            def part(array: Any, start: int = start, end: int = end, shape: tuple[int, ...] = shape) -> Any:
                if not np.ndim(array):
                    return array
                own = array[start:end]
                return np.append(own, array[-1:]) if self.weighed else own.reshape(shape)

            own = {key: part(one) for key, one in value.items()} if isinstance(value, Mapping) else part(value)
            if gradient.owed is not None:
                owed = gradient.owed.numpy()
                if self.weighed:
                    owed = np.append(owed, np.zeros(1, owed.dtype))
                # With partial rounds, an owed result is of a round that this rank has got.
                rounds = isinstance(own, dict)
                own = (
                    {**own, "results": own["results"] + owed, "missed": max(own["missed"], 1)} if rounds else own + owed
                )
            found[gradient.name] = own
            start = end
        return found


def separate(started: Iterable[Gradient], missing: Iterable[Gradient]) -> None:
    """Copy the gradients in `missing` that share memory with others because a script stored one tensor for several."""
    taken = {_address(gradient) for gradient in started} - {None}
    for gradient in missing:
        address = _address(gradient)
        if address in taken:
            gradient.parameter.grad = gradient.parameter.grad.clone()
        elif address is not None:
            taken.add(address)


def _address(gradient: Gradient) -> int | None:
    """Address of the values of a dense gradient."""
    grad = gradient.parameter.grad
    return grad.data_ptr() if grad is not None and grad.layout == torch.strided and grad.numel() > 0 else None


def _no_rows(parameter: Tensor, sparse_dims: int) -> Tensor:
    """Return a sparse gradient of the shape of `parameter` without rows."""
    return torch.sparse_coo_tensor(
        torch.empty((sparse_dims, 0), dtype=torch.int64, device=parameter.device),
        torch.empty((0, *parameter.shape[sparse_dims:]), dtype=parameter.dtype, device=parameter.device),
        parameter.shape,
        check_invariants=False,
    )


def listed(names: Sequence[str]) -> str:
    """Return the first of these names, for a message."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
