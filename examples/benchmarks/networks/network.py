"""Common interface of the benchmark's networks, and the check of their gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import nn

_PART = 13 * 2**16


def _parts(gradient: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield parts of the flattened gradient: start, the part, and j mod 13 for its elements j.

    In parts, because a temporary copy of the largest gradients on every rank would fill the machine's memory.
    """
    flat = gradient.view(-1)
    pattern = torch.remainder(torch.arange(min(_PART, flat.numel())), 13).to(gradient.dtype)
    for start in range(0, flat.numel(), _PART):
        part = flat[start : start + _PART]
        yield start, part, pattern[: part.numel()]


def write_mark(gradient: torch.Tensor, index: int, rank: int) -> None:
    """Fill the gradient of tensor `index` with values that identify its origin.

    Element j is 8 (rank + 1) + index mod 251 + j mod 13.
    """
    for _, part, pattern in _parts(gradient):
        torch.add(pattern, 8 * (rank + 1) + index % 251, out=part)


class Network(nn.Module, ABC):
    """Module without inputs: a call makes a forward pass and returns a scalar, whose backward() makes the gradients.

    All ranks begin with equal parameters. While `hurried`, passes take hardly any time and gradients are arbitrary.
    """

    hurried = False
    _marked = -1  # how many times before, minus 1

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """Return a new optimizer over the parameters, whose step() is the update of a training step."""

    def mark(self, rank: int) -> None:
        """Make gradients identify their origin from the next backward pass on, in a different way each time."""
        self._marked += 1
        self.write_marks(self._marked, rank)

    @abstractmethod
    def write_marks(self, first: int, rank: int) -> None:
        """Make the gradient of tensor i what `write_mark` writes for the index first + i."""

    @abstractmethod
    def unmark(self) -> None:
        """End marking: the marked gradients have been checked."""

    def check_not_yet(self, size: int) -> None:
        """Check that gradients are not the mean of this step's marked ones, which a later step must use.

        Raises RuntimeError if they are.
        """
        if self._wrong(size) is None:
            raise RuntimeError("gradients of this very step were used, expected are those of an earlier one")

    def check_mean(self, size: int) -> None:
        """Check that every `.grad` is the mean over `size` ranks of marked gradients.

        Raises RuntimeError with the first wrong tensor and element, and both values.
        """
        wrong = self._wrong(size)
        if wrong is not None:
            raise RuntimeError(wrong)
        self.unmark()

    def _wrong(self, size: int) -> str | None:
        for index, (name, parameter) in enumerate(self.named_parameters(), self._marked):
            if parameter.grad is None:
                return f"parameter {name} has no gradient after a step"
            for start, found, pattern in _parts(parameter.grad):
                expected = pattern + (8 * (size + 1) / 2 + index % 251)
                wrong = (found - expected).abs() > 1e-3
                if wrong.any():
                    first = int(wrong.nonzero()[0])
                    return (
                        f"gradient of {name}, element {start + first}: expected the mean over {size} ranks,"
                        f" {expected[first]:g}, found {found[first]:g}"
                    )
        return None
