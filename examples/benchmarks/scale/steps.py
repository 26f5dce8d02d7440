"""A step: nothing but gradients, handed in part by part."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from paceline.examples.benchmarks.scale.cases import Case
from paceline.launch.quantities import ELEMENT_BYTES


class Gradients:
    """A step's tensors on one rank, float32, which all ranks average in place."""

    def __init__(self, case: Case, rank: int, size: int) -> None:
        import horovod.torch as hvd
        import torch

        self._hvd: Any = hvd
        self._rank, self._size = rank, size
        elements = case.size_bytes // ELEMENT_BYTES
        self._parts = [{name: torch.zeros(elements) for name in names} for names in case.names]

    def step(self) -> None:
        """Hand in each part and wait for it."""
        hvd = self._hvd
        for part in self._parts:
            handles = [hvd.allreduce_async_(tensor, name=name) for name, tensor in part.items()]
            for handle in handles:
                hvd.synchronize(handle)

    def checked_step(self) -> None:
        """A step whose means are known. Raises ValueError if one is wrong."""
        for number, tensor in enumerate(self._tensors()):
            tensor.fill_(self._rank + number)
        self.step()
        for number, tensor in enumerate(self._tensors()):
            expected = (self._size - 1) / 2 + number
            if not bool((tensor - expected).abs().max() <= 1e-5 * self._size):
                raise ValueError(f"tensor {number} on rank {self._rank} is {tensor[0]:g}, expected {expected:g}")

    def _tensors(self) -> Sequence[Any]:
        return list(itertools.chain.from_iterable(part.values() for part in self._parts))
