"""Update of a stage with the gradients of a mini-batch: mean, clipping, T1, the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paceline.stages import corrections
from paceline.stages.execution.clipping import Clipping, Gradients
from paceline.stages.execution.versions import VersionedWeights


class Ties(Protocol):
    """Weights that stages share: one stage owns them, the others have copies."""

    def gather(self) -> None:
        """Add the gradients of copies to those of their owners."""
        ...

    def share(self) -> None:
        """Send the owners' weights to the copies."""
        ...


class Updates:
    """Application of the gradients of mini-batches to one stage.

    `step`: the optimizer's step, given the factor of learning rates; it consumes the gradients. `asynchronous`: number
    of updates so far under an asynchronous schedule, which T1 uses.
    """

    def __init__(
        self,
        weights: VersionedWeights,
        step: Callable[[float], None],
        gradients: Gradients,
        clipping: Clipping | None,
        annealing_updates: int,
        tau_forward: float,
        ties: Ties | None = None,
    ) -> None:
        self._ties = ties
        self.asynchronous = 0
        self._weights, self._step, self._gradients, self._clipping = weights, step, gradients, clipping
        self._annealing, self._tau = annealing_updates, tau_forward

    def between(self, apply: Callable[[float], None], synchronous: bool) -> None:
        """Make updates outside the schedule's mini-batches: `apply` gets the factor of learning rates."""
        factor = 1.0
        if not synchronous:
            factor = corrections.learning_rate_factor(self._tau, self.asynchronous, self._annealing)
        self._weights.update(lambda: apply(factor), keep=False, as_previous=False)

    def apply(self, synchronous: bool, keep: bool, as_previous: bool, minibatches: int) -> None:
        """Make one update, after its last backward pass.

        `keep`, `as_previous`: see VersionedWeights. `minibatches`: number of mini-batches in the gradients' sum, which
        is divided by it.
        """
        if self._ties is not None:
            self._ties.gather()
        if minibatches > 1:
            self._gradients.divide(minibatches)
        if self._clipping is not None:
            self._clipping.clip()
        factor = 1.0
        if not synchronous:
            factor = corrections.learning_rate_factor(self._tau, self.asynchronous, self._annealing)
            self.asynchronous += 1
        self._weights.update(lambda: self._step(factor), keep, as_previous)
        if self._ties is not None:
            self._ties.share()
