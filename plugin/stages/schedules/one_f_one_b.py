"""One forward pass, one backward pass, with a flush.

Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, call it PipeDream-Flush.
"""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class OneFOneB(Schedule):
    """1F1B: GPipe's times and weights, with activations of P - stage micro-batches instead of N."""

    name = "1f1b"
    summary = "one forward, one backward pass in turn; mini-batches end with a flush"
    synchronous = True

    def ahead(self, stage: int) -> int:
        """Return one for each stage that follows, at most N."""
        return min(self.stages - 1 - stage, self.microbatches)
