"""Figures of one system in one turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Turn:
    """Figures by name, per step or per call; None for a figure that the system does not count.

    `details` have no median: a plan, or the copies of weights of each stage. A report shows the last turn's.
    """

    figures: Mapping[str, float | None]
    details: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, figure: str) -> float:
        value = self.figures[figure]
        assert value is not None, f"ratios are formed of {figure}, which a system does not count"
        return value
