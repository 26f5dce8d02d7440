"""Metrics of an evaluation, which the last stage computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from paceline.errors import UsageError
from paceline.stages.execution.finish import Loss

Metric = Callable[[Any, Any], Any]


def checked(metrics: Any) -> dict[str, Metric]:
    """Return the functions by name. Raises UsageError for other values, and for the name of the loss."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping) or not all(callable(one) for one in metrics.values()):
        raise UsageError(
            f"metrics={metrics!r}: expected functions of output and target, by name.",
            'Give {"accuracy": lambda output, target: (output.argmax(1) == target).float().mean()}, for example.',
        )
    if "loss" in metrics:
        raise UsageError('metrics= names a metric "loss", which is the name of the loss.', "Choose another name.")
    return dict(metrics)


class Metrics:
    """Means over the rows of an evaluation; `rows_of`: the number of rows of a micro-batch's target."""

    def __init__(self, metrics: Mapping[str, Metric], rows_of: Callable[[Any], int]) -> None:
        self._metrics, self._rows_of = metrics, rows_of
        self._watching = False
        self._found: list[tuple[int, dict[str, float]]] = []

    def observed(self, loss: Loss) -> Loss:
        """Return `loss`, extended to compute metrics of its outputs and targets while `watching`."""

        def observed(output: Any, target: Any) -> Any:
            if self._watching:
                with torch.no_grad():
                    values = {name: float(metric(output, target)) for name, metric in self._metrics.items()}
                self._found.append((self._rows_of(target), values))
            return loss(output, target)

        return observed if self._metrics else loss

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Context of an evaluation."""
        self._found = []
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def __bool__(self) -> bool:
        return bool(self._metrics)

    def result(self) -> dict[str, float]:
        """Return the means of the last evaluation; empty on stages other than the last."""
        total = sum(rows for rows, _ in self._found)
        if not total:
            return self._found[0][1] if self._found else {}
        return {name: sum(rows * one[name] for rows, one in self._found) / total for name in self._metrics}
