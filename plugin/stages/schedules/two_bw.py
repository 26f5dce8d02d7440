"""Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021: PipeDream-2BW."""

from __future__ import annotations

from paceline.stages.schedule import Schedule


class TwoBW(Schedule):
    """No flush; both passes of mini-batch t use version t - 1 of the weights on every stage.

    Two versions are therefore enough, and all gradients are late by one update. The paper requires N >= P; N = P - 1 is
    enough. With fewer micro-batches no stage may be more than N ahead, so that version t - 1 exists, and the pipeline
    has bubbles.
    """

    name = "2bw"
    summary = "no flush; two versions of the weights, all gradients late by one update"
    synchronous = False
    backward_weights = "forwards"

    def __init__(self, stages: int, microbatches: int) -> None:
        super().__init__(stages, microbatches)
        # A single stage waits for no other: plain training.
        self.forward_weights = "previous" if stages > 1 else "newest"

    def ahead(self, stage: int) -> int:
        """Return one for each stage that follows, across the ends of mini-batches; fewer with N < P - 1.

        These are spread evenly: stages that are equally far ahead process a micro-batch one after the other.
        """
        return (self.stages - 1 - stage) * min(self.stages, self.microbatches + 1) // self.stages
