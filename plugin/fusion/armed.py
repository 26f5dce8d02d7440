"""Armed steps of a library: whether steps are negotiated once, and if not, why (bridge/armed)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

# Messages behind the first group that may be under way together (bridge/armed/armed.h, kTogether).
TOGETHER = 2
# By number: core/armed/step_watch.h, StepWatch::State.
STATES = ("off", "watching", "proved", "armed", "running")
# By number: core/armed/step_watch.h, Unarmed.
REASONS = (
    "",
    "no plan of several messages is followed, or not all ranks have PACELINE_ARMED=yes",
    "too few equal steps have been seen",
    "a step was without some group of the plan, or had one in parts",
    "groups of a step came in another order than the plan's",
    "other operations came between the groups of a step",
    "steps differed, in gradients, sizes, types or operations",
    "a message cannot go without negotiation: not a sum of floating-point numbers in CPU memory, or one with a codec",
    "armed steps were given up too often",
)
# By number: core/armed/armed_step.h, Attention.
ATTENTION = (
    "",
    "a gradient did not come in time",
    "another operation was waited for before the step's last gradient",
    "a gradient came twice before another one came",
    "a gradient changed its shape, type, operation or codec",
    "gradients were handed in before those of the first group",
    "this rank has joined",
    "this rank shuts down",
    "another rank gave them up",
)
GIVEN_UP = REASONS[8]
OTHER_SET = "only the process set of all ranks has armed steps"


@dataclass(frozen=True)
class ArmedReport:
    """Armed steps of this world, as this rank sees them (docs/armed.md).

    - `state`: "off", "watching" (steps are compared), "proved" (the next but one is armed), "armed", "running".
    - `reason`: why steps are not armed; empty if they are. `given_up_because`: why this rank last gave up one that was.
    - `steps`: those that were negotiated once; `messages`: what went in them without; `given_up`: armed steps that were
      negotiated to their end after all.
    """

    state: str = "off"
    reason: str = REASONS[1]
    given_up_because: str = ""
    steps: int = 0
    messages: int = 0
    given_up: int = 0

    def __str__(self) -> str:
        ended = f", {self.given_up} given up ({self.given_up_because})" if self.given_up else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.state}{why}; {self.steps} steps{ended}"


def armed(library: ctypes.CDLL) -> ArmedReport:
    """Of a library that is loaded, in the process set of all ranks."""
    out = (ctypes.c_int64 * 6)()
    library.horovod_paceline_armed_status(out)
    state, why, attention, steps, messages, given_up = out
    return ArmedReport(STATES[state], REASONS[why], ATTENTION[attention], steps, messages, given_up)
