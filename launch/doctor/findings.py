"""Findings of doctor's checks: severity, observation and remedy."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """Severity of a finding. The largest value is doctor's exit code; 2 is reserved for wrong command lines."""

    OK = 0
    WARNING = 1  # works, or may work, but not as intended
    ERROR = 3  # ranks will not start, or will not find each other


@dataclass(frozen=True)
class Finding:
    """Result of one check; every finding that is not OK has a remedy."""

    what: str
    severity: Severity
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        assert bool(self.remedy) == (self.severity is not Severity.OK), self


def ok(what: str, found: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(what, Severity.OK, found)


def warning(what: str, found: str, remedy: str) -> Finding:
    """Return a finding about a setup that works, or may work, but not as intended."""
    return Finding(what, Severity.WARNING, found, remedy)


def error(what: str, found: str, remedy: str) -> Finding:
    """Return a finding that keeps ranks from starting or from finding each other."""
    return Finding(what, Severity.ERROR, found, remedy)


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the highest severity; OK without findings."""
    return max((finding.severity for finding in findings), default=Severity.OK)
