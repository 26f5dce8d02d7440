"""PipeMare with an eager 1F1B order of FORWARDs.

Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys 2023, call such a 1F1B eager.
"""

from __future__ import annotations

from paceline.stages.schedules.pipemare import PipeMare


class EagerPipeMare(PipeMare):
    """PipeMare with stages two FORWARDs further ahead than the next, so that transfers overlap with computation.

    With equal stages, transfers of up to half a FORWARD and BACKWARD cost no time. Delays are those of PipeMare's
    paper, less the 1/N of a slot that does a FORWARD and a BACKWARD.
    """

    name = "pipemare_eager"
    summary = "as pipemare, twice as far ahead: transfers are hidden, gradients twice as late"

    def ahead(self, stage: int) -> int:
        """Return two for each stage that follows, across the ends of mini-batches."""
        return 2 * super().ahead(stage)
