"""Armed steps of a library: whether steps are negotiated once, and if not, why (bridge/armed)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from paceline.native.library import read

NO_PLAN = "no plan of several messages is followed, or not all ranks ask for armed steps (PACELINE_FUSION=optimal)"
OTHER_SET = "only the process set of all ranks has armed steps"


@dataclass(frozen=True)
class ArmedReport:
    """Armed steps of this world, as this rank sees them (docs/methods/armed.md).

    - `state`: "off", "watching" (steps are compared), "proved" (the next but one is armed), "armed", "running".
    - `reason`: why steps are not armed; empty if they are. `given_up_because`: why this rank last gave up one that was.
    - `steps`: those that were negotiated once; `messages`: what went in them without; `given_up`: armed steps that were
      negotiated to their end after all; `gave_up`: that was so too often, and there are none with this plan.
    """

    state: str = "off"
    reason: str = NO_PLAN
    given_up_because: str = ""
    steps: int = 0
    messages: int = 0
    given_up: int = 0
    gave_up: bool = False

    def __str__(self) -> str:
        ended = f", {self.given_up} given up ({self.given_up_because})" if self.given_up else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.state}{why}; {self.steps} steps{ended}"


def armed(library: ctypes.CDLL) -> ArmedReport:
    """Of a library that is loaded, in the process set of all ranks."""
    return ArmedReport(**(read(library, "armed_status") or {}))
