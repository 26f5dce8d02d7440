"""What a stage does with the gradients of a mini-batch: their mean, clipping, T1, the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paceline.stages import corrections
from paceline.stages.execution.clipping import Clipping, Gradients
from paceline.stages.execution.versions import VersionedWeights


class Ties(Protocol):
    """Weights that stages share: one owns them, the others have copies."""

    def gather(self) -> None:
        """Add the gradients of copies to those of their owners."""
        ...

    def share(self) -> None:
        """Give copies the weights of their owners."""
        ...


class Updates:
    """Applies the gradients of mini-batches to one stage.

    `step`: the optimizer's, with learning rates times what it is given; the gradients are used up by it.
    `asynchronous`: updates so far under an asynchronous schedule, which T1 counts.
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
        """Updates that belong to no mini-batch of the schedule: `apply` is given the factor of learning rates."""
        factor = 1.0
        if not synchronous:
            factor = corrections.learning_rate_factor(self._tau, self.asynchronous, self._annealing)
        self._weights.update(lambda: apply(factor), keep=False, as_previous=False)

    def apply(self, synchronous: bool, keep: bool, as_previous: bool, minibatches: int) -> None:
        """One update, after the last backward pass that it takes. `keep`, `as_previous`: of VersionedWeights.
        `minibatches`: gradients are sums over so many, whose mean is taken.
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
