"""Instructions of a stage."""

from __future__ import annotations

import enum
from typing import NamedTuple

ALL = -1  # `microbatch` of an instruction for a whole mini-batch


class Kind(enum.Enum):
    """Kind of an instruction, with its dependencies.

    FORWARD needs the activations of the previous stage; BACKWARD those of its own FORWARD and the gradients of the next
    stage. UPDATE applies the sum of a mini-batch's gradients to the stage's weights and needs no other stage.
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Instruction(NamedTuple):
    """One instruction of a stage.

    Mini-batches count from 0 since the start or the last drain, micro-batches from 0 within theirs; `microbatch` is ALL
    for an UPDATE.
    """

    kind: Kind
    minibatch: int
    microbatch: int = ALL

    def __str__(self) -> str:
        of = f"mini-batch {self.minibatch}"
        return f"{self.kind.name} of " + (of if self.microbatch == ALL else f"micro-batch {self.microbatch} of {of}")
