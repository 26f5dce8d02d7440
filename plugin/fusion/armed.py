"""State of armed steps in a library: negotiated once or not, and the reason (bridge/armed)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from paceline.native.library import read

NO_PLAN = "no plan of several messages is followed, or not all ranks ask for armed steps (PACELINE_FUSION=optimal)"
OTHER_SET = "only the process set of all ranks has armed steps"


@dataclass(frozen=True)
class ArmedReport:
    """Armed steps of this world on this rank (docs/methods/armed.md).

    Attributes:
        state: "off", "watching" (steps are compared), "proved" (the next step but one is armed), "armed", "running".
        reason: why steps are not armed; empty if they are.
        fallback_reason: why this rank last aborted an armed step.
        steps: number of armed steps, which were negotiated once.
        messages: number of their messages without negotiation.
        fallbacks: number of aborted armed steps, which were negotiated to their end.
        too_many_fallbacks: True if there were too many of these, and armed steps are off for this plan.
    """

    state: str = "off"
    reason: str = NO_PLAN
    fallback_reason: str = ""
    steps: int = 0
    messages: int = 0
    fallbacks: int = 0
    too_many_fallbacks: bool = False

    def __str__(self) -> str:
        ended = f", {self.fallbacks} fell back ({self.fallback_reason})" if self.fallbacks else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.state}{why}; {self.steps} steps{ended}"


def armed(library: ctypes.CDLL) -> ArmedReport:
    """Return the report of a loaded library, in the process set of all ranks."""
    return ArmedReport(**(read(library, "armed_status") or {}))
