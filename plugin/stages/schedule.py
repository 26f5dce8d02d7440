"""What all schedules of pipeline stages have in common.

P stages and N micro-batches per mini-batch, as in the papers; stages are 0 .. P-1 here, where papers have i = 1 .. P.
Micro-batches are numbered on through all mini-batches: *number* = mini-batch * N + micro-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal

from paceline.errors import UserError
from paceline.stages.instructions import Instruction, Kind


class Schedule(ABC):
    """Which stage does what, in which order, at which weights; when follows from the data.

    Every stage runs some forward passes ahead, then one backward and one forward pass in turn; backward passes keep the
    order of micro-batches, so that gradients add up as in one process that accumulates them. An UPDATE follows the
    last backward pass of its mini-batch. Schedules differ in how far stages run ahead, whether mini-batches end with
    a flush, and at which weights passes are. The version of weights is the number of updates done before.

    Raises UserError unless P and N are whole numbers of at least 1.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    # Whether every mini-batch ends with its updates done on all stages: no weights are late.
    synchronous: ClassVar[bool]
    # "newest": those at the moment. "previous": version t - 1 for all of mini-batch t (0 for the first), on all stages.
    forward_weights: Literal["newest", "previous"] = "newest"
    # "newest": those at the moment, so that no other version is kept. "forwards": those of the micro-batch's FORWARD.
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
        """FORWARDs that the stage runs ahead of its BACKWARDs; no more than on the stage before it."""

    @property
    def loss_lag(self) -> int:
        """Step t returns the loss of mini-batch max(0, t - loss_lag): stage 0 then knows it without a wait, because the
        last stage had it before it sent the gradients that the step's last BACKWARD needs.
        """
        return self.loss_lag_of(self.microbatches)

    def loss_lag_of(self, microbatches: int) -> int:
        """The same where a step has so many micro-batches, whatever part of a mini-batch that is."""
        return 0 if self.synchronous else -(-self.ahead(0) // microbatches)

    def of_step(self, stage: int, step: int) -> tuple[Instruction, ...]:
        """What the stage does in its step-th step, from 0, since the start or the last drain: the FORWARDs of the
        mini-batch that it was given, and those BACKWARDs and UPDATEs that are due.
        """
        first = step * self.microbatches
        return self.of_microbatches(stage, first, first + self.microbatches)

    def of_microbatches(self, stage: int, first: int, end: int) -> tuple[Instruction, ...]:
        """The same for FORWARDs `first` to `end` - 1, where steps are parts of mini-batches, or several of them; a
        flush comes after each such step.
        """
        return tuple(self._in_turn(self.ahead(stage), first, end, first if self.synchronous else 0))

    def drain(self, stage: int, steps: int) -> tuple[Instruction, ...]:
        """What is left to do after so many steps: BACKWARDs and UPDATEs alone. Afterwards counting begins anew."""
        return self.drain_after(stage, steps * self.microbatches)

    def drain_after(self, stage: int, end: int) -> tuple[Instruction, ...]:
        """The same after FORWARDs up to `end` - 1. Where the last mini-batch is not complete, there is an UPDATE by
        what has come of it.
        """
        left = () if self.synchronous else range(max(0, end - self.ahead(stage)), end)
        minibatch, begun = divmod(end, self.microbatches)
        return (*self._backwards(left), *([Instruction(Kind.UPDATE, minibatch)] if begun else []))

    def forward_version(self, minibatch: int, updates: int) -> int:
        """The version of the weights that a FORWARD of this mini-batch takes, after so many updates of its stage."""
        return updates if self.forward_weights == "newest" else max(0, minibatch - 1)

    def backward_version(self, forwards: int, updates: int) -> int:
        """The version that a BACKWARD takes whose FORWARD had version `forwards`, after so many updates."""
        return updates if self.backward_weights == "newest" else forwards

    def _in_turn(self, ahead: int, first: int, end: int, least: int) -> Iterator[Instruction]:
        """FORWARDs first .. end-1, each with the BACKWARD due after it unless its number is below `least`; with a flush
        the other BACKWARDs up to end-1.
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
