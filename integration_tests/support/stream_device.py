"""A device simulated in CPU memory, with streams, events and pinned memory: what host staging needs of a GPU.

Work on a stream is done later, by a thread, in the order of the stream. Pinned memory is used again as soon as nobody
holds it, and is overwritten first, so that a value read or written too late is wrong.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.horovod.shims import host_staging

LIMIT_S = 60.0
_FREE_USES = 2  # of the memory of a block that nobody holds: by the block, and by the object that is asked


class Event:
    """Point in the work of a stream."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: Exception | None = None

    def reach(self, error: Exception | None = None) -> None:
        """Mark the work before this point as done, or as failed."""
        self._error = error
        self._done.set()

    @property
    def reached(self) -> bool:
        """True if the work before this point is done."""
        return self._done.is_set()

    def synchronize(self) -> None:
        """Wait; raise the error of the work before this point."""
        assert self._done.wait(LIMIT_S), "the stream does not get to its end"
        if self._error is not None:
            raise self._error


class Stream:
    """Queue of work; each piece begins up to `most_s` after the end of the one before it."""

    def __init__(self, most_s: float, seed: str) -> None:
        self._most_s, self._dice = most_s, random.Random(seed)
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._error: Exception | None = None  # as on a GPU, everything after an error fails, too
        threading.Thread(target=self._run, daemon=True, name=f"stream {seed}").start()

    def _run(self) -> None:
        with torch.no_grad():
            while True:
                self._do(self._work.get())

    def _do(self, work: Callable[[], object]) -> None:
        if self._most_s:
            time.sleep(self._dice.random() * self._most_s)
        try:
            work()
        except Exception as error:
            self._error = error

    def queue(self, work: Callable[[], object]) -> None:
        """Add work, and return at once."""
        self._work.put(work)

    def record(self) -> Event:
        """Return an event after the work added so far."""
        event = Event()
        self._work.put(lambda: event.reach(self._error))
        return event

    def wait(self, event: Event) -> None:
        """Let work added from now on begin after `event`."""
        self._work.put(event.synchronize)

    def synchronize(self) -> None:
        """Wait for the work added so far; raise its error."""
        self.record().synchronize()


class PinnedMemory:
    """Blocks that are used again once nobody holds them."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.taken = 0  # number of tensors given out so far
        self._lock = threading.Lock()

    def take(self, like: Any) -> Any:
        """Return a tensor as `like` in memory that nobody holds."""
        with self._lock:
            self.taken += 1
            free = [
                one for one in self.blocks if torch._C._storage_Use_Count(one.untyped_storage()._cdata) == _FREE_USES
            ]
            for block in free:
                block.fill_(torch.nan)
            fitting = [one for one in free if one.dtype is like.dtype and one.numel() >= like.numel()]
            block = min(fitting, key=lambda one: one.numel(), default=None)  # a large one is kept for a large tensor
            if block is None:
                block = torch.full((like.numel(),), torch.nan, dtype=like.dtype)
                self.blocks.append(block)
            return block[: like.numel()].view(like.shape)


class StreamDevice:
    """Device of host_staging: a stream for kernels, and a stream for copies to CPU memory.

    `at_once`: results are on the device when a wait returns, for code that reads them on the CPU and not by kernels.
    """

    def __init__(self, seed: int, most_s: float = 0.003, at_once: bool = True) -> None:
        self.kernels = Stream(0.0 if at_once else most_s, f"kernels {seed}")
        self.copies = Stream(most_s, f"copies {seed}")
        self.pinned = PinnedMemory()
        self.down_bytes = 0
        self.graph = False
        self._at_once = at_once

    def has(self, value: Any) -> bool:
        """Return True for tensors of floating point numbers."""
        return hasattr(value, "is_cuda") and bool(value.is_floating_point())

    def capturing(self) -> bool:
        """Return True if the test says so."""
        return self.graph

    def empty(self, like: Any) -> Any:
        """Return a tensor in pinned memory."""
        return self.pinned.take(like)

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Callable[[], None]]:
        """Copy tensors after the kernels queued so far."""
        host = [self.pinned.take(one) for one in tensors]
        self.copies.wait(self.kernels.record())
        for copy, tensor in zip(host, tensors, strict=True):
            self.copies.queue(_copy(copy, tensor.detach()))
            self.down_bytes += tensor.nbytes
        return host, self.copies.record().synchronize

    def up(self, host: Any, tensor: Any) -> None:
        """Copy a result before the kernels queued from now on."""
        self.kernels.queue(_copy(tensor, host))
        if self._at_once:
            self.kernels.synchronize()


def _copy(to: Any, source: Any) -> Callable[[], None]:
    def copy() -> None:
        to.copy_(source)

    return copy


def staged(device: StreamDevice) -> host_staging.Staging:
    """Make horovod.torch treat tensors as tensors of `device` until the process ends: in fresh ranks only."""
    import horovod.torch.mpi_ops as mpi_ops

    found = host_staging.install(mpi_ops, device)
    assert found is not None and found.device is device
    for name in dir(mpi_ops):
        if name.endswith("_function_factory"):
            setattr(mpi_ops, name, _on_device(getattr(mpi_ops, name), device))
    return found


def _on_device(made: Callable[[Any], str], device: StreamDevice) -> Callable[[Any], str]:
    def name_of(tensor: Any) -> str:
        before, after = made(tensor).rsplit("_", 1)
        return f"{before}_cuda_{after}" if device.has(tensor) else f"{before}_{after}"

    return name_of
