"""Broadcast or all-gather of updated parameters during the next forward pass."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from paceline.exchange.ending import at_end_wait
from paceline.exchange.wire import Bucket, Work
from paceline.log import log
from paceline.native.halves import ALL_GATHER_NAMES
from paceline.split.exchange import EVERYONE
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.split.arriving import Arriving, unseen
from paceline.torch.split.shards import Shards

# A single parameter of this size is received in place; smaller ones are packed and copied.
IN_PLACE_BYTES = 1 << 16
_ALIGNED_BYTES = 16  # alignment of packed parameters, for views of every dtype
# Part of the operation names: selects the linear collective (core/naming/name_mark.h).
_LINEAR = ">none_linear>"


class InFlightWeights:
    """Parameters in flight of one optimizer, by bucket."""

    def __init__(self, library: ctypes.CDLL, process_set: Any, scope: str, shards: Shards) -> None:
        """`scope`: prefix of operation names."""
        self._process_set = process_set
        self._shards = shards
        self._scope = scope
        self._arriving: dict[str, Arriving] = {}
        self._reading: dict[str, None] = {}  # in the order in which they were read last
        self._waits_for: str | None = None  # what step() waits for new weights for; None before the first ones
        at_end_wait(library, self.land)

    def in_reading_order(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """Return `buckets` in the order of the last reads; buckets without a read follow, the last gradient first."""
        places = {name: place for place, name in enumerate(self._reading)}
        last_first = list(buckets)[::-1]
        return sorted(last_first, key=lambda one: places.get(one.name, len(places)))

    def send(self, bucket: Bucket, parameters: Sequence[Tensor], root: int, sent: Work) -> None:
        """Start to broadcast these parameters from `root`, a global rank, or to all-gather the shards of EVERYONE."""
        if root == EVERYONE:
            handle, parts = self._gather(f"{bucket.name}.weights", parameters, parameters)
        else:
            handle, parts = self._broadcast(f"{bucket.name}.weights", parameters, root)
        here = root == horovod.rank()
        world = horovod.mpi_ops._handle_map  # created again by every init()

        def wait() -> Sequence[Tensor]:
            if world is not horovod.mpi_ops._handle_map:
                return ()  # nothing can arrive; a new world continues from the committed state
            horovod.synchronize(handle)
            if not (here or root == EVERYONE):  # owners waited for the reduce before their update
                sent()
            return () if here else parts

        def read() -> None:
            self._reading.pop(bucket.name, None)
            self._reading[bucket.name] = None
            self._arriving.pop(bucket.name, None)

        if Arriving.takes(parameters) and not self._waits():
            self._arriving[bucket.name] = Arriving(parameters, wait, read)
        elif values := wait():
            with torch.no_grad():
                torch._foreach_copy_(list(parameters), list(values))

    def share(self, name: str, tensors: Sequence[Tensor], root: int) -> Callable[[], None]:
        """Start to broadcast these tensors from `root`; return a function that waits for them."""
        handle, parts = self._broadcast(name, tensors, root)

        def wait() -> None:
            horovod.synchronize(handle)
            if parts and root != horovod.rank():
                torch._foreach_copy_(list(tensors), parts)

        return wait

    def share_shards(self, name: str, parameters: Sequence[Tensor]) -> Callable[[], None]:
        """Start to all-gather the gradients of these parameters; return a function that waits for them."""
        grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        handle, parts = self._gather(name, parameters, grads)

        def wait() -> None:
            horovod.synchronize(handle)
            if parts:
                torch._foreach_copy_(grads, parts)

        return wait

    def _gather(self, name: str, parameters: Sequence[Tensor], tensors: Sequence[Tensor]) -> tuple[int, list[Tensor]]:
        """Start to all-gather `tensors`, which have the shards of `parameters`."""
        with torch.no_grad():
            held = [one.detach() for one in tensors]
            parts: list[Tensor] = []
            if len(held) == 1 and held[0].is_contiguous():
                carried = held[0].view(-1)
            else:
                carried = held[0].new_empty(sum(one.numel() for one in held))
                parts = list(_unflatten_dense_tensors(carried, held))
                ranges = [self._shards.own(one) for one in parameters]
                own = [
                    (part.view(-1)[begin:end], one.reshape(-1)[begin:end])
                    for part, one, (begin, end) in zip(parts, held, ranges, strict=True)
                    if end > begin
                ]
                if own:
                    torch._foreach_copy_([part for part, _ in own], [one for _, one in own])
            full = f"{ALL_GATHER_NAMES}{self._scope}{name}"
            handle = horovod.allreduce_async_(carried, name=full, op=horovod.Sum, process_set=self._process_set)
            return handle, parts

    def _broadcast(self, name: str, tensors: Sequence[Tensor], root: int) -> tuple[int, list[Tensor]]:
        with torch.no_grad():
            carried, parts = _carried(tensors, filled=root == horovod.rank())
            full = f"{self._scope}{_LINEAR}{name}"
            return horovod.broadcast_async_(carried, root, name=full, process_set=self._process_set), parts

    def land(self, bucket: Bucket | None = None) -> None:
        """Wait for the parameters of the bucket, or for all."""
        for name in [bucket.name] if bucket is not None else list(self._arriving):
            if name in self._arriving:
                self._arriving[name].land()

    def drop(self) -> None:
        """Discard all parameters in flight."""
        for one in list(self._arriving.values()):
            one.drop()
        self._arriving.clear()
        self._reading.clear()

    def _waits(self) -> bool:
        """Return True if step() waits for new weights.

        After any torch.compile, because a changed parameter class would cause recompilation; with a model of
        TorchScript, which would read the old weights.
        """
        if not self._waits_for:
            scripted = self._waits_for is None and unseen(self._shards.parameters())
            compiled = getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0) > 0
            self._waits_for = "TorchScript" if scripted else "torch.compile" if compiled else ""
            if self._waits_for and self._process_set.rank() == 0:
                log(f"exchange=split beside {self._waits_for}: step() waits for new weights.")
        return bool(self._waits_for)


def _carried(parameters: Sequence[Tensor], filled: bool) -> tuple[Tensor, list[Tensor]]:
    """Return the uint8 tensor to broadcast, and the views of it for each parameter (none if received in place).

    `filled`: copy the values of the parameters into it.
    """
    first = parameters[0]
    if len(parameters) == 1 and first.nbytes >= IN_PLACE_BYTES and first.is_contiguous():
        return first.detach().view(-1).view(torch.uint8), []
    starts, end = [], 0
    for one in parameters:
        starts.append(end)
        end += -(-one.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
    carried = torch.empty(end, dtype=torch.uint8, device=first.device)
    parts = [
        carried[start : start + one.nbytes].view(one.dtype).view(one.shape)
        for start, one in zip(starts, parameters, strict=True)
    ]
    if filled:
        torch._foreach_copy_(parts, [one.detach() for one in parameters])
    return carried, parts


@contextlib.contextmanager
def without_gradients(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Context in which these parameters have no gradient."""
    kept = [(one, one.grad) for one in parameters if one.grad is not None]
    for one, _ in kept:
        one.grad = None
    try:
        yield
    finally:
        for one, grad in kept:
            one.grad = grad
