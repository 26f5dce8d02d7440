"""Faults of Paceline that are known: the problems that a case may have, and nothing else.

The list is strict: a case that has none of its known problems any more fails, so that its line is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.sentences import Action, Moment


@dataclass(frozen=True)
class Known:
    """Cases and the pattern of all their problems. `always`: each of these cases has them."""

    reason: str
    matches: Callable[[Case], bool]
    problem: str
    always: bool = True


KNOWN = (
    Known(
        "of a rank that is lost while ranks connect, Gloo reports the address of a connection",
        lambda case: case.fault.moment is Moment.INIT and case.fault.action is not Action.SHAPE,
        r"had an error that names no rank: Rank \d+ of \d+ could not connect",
        always=False,
    ),
)


def unknown(case: Case, problems: list[str]) -> tuple[list[str], str]:
    """Return the problems that are not known, and the reason of those that are ("" if there are none)."""
    (known, *_) = [*(one for one in KNOWN if one.matches(case)), None]
    if known is None:
        return problems, ""
    left = [one for one in problems if re.search(known.problem, one, re.DOTALL) is None]
    return left, known.reason if len(left) < len(problems) else ""


def passes_unexpectedly(case: Case, problems: list[str]) -> bool:
    """True if the case is on the list and has no problem."""
    if case.fault.moment is Moment.SHUTDOWN:  # the others may have finished before
        return False
    return not problems and any(one.matches(case) and one.always for one in KNOWN)
