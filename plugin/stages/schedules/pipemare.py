"""Yang et al., "PipeMare: Asynchronous Pipeline Parallel DNN Training", MLSys 2021."""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class PipeMare(Schedule):
    """No flush and one copy of the weights: BACKWARDs take the newest, FORWARDs of early stages had older ones. What is
    done about that is in corrections.py.
    """

    name = "pipemare"
    summary = "no flush, one copy of the weights; late gradients are corrected"
    synchronous = False

    def ahead(self, stage: int) -> int:
        """One for each stage that follows, across the ends of mini-batches."""
        return self.stages - 1 - stage
