"""What a check says: how bad it is, what was found, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """How bad a finding is; the worst one's value is doctor's exit code. 2 means wrong words on the command line."""

    OK = 0
    WARNING = 1  # works, or may work, but not as it should
    ERROR = 3  # ranks will not start, or will not find each other


@dataclass(frozen=True)
class Finding:
    """One thing looked at; a remedy comes with everything that is not OK."""

    what: str
    severity: Severity
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        assert bool(self.remedy) == (self.severity is not Severity.OK), self


def ok(what: str, found: str) -> Finding:
    """Nothing to be done."""
    return Finding(what, Severity.OK, found)


def warning(what: str, found: str, remedy: str) -> Finding:
    """Works, or may work, but not as it should."""
    return Finding(what, Severity.WARNING, found, remedy)


def error(what: str, found: str, remedy: str) -> Finding:
    """Ranks will not start, or will not find each other."""
    return Finding(what, Severity.ERROR, found, remedy)


def worst(findings: Sequence[Finding]) -> Severity:
    """The severity of the worst; OK for none."""
    return max((finding.severity for finding in findings), default=Severity.OK)
