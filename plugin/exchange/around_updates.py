"""Hooks of an exchange around the updates of an optimizer, in addition to changing their gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from paceline.exchange.wire import Weights

# Remedy where ranks that have joined would falsify the updates of the others.
EQUAL_UPDATES = (
    "Give all ranks the same number of updates before hvd.join(), by hvd.uneven(loader, optimizer) in PyTorch or "
    "model.fit(hvd.uneven(dataset)) in Keras."
)


class AroundUpdates:
    """Hooks without effect; subclasses compensate for staleness or average models."""

    # Key of the hooks' state in a saved state.
    key = ""
    # True while this rank leaves: all ranks have finished, and will make their models equal after the drain.
    leaving = False

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """Call `step`, which updates `weights`. `late`: True if its gradients are older than the weights."""
        return step()

    def update_of_drain(self, weights: Weights, step: Callable[[], Any]) -> Any:
        """Call `step` as `update` does, for gradients that a drain returned."""
        return self.update(weights, step, True)

    def worked(self, weight: Any) -> None:
        """Note the weight of this rank's gradients in the current update."""

    def scaled(self, scale: Any) -> None:
        """Note the factor by which the loss of this update was scaled."""

    def look_ahead(self, weights: Weights, updates: Any) -> None:
        """Follow an update, made or skipped, after which `updates` updates are in flight."""

    def rate(self, rate: Any) -> Any:
        """Return the learning rate of the current update, where `rate` is the optimizer's own."""
        return rate

    def real_weights(self) -> AbstractContextManager[None]:
        """Return a context in which weights have the values that the updates produced. Not in a graph."""
        return nullcontext()

    def drained(self, weights: Weights, updates: int) -> None:
        """Follow a drain that made `updates` updates, on all ranks. Not in a graph."""

    @property
    def left(self) -> int:
        """Number of this rank's updates that are not in the other ranks' models, as far as this rank knows."""
        return 0

    def meet_before_join(self) -> None:
        """Precede hvd.join() of this rank. Raises UserError if ranks that have joined would falsify an average."""

    def average(self, weights: Weights) -> None:
        """Make the weights of all ranks equal after dropping gradients that not all ranks had received."""

    def state(self) -> dict[str, Any] | None:
        """Return the state for continuing from here, of numbers and arrays; None if there is none."""
        return None

    def load(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Restore `state`; None: start from the beginning. Not in a graph."""

    def forget(self) -> None:
        """Reset, because ranks failed or changed. Not in a graph."""
