"""Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019."""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class GPipe(Schedule):
    """All FORWARDs of a mini-batch, then all its BACKWARDs. The paper's go backwards through micro-batches, too; ours
    keep their order, for sums of gradients to be those of one process; the times are the same.
    """

    name = "gpipe"
    summary = "all forward passes of a mini-batch, then all backward passes"
    synchronous = True

    def ahead(self, stage: int) -> int:
        """All of them, on every stage."""
        return self.microbatches
