"""Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019."""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class GPipe(Schedule):
    """All FORWARDs of a mini-batch, then all its BACKWARDs.

    The paper reverses the order of micro-batches in the backward pass. Here they keep their order, so that sums of
    gradients equal those of one process; the times are the same.
    """

    name = "gpipe"
    summary = "all forward passes of a mini-batch, then all backward passes"
    synchronous = True

    def ahead(self, stage: int) -> int:
        """Return N on every stage."""
        return self.microbatches
