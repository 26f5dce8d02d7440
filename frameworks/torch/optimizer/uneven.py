"""Different numbers of batches on the ranks: a finished rank takes part without data until all have finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from paceline.torch.errors import UsageError
from paceline.torch.optimizer.weighing import PRESENT
from paceline.torch.optimizer.wrapper import WrappedOptimizer

Batch = TypeVar("Batch")


def samples_of(batch: Any) -> int:
    """Return the number of samples: the length of the first tensor in a batch. Raises UsageError if there is none."""
    found = _first_tensor(batch)
    if found is None or found.dim() == 0:
        raise UsageError(
            f"A batch of type {type(batch).__name__} has no tensor with samples.",
            "Give uneven() weight=, a function from a batch to the number of its samples or tokens.",
        )
    return len(found)


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, Sequence) else ()
    inside = () if isinstance(batch, str) else (_first_tensor(part) for part in parts)
    return next((found for found in inside if found is not None), None)


def uneven(
    batches: Iterable[Batch],
    optimizer: Any,
    weight: Callable[[Batch], Any] = samples_of,
    after_step: Callable[[], object] = lambda: None,
) -> Iterator[Batch]:
    """Yield `batches` for a training loop in which ranks may have different numbers of batches.

        for x, y in hvd.uneven(loader, optimizer):
            loss_of(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    A finished rank calls `finish_uneven`. At the end `optimizer.weight` is restored. All ranks must iterate to the end:
    a loop that stops early leaves the others waiting.

    Args:
        batches: this rank's batches.
        optimizer: the result of hvd.DistributedOptimizer.
        weight: returns the weight of a batch (WrappedOptimizer.weight).
        after_step: as of `finish_uneven`.

    Raises:
        UsageError: the optimizer is not wrapped.
    """
    _check(optimizer)
    before, any_here = optimizer.weight, False
    for batch in batches:
        any_here = True
        optimizer.has_data(True)
        optimizer.weight = weight(batch) or PRESENT
        yield batch
    finish_uneven(optimizer, after_step, any_here)
    optimizer.weight = before


def finish_uneven(optimizer: Any, after_step: Callable[[], object] = lambda: None, any_here: bool = True) -> None:
    """Make updates with weight 0 until no rank has data, then those in flight (`drain`).

    For the end of an epoch in loops that set `optimizer.weight` themselves. Each update uses the mean over the samples
    of the ranks that have data. Exchanges that do not wait for late ranks need no updates. All ranks must make the
    call.

    Args:
        optimizer: the result of hvd.DistributedOptimizer.
        after_step: further work of the loop after an update, such as `scheduler.step`.
        any_here: True if this rank had data in this epoch.

    Raises:
        UsageError: the optimizer is not wrapped.
    """
    _check(optimizer)
    optimizer.weight = 0
    while optimizer.has_data(False) and optimizer.step_without_data(any_here):
        after_step()
    optimizer.drain()
    optimizer.zero_grad()


def _check(optimizer: Any) -> None:
    if type(optimizer) is not WrappedOptimizer:
        raise UsageError(
            f"uneven() was given a {type(optimizer).__name__} that is not wrapped.",
            "Give it the result of hvd.DistributedOptimizer.",
        )
