"""Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019."""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class PipeDream(Schedule):
    """No flush; weights are stashed, so that a micro-batch has the same weights in both passes.

    The paper's vertical sync is omitted: the delay of weights differs between stages.
    """

    name = "pipedream"
    summary = "no flush; keeps the weights of each forward pass for its backward pass"
    synchronous = False
    backward_weights = "forwards"

    def ahead(self, stage: int) -> int:
        """Return one for each stage that follows, across the ends of mini-batches."""
        return self.stages - 1 - stage
