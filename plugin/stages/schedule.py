"""Base class of the schedules of pipeline stages.

P stages and N micro-batches per mini-batch, as in the papers; stages are 0 .. P-1 here, where papers have i = 1 .. P.
Micro-batches are numbered through all mini-batches: *number* = mini-batch * N + micro-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal

from paceline.errors import UserError
from paceline.stages.instructions import Instruction, Kind


class Schedule(ABC):
    """Order of each stage's instructions, and the weights that they use; their times follow from the data.

    Every stage runs some forward passes ahead, then one backward and one forward pass in turn. Backward passes keep the
    order of micro-batches, so that gradients are summed as in one process that accumulates them. An UPDATE follows the
    last backward pass of its mini-batch. Schedules differ in the number of passes that stages are ahead, in a flush at
    the end of mini-batches, and in the weights of passes. The version of weights is the number of earlier updates.

    Raises UserError unless P and N are whole numbers of at least 1.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    # True if every mini-batch ends with its updates done on all stages: no weights are late.
    synchronous: ClassVar[bool]
    # "newest": the current version. "previous": version t - 1 for all of mini-batch t (0 for the first), on all stages.
    forward_weights: Literal["newest", "previous"] = "newest"
    # "newest": the current version, so that no other is kept. "forwards": the version of the micro-batch's FORWARD.
    backward_weights: Literal["newest", "forwards"] = "newest"

    def __init__(self, stages: int, microbatches: int) -> None:
        for what, value in (("stages", stages), ("micro-batches", microbatches)):
            if not isinstance(value, int) or value < 1:
                raise UserError(
                    f"The schedule {self.name} cannot have {value!r} {what}.", "Give a whole number of at least 1."
                )
        self.stages = stages
        self.microbatches = microbatches

    @abstractmethod
    def ahead(self, stage: int) -> int:
        """Return the stage's lead: FORWARDs ahead of its BACKWARDs, at most the lead of the previous stage."""

    @property
    def loss_lag(self) -> int:
        """Lag of the loss in steps: step t returns the loss of mini-batch max(0, t - loss_lag).

        Stage 0 then knows it without a wait, because the last stage had it before it sent the gradients that the step's
        last BACKWARD needs.
        """
        return self.loss_lag_of(self.microbatches)

    def loss_lag_of(self, microbatches: int) -> int:
        """Return the lag if a step has this number of micro-batches, which may differ from a mini-batch's."""
        return 0 if self.synchronous else -(-self.ahead(0) // microbatches)

    def of_step(self, stage: int, step: int) -> tuple[Instruction, ...]:
        """Return the stage's instructions in a step, counted from 0 since the start or the last drain.

        They are the FORWARDs of the step's mini-batch, and the BACKWARDs and UPDATEs that are due.
        """
        first = step * self.microbatches
        return self.of_microbatches(stage, first, first + self.microbatches)

    def of_microbatches(self, stage: int, first: int, end: int) -> tuple[Instruction, ...]:
        """Return the instructions for FORWARDs `first` to `end` - 1; a step may be part of a mini-batch or several.

        A synchronous schedule has a flush after each such step.
        """
        return tuple(self._in_turn(self.ahead(stage), first, end, first if self.synchronous else 0))

    def drain(self, stage: int, steps: int) -> tuple[Instruction, ...]:
        """Return the BACKWARDs and UPDATEs left after `steps` steps. Afterwards counts start from 0."""
        return self.drain_after(stage, steps * self.microbatches)

    def drain_after(self, stage: int, end: int) -> tuple[Instruction, ...]:
        """Return the BACKWARDs and UPDATEs left after FORWARDs up to `end` - 1.

        If the last mini-batch is incomplete, an UPDATE applies its gradients so far.
        """
        left = () if self.synchronous else range(max(0, end - self.ahead(stage)), end)
        minibatch, begun = divmod(end, self.microbatches)
        return (*self._backwards(left), *([Instruction(Kind.UPDATE, minibatch)] if begun else []))

    def forward_version(self, minibatch: int, updates: int) -> int:
        """Return the version of the weights in a FORWARD of this mini-batch, after `updates` updates of its stage."""
        return updates if self.forward_weights == "newest" else max(0, minibatch - 1)

    def backward_version(self, forwards: int, updates: int) -> int:
        """Return the version in a BACKWARD whose FORWARD used version `forwards`, after `updates` updates."""
        return updates if self.backward_weights == "newest" else forwards

    def _in_turn(self, ahead: int, first: int, end: int, least: int) -> Iterator[Instruction]:
        """Yield FORWARDs first .. end-1, each with the BACKWARD due after it unless its number is below `least`.

        A flush adds the other BACKWARDs up to end-1.
        """
        for number in range(first, end):
            yield Instruction(Kind.FORWARD, *divmod(number, self.microbatches))
            if number - ahead >= least:
                yield from self._backwards((number - ahead,))
        if self.synchronous:
            yield from self._backwards(range(max(least, end - ahead), end))

    def _backwards(self, numbers: Iterable[int]) -> Iterator[Instruction]:
        for number in numbers:
            minibatch, microbatch = divmod(number, self.microbatches)
            yield Instruction(Kind.BACKWARD, minibatch, microbatch)
            if microbatch == self.microbatches - 1:
                yield Instruction(Kind.UPDATE, minibatch)
