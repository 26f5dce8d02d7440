"""Point-to-point messages from framework threads of a process set (plugin/bridge/stages/stage_communicator.h).

They use Horovod's connections, outside its collectives, and are sent from and received into the caller's memory without
a copy. A failure ends the world of Horovod: all ranks receive it, whatever they wait for.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
import weakref
from typing import Any, NoReturn

import numpy as np

from paceline.errors import UsageError
from paceline.native.prototypes import declare

# Limit of a failure notice's text. Of a longer text the end is sent, because a traceback ends with the error.
NOTICE_BYTES = 32768
_WHY_BYTES = 2 * NOTICE_BYTES
# Interval at which a waiting rank checks for signals, such as Ctrl-C, and for the end of Horovod.
_LOOK_S = 0.1
_MOST_TAG = 2**55

_STAGE = "its stage failed:\n"
_LOST = re.compile(r"Rank (\d+) (?:died|\([^)]*\) does not answer)")
# End of the text if a Communicator is opened after a failure (plugin/bridge/stages/stage_communicators.cc).
_RESTART = r" Start again with hvd\.shutdown\(\) and hvd\.init\(\)\."
_NOTICE = re.compile(rf"Rank (\d+)[^:]*? could not go on: {_STAGE}(.*?)(?:{_RESTART})?\Z", re.DOTALL)


class CommunicatorError(RuntimeError):
    """A message has failed, and Horovod with it; so do all later calls."""


class StageLost(CommunicatorError):
    """A rank could not be reached, or did not answer in time: the text names it and the message waited for.

    `ranks` of the world have died or do not answer; empty if all are alive.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.ranks = tuple(sorted({int(rank) for rank in _LOST.findall(message)}))


class HorovodEnded(StageLost):
    """Horovod was shut down, by this rank or another one, without another failure."""


class StageFailed(CommunicatorError):
    """Rank `rank` of the world sent the failure notice `text`."""

    def __init__(self, message: str, rank: int, text: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.text = text

    def __reduce__(self) -> tuple[type[StageFailed], tuple[str, int, str]]:
        return type(self), (str(self), self.rank, self.text)


def _memory(data: Any, size_bytes: int | None, written: bool) -> tuple[int | None, int, object]:
    """Return address and size of the given memory, and the object that keeps it alive."""
    if isinstance(data, int):
        if size_bytes is None or size_bytes < 0:
            raise UsageError(f"Memory at an address: found size_bytes={size_bytes}.", "Give its size, 0 or more.")
        return data or None, size_bytes, None
    view = memoryview(data)
    if not view.c_contiguous or (written and view.readonly):
        found = "read-only memory" if view.c_contiguous else "memory with gaps"
        raise UsageError(f"Communicator: found {found}.", f"Give contiguous{' writable' if written else ''} memory.")
    if size_bytes not in (None, view.nbytes):
        raise UsageError(f"Memory of {view.nbytes} bytes: found size_bytes={size_bytes}.", "Leave it out.")
    if not view.nbytes:
        return None, 0, None
    if view.readonly:
        return np.frombuffer(view, np.uint8).ctypes.data, view.nbytes, view
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes, view


def _raise_failure(why: str) -> None:
    """Raise StageFailed if `why` contains a failure notice."""
    notice = _NOTICE.search(why)
    if notice is not None:
        raise StageFailed(why, int(notice[1]), notice[2])


def _end(library: ctypes.CDLL, number: int, of_process: int) -> None:
    if os.getpid() == of_process:  # a forked process does not own the connections
        library.horovod_paceline_communicator_close(number)


class Communicator:
    """Sends and receives of this rank within a process set of `library`; constructed without communication.

    Messages with one tag between two ranks are received in the order in which they were sent, whichever end is first.
    Use it from one thread at a time. `rank`, `size` and every `peer` count within the process set; error texts name
    ranks of the world. `limit_s` is Horovod's timeout for Gloo (HOROVOD_GLOO_TIMEOUT_SECONDS).

    Raises UsageError if there is no such set, Horovod is not initialised, or ranks are connected by MPI. The
    constructor and all methods raise StageFailed if a rank has sent a failure notice; methods raise StageLost for other
    failures.
    """

    def __init__(self, library: ctypes.CDLL, process_set_id: int = 0) -> None:
        self._library = declare(library)
        rank, size, limit_s = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_double()
        error = ctypes.create_string_buffer(_WHY_BYTES)
        self._number = library.horovod_paceline_communicator_open(
            process_set_id, rank, size, limit_s, error, _WHY_BYTES
        )
        if self._number < 0:
            why = error.value.decode(errors="replace")
            _raise_failure(why)
            problem, _, remedy = why.partition(". ")
            raise UsageError(f"{problem}.", remedy)
        self.rank, self.size, self.limit_s = rank.value, size.value, limit_s.value
        # Memory kept alive, by operation, until the operation is seen to have ended.
        self._flying: dict[int, object] = {}
        self._closed = False
        # An unclosed Communicator ends with its object, or the process.
        self._end = weakref.finalize(self, _end, library, self._number, os.getpid())

    def send(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to send memory, or `size_bytes` at an address, and return the operation's number at once.

        `data`: an object with a buffer, such as bytes or an array, or an address. The memory must not change until
        `done` or `wait` report the end. A tag is a number chosen by the caller, from 0 to 2**55.
        """
        return self._begin(self._library.horovod_paceline_communicator_send, peer, tag, data, size_bytes, written=False)

    def receive(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to receive as many bytes as the peer sends, as `send` does; may precede the peer's call by far."""
        return self._begin(
            self._library.horovod_paceline_communicator_receive, peer, tag, data, size_bytes, written=True
        )

    def done(self, operation: int) -> bool:
        """Return True if an operation has ended: the transport took its memory, or the message was received."""
        return self._look(operation, 0.0)

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        """Wait until an operation has ended; abort after `limit_s`.

        On a timeout all ranks are checked for liveness; every rank that answers names those that do not.
        """
        limit_s = self.limit_s if limit_s is None else limit_s
        if self._look(operation, min(_LOOK_S, limit_s)):
            return
        until_s = time.monotonic() + limit_s - _LOOK_S
        while not self._look(operation, min(_LOOK_S, max(0.0, until_s - time.monotonic()))):
            if time.monotonic() >= until_s:
                self._library.horovod_paceline_communicator_abort(self._number, operation, limit_s)
                self._look(operation, 0.0)

    def notify_failure(self, text: str) -> None:
        """End all ranks, at once, with StageFailed and `text`. This Communicator cannot be used afterwards."""
        said = text.encode(errors="replace")[-NOTICE_BYTES:].decode(errors="ignore")
        self.report_failure(_STAGE + said)

    def report_failure(self, text: str) -> None:
        """End all ranks, at once, with the error "Rank ... could not go on: `text`", in whatever they wait for."""
        self._check_open()
        said = text.encode(errors="replace").replace(b"\0", b" ")
        self._library.horovod_paceline_communicator_notify_failure(self._number, said)

    def close(self, limit_s: float | None = None) -> None:
        """Wait for all that is in flight, at most `limit_s` altogether, and close; a second call has no effect.

        Call it on all ranks before hvd.shutdown(), because other ranks may wait for messages in flight here.
        """
        if self._closed:
            return
        until_s = time.monotonic() + (self.limit_s if limit_s is None else limit_s)
        try:
            for operation in list(self._flying):
                self.wait(operation, max(0.0, until_s - time.monotonic()))
        finally:
            self._closed = True
            self._end()
            self._flying.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("The communicator is closed.", "Open another one.")

    def _begin(
        self,
        begin: ctypes._NamedFuncPointer,
        peer: int,
        tag: int,
        data: Any,
        size_bytes: int | None,
        written: bool,
    ) -> int:
        self._check_open()
        if not 0 <= peer < self.size or peer == self.rank:
            raise UsageError(
                f"Communicator of rank {self.rank} of {self.size}: found peer {peer}.",
                "Give another rank of its process set.",
            )
        if not 0 <= tag <= _MOST_TAG:
            raise UsageError(f"Communicator: found tag {tag}.", f"Give one from 0 to {_MOST_TAG}.")
        address, size, held = _memory(data, size_bytes, written)
        operation = int(begin(self._number, peer, tag, address, size))
        if operation < 0:
            self._raise()
        self._flying[operation] = held
        return operation

    def _look(self, operation: int, limit_s: float) -> bool:
        self._check_open()
        state = self._library.horovod_paceline_communicator_wait(self._number, operation, limit_s)
        if state < 0:
            self._raise()
        if state > 0:
            self._flying.pop(operation, None)
        return bool(state)

    def _raise(self) -> NoReturn:
        self._check_open()
        self._flying.clear()
        out = ctypes.create_string_buffer(_WHY_BYTES)
        shut_down = self._library.horovod_paceline_communicator_why(self._number, out, _WHY_BYTES)
        why = out.value.decode(errors="replace")
        _raise_failure(why)
        raise HorovodEnded(why) if shut_down else StageLost(why)
