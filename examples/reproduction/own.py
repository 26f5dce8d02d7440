"""Paceline's models against Paceline's own measurements: simulated over measured, from inputs in this repository.

Inputs are numbers of docs/measurements that a run printed apart from the value in question: costs of a message, a step
without communication, a rate of the network, a synchronous step. The rows are in own_steps.py, own_ranks.py and
own_network.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BENCHMARKS = "benchmarks.md"
NAME = "Simulated and measured here"
# Goals: median and worst deviation of all rows.
MEDIAN_WITHIN, WORST_WITHIN = 0.05, 0.15
NOTED_ABOVE = 0.10  # a row that deviates more has a note


@dataclass(frozen=True)
class OwnRow:
    """A measured quantity and its simulation, in one unit.

    `kind`: what is simulated, with its inputs. `note`: reason of a deviation.
    """

    kind: str
    quantity: str
    page: str
    measured: Callable[[], float]
    simulated: Callable[[], float]
    note: str = ""


@dataclass(frozen=True)
class OwnResult:
    """A row's values."""

    row: OwnRow
    measured: float
    simulated: float

    @property
    def ratio(self) -> float:
        """Simulated over measured."""
        return self.simulated / self.measured

    @property
    def off(self) -> float:
        """Distance from 1 of the ratio."""
        return abs(self.ratio - 1)
