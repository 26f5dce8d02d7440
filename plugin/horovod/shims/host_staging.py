"""Operations on GPU tensors through CPU memory, for a Horovod that was built without CUDA.

Horovod's library has one function for each operation and type: `horovod_torch_allreduce_async_torch_FloatTensor`.
Without CUDA, the functions for GPUs, `..._torch_cuda_FloatTensor`, end in an error. The replacements here copy to
pinned CPU memory on a separate stream, and call the function for CPU memory after the copy;
`horovod_torch_wait_and_clear` copies the result back. All of horovod.torch and paceline.torch thus accepts GPU tensors.

States of a handle:

    state      event                             next       action
    copying    the copy to the CPU is done       submitted  the staging thread calls the library
    copying    the library refuses it            refused    the error is kept for the wait for the handle
    copying    the timeout of a wait passes      abandoned  the wait raises an error; the library is never called
    submitted  a thread waits for the handle     -          the library's wait; then the copy to the GPU is queued
    refused    a thread waits for the handle     -          the error is raised; a poll returns 1 until then

Only the staging thread waits for the GPU: the thread of the backward pass continues to queue kernels. Results are
copied on the stream that is current at the wait, in order with that stream's other work. A CUDA graph cannot contain
these operations, because a replay would not involve the other ranks: they are refused during a capture.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from paceline.errors import UsageError

# Timeout of a copy; after it, the copy has failed, or the GPU hangs.
LIMIT_S = 600.0
_FIRST_HANDLE = 1 << 30  # above Horovod's own handles
_FUNCTION = re.compile(r"(horovod_torch_\w+_async_torch)_(\w+Tensor)")

# Waits until copies to CPU memory are done.
Copied = Callable[[], None]


def captured(name: str, rank: int) -> UsageError:
    """Return the error of an operation that a CUDA graph would capture."""
    return UsageError(
        f"{name}: rank {rank} expected a stream that captures no CUDA graph, found one that does: a replay would not "
        "exchange anything with the other ranks.",
        "Run backward() and step() outside of the capture.",
    )


@contextlib.contextmanager
def _named(name: str, rank: Callable[[], int], what: str) -> Iterator[None]:
    """Context that adds the tensor's name, the rank and a remedy to errors of the device."""
    try:
        yield
    except RuntimeError as error:
        found = str(error).strip().partition("\n")[0].rstrip(".")
        raise RuntimeError(
            f"{name}: rank {rank()} expected {what}, found: {found}. If a kernel queued before failed, "
            "CUDA_LAUNCH_BLOCKING=1 shows which; if memory ran out, start fewer ranks on this host."
        ) from error


class Device(Protocol):
    """Copies between a device and CPU memory."""

    def has(self, value: Any) -> bool:
        """Return True if `value` is a tensor in the memory of a device."""
        ...

    def capturing(self) -> bool:
        """Return True if work of this thread is captured for a graph and not executed."""
        ...

    def empty(self, like: Any) -> Any:
        """Return an uninitialised tensor in CPU memory for a later `up`."""
        ...

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Copied]:
        """Begin to copy tensors to CPU memory; return the copies, and a function that waits for them."""
        ...

    def up(self, host: Any, tensor: Any) -> None:
        """Queue a copy to `tensor` after the current stream's work; `host` may be released at once."""
        ...


class Cuda:
    """NVIDIA's and AMD's GPUs, through torch.

    Pinned memory is torch's, which keeps freed blocks and reuses a block only when no copy uses it any more.
    """

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}

    def has(self, value: Any) -> bool:
        """Return True if `value` is a CUDA tensor."""
        return bool(getattr(value, "is_cuda", False))

    def capturing(self) -> bool:
        """Return True during the capture of a CUDA graph."""
        import torch

        return torch.cuda.is_current_stream_capturing()

    def empty(self, like: Any) -> Any:
        """Return a tensor in pinned memory: a copy from pageable memory would wait for the stream."""
        import torch

        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Copied]:
        """Begin to copy tensors to pinned memory, after the current stream's work."""
        import torch

        events = []
        for device in {one.device for one in tensors}:
            stream = self._streams.get(device)
            if stream is None:
                stream = self._streams[device] = torch.cuda.Stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
        host = [self.empty(one) for one in tensors]
        for one, copy in zip(tensors, host, strict=True):
            with torch.cuda.stream(self._streams[one.device]):
                copy.copy_(one, non_blocking=True)
            one.record_stream(self._streams[one.device])
        for device in {one.device for one in tensors}:
            event = torch.cuda.Event(blocking=True)
            event.record(self._streams[device])
            events.append(event)

        def copied() -> None:
            for event in events:
                event.synchronize()

        return host, copied

    def up(self, host: Any, tensor: Any) -> None:
        """Queue a copy to `tensor` on the current stream."""
        tensor.copy_(host, non_blocking=True)


class Trip:
    """One operation: copy to CPU memory, Horovod's operation, copy back."""

    def __init__(
        self,
        name: str,
        rank: Callable[[], int],
        copied: Copied,
        enqueue: Callable[[], int],
        outputs: list[tuple[Any, Any]],
    ) -> None:
        self.name = name
        self._rank = rank
        self._copied = copied
        self._enqueue: Callable[[], int] | None = enqueue
        self._outputs = outputs  # pairs: result in CPU memory, tensor on the device
        self._handle = -1
        self._error: BaseException | None = None
        self._abandoned = False
        self._lock = threading.Lock()  # either submitted or abandoned
        self._done = threading.Event()

    def hand_in(self) -> None:
        """Submit the operation after its copy, unless it was abandoned; called once, in the staging thread."""
        try:
            assert self._enqueue is not None
            with _named(self.name, self._rank, "a copy to CPU memory"):
                self._copied()
            with self._lock:
                if not self._abandoned:
                    self._handle = self._enqueue()
                    self._done.set()
        except BaseException as error:
            self._error = error
        self._enqueue = None
        self._done.set()

    def await_submission(self) -> int:
        """Wait for the submission and return the library's handle.

        Raises the error of the submission, or RuntimeError after the timeout: the operation is never submitted then.
        """
        if not self.wait():
            self._abandon()
        if self._error is not None:
            raise self._error
        return self._handle

    def _abandon(self) -> None:
        with self._lock:
            if self._done.is_set():
                return
            self._abandoned = True
        raise RuntimeError(
            f"{self.name}: rank {self._rank()} expected its copy to CPU memory within {LIMIT_S:g} s, and it was not "
            "done. See whether this rank's GPU is busy or hangs (nvidia-smi), and what was queued on it before."
        )

    def wait(self) -> bool:
        """Return True if the operation was submitted or refused within the limit."""
        return self._done.wait(LIMIT_S)

    @property
    def is_submitted(self) -> bool:
        """True if `await_submission` returns or raises without waiting."""
        return self._done.is_set()

    @property
    def is_refused(self) -> bool:
        """True if `await_submission` raises without waiting."""
        return self._done.is_set() and self._error is not None

    def up(self, device: Device) -> None:
        """Copy the results to the device; the library determines some of their shapes only now."""
        import torch

        outputs, self._outputs = self._outputs, []  # releases CPU memory as soon as the device allows
        with torch.no_grad(), _named(self.name, self._rank, "a copy of the result to its device"):
            for host, tensor in outputs:  # also a parameter may be written, as Horovod writes it
                if tensor.shape != host.shape:
                    tensor.resize_(host.shape)
                device.up(host, tensor)


class Staging:
    """Replacement of a library's missing functions for a device's tensors."""

    def __init__(self, library: Any, device: Device, rank: Callable[[], int]) -> None:
        self._library = library
        self.device = device
        self._rank = rank
        self._trips: dict[int, Trip] = {}
        self._numbers = itertools.count(_FIRST_HANDLE)
        self._waiting: queue.SimpleQueue[Trip] = queue.SimpleQueue()
        self._last: Trip | None = None
        self._thread: threading.Thread | None = None
        self._wait, self._poll = library.horovod_torch_wait_and_clear, library.horovod_torch_poll
        for name in dir(library):
            found = _FUNCTION.fullmatch(name)
            if found and not found[2].startswith("cuda_"):
                given = 2 if "alltoall" in name else 1  # with the splits
                setattr(library, f"{found[1]}_cuda_{found[2]}", self._function(getattr(library, name), given))
        library.horovod_torch_wait_and_clear, library.horovod_torch_poll = self.wait_and_clear, self.poll

    def _function(self, of_cpu: Callable[..., int], given: int) -> Callable[..., int]:
        return lambda *args: self.start(of_cpu, given, *args)

    def start(self, of_cpu: Callable[..., int], given: int, *args: Any) -> int:
        """Begin the operation `of_cpu`; return a handle.

        Tensors among the first `given` arguments are inputs, others are outputs; they may be the same tensors.
        """
        import torch

        name = next((one.decode() for one in args if isinstance(one, bytes)), "an operation")
        if self.device.capturing():
            raise captured(name, self._rank())
        inputs = [one for one in _flat(args[:given]) if self.device.has(one)]
        with torch.no_grad(), _named(name, self._rank, "a copy to CPU memory to begin"):
            host, copied = self.device.down(inputs)
        there = {id(one): copy for one, copy in zip(inputs, host, strict=True)}
        outputs: list[tuple[Any, Any]] = []
        moved = [self._on_cpu(value, there, outputs if number >= given else None) for number, value in enumerate(args)]
        trip = Trip(name, self._rank, copied, lambda: of_cpu(*moved), outputs)
        handle = next(self._numbers)
        self._trips[handle] = self._last = trip
        if self._thread is None:
            self._thread = threading.Thread(target=self._carry, name="paceline-staging", daemon=True)
            self._thread.start()
        self._waiting.put(trip)
        return handle

    # Not a function within `start`: its reference to itself would keep pinned memory until Python looks for cycles.
    def _on_cpu(self, value: Any, there: dict[int, Any], outputs: list[tuple[Any, Any]] | None) -> Any:
        """Return an argument with its device tensors replaced by CPU tensors; those of results join `outputs`."""
        if isinstance(value, (list, tuple)):
            return [self._on_cpu(one, there, outputs) for one in value]
        if not self.device.has(value):
            return value
        copy = there.get(id(value))
        if copy is None:
            copy = self.device.empty(value)
        if outputs is not None:
            outputs.append((copy, value))
        return copy

    def _carry(self) -> None:
        while True:
            self._waiting.get().hand_in()

    def settle(self) -> None:
        """Wait until all started operations were submitted."""
        if self._last is not None:
            self._last.wait()

    def poll(self, handle: int) -> int:
        """Return 1 if `wait_and_clear` returns without waiting, as the library's function."""
        trip = self._trips.get(handle)
        if trip is None:
            return int(self._poll(handle))
        if not trip.is_submitted:
            return 0
        return 1 if trip.is_refused else int(self._poll(trip.await_submission()))

    def wait_and_clear(self, handle: int) -> None:
        """Wait for the operation, as the library's function; copies of results are queued on the current stream."""
        trip = self._trips.get(handle)
        if trip is None:
            self._wait(handle)
            return
        if self.device.capturing():
            raise captured(trip.name, self._rank())
        del self._trips[handle]
        self._wait(trip.await_submission())
        trip.up(self.device)


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


_staged: dict[int, Staging] = {}


def install(operations: Any, device: Device | None = None) -> Staging | None:
    """Make Horovod's library for torch accept GPU tensors, if it was built without and this process has a GPU.

    `operations`: horovod.torch.mpi_ops. Done once for each library; later calls return the same object. `device`: for
    tests.
    """
    library = operations.mpi_lib
    found = _staged.get(id(library))
    if found is not None or operations.cuda_built() or operations.rocm_built():
        return found
    if device is None:
        import torch

        if not torch.cuda.is_available():
            return None
        device = Cuda()
    found = _staged[id(library)] = Staging(library, device, operations.rank)
    return found


def settle() -> None:
    """Wait until all started operations on devices' tensors were submitted to Horovod."""
    for one in _staged.values():
        one.settle()
