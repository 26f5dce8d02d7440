"""Yang et al., "PipeMare: Asynchronous Pipeline Parallel DNN Training", MLSys 2021."""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class PipeMare(Schedule):
    """No flush and one copy of the weights: BACKWARDs use the newest, while FORWARDs of early stages used older ones.

    corrections.py has the corrections for this.
    """

    name = "pipemare"
    summary = "no flush, one copy of the weights; late gradients are corrected"
    synchronous = False

    def ahead(self, stage: int) -> int:
        """Return one for each stage that follows, across the ends of mini-batches."""
        return self.stages - 1 - stage
