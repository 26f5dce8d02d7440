"""What an exchange does around the updates of an optimizer, beside changing their gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from paceline.exchange.wire import Weights


class AroundUpdates:
    """Nothing; subclasses compensate for staleness, or average models."""

    # Where a saved state has that of this.
    key = ""
    # Whether this rank leaves: all ranks are through, and make their models equal after all has been drained.
    leaving = False

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """Call `step`, which updates `weights`. `late`: whether its gradients are older than the weights."""
        return step()

    def update_of_drain(self, weights: Weights, step: Callable[[], Any]) -> Any:
        """The same for gradients that a drain has taken out."""
        return self.update(weights, step, True)

    def worked(self, weight: Any) -> None:
        """Gradients of an update had this weight here."""

    def scaled(self, scale: Any) -> None:
        """The loss of this update was multiplied by `scale`."""

    def look_ahead(self, weights: Weights, updates: Any) -> None:
        """After an update, or one that was left out, so many updates being in flight."""

    def rate(self, rate: Any) -> Any:
        """The learning rate of the update that is made now, where the optimizer's own is `rate`."""
        return rate

    def real_weights(self) -> AbstractContextManager[None]:
        """A context in which weights are what the updates made of them. Not in a graph."""
        return nullcontext()

    def drained(self, weights: Weights, updates: int) -> None:
        """A drain has made so many updates, on all ranks. Not in a graph."""

    @property
    def left(self) -> int:
        """How many updates of this rank are not in the models of the others, as far as it knows by itself."""
        return 0

    def average(self, weights: Weights) -> None:
        """Make the weights of all ranks equal, after gradients were dropped that not all ranks had been given."""

    def state(self) -> dict[str, Any] | None:
        """What a run that goes on from here needs, numbers and arrays; None if that is nothing."""
        return None

    def load(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Go on where `state` was taken; None: from the beginning. Not in a graph."""

    def forget(self) -> None:
        """Begin anew: the ranks failed or changed. Not in a graph."""
