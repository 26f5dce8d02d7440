"""Memory that a call works on, and its expected content afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.collectives.bounds import ALLREDUCE, REDUCE, messages_of
from paceline.launch.quantities import ELEMENT_BYTES

ROOT = 0
CODEC_ERROR = 0.02  # relative: q8's half step of the largest magnitude, over some hops


@dataclass(frozen=True)
class Case:
    """An operation on messages of `size_bytes`, `in_flight` of them submitted together (or as many pairs).

    `tensor_bytes`: sizes of a model's tensors; they replace equal messages.
    """

    operation: str
    size_bytes: int
    in_flight: int = 1
    tensor_bytes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of the operation, the same on all ranks and unique to the case."""
        return f"collectives.{self.operation}.{self.size_bytes}"


class Buffers:
    """float32 arrays: one for each message in flight, or one for each tensor of a model."""

    def __init__(self, case: Case, rank: int, size: int) -> None:
        messages = messages_of(case.operation)
        sizes = case.tensor_bytes or (case.size_bytes,) * case.in_flight * len(messages)
        self.arrays: list[NDArray[np.float32]] = [np.empty(one // ELEMENT_BYTES, np.float32) for one in sizes]
        self._rank = rank
        everyone = size * (size + 1) / 2
        # None: the operation leaves the rank without a result. All others are broadcasts.
        of = {REDUCE: everyone if rank == ROOT else None, ALLREDUCE: everyone}
        self._expected = [of.get(one, ROOT + 1.0) for one in messages] * (len(self.arrays) // len(messages))
        self._what = f"{case.operation} of {case.size_bytes} bytes"

    def fill(self) -> None:
        """Write values that identify this rank."""
        for array in self.arrays:
            array.fill(self._rank + 1)

    def check(self) -> None:
        """Raise ValueError if a result is wrong."""
        for array, expected in zip(self.arrays, self._expected, strict=True):
            if expected is None:
                continue
            wrong = np.abs(array - expected) > CODEC_ERROR * expected
            if wrong.any():
                at = int(wrong.argmax())
                raise ValueError(f"{self._what} on rank {self._rank}: element {at} is {array[at]}, expected {expected}")
