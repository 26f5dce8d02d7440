"""The network with no communication at all: the step time that an exchange without cost would reach."""

from __future__ import annotations

from paceline.benchmarks.assignment import Assignment
from paceline.benchmarks.sleeping import SleepingNetwork
from paceline.benchmarks.systems import Running


def setup(network: SleepingNetwork, assignment: Assignment) -> Running:
    """Forward and backward."""

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()

    return Running(step)
