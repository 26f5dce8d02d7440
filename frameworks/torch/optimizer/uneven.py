"""Batches that ranks have unequally many of: a rank that is through takes part without data until all are."""

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
    """Yield `batches` for a training loop, in which ranks may have unequally many.

        for x, y in hvd.uneven(loader, optimizer):
            loss_of(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    `weight(batch)` is what the batch counts (WrappedOptimizer.weight). A rank that is through calls `finish_uneven`. At
    the end `optimizer.weight` is what it was before.

    All ranks must iterate to the end: a loop that breaks off leaves the others waiting. Raises UsageError for an
    optimizer that is not wrapped.
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
    """Make updates with the weight 0 until no rank has data, then those in flight (`drain`).

    For the end of an epoch in loops that set `optimizer.weight` by themselves. Each update has the mean over the
    samples of the ranks that have some. `after_step` is what else the loop does after an update, such as
    `scheduler.step`. `any_here`: whether this rank had data in this epoch. Exchanges that do not wait for late ranks
    need no updates.

    All ranks must call it. Raises UsageError for an optimizer that is not wrapped.
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
