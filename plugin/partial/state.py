"""Saved state of partial rounds: each rank's send buffers, and the results that it has not received.

States of all ranks fit together if every name has had the same number of rounds on each of them. Then every
contribution is in a send buffer or in the results of all ranks, and is counted once after the state is restored.
"""

from __future__ import annotations

import ctypes
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.native.agreement import SAME_EXCHANGE, agree
from paceline.native.in_flight import SETTLE_LIMIT_S, InFlight
from paceline.native.library import ended, read
from paceline.native.prototypes import ERROR_BYTES, TensorDescription

_NUMBERS = 4
_BUSY = 1
_LOOK_EVERY_S = 0.001
# Value of PACELINE_DRAIN_LIMIT_S.
_drain_limit_s = 600.0


def drain_for_at_most(limit_s: float) -> None:
    """Set the timeout of a flush during which no rank completes a round."""
    global _drain_limit_s
    _drain_limit_s = limit_s


@dataclass(frozen=True)
class SavedRounds:
    """State of one name on one rank; `plain` converts it for saving (paceline.exchange.in_flight_state).

    Attributes:
        send: contributions not sent yet, of the tensor's shape and dtype.
        results: sum of the results that this rank has missed, of the tensor's shape and dtype.
        rounds: rounds performed.
        pending: number of contributions in `send`.
        missed: number of rounds in `results`.
        fresh: number of contributions in `results` that were in time.
    """

    send: np.ndarray[Any, Any]
    results: np.ndarray[Any, Any]
    rounds: int
    pending: int
    missed: int
    fresh: int

    def plain(self) -> dict[str, Any]:
        """Return arrays and numbers by the names of the fields."""
        return dict(vars(self))

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> SavedRounds:
        """Return the state from the result of `plain`."""
        return cls(**plain)


class PartialBuffers:
    """Send buffers and results in `library`, by the full name of an operation."""

    def __init__(self, library: ctypes.CDLL, process_set_id: int) -> None:
        self._library = library
        self._set = process_set_id
        self._in_flight = InFlight(library, process_set_id)

    def save(self, name: str) -> SavedRounds:
        """Return a copy of the state of `name`. Waits for a round in progress.

        Raises RuntimeError if there were no calls of this name, or the round does not end.
        """
        described = self._described(name)
        if described is None:
            raise RuntimeError(f"The send buffer of {name} cannot be saved: there were no calls of this name.")
        send, results = (np.zeros(described.shape, described.dtype) for _ in range(2))
        numbers = (ctypes.c_int64 * _NUMBERS)()
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while True:
            saved = self._library.horovod_paceline_partial_save(
                self._set, name.encode(), numbers, send.ctypes.data, results.ctypes.data, send.nbytes
            )
            if saved == 0:
                return SavedRounds(send, results, *numbers)
            if saved != _BUSY or time.monotonic() > deadline or ended(self._library):
                raise self._in_flight.failure(
                    f"The send buffer of {name} cannot be saved: a call or a round of it has not ended."
                )
            time.sleep(_LOOK_EVERY_S)

    def flush(self, names: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        """Return the results of `names`, in order, that this rank has not received; waits until all ranks flush them.

        No calls may be made meanwhile. Raises RuntimeError with the reason if a rank is lost, UserError if no round is
        completed within the limit of `drain_for_at_most`.
        """
        error = ctypes.create_string_buffer(ERROR_BYTES)
        for name in names:
            self._check(
                self._library.horovod_paceline_partial_flush(self._set, name.encode(), error, ERROR_BYTES), error
            )
        return [self._flushed(name, error) for name in names]

    def _flushed(self, name: str, error: Any) -> np.ndarray[Any, Any]:
        described = self._described(name)
        assert described is not None
        out = np.zeros(described.shape, described.dtype)
        take = self._library.horovod_paceline_partial_flushed
        rounds, heard_s, pause_s = -1, time.monotonic(), _LOOK_EVERY_S / 10
        while True:
            state = take(self._set, name.encode(), out.ctypes.data, out.nbytes, error, ERROR_BYTES)
            self._check(state, error)
            if state == 0:
                return out
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 10 * _LOOK_EVERY_S)
            if (now_rounds := self._rounds()) != rounds:
                rounds, heard_s = now_rounds, time.monotonic()
            elif time.monotonic() - heard_s > _drain_limit_s:
                raise UserError(
                    f"Rank {self._in_flight.rank} waited in drain() for {name}, of which no rank made a round for "
                    f"{_drain_limit_s:.0f} s.",
                    "Call drain() on all ranks, or raise PACELINE_DRAIN_LIMIT_S.",
                )

    def _rounds(self) -> int:
        return int(self._counters()["rounds"])

    def calls(self) -> int:
        """Return the number of calls so far of all names in this process set."""
        counted = self._counters()
        return int(counted["on_time"] + counted["late"])

    def _counters(self) -> dict[str, Any]:
        return read(self._library, "partial_counters", self._set) or {}

    def _check(self, state: int, error: Any) -> None:
        if state < 0:
            raise self._in_flight.failure(error.value.decode(errors="replace"))

    def called(self, name: str) -> bool:
        """Return True if there were calls of this name."""
        return self._described(name) is not None

    def _described(self, name: str) -> TensorDescription | None:
        description = TensorDescription()
        described = self._library.horovod_paceline_partial_describe(self._set, name.encode(), description)
        return description if described == 0 else None

    def restore(self, states: Mapping[str, SavedRounds], foreign: str) -> None:
        """Restore `states`, by full name. All ranks must call it at the same time; it waits for them.

        `foreign` describes the rank that saved them if it is another one, else "". Raises UserError if a rank's states
        are foreign, if states do not fit together or if not all ranks load within a minute; ValueError if calls of
        other shapes were made.
        """
        rounds = sorted((name, one.rounds) for name, one in states.items())
        digest = zlib.crc32(repr(rounds).encode())
        meaning = (
            "rounds before the states were saved, which is to be between two barriers on all ranks; their digest; and "
            "whether a rank loads another rank's state"
        )
        numbers = [sum(count for _, count in rounds), digest, int(bool(foreign))]
        agree(self._library, self._set, "paceline.partial.load", numbers, meaning, SAME_EXCHANGE)
        if foreign:  # refused: results that other ranks have not received would be lost, or counted twice
            raise UserError(
                f"The saved state is that of {foreign}.",
                "Load on each rank the state that this rank saved, in a job of as many ranks; for another number of "
                "ranks drain() on all ranks before saving.",
            )
        for name, saved in states.items():
            self._restore(name, saved)
        # No round begins before all ranks are here.
        agree(self._library, self._set, "paceline.partial.loaded", [digest], meaning, SAME_EXCHANGE)

    def _restore(self, name: str, saved: SavedRounds) -> None:
        numbers = (ctypes.c_int64 * _NUMBERS)(saved.rounds, saved.pending, saved.missed, saved.fresh)
        send, results = np.ascontiguousarray(saved.send), np.ascontiguousarray(saved.results)
        done = self._library.horovod_paceline_partial_restore(
            self._set, name.encode(), TensorDescription.of(saved.send), numbers, send.ctypes.data, results.ctypes.data,
            send.nbytes,
        )  # fmt: skip
        if done != 0:
            raise ValueError(f"expected {name} at rest and of shape {list(saved.send.shape)}, found otherwise")
