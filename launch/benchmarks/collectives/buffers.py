"""The memory that a case works on, and what must be in it afterwards."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from paceline.collectives.bounds import ALLREDUCE, REDUCE
from paceline.launch.benchmarks import models
from paceline.launch.benchmarks.collectives.cases import MODEL, Case
from paceline.launch.quantities import ELEMENT_BYTES

ROOT = 0
CODEC_ERROR = 0.02  # relative: q8's half step of the greatest magnitude, of some hops
_MODEL = "bert-base"  # whose sizes of tensors a model of any size has


class Buffers:
    """float32 arrays: one for each message in flight, or one for each tensor of a model."""

    def __init__(self, case: Case, rank: int, size: int) -> None:
        sizes = _tensors(case.size_bytes) if case.operation == MODEL else [case.size_bytes] * case.in_flight
        self.arrays: list[NDArray[np.float32]] = [np.empty(one // ELEMENT_BYTES, np.float32) for one in sizes]
        self._rank = rank
        everyone = size * (size + 1) / 2
        self._expected = everyone if case.operation in (REDUCE, ALLREDUCE) else ROOT + 1.0
        self._checked = case.operation != REDUCE or rank == ROOT
        self._what = f"{case.operation} of {case.size_bytes} bytes"

    def fill(self) -> None:
        """Numbers that tell whose they are."""
        for array in self.arrays:
            array.fill(self._rank + 1)

    def check(self) -> None:
        """Raise ValueError if a result is wrong."""
        if not self._checked:
            return
        for array in self.arrays:
            wrong = np.abs(array - self._expected) > CODEC_ERROR * self._expected
            if wrong.any():
                at = int(wrong.argmax())
                raise ValueError(
                    f"{self._what} on rank {self._rank}: element {at} is {array[at]}, expected {self._expected}"
                )


def _tensors(model_bytes: int) -> list[int]:
    """Sizes in bytes of a model's tensors, which add up to about `model_bytes`."""
    model = models.find(_MODEL)
    share = model_bytes / model.gradient_bytes
    scaled = [layer.scaled(share) for layer in model.layers]
    return [math.prod(shape) * ELEMENT_BYTES for layer in scaled for _, shape in layer.tensors]
