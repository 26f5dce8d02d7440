"""Random numbers of a stage, such as those of dropout."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from paceline.torch.stages.undisturbed import random_state, set_random_state

# Seeds of neighbours must differ in their low 32 bits, which are all that the CPU's generator uses.
_STRIDE = 0x9E3779B9


class RandomNumbers:
    """Random numbers of rank `rank` of a pipeline of `ranks` ranks, from PyTorch's current seed.

    Scripts seed all ranks alike, for equal weights and batches. With these random numbers all stages would have equal
    dropout masks. So each stage has its own numbers during passes, and the script's outside. A single rank uses the
    script's.
    """

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        self._device, self._alone = device, ranks == 1
        seed = (torch.initial_seed() + (rank + 1) * _STRIDE) % (1 << 63)
        devices = [torch.device("cpu"), *([device] if device.type == "cuda" else [])]
        self._state = [torch.Generator(one).manual_seed(seed).get_state() for one in devices]

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Context of passes."""
        if self._alone:
            yield
            return
        outside = random_state(self._device)
        set_random_state(self._state, self._device)
        try:
            yield
        finally:
            self._state = random_state(self._device)
            set_random_state(outside, self._device)
