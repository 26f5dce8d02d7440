"""Operations on tensors of a GPU through CPU memory, for a Horovod that was built without CUDA.

Horovod's library has one function for each operation and type: `horovod_torch_allreduce_async_torch_FloatTensor`.
Without CUDA those of GPUs, `..._torch_cuda_FloatTensor`, end in an error. Here they copy to pinned CPU memory on a
stream of their own and call the function for CPU memory when the copy is there; `horovod_torch_wait_and_clear` copies
the result back. So all of horovod.torch and of paceline.torch takes tensors of GPUs, and CPU memory travels.

A handle's trip:

    state      event                         next       what happens
    copying    the copy to the CPU is done   handed in  the courier's thread calls the library
    copying    the library refuses it        refused    the error waits for who waits for the handle
    handed in  somebody waits                -          the library's wait, then the copy to the GPU is queued
    refused    somebody waits                -          the error is raised

Nobody but the courier waits for the GPU: the thread that computes the backward pass goes on queueing kernels. Results
are copied on the stream that is current where somebody waits, in order with what this stream does before and after.
"""

from __future__ import annotations

import itertools
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

# A copy that takes longer has failed, or the GPU hangs.
LIMIT_S = 600.0
_FIRST_HANDLE = 1 << 30  # above all of Horovod's own
_FUNCTION = re.compile(r"(horovod_torch_\w+_async_torch)_(\w+Tensor)")

# Waits until copies to CPU memory are done.
Copied = Callable[[], None]


class Device(Protocol):
    """What copies between a device and CPU memory."""

    def has(self, value: Any) -> bool:
        """Whether this is a tensor in the memory of a device."""
        ...

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Copied]:
        """Begin to copy tensors to CPU memory."""
        ...

    def up(self, host: Any, tensor: Any) -> None:
        """Queue a copy to `tensor` behind what the current stream has to do; `host` may be dropped at once."""
        ...


class Cuda:
    """NVIDIA's and AMD's GPUs as torch knows them.

    Pinned memory is torch's, which keeps freed blocks and hands one out again when no copy uses it any more.
    """

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}

    def has(self, value: Any) -> bool:
        """See Device.has."""
        return bool(getattr(value, "is_cuda", False))

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Copied]:
        """See Device.down; the copies come behind what the current stream has to do."""
        import torch

        events = []
        for device in {one.device for one in tensors}:
            stream = self._streams.get(device)
            if stream is None:
                stream = self._streams[device] = torch.cuda.Stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
        host = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in tensors]
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
        """See Device.up."""
        tensor.copy_(host, non_blocking=True)


class Trip:
    """One operation's way to CPU memory, through Horovod, and back."""

    def __init__(self, name: str, copied: Copied, enqueue: Callable[[], int], outputs: list[tuple[Any, Any]]) -> None:
        self.name = name
        self._copied = copied
        self._enqueue: Callable[[], int] | None = enqueue
        self._outputs = outputs  # in CPU memory, and on the device
        self._handle = -1
        self._error: BaseException | None = None
        self._done = threading.Event()

    def hand_in(self) -> None:
        """Called once, in the courier's thread."""
        try:
            assert self._enqueue is not None
            self._copied()
            self._handle = self._enqueue()
        except BaseException as error:
            self._error = error
        self._enqueue = None
        self._done.set()

    def handed_in(self) -> int:
        """The library's handle, waiting for it. Raises what handing it in raised."""
        if not self.wait():
            raise RuntimeError(
                f"{self.name}: its copy to CPU memory was not done within {LIMIT_S:g} s. Is the GPU busy?"
            )
        if self._error is not None:
            raise self._error
        return self._handle

    def wait(self) -> bool:
        """Whether it was handed in or refused within the limit."""
        return self._done.wait(LIMIT_S)

    @property
    def is_handed_in(self) -> bool:
        """Whether `handed_in` answers at once."""
        return self._done.is_set()

    def up(self, device: Device) -> None:
        """Bring the results to the device; the library knows the shape of some of them only now."""
        import torch

        with torch.no_grad():  # a parameter may be written, as Horovod writes it
            for host, tensor in self._outputs:
                if tensor.shape != host.shape:
                    tensor.resize_(host.shape)
                device.up(host, tensor)


class Staging:
    """Takes operations on a device's tensors for a library that knows none."""

    def __init__(self, library: Any, device: Device) -> None:
        self._library = library
        self.device = device
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
        """Begin the operation `of_cpu`; returns a handle.

        Tensors among the first `given` arguments are read, others are where results go: they may be the same ones.
        """
        import torch

        inputs = [one for one in _flat(args[:given]) if self.device.has(one)]
        with torch.no_grad():
            host, copied = self.device.down(inputs)
        there = {id(one): copy for one, copy in zip(inputs, host, strict=True)}
        outputs: list[tuple[Any, Any]] = []

        def on_cpu(value: Any, written: bool) -> Any:
            if isinstance(value, (list, tuple)):
                return [on_cpu(one, written) for one in value]
            if not self.device.has(value):
                return value
            copy = there.get(id(value))
            if copy is None:
                copy = value.new_empty(value.shape, device="cpu")
            if written:
                outputs.append((copy, value))
            return copy

        moved = [on_cpu(value, number >= given) for number, value in enumerate(args)]
        name = next((one.decode() for one in args if isinstance(one, bytes)), "an operation")
        trip = Trip(name, copied, lambda: of_cpu(*moved), outputs)
        handle = next(self._numbers)
        self._trips[handle] = self._last = trip
        if self._thread is None:
            self._thread = threading.Thread(target=self._carry, name="paceline-staging", daemon=True)
            self._thread.start()
        self._waiting.put(trip)
        return handle

    def _carry(self) -> None:
        while True:
            self._waiting.get().hand_in()

    def settle(self) -> None:
        """Wait until everything that was started has been handed in."""
        if self._last is not None:
            self._last.wait()

    def poll(self, handle: int) -> int:
        """As the library's: whether `wait_and_clear` returns at once."""
        trip = self._trips.get(handle)
        if trip is None:
            return int(self._poll(handle))
        if not trip.is_handed_in:
            return 0
        return int(self._poll(trip.handed_in()))

    def wait_and_clear(self, handle: int) -> None:
        """As the library's; results are on their way to the device in order with the current stream."""
        trip = self._trips.pop(handle, None)
        if trip is None:
            self._wait(handle)
            return
        self._wait(trip.handed_in())
        trip.up(self.device)


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


_staged: dict[int, Staging] = {}


def install(operations: Any, device: Device | None = None) -> Staging | None:
    """Let Horovod's library for torch take tensors of GPUs, where it was built without and this process sees one.

    `operations`: horovod.torch.mpi_ops. Once for each library; later calls give the same. `device`: for tests.
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
    found = _staged[id(library)] = Staging(library, device)
    return found


def settle() -> None:
    """Wait until all that was started on devices' tensors has been handed in to Horovod."""
    for one in _staged.values():
        one.settle()
