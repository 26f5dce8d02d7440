"""What is measured, and what the controller and a rank tell each other; beside Ready and WarmUp of ../assignment.py."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.examples.benchmarks.harness.assignment import Counters
from paceline.examples.benchmarks.scale.threads import Used

# The plan of merging that a system's ranks follow, in the folder that they share.
PLAN_FILE = "plan.json"
# Of a step's messages: seconds of coordination and of travelling.
StepTimes = tuple[tuple[float, float], ...]
_NAME = "scale.part{part:02}.tensor{index:04}"


@dataclass(frozen=True)
class Case:
    """A step of `tensors` gradients of `size_bytes` each, in `parts` parts. A part is waited for before the next one is
    handed in.
    """

    tensors: int
    parts: int
    size_bytes: int

    @property
    def names(self) -> list[list[str]]:
        """Of the tensors of each part, in the order in which they are handed in. The first parts have one more, where
        parts cannot be equal.
        """
        least, more = divmod(self.tensors, self.parts)
        return [
            [_NAME.format(part=part, index=index) for index in range(least + (part < more))]
            for part in range(self.parts)
        ]


@dataclass(frozen=True)
class Steps:
    """Make one step that is not measured, then `steps` that are."""

    steps: int


@dataclass(frozen=True)
class Stepped:
    """What `steps` steps of one rank took in all: wall clock without the pauses between them, the whole process, and
    Horovod's background thread.

    `messages` has for each step, and in it for each message in their order, seconds of coordination (in which something
    waits to travel and nothing does) and seconds that it travelled. `counters`, and it, are None where Horovod has no
    hook points.
    """

    steps: int
    wall_s: float
    process: Used
    background: Used
    counters: Counters | None
    messages: tuple[StepTimes, ...] | None


@dataclass(frozen=True)
class Rest:
    """Hand in nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Rested:
    """What one rank used meanwhile, all threads and Horovod's background thread."""

    seconds: float
    process: Used
    background: Used
